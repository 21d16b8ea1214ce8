"""Kubernetes quantities, and what a pod asks for in all."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.manifests.pod_resources import quantity, read_pod, whole

_FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Fraction(1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")},
    **{f"e{power}": Fraction(10) ** power for power in range(-9, 10)},
    **{f"E+{power}": Fraction(10) ** power for power in range(4)},
}
GIB = 2**30


@given(
    st.integers(0, 10**6),
    st.one_of(st.none(), st.text("0123456789", max_size=9)),
    st.sampled_from(sorted(_FACTORS)),
    st.sampled_from(["", "+"]),
)
def test_a_quantity_is_exact_to_a_billionth_and_never_below_what_is_written(
    digits: int, decimals: str | None, suffix: str, sign: str
) -> None:
    number = str(digits) if decimals is None else f"{digits}.{decimals}"
    exact = min(Fraction(Decimal(number.rstrip("."))) * _FACTORS[suffix], Fraction(2**63 - 1))
    amount = Fraction(quantity(f"{sign}{number}{suffix}"))
    assert 0 <= amount - exact < Fraction(1, 10**9)
    if (exact * 10**9).denominator == 1:
        assert amount == exact


@given(st.text(st.sampled_from("0123456789.eE+-mkKMGiTPnu _\n٣x"), max_size=8))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        amount = quantity(text)
    except ValueError:
        return
    assert 0 <= amount <= 2**63 - 1


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("100m", "0.1"),
        (".5", "0.5"),
        ("1.", "1"),
        ("1.5Gi", str(3 * 2**29)),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", str(10**18)),
        ("12e-1", "1.2"),
        ("1n", "0.000000001"),
        ("0.1n", "0.000000001"),
        ("-0", "0"),
        ("1e999", str(2**63 - 1)),
        ("1e-999", "0.000000001"),
        (4, "4"),
        (0.1, "0.1"),
        (1e22, str(2**63 - 1)),
    ],
)
def test_quantities_as_kubernetes_reads_them(text: Any, amount: str) -> None:
    assert quantity(text) == Decimal(amount)


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1gi", "1K", "0x1", "1e", "-1", "4 cores", "1\n", None, True, [], {}]
)
def test_what_is_no_quantity_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity|is negative"):
        quantity(text)


@pytest.mark.parametrize("value", [-1, 1.0, "1", True, None, 2**31])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a count"):
        whole(value)


def container(restart: Any = None, limits: Any = None, **requests: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": "c", "resources": {"requests": requests}}
    if limits is not None:
        made["resources"]["limits"] = limits
    if restart:
        made["restartPolicy"] = restart
    return made


def test_containers_add_up_and_limits_stand_for_missing_requests() -> None:
    pod: Any = read_pod(
        {"containers": [container(cpu="500m", memory="1Gi"), container(limits={"cpu": 2, "memory": "1G"})]}
    )
    assert (pod.cpu, pod.memory, pod.missing) == (Decimal("2.5"), GIB + 10**9, ())
    pod = read_pod({"containers": [container(limits={"cpu": 8}, cpu=1)]})
    assert (pod.cpu, pod.missing) == (1, ("memory",))


def test_an_init_container_counts_where_it_takes_more_than_all_containers() -> None:
    main = [container(cpu=2, memory="4Gi"), container(cpu=1, memory="1Gi")]
    pod: Any = read_pod({"containers": main, "initContainers": [container(cpu=8, memory="1Gi")]})
    assert (pod.cpu, pod.memory_gib) == (8, 5)
    pod = read_pod({"containers": main, "initContainers": [container(cpu=1), container(cpu=2)]})
    assert pod.cpu == 3


def test_a_sidecar_adds_to_the_containers_and_to_what_starts_after_it() -> None:
    sidecar, main = container("Always", cpu=1), [container(cpu=2)]
    assert read_pod({"containers": main, "initContainers": [sidecar]}).cpu == 3
    assert read_pod({"containers": main, "initContainers": [container(cpu=3), sidecar]}).cpu == 3
    assert read_pod({"containers": main, "initContainers": [sidecar, container(cpu=3)]}).cpu == 4
    assert read_pod({"containers": main, "initContainers": [sidecar, container(cpu=3), sidecar]}).cpu == 4


def test_the_pods_own_resources_replace_the_sum_and_its_overhead_adds() -> None:
    pod: Any = read_pod(
        {"containers": [container(cpu=1), container(cpu=1)], "resources": {"requests": {"cpu": 6, "memory": "2Gi"}}}
    )
    assert (pod.cpu, pod.memory_gib, pod.missing) == (6, 2, ())
    assert read_pod({"containers": [container(cpu=1)], "overhead": {"cpu": "250m"}}).cpu == Decimal("1.25")


def test_huge_pages_are_memory_and_scratch_space_is_no_device() -> None:
    pod: Any = read_pod(
        {"containers": [container(cpu=1, memory="1Gi", **{"hugepages-2Mi": "1Gi", "ephemeral-storage": 9})]}
    )
    assert (pod.memory_gib, pod.devices) == (2, {})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "no containers"),
        ([], "is not a mapping"),
        ({"containers": {}}, "is not a list"),
        ({"containers": ["x"]}, "is not a mapping"),
        ({"containers": [{"resources": {"requests": {"cpu": "many"}}}]}, "cpu: 'many' is not a quantity"),
        ({"containers": [{"resources": {"requests": {"cpu": -1}}}]}, "negative"),
        ({"containers": [{"resources": []}]}, "is not a mapping"),
        ({"containers": [{}], "nodeSelector": 3}, "nodeSelector is not a mapping"),
        ({"containers": [{}], "affinity": {"nodeAffinity": 3}}, "nodeAffinity is not a mapping"),
    ],
)
def test_what_is_no_pod_is_refused_in_words(spec: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_pod(spec)
