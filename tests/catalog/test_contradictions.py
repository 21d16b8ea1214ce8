"""What an entry claims is compared with what its config gives, and a claim that moves is told to a reviewer."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from neuroscale.catalog.loading import entry_of
from neuroscale.core.errors import InputError
from neuroscale.core.units import GIB
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.gate.value_differences import compared, entries_of
from neuroscale.repo.snapshot import MemorySnapshot
from platform_repository import CATALOG
from roots import ROOT

MODELS = "platform/catalog/models"
LLAMA_70B = f"{MODELS}/Llama-3.3-70B-Instruct.yaml"
WITH_FIGURES = f"{MODELS}/gemma-4-26B-A4B-it-qat-w4a16-ct.yaml"
Path = tuple[str | int, ...]


def values(path: str) -> dict[str, Any]:
    return dict(read_mapping((ROOT / path).read_text(), path).value)


def changed(path: str, place: Path, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(values(path))
    at: Any = made
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    return made


def problems(path: str, made: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Where, in which field, and what is wrong with an entry."""
    try:
        entry_of("models", dump(made), path)
    except InputError as error:
        return [(one.where, one.field, one.message) for one in error.problems]
    return []


def test_a_claimed_size_that_the_config_does_not_give_is_a_finding_with_both_figures() -> None:
    ((where, field, told),) = problems(LLAMA_70B, changed(LLAMA_70B, ("checkpoint", "download_gib", "value"), 14.1))
    assert (where, field) == (LLAMA_70B, "checkpoint.download_gib.value")
    assert "is 14.1, and the config gives 131.42" in told
    assert "70.55 billion parameters" in told


@pytest.mark.parametrize(
    ("path", "place", "value"),
    [
        (LLAMA_70B, ("checkpoint", "resident_gib", "value"), 14.1),
        (LLAMA_70B, ("checkpoint", "download_gib", "value"), 600.0),
        (LLAMA_70B, ("checkpoint", "quantization"), "fp8"),
        (LLAMA_70B, ("checkpoint", "quantization_group_size"), 128),
        (LLAMA_70B, ("checkpoint", "dtype"), "float32"),
        (LLAMA_70B, ("serving", "multimodal"), True),
        (LLAMA_70B, ("parameters", "published_total"), 7_000_000_000),
        (LLAMA_70B, ("parameters", "published_active"), 7_000_000_000),
        (WITH_FIGURES, ("checkpoint", "quantization_group_size"), None),
        (WITH_FIGURES, ("serving", "multimodal"), False),
        (WITH_FIGURES, ("parameters", "published_active"), 25_200_000_000),
    ],
)
def test_each_claim_that_a_config_decides_is_compared_with_it(path: str, place: Path, value: Any) -> None:
    assert not problems(path, values(path))
    field = ".".join(map(str, place))
    assert [(where, of) for where, of, _ in problems(path, changed(path, place, value))] == [(path, field)]


@pytest.mark.parametrize("factor", [0.91, 1.0, 1.24, 2.0])
def test_files_with_more_than_what_is_served_and_rounded_figures_are_no_contradiction(factor: float) -> None:
    assert not problems(LLAMA_70B, changed(LLAMA_70B, ("checkpoint", "download_gib", "value"), 131.4 * factor))


def numbers(value: Any, place: Path = ()) -> Iterator[Path]:
    """The places of the numbers in an entry."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, (*place, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place


@pytest.mark.parametrize("path", [WITH_FIGURES, f"{MODELS}/gpt-oss-20b.yaml", f"{MODELS}/DeepSeek-V3.yaml"])
@pytest.mark.parametrize("factor", [0.2, 5])
def test_no_number_of_an_entry_moves_unseen(path: str, factor: float) -> None:
    whole = values(path)
    counted = sum(CATALOG.models[whole["name"]].facts.weight_bytes.values()) / GIB
    for name in ("download_gib", "resident_gib", "host_memory_gib"):
        size = whole["checkpoint"][name]
        size["value"] = size["value"] or counted
    assert not problems(path, whole)
    before = entries_of(MemorySnapshot({path: dump(whole).encode()}), [path])[0]
    places = list(numbers(whole))
    assert len(places) > 15
    for place in places:
        made = copy.deepcopy(whole)
        at: Any = made
        for part in place[:-1]:
            at = at[part]
        number = at[place[-1]] * factor
        at[place[-1]] = int(number) if isinstance(at[place[-1]], int) else number
        if made == whole:
            continue
        after = entries_of(MemorySnapshot({path: dump(made).encode()}), [path])[0]
        told = [one.row for one in compared(before, after) if one.row is not None]
        assert told or problems(path, made), f"{place} times {factor} is neither a finding nor a notice"
