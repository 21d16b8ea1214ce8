"""`neuroscale advise` sets choices side by side, with the plan's own among them and what speaks against each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neuroscale.cli.app import app
from neuroscale.core.yaml_io import dump
from neuroscale.planning.advice import Advice, By, advise
from neuroscale.planning.planner import plan
from neuroscale.planning.speed import Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.request.service_request import Request
from platform_repository import CATALOG, SETTINGS
from roots import ROOT

ANSWERS: dict[str, Any] = {
    "service": "support-chat",
    "model": "google/gemma-4-26B-A4B-it-qat-w4a16-ct",
    "team": "team-alpha",
    "environment": "dev",
    "concurrent_users": 4,
    "longest_prompt_tokens": 8192,
    "longest_answer_tokens": 1024,
    "p95_ttft_seconds": 5.0,
    "availability": "standard",
}


def advised(by: By = "price", **changes: Any) -> Advice:
    return advise(Request.model_validate(ANSWERS | changes), CATALOG, SETTINGS, by)


def test_the_plans_own_choice_stands_among_the_accelerators_copies_and_smaller_models() -> None:
    advice = advised()
    made = plan(Request.model_validate(ANSWERS), CATALOG, SETTINGS)
    (own,) = (one for one in advice.choices if one.chosen)
    assert (own.accelerator, own.count, own.replicas) == (made.accelerator, made.accelerator_count, made.replicas.min)
    assert (own.load, own.monthly) == (made.load, made.cost.monthly_min)
    assert {one.accelerator for one in advice.choices if one.kind == "asked"} == set(
        SETTINGS.environments["dev"].accelerators
    )
    assert "google/gemma-4-26B-A4B-it" in {one.model for one in advice.choices if one.kind == "copy"}
    smaller = {one.model for one in advice.choices if one.kind == "smaller"}
    assert "google/gemma-4-E4B-it" in smaller
    assert "google/gemma-4-31B-it" not in smaller


@pytest.mark.parametrize("by", ["price", "latency", "throughput"])
def test_what_is_asked_for_first_comes_first_and_each_other_one_says_why_it_lost(by: By) -> None:
    working = [one for one in advised(by).choices if one.works]
    figures = {
        "price": [float(one.monthly) for one in working if one.monthly is not None],
        "latency": [one.ttft_seconds for one in working if one.ttft_seconds is not None],
        "throughput": [-one.tokens_per_second for one in working if one.tokens_per_second is not None],
    }[by]
    assert len(figures) > 3
    assert figures == sorted(figures)
    assert all(one.against for one in working[1:])
    assert all(one.against.endswith(".") for one in advised(by).choices if one.against)


def test_a_choice_of_unknown_speed_comes_after_those_that_are_known_to_keep_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = advised().choices[0]
    under = ReplicaSpeed.under

    def partly(self: ReplicaSpeed, load: Load) -> SpeedUnderLoad:
        unknown = SpeedUnderLoad(load, "unknown", ("Nobody measured it.",))
        return unknown if self.device.name == first.accelerator else under(self, load)

    monkeypatch.setattr(ReplicaSpeed, "under", partly)
    working = [one for one in advised().choices if one.works]
    unknown = [one.load is not None and one.load.coverage == "unknown" for one in working]
    assert True in unknown
    assert unknown == sorted(unknown)
    assert "It has no known speed, so nothing says that it keeps what is asked for" in working[-1].against


def test_whether_a_laptop_would_do_follows_from_the_form() -> None:
    assert "that would not do here, since the form asks for 4 users at once." in advised().laptop
    assert "try it first" in advised(concurrent_users=1).laptop


def test_what_production_is_follows_from_the_settings() -> None:
    request = Request.model_validate(ANSWERS | {"concurrent_users": 1})
    rules = SETTINGS.production.model_copy(update={"environments": ("dev",)})
    strict = SETTINGS.model_copy(update={"production": rules})
    assert "asks for production." in advise(request, CATALOG, strict).laptop


def test_the_command_prints_a_table_and_json_and_draws_a_picture(tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(dump(ANSWERS), encoding="utf-8")
    picture = tmp_path / "choices.svg"
    options = ["advise", "--answers", str(answers), "--repository", str(ROOT)]
    shown = CliRunner().invoke(app, [*options, "--picture", str(picture)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "* is the plan's choice" in shown.output
    assert re.search(r"\n +\d+\* \d+ x \d+ \S+ +[\d,]+\.\d\d ", shown.output)
    assert "…" not in shown.output  # a number that is cut off would be another one
    assert "On a laptop, " in shown.output
    assert "USD a month" in picture.read_text(encoding="utf-8")
    told = json.loads(CliRunner().invoke(app, [*options, "--json", "--by", "latency"], catch_exceptions=False).output)
    assert told["by"] == "latency"
    assert [one["chosen"] for one in told["choices"]].count(True) == 1
    assert told["choices"][0]["load"]["ttft_seconds"]["p95"]["value"] > 0


def test_a_refused_plan_shows_what_works_for_the_same_answers_side_by_side(tmp_path: Path) -> None:
    # The 31B comes too late for these answers wherever it fits; smaller models of its family do not.
    refused = tmp_path / "answers.yaml"
    refused.write_text(
        dump(ANSWERS | {"model": "google/gemma-4-31B-it", "p95_ttft_seconds": 0.2, "concurrent_users": 64}),
        encoding="utf-8",
    )
    options = ["plan", str(refused), "--repository", str(ROOT)]
    shown = CliRunner().invoke(app, options, catch_exceptions=False)
    assert shown.exit_code == 1
    told = shown.output.partition("Side by side: what works for these answers, cheapest first")[2]
    assert "1. google/gemma-4-" in told
    assert "It is a smaller model, so check its answers." in told
    choices = json.loads(CliRunner().invoke(app, [*options, "--json"], catch_exceptions=False).output)["choices"]
    assert 0 < len(choices) <= 6
    assert all(one["works"] and one["load"]["ttft_seconds"]["p95"]["value"] <= 0.2 for one in choices)
    prices = [float(one["monthly_usd"]) for one in choices]
    assert prices == sorted(prices)


def test_a_plan_that_works_computes_no_other_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(dump(ANSWERS), encoding="utf-8")
    monkeypatch.delattr("neuroscale.planning.advice.advise")
    options = ["plan", str(answers), "--json", "--repository", str(ROOT)]
    assert "choices" not in json.loads(CliRunner().invoke(app, options, catch_exceptions=False).output)


def test_where_nothing_works_it_says_what_is_nearest_and_ends_with_1(tmp_path: Path) -> None:
    answers = tmp_path / "answers.yaml"
    answers.write_text(dump(ANSWERS | {"concurrent_users": 4096, "p95_ttft_seconds": 0.05}), encoding="utf-8")
    shown = CliRunner().invoke(app, ["advise", "--answers", str(answers), "--repository", str(ROOT)])
    assert shown.exit_code == 1
    assert "No choice works." in shown.output
