"""A plan keeps what the form asks for while all users ask: the load decides replicas, batches and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from measured_models import catalog_with, measured_load, measurement, with_measurements
from neuroscale.catalog.settings import Settings
from neuroscale.planning.case import Case
from neuroscale.planning.choice import choose, risks
from neuroscale.planning.load_choice import replica_speed
from neuroscale.planning.plan import Plan, dump_plan, load_plan
from neuroscale.planning.planner import plan
from neuroscale.planning.speed import Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.request.service_request import Override, Request
from platform_repository import CATALOG, SETTINGS

QWEN = "Qwen/Qwen3-32B-FP8"


def ask(**changes: Any) -> Request:
    """64 users of Qwen3-32B in 8 bits in dev, whose prompts and answers have 1,024 tokens."""
    fields: dict[str, Any] = {
        "service": "help-desk",
        "model": QWEN,
        "team": "team-beta",
        "environment": "dev",
        "concurrent_users": 64,
        "longest_prompt_tokens": 1024,
        "longest_answer_tokens": 1024,
        "p95_ttft_seconds": 2.0,
        "availability": "standard",
    }
    return Request.model_validate(fields | changes)


def on_an_h100(**values: str | int) -> tuple[Override, ...]:
    forced = {"accelerator": "nvidia-h100-80gb", "accelerator_count": 1, **values}
    return tuple(
        Override.model_validate(
            {"field": name, "value": value, "reason": "a test of the load", "expires": date(2027, 1, 31)}
        )
        for name, value in forced.items()
    )


def with_replicas(most: int) -> Settings:
    dev = SETTINGS.environments["dev"].model_copy(update={"max_replicas": most})
    return SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "dev": dev}})


def case_of(request: Request) -> Case:
    overrides = {one.field: one.value for one in request.overrides}
    environment = SETTINGS.environments[request.environment]
    return Case(request, CATALOG.models[request.model], request.environment, environment, CATALOG, overrides)


def made(the_settings: Settings = SETTINGS, **changes: Any) -> Plan:
    return plan(ask(**changes), CATALOG, the_settings)


def argument(of: Plan, name: str) -> int:
    (value,) = (one.partition("=")[2] for one in of.vllm_args if one.startswith(f"--{name}="))
    return int(value)


def test_more_tokens_for_each_user_take_more_replicas_than_the_memory() -> None:
    slow = made(overrides=on_an_h100(), tokens_per_second_per_user=1)
    fast = made(overrides=on_an_h100(), tokens_per_second_per_user=50)
    assert slow.replicas.min < fast.replicas.min <= SETTINGS.environments["dev"].max_replicas
    assert fast.load is not None
    assert fast.load.tokens_per_second is not None
    assert fast.load.tokens_per_second.user.value >= 50
    assert fast.load.replica_users == math.ceil(64 / fast.replicas.min)
    assert any("keeps what is asked for with " in reason for reason in fast.reasons)


def test_every_chosen_replica_keeps_both_promises_by_the_estimate_itself() -> None:
    for changes in ({}, {"p95_ttft_seconds": 0.5}, {"concurrent_users": 300}, {"environment": "prod"}):
        request = ask(**changes)
        case = case_of(request)
        chosen = choose(case).chosen
        assert chosen.works
        share = math.ceil(request.concurrent_users / chosen.replicas.min)
        replica = replica_speed(case, chosen)
        speed = replace(replica, arguments=chosen.arguments).under(Load(share, 1024, 1024))
        if speed.coverage == "unknown":
            continue
        assert speed.ttft_p95 is not None
        assert speed.tokens_per_second_user is not None
        assert speed.ttft_p95.value <= request.p95_ttft_seconds
        assert speed.tokens_per_second_user.value >= 10


def test_a_load_beyond_the_replicas_of_the_environment_is_refused_with_the_users_that_are_kept_and_what_would_do() -> (
    None
):
    few = with_replicas(1)
    refused = made(few, overrides=on_an_h100(), tokens_per_second_per_user=50)
    assert refused.verdict == "refused"
    reason = refused.reasons[0]
    assert "50 tokens per second for each user for 64 users at once takes " in reason
    assert "the environment allows 1, which keep it for " in reason
    told = " ".join(one.change for one in refused.alternatives)
    assert "Remove the overrides" in told or "Accept" in told
    free = made(few, tokens_per_second_per_user=250)
    changes = [one.change for one in free.alternatives]
    assert free.verdict == "refused"
    assert any(one.startswith("Accept ") for one in changes), changes
    assert any(one.startswith("Serve ") for one in changes) or "for one user" in free.reasons[0]


def test_the_speed_of_an_accelerator_that_nobody_measured_is_never_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = SpeedUnderLoad(Load(1, 1, 1), "unknown", ("Nobody measured it.",))
    monkeypatch.setattr(ReplicaSpeed, "under", lambda self, load: nothing)
    unknown = made(overrides=on_an_h100(), tokens_per_second_per_user=1000)
    assert unknown.verdict != "refused"
    assert unknown.load is not None
    assert unknown.load.coverage == "unknown"
    numbers = unknown.load.model_dump(include={"ttft_seconds", "tokens_per_second", "head_room_users"})
    assert set(numbers.values()) == {unknown.load.usd_per_million_output_tokens} == {None}
    assert any(
        reason.startswith("Nothing is known about the speed with 64 users at once") for reason in unknown.reasons
    )
    assert unknown.confidence != "high"


def unknown_on(monkeypatch: pytest.MonkeyPatch, *accelerators: str) -> None:
    """Nothing is known about the speed of these accelerators."""
    under = ReplicaSpeed.under

    def partly(self: ReplicaSpeed, load: Load) -> SpeedUnderLoad:
        unknown = SpeedUnderLoad(load, "unknown", ("Nobody measured it.",))
        return unknown if self.device.name in accelerators else under(self, load)

    monkeypatch.setattr(ReplicaSpeed, "under", partly)


def test_a_choice_of_unknown_speed_wins_over_none_that_is_known_to_keep_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheapest = made()
    unknown_on(monkeypatch, cheapest.accelerator)
    known = made()
    assert known.accelerator != cheapest.accelerator
    assert known.load is not None
    assert known.load.ttft_seconds is not None
    (told,) = (one for one in known.reasons if one.startswith("Nothing is known about the speed of "))
    assert CATALOG.accelerators[cheapest.accelerator].title in told
    assert "such a choice counts only where none of known speed keeps what is asked for" in told

    unknown_on(monkeypatch, *SETTINGS.environments["dev"].accelerators)
    nothing = made()
    assert nothing.verdict == "fits"
    assert nothing.confidence != "high"
    assert nothing.load is not None
    assert nothing.load.coverage == "unknown"


def test_where_every_known_choice_fails_one_of_unknown_speed_is_taken_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    impatient: dict[str, Any] = {"tokens_per_second_per_user": 1000}
    assert made(**impatient).verdict == "refused"
    unknown_on(monkeypatch, "nvidia-rtx-pro-6000")
    taken = made(**impatient)
    assert (taken.verdict, taken.accelerator) == ("fits", "nvidia-rtx-pro-6000")
    assert "No choice of known speed keeps what is asked for, so one of unknown speed is taken." in taken.reasons


def test_an_environment_that_asks_for_certainty_takes_no_speed_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    prod = SETTINGS.environments["prod"]
    assert prod.certainty is not None
    unknown_on(monkeypatch, *prod.accelerators)
    refused = made(environment="prod", availability="high")
    assert refused.verdict == "refused"
    assert "and prod asks for certainty. Nobody measured it. Write what is missing into the catalog" in " ".join(
        refused.reasons
    )
    assert [one.change for one in refused.alternatives if "environment 'dev'" in one.change]


def test_what_works_in_place_of_a_refused_plan_is_named_by_what_is_known_first(monkeypatch: pytest.MonkeyPatch) -> None:
    too_small = on_an_h100(accelerator="nvidia-l4")
    before = made(overrides=too_small)
    assert before.verdict == "refused"
    cheapest, second = before.alternatives[:2]
    assert cheapest.accelerator != second.accelerator
    unknown_on(monkeypatch, cheapest.accelerator)
    changes = [one.change for one in made(overrides=too_small).alternatives]
    assert "(its speed is not known)" not in changes[0]
    assert "(its speed is not known)" in changes[-1]


def test_the_longest_prompt_comes_in_time_on_an_idle_replica_by_the_same_estimate() -> None:
    rarely_long: dict[str, Any] = {
        "longest_prompt_tokens": 16_000,
        "typical_prompt_tokens": 500,
        "typical_answer_tokens": 200,
        "concurrent_users": 4,
        "overrides": on_an_h100(),
    }
    patient = made(**rarely_long, p95_ttft_seconds=20.0)
    case = case_of(ask(**rarely_long, p95_ttft_seconds=20.0))
    alone = replica_speed(case, choose(case).chosen).under(Load(1, 16_000, 1024))
    assert alone.ttft_p95 is not None
    assert alone.tokens_per_second_user is not None
    assert patient.speed.ttft_seconds == pytest.approx(alone.ttft_p95.value, rel=0.01)
    assert patient.speed.decode_tokens_per_second == pytest.approx(alone.tokens_per_second_user.value, rel=0.01)
    late = made(**rarely_long, p95_ttft_seconds=round(0.9 * alone.ttft_p95.value, 2))
    assert late.verdict == "refused"
    assert late.reasons[0].startswith("The first token of the longest prompt, of 16000 tokens, takes ")
    assert "on an idle replica of 1 x NVIDIA H100" in late.reasons[0]
    close = made(**rarely_long, p95_ttft_seconds=round(1.01 * alone.ttft_p95.value, 2))
    assert close.confidence != "high"
    assert any("the first token of the longest prompt may take " in one for one in close.reasons)


def test_an_extrapolated_speed_and_a_band_beyond_the_promise_make_a_choice_not_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = case_of(ask(overrides=on_an_h100()))
    chosen = choose(case).chosen
    assert chosen.load is not None
    figures = chosen.load.speed
    assert figures.ttft_p95 is not None

    def under(self: ReplicaSpeed, load: Load) -> SpeedUnderLoad:
        return replace(answered, load=load)

    monkeypatch.setattr(ReplicaSpeed, "under", under)
    sure = replace(figures, coverage="interpolated", ttft_p95=replace(figures.ttft_p95, value=1.0, low=0.9, high=1.5))
    answered = sure
    assert not any("speed" in one or "first token" in one for one in risks(choose(case).chosen))
    answered = replace(sure, coverage="extrapolated")
    assert "its speed under the load is extrapolated" in risks(choose(case).chosen)
    answered = replace(sure, ttft_p95=replace(figures.ttft_p95, value=1.0, low=0.9, high=2.5))
    (late,) = (one for one in risks(choose(case).chosen) if "first token" in one)
    assert late == "the first token may take 2.5 s at p95 under the load, and 2 s are asked for"
    said = plan(ask(overrides=on_an_h100()), CATALOG, SETTINGS)
    assert f"Not sure, by the slow end of the estimate: {late}." in said.reasons
    assert said.confidence != "high"


def test_a_replica_computes_more_requests_than_its_share_where_it_keeps_what_is_asked_for() -> None:
    roomy = made(overrides=on_an_h100())
    assert roomy.load is not None
    at_once = argument(roomy, "max-num-seqs")
    assert roomy.load.replica_users < at_once <= 2 * roomy.load.replica_users
    assert roomy.load.head_room_users == at_once * roomy.replicas.min - 64
    forced = made(overrides=on_an_h100(max_num_seqs=at_once))
    assert argument(forced, "max-num-seqs") == at_once


def test_overrides_that_take_replicas_away_say_how_many_users_are_kept() -> None:
    short = made(overrides=on_an_h100(**{"replicas.min": 1}), tokens_per_second_per_user=50)
    assert short.verdict == "tight"
    assert short.load is not None
    assert short.load.head_room_users is not None
    assert short.load.head_room_users < 0
    kept = 64 + short.load.head_room_users
    assert any(f"{kept} of the 64 users asked for may ask at once" in reason for reason in short.reasons)


def test_a_million_tokens_cost_what_the_replicas_cost_while_they_write_them() -> None:
    priced = made(overrides=on_an_h100())
    assert priced.load is not None
    assert priced.load.tokens_per_second is not None
    assert priced.cost.hourly is not None
    million = (
        float(priced.cost.hourly) * 1e6 / (3600 * priced.load.tokens_per_second.replica.value * priced.replicas.min)
    )
    assert float(priced.load.usd_per_million_output_tokens or 0) == pytest.approx(million, abs=1e-3)


def test_the_answer_beats_the_settings_and_the_settings_are_named() -> None:
    settings_say = " ".join(made(overrides=on_an_h100()).reasons)
    form_says = " ".join(made(overrides=on_an_h100(), tokens_per_second_per_user=12).reasons)
    assert "10 by the settings of dev" in settings_say
    assert "12 asked for" in form_says


def test_a_longest_answer_gets_the_time_that_it_takes_under_the_load() -> None:
    lone = made(overrides=on_an_h100(), concurrent_users=1, longest_answer_tokens=8000)
    busy = made(overrides=on_an_h100(), concurrent_users=64, longest_answer_tokens=8000)
    assert lone.startup.termination_grace_seconds < busy.startup.termination_grace_seconds


def test_a_plan_from_before_the_load_is_written_back_as_it_is() -> None:
    old = made(overrides=on_an_h100()).model_copy(update={"load": None})
    text = dump_plan(old)
    assert "\nload:" not in text
    assert load_plan(text, "plan.yaml") == old
    new = made(overrides=on_an_h100())
    assert load_plan(dump_plan(new), "plan.yaml") == new


@pytest.mark.parametrize(
    "form",
    [
        {"environment": "prod", "concurrent_users": 200, "longest_prompt_tokens": 4096, "availability": "high"},
        {
            "model": "meta-llama/Llama-3.3-70B-Instruct",
            "environment": "prod",
            "longest_prompt_tokens": 4096,
            "p95_ttft_seconds": 3.0,
            "availability": "high",
        },
        {
            "model": "Qwen/Qwen3-8B",
            "concurrent_users": 16,
            "longest_prompt_tokens": 4096,
            "longest_answer_tokens": 512,
            "p95_ttft_seconds": 1.5,
            "tokens_per_second_per_user": 30.0,
        },
    ],
)
def test_the_forms_of_the_documents_get_another_plan_by_the_load(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_load = made(**form)
    assert by_load.verdict != "refused"
    nothing = SpeedUnderLoad(Load(1, 1, 1), "unknown", ("Nobody measured it.",))
    monkeypatch.setattr(ReplicaSpeed, "under", lambda self, load: nothing)
    trusting = {name: one.model_copy(update={"certainty": None}) for name, one in SETTINGS.environments.items()}
    by_memory = made(SETTINGS.model_copy(update={"environments": trusting}), **form)
    assert by_memory.verdict != "refused"
    sides = [(one.accelerator, one.accelerator_count, one.replicas.min) for one in (by_memory, by_load)]
    assert sides[0] != sides[1]


def test_a_measurement_of_the_catalog_decides_and_is_named() -> None:
    loads = [measured_load(64, inter_token=0.2, ttft=0.2)]
    model = with_measurements(CATALOG.models[QWEN], measurement(CATALOG.models[QWEN], "nvidia-h100-80gb", loads=loads))
    slow = plan(ask(overrides=on_an_h100()), catalog_with(CATALOG, model), SETTINGS)
    assert slow.load is not None
    assert slow.load.coverage == "measured"
    # 5 tokens a second for each of 64 users: so slow a card keeps 10 for nobody.
    assert slow.verdict == "refused"
    assert "10 are asked for (by the settings of dev)" in slow.reasons[0]
