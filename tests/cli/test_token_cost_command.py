"""`neuroscale token-cost` with an OpenCost over HTTP; tests/metering/test_tokens.py counts with a real Prometheus."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from cluster_lab import run
from command_line import Said
from neuroscale.actions import chosen_metrics
from neuroscale.cli import token_cost
from neuroscale.metering.services import ServiceFacts
from neuroscale.metering.tokens import Counted
from opencost_answers import costs, envelope, inference_answer, key, model
from opencost_server import opencost_server
from roots import ROOT

MIXTURE = "google/gemma-4-26B-A4B-it"


def test_a_service_has_a_price_and_one_that_nobody_looked_at_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        key("chat", "one"): costs(11, 1),
        key("hidden", "one"): costs(20, 1),
        "__idle__": costs(0),
    }
    counted = {("one", "chat"): Counted(Decimal(3_000_000), Decimal(2_000_000), Decimal(1), 8.0)}
    facts = {("prod", "one", "chat", 0): ServiceFacts("prod", MIXTURE, "nvidia-l4")}
    monkeypatch.setattr(chosen_metrics, "service_facts", lambda metered, snapshot, environments: facts)
    monkeypatch.setattr(token_cost, "count_tokens", lambda prometheus, window: counted)
    with opencost_server(envelope(rows)) as url:
        asked = ("--opencost-url", url, "--prometheus-url", url, "--repository", ROOT, "--output-weight", "4")
        said = run("token-cost", "--window", "2026-11-01", *asked, "--json")
        shown = run("token-cost", "--window", "2026-11-01", *asked)
    hidden, chat = said.json["services"]
    assert (said.status, hidden["why_unknown"]) == (1, "Prometheus has no usable samples of its servers")
    assert hidden["usd_per_million"] is None
    assert [chat[f"usd_per_million{part}"] for part in ("", "_prompt", "_generation")] == ["2.20", "1.00", "4.00"]
    assert chat["experts_touched"] == pytest.approx(0.40, abs=0.005)  # 1 - (1 - 8/128)^8
    assert "8.0 requests ran at once" in shown.out
    assert "reads 40% of the 128 experts, not the 6% that one token takes" in shown.out
    assert "one/hidden has no price: Prometheus has no usable samples of its servers" in shown.out


def test_opencost_s_own_cost_of_tokens_stands_beside_where_the_server_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {("one", "chat"): Counted(Decimal(3_000_000), Decimal(2_000_000), Decimal(1), 8.0)}
    monkeypatch.setattr(chosen_metrics, "service_facts", lambda metered, snapshot, environments: {})
    monkeypatch.setattr(token_cost, "count_tokens", lambda prometheus, window: counted)
    rows = {key("chat", "one"): costs(11, 1), "__idle__": costs(0)}

    def asked(inference: tuple[int, str] | None, *more: str) -> Said:
        with opencost_server(envelope(rows), inference=inference) as url:
            places = ("--opencost-url", url, "--prometheus-url", url, "--repository", ROOT)
            return run("token-cost", "--window", "2026-11-01", *places, *more)

    own = (200, inference_answer(model("chat", "one", 15, 3_000_000, 2_000_000, 6, 9), model("lost", "one", 0, 5, 5)))
    told = asked(own, "--json").json
    chat, lost = told["opencost_inference"]["models"]
    assert told["services"][0]["usd_per_million"] == "2.20"
    assert [chat[f"usd_per_million{part}"] for part in ("", "_prompt", "_generation")] == ["3.00", "2.00", "4.50"]
    assert (lost["cost"], lost["usd_per_million"]) == (None, None)
    shown = asked(own).out
    assert "chat in one: 15.00 USD, 3.00 per million (2.00 in, 4.50 out, divided by compute_time)" in shown
    assert "lost in one: unknown, since OpenCost found no pods whose label names this model" in shown
    empty = asked((200, inference_answer()))
    assert "OpenCost names no model in 2026-11-01 00:00 to 2026-11-02 00:00 UTC" in empty.out
    older = asked(None, "--json").json
    assert (older["opencost_inference"]["available"], older["opencost_inference"]["fault"]) == (False, "")
    failed = asked((500, '{"code": 500, "message": "collecting metrics: no Prometheus"}'))
    assert failed.status == 0
    assert "OpenCost's own cost of tokens is not used: " in failed.out
    assert "collecting metrics: no Prometheus" in failed.out


def test_prices_that_nodes_without_a_price_lower_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = {("one", "chat"): Counted(Decimal(3_000_000), Decimal(2_000_000), Decimal(1), 8.0)}
    monkeypatch.setattr(chosen_metrics, "service_facts", lambda metered, snapshot, environments: {})
    monkeypatch.setattr(token_cost, "count_tokens", lambda prometheus, window: counted)
    monkeypatch.setattr(chosen_metrics, "local_state", lambda where: None)
    monkeypatch.setattr(chosen_metrics, "unpriced_in", lambda folder: ("simulated-a", "this-machine"))
    with opencost_server(envelope({key("chat", "one"): costs(11, 1), "__idle__": costs(0)})) as url:
        monkeypatch.setattr(chosen_metrics, "address_in", lambda folder: url)
        asked = ("token-cost", "--window", "2026-11-01", "--state", tmp_path, "--prometheus-url", url)
        found, shown = (run(*asked, "--repository", ROOT, *form) for form in (["--json"], []))
    told = "No price list has a price of simulated-a, this-machine: the price of tokens is too low"
    assert told in found.json["notes"][0]["text"]
    assert told in shown.out
    assert "nodes with accelerators are simulated" in shown.out


@pytest.mark.parametrize("weight", ["0", "-1", "four", "NaN", "1e3"])
def test_a_weight_that_is_not_a_number_above_0_is_told(weight: str) -> None:
    said = run("token-cost", "--window", "1h", "--output-weight", weight, "--repository", ROOT)
    assert (said.status, "--output-weight" in said.err) == (2, True)
