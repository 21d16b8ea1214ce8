"""An environment that asks for certainty takes a sure choice while it costs little more, and names the cheaper one."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.catalog.settings import Certainty, Settings, load_settings
from neuroscale.core.errors import InputError
from neuroscale.planning.case import Case
from neuroscale.planning.choice import choose, risks
from neuroscale.planning.planner import plan
from neuroscale.planning.rejected_choices import not_chosen
from neuroscale.planning.speed import Estimate, Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.request.service_request import Override, Request
from platform_repository import CATALOG, SETTINGS
from roots import ROOT

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(autouse=True)
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An L4, and any other GPU alone, takes 2 s to the first token and everything else 0.1 s, for sure and whoever asks
    beside it, so that what the fit knows at present does not matter here."""

    def seconds(replica: ReplicaSpeed) -> float:
        alone = replica.device.family == "cuda" and replica.arguments.tensor_parallel_size == 1
        return 2.0 if alone or replica.device.name == "nvidia-l4" else 0.1

    def under(self: ReplicaSpeed, load: Load) -> SpeedUnderLoad:
        first, rate = Estimate(*[seconds(self)] * 3), Estimate(*[1000.0] * 3)
        return SpeedUnderLoad(load, "interpolated", (), None, first, first, None, None, None, rate, rate)

    def largest_users(self: ReplicaSpeed, *lengths: int, p95_ttft_seconds: float, most: int, **promise: float) -> int:
        return most if seconds(self) <= p95_ttft_seconds else 0

    monkeypatch.setattr(ReplicaSpeed, "under", under)
    monkeypatch.setattr(ReplicaSpeed, "largest_users", largest_users)


def ask(**changes: Any) -> Request:
    """64 users of Llama 3.1 8B in production who send 16,000 tokens and wait for a second."""
    fields: dict[str, Any] = {
        "service": "help-desk",
        "model": LLAMA,
        "team": "team-beta",
        "environment": "prod",
        "concurrent_users": 64,
        "longest_prompt_tokens": 16000,
        "longest_answer_tokens": 1024,
        "p95_ttft_seconds": 1.0,
        "availability": "high",
    }
    return Request.model_validate(fields | changes)


def with_certainty(certainty: Certainty | None, **changes: Any) -> Settings:
    """The settings with a production that asks for this certainty; `changes` replace others of its fields."""
    prod = SETTINGS.environments["prod"].model_copy(update={"certainty": certainty, **changes})
    return SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "prod": prod}})


def case_of(request: Request, the_settings: Settings) -> Case:
    environment = the_settings.environments[request.environment]
    return Case(request, CATALOG.models[request.model], request.environment, environment, CATALOG, {})


def test_production_asks_for_certainty_and_other_environments_do_not() -> None:
    asking = [name for name, environment in SETTINGS.environments.items() if environment.certainty is not None]
    assert asking == ["prod"]
    assert Certainty().price_factor == 2


def test_six_tpu_slices_of_low_confidence_give_way_to_a_sure_choice_which_names_them() -> None:
    cheapest = plan(ask(), CATALOG, with_certainty(None))
    assert (cheapest.accelerator, cheapest.replicas.min) == ("tpu-v6e-1", 6)
    assert (cheapest.verdict, cheapest.confidence) == ("tight", "low")

    made = plan(ask(), CATALOG, SETTINGS)
    assert (made.accelerator, made.accelerator_count) == ("nvidia-rtx-pro-6000", 2)
    assert (made.verdict, made.confidence) == ("fits", "medium")
    assert cheapest.cost.hourly is not None
    assert made.cost.hourly is not None
    assert cheapest.cost.hourly < made.cost.hourly < 2 * cheapest.cost.hourly
    (sentence,) = [reason for reason in made.reasons if reason.startswith("A cheaper choice works")]
    assert "1 x Google Cloud TPU v6e chip (slice of 1) with 6 replicas at 8.25 USD an hour" in sentence
    assert "its confidence is low (vLLM's overhead on such an accelerator was not measured)" in sentence
    assert "prod asks for certainty, and a surer choice costs less than 2 times as much" in sentence


