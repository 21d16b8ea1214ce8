"""What a million tokens cost: by hand, and on a real Prometheus."""

from __future__ import annotations

import contextlib
import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from neuroscale.metering.allocation import Meter, Metered, Place
from neuroscale.metering.services import Estimate, ServiceFacts, key_of
from neuroscale.metering.tokens import Counted, TokenCost, count_tokens, token_costs
from neuroscale.metering.window import Window
from prometheus_lab import NAMESPACE, Server, running_prometheus

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=10))
ZERO = Decimal(0)
CHAT = Metered(
    *("pods", Place("prod", "one", "cc", "ann", "chat", "1"), Decimal("12.10"), Decimal("12.10"), ZERO, ZERO),
    *(Decimal(10), ZERO, Decimal(10)),
)


ONE_GPU = Estimate(Decimal("1.21"), 1, 1, Decimal(8))
ON_GPU = ServiceFacts("prod", "a-model", "nvidia-l4", estimate=ONE_GPU)


def priced(
    counted: Counted | None,
    weight: Decimal | None = None,
    cost: Metered = CHAT,
    facts: ServiceFacts | None = ON_GPU,
) -> TokenCost:
    known = {} if facts is None else {key_of(cost): facts}
    (found,) = token_costs(Meter(WINDOW, (cost,)), known, {("one", "chat"): counted} if counted else {}, weight)
    return found


def test_the_cost_is_divided_by_all_tokens() -> None:
    found = priced(Counted(Decimal(1_000_000), Decimal(1_000_000), Decimal(10)))
    assert (found.each, found.prompt, found.generation, found.model) == (Decimal("6.05"), None, None, "a-model")


def test_input_and_output_apart_add_up_to_the_cost() -> None:
    """12.10 = 3 x 1.10 + 2 x 4.40: an output token costs four times an input token."""
    found = priced(Counted(Decimal(3_000_000), Decimal(2_000_000), Decimal(10)), Decimal(4))
    assert (found.prompt, found.generation) == (Decimal("1.10"), Decimal("4.40"))


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        (None, "Prometheus has no usable samples of its servers"),
        (Counted(ZERO, ZERO, Decimal(10)), "its servers counted no tokens"),
        (Counted(Decimal(9), Decimal(9), ZERO), "for 0.0 of the 10.0 hours of replicas that OpenCost charged"),
        (
            Counted(Decimal(9), Decimal(9), Decimal("8.9")),
            "for 8.9 of the 10.0 hours of replicas that OpenCost charged",
        ),
        (Counted(Decimal(9), Decimal(9), Decimal("11.2")), "OpenCost charged 10.0 of the 11.2 hours of replicas"),
    ],
)
def test_what_was_not_counted_has_no_price_and_says_why(counted: Counted | None, why: str) -> None:
    found = priced(counted, Decimal(4))
    assert (found.each, found.prompt, found.generation) == (None, None, None)
    assert why in found.why_unknown


MANY = Counted(Decimal(1_000_000), Decimal(1_000_000), Decimal(10))


def test_tokens_of_one_of_two_replicas_have_no_price() -> None:
    """Both replicas were there all the time, and only one was scraped: the price would be twice as high."""
    two = dataclasses.replace(CHAT, gpu_hours=Decimal(20))
    found = priced(MANY, cost=two)
    assert found.each is None
    assert "for 10.0 of the 20.0 hours of replicas that OpenCost charged" in found.why_unknown
    assert priced(dataclasses.replace(MANY, hours=Decimal(20)), cost=two).each == Decimal("6.05")


def test_replicas_of_several_gpus_count_once() -> None:
    pairs = ServiceFacts("prod", "a-model", "nvidia-l4", estimate=dataclasses.replace(ONE_GPU, gpus=2))
    two = dataclasses.replace(CHAT, gpu_hours=Decimal(20))
    assert priced(MANY, cost=two, facts=pairs).each == Decimal("6.05")
    assert priced(MANY, cost=two, facts=None).each is None


def test_hours_between_pods_that_paused_are_not_charged() -> None:
    """Pods ran from 0 to 1 and from 9 to 10; OpenCost's minutes are those of the whole span."""
    paused = dataclasses.replace(CHAT, gpu_hours=Decimal(2))
    assert priced(dataclasses.replace(MANY, hours=Decimal(2)), cost=paused).each == Decimal("6.05")


def test_a_price_below_a_cent_keeps_four_digits_and_the_cost_its_own() -> None:
    counted = Counted(Decimal(900_000_000), Decimal(30_000_000), Decimal(10))
    found = priced(counted, Decimal(4), cost=dataclasses.replace(CHAT, total=Decimal("10.98432")))
    assert (found.cost, found.each) == (Decimal("10.98432"), Decimal("0.01181"))
    assert found.prompt is not None
    assert found.generation is not None
    assert found.prompt * 900 + found.generation * 30 == pytest.approx(found.cost, rel=Decimal("0.001"))


