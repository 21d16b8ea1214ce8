"""What a million tokens cost: by hand, and on a real Prometheus."""

from __future__ import annotations

import contextlib
import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from neuroscale.metering.allocation import Meter, Metered, Place
from neuroscale.metering.services import ServiceFacts, key_of
from neuroscale.metering.tokens import Counted, TokenCost, count_tokens, token_costs
from neuroscale.metering.window import Window
from prometheus_lab import NAMESPACE, Server, running_prometheus

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=10))
ZERO = Decimal(0)
CHAT = Metered(
    "pods", Place("prod", "one", "cc", "ann", "chat", "1"), Decimal("12.10"), ZERO, ZERO, ZERO, ZERO, ZERO, Decimal(10)
)


def priced(counted: Counted | None, weight: Decimal | None = None) -> TokenCost:
    facts = {key_of(CHAT): ServiceFacts("prod", "a-model", "nvidia-l4")}
    (found,) = token_costs(Meter(WINDOW, (CHAT,)), facts, {("one", "chat"): counted} if counted else {}, weight)
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
        (None, "Prometheus has no samples of its servers"),
        (Counted(ZERO, ZERO, Decimal(10)), "its servers counted no tokens"),
        (Counted(Decimal(9), Decimal(9), Decimal("8.9")), "for 8.9 of the 10.0 hours that OpenCost charged"),
        (Counted(Decimal(9), Decimal(9), Decimal("11.2")), "OpenCost charged 10.0 of the 11.2 hours"),
    ],
)
def test_what_was_not_counted_has_no_price_and_says_why(counted: Counted | None, why: str) -> None:
    found = priced(counted, Decimal(4))
    assert (found.each, found.prompt, found.generation) == (None, None, None)
    assert why in found.why_unknown


def test_what_runs_on_a_node_without_a_price_has_no_price_of_tokens() -> None:
    """The local meter charges some millionths of a dollar for such a node."""
    counted = {("one", "chat"): Counted(Decimal(9), Decimal(9), Decimal(10))}
    free = dataclasses.replace(CHAT, total=Decimal("0.00005"))
    (found,) = token_costs(Meter(WINDOW, (free,)), {}, counted)
    assert found.each is None
    assert "its nodes have no price" in found.why_unknown


@pytest.mark.tools
def test_a_real_prometheus_counts_tokens_through_a_restart(tmp_path: Path) -> None:
    chat, quiet = Server("chat"), Server("quiet")
    with contextlib.closing(chat), contextlib.closing(quiet), running_prometheus(tmp_path, [chat, quiet]) as lab:
        total = 'sum(vllm:prompt_tokens_total{service="chat"})'
        lab.await_value(total, 0)
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
    assert found[NAMESPACE, "quiet"].prompt == 0
    assert found[NAMESPACE, "quiet"].batch is None