def test_a_tight_choice_gives_way_to_one_that_is_not() -> None:
    request = ask(
        model="google/gemma-4-26B-A4B-it-qat-w4a16-ct",
        concurrent_users=16,
        longest_prompt_tokens=8000,
        longest_answer_tokens=1000,
        p95_ttft_seconds=10.0,
        availability="standard",
    )
    assert plan(request, CATALOG, with_certainty(None)).verdict == "tight"
    made = plan(request, CATALOG, SETTINGS)
    assert made.verdict == "fits"
    assert any("it is tight (" in reason for reason in made.reasons)


def test_a_sure_choice_that_costs_the_factor_or_more_is_named_and_not_taken() -> None:
    made = plan(ask(), CATALOG, with_certainty(Certainty(price_factor=1.5)))
    assert made.accelerator == "tpu-v6e-1"
    assert made.verdict == "tight"
    (sentence,) = [reason for reason in made.reasons if reason.startswith("Not sure: ")]
    assert "2 x NVIDIA RTX PRO 6000" in sentence
    assert "costs 1.5 times as much or more" in sentence


def test_where_nothing_has_a_price_the_first_that_works_stays() -> None:
    free = with_certainty(Certainty(), price_lists=(), accelerators=("tpu-v6e-1", "nvidia-l4", "nvidia-h100-80gb"))
    without = with_certainty(None, price_lists=(), accelerators=("tpu-v6e-1", "nvidia-l4", "nvidia-h100-80gb"))
    made, cheapest = plan(ask(), CATALOG, free), plan(ask(), CATALOG, without)
    assert (made.accelerator, made.accelerator_count) == (cheapest.accelerator, cheapest.accelerator_count)


def test_an_override_is_compared_with_what_the_planner_would_choose() -> None:
    override = Override.model_validate(
        {"field": "accelerator", "value": "tpu-v6e-1", "reason": "a trial of TPUs", "expires": date(2027, 1, 31)}
    )
    made = plan(ask(overrides=(override,)), CATALOG, SETTINGS)
    assert made.accelerator == "tpu-v6e-1"
    assert made.overrides[0].planned == "nvidia-rtx-pro-6000"


def test_what_was_not_chosen_carries_its_risk() -> None:
    request = ask()
    made = plan(request, CATALOG, SETTINGS)
    others = {one.label: one for one in not_chosen(request, CATALOG, SETTINGS, made).choices}
    slices = others["1 x Google Cloud TPU v6e chip (slice of 1)"]
    assert slices.against == ""
    assert slices.risks == ("its confidence is low (vLLM's overhead on such an accelerator was not measured)",)
    assert slices.hourly == Decimal("8.250")


@pytest.mark.parametrize("factor", [0, 1, 11, "two"])
def test_a_factor_that_means_nothing_is_refused_by_its_place(factor: object) -> None:
    text = (ROOT / "platform/settings.yaml").read_text(encoding="utf-8")
    assert "      price_factor: 2\n" in text
    text = text.replace("      price_factor: 2\n", f"      price_factor: {factor}\n")
    with pytest.raises(InputError) as caught:
        load_settings(MemorySnapshot({"platform/settings.yaml": text.encode()}))
    assert [problem.field for problem in caught.value.problems] == ["environments.prod.certainty.price_factor"]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from(sorted(CATALOG.models)),
    users=st.integers(1, 500),
    prompt=st.integers(1, 30_000),
    factor=st.floats(1.01, 10),
)
def test_no_affordable_choice_is_surer_than_the_one_taken(model: str, users: int, prompt: int, factor: float) -> None:
    request = ask(model=model, concurrent_users=users, longest_prompt_tokens=prompt, p95_ttft_seconds=60.0)
    choice = choose(case_of(request, with_certainty(Certainty(price_factor=factor))))
    chosen, working = choice.chosen, [candidate for candidate in choice.tried if candidate.works]
    if not working or working[0].hourly is None:
        assert choice.cheaper is None
        return
    most = working[0].hourly * Decimal(str(factor))
    affordable = [one for one in working if one.hourly is not None and one.hourly < most]
    assert chosen in affordable
    assert len(risks(chosen)) == min(len(risks(one)) for one in affordable)
    assert (choice.cheaper is not None) == (chosen != working[0])