ON_TPU = dataclasses.replace(
    CHAT, total=Decimal("2.93"), gpu=ZERO, cpu=Decimal("2.2"), gpu_hours=ZERO, cpu_core_hours=Decimal(70)
)
TPU = Estimate(Decimal("1.375"), 1, 0, Decimal(7))


@pytest.mark.parametrize(
    ("cost", "plan", "each"),
    [
        (ON_TPU, TPU, None),
        (ON_TPU, dataclasses.replace(TPU, hourly=None), None),
        # The nodes' price of CPU and memory holds the accelerator's.
        (dataclasses.replace(ON_TPU, total=Decimal("12.10")), TPU, Decimal("6.05")),
    ],
)
def test_an_accelerator_that_opencost_does_not_charge_leaves_tokens_without_a_price(
    cost: Metered, plan: Estimate, each: Decimal | None
) -> None:
    found = priced(MANY, cost=cost, facts=ServiceFacts("prod", "a-model", "tpu-v6e-1", "google.com/tpu", plan))
    assert found.each == each
    assert ("no hours of google.com/tpu" in found.why_unknown) is (each is None)


@pytest.mark.parametrize(
    "cost",
    [
        dataclasses.replace(CHAT, total=Decimal("9.5"), gpu=Decimal("9.5")),
        dataclasses.replace(ON_TPU, total=Decimal("12.10"), cpu=Decimal("2.21277")),
    ],
)
def test_opencosts_placeholders_give_no_price_of_tokens(cost: Metered) -> None:
    resource = "nvidia.com/gpu" if cost.gpu_hours else ""
    plan = ONE_GPU if cost.gpu_hours else dataclasses.replace(TPU, hourly=Decimal("1.21"))
    found = priced(MANY, cost=cost, facts=ServiceFacts("prod", "a-model", "any", resource, plan))
    assert (found.each, "placeholder" in found.why_unknown) == (None, True)


def test_a_swap_of_models_within_the_window_leaves_tokens_without_a_price() -> None:
    rows = [dataclasses.replace(CHAT, gpu_hours=Decimal(5), part=part) for part in (0, 1)]
    facts = {
        key_of(row): ServiceFacts("prod", f"model-{row.part}", "nvidia-l4", estimate=ONE_GPU) for row in reversed(rows)
    }
    meter = Meter(WINDOW, tuple(rows), cuts=(START + timedelta(hours=5),))
    (found,) = token_costs(meter, facts, {("one", "chat"): MANY})
    assert (found.each, found.model) == (None, "model-1")
    assert "its model changed within the window (model-0, then model-1)" in found.why_unknown


def test_what_runs_on_a_node_without_a_price_has_no_price_of_tokens() -> None:
    """The local meter charges some millionths of a dollar for such a node."""
    counted = {("one", "chat"): Counted(Decimal(9), Decimal(9), Decimal(10))}
    free = dataclasses.replace(CHAT, total=Decimal("0.00005"))
    (found,) = token_costs(Meter(WINDOW, (free,)), {}, counted)
    assert found.each is None
    assert "its nodes have no price" in found.why_unknown


@pytest.mark.tools
def test_a_real_prometheus_counts_tokens_through_a_restart(tmp_path: Path) -> None:
    chat, quiet, gone = Server("chat"), Server("quiet"), Server("gone")
    gone.close()
    servers = [chat, quiet, gone]
    with contextlib.closing(chat), contextlib.closing(quiet), running_prometheus(tmp_path, servers) as lab:
        total = 'sum(vllm:prompt_tokens_total{service="chat"})'
        lab.await_value(total, 0)
        lab.await_value('up{service="gone"}', 0)
        for _ in range(10):
            chat.page.request(0.1, 0.5, 0.01, 1000, 100)
        lab.await_value(total, 10_000)
        chat.page.__init__()  # type: ignore[misc]  # a new server process: its counters begin anew
        chat.page.request(0.1, 0.5, 0.01, 1000, 100)
        lab.await_value(total, 1000)
        now = datetime.fromtimestamp(lab.prometheus.now(), UTC)
        found = count_tokens(lab.prometheus, Window(now - timedelta(minutes=5), now))
    counted = found[NAMESPACE, "chat"]
    assert counted.prompt == pytest.approx(Decimal(11_000), rel=Decimal("0.25"))
    assert counted.generation == pytest.approx(counted.prompt / 10, rel=Decimal("0.01"))
    assert counted.hours <= Decimal(5) / 60
    assert counted.hours > 0
    assert found[NAMESPACE, "quiet"].prompt == 0
    # Prometheus tries to scrape it, and gets nothing.
    assert found[NAMESPACE, "gone"].hours == 0
    assert found[NAMESPACE, "quiet"].batch is None
