"""Typical lengths beside the longest: memory follows the longest, replicas follow the typical load."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.planning.candidates import candidates
from neuroscale.planning.case import Case
from neuroscale.planning.plan import Plan, dump_plan, load_plan
from neuroscale.planning.planner import plan, request_digest
from neuroscale.request.service_request import Request, dump_request, load_request
from platform_repository import CATALOG, SETTINGS

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
OLD = """\
schema_version: 1
service: help-desk
model: meta-llama/Llama-3.1-8B-Instruct
team: team-beta
environment: prod
concurrent_users: 64
longest_prompt_tokens: 16000
longest_answer_tokens: 1024
p95_ttft_seconds: 10.0
availability: standard
overrides: []
"""


def ask(**changes: Any) -> Request:
    return Request.model_validate(load_request(OLD, "request.yaml").model_dump() | {"overrides": ()} | changes)


def with_share(share: float) -> Settings:
    prod = SETTINGS.environments["prod"].model_copy(update={"typical_share": share, "certainty": None})
    return SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "prod": prod}})


def on_an_l4(made: Request, the_settings: Settings = SETTINGS) -> Plan:
    forced = [
        {"field": "accelerator", "value": "nvidia-l4", "reason": "a test of lengths", "expires": "2027-01-31"},
        {"field": "accelerator_count", "value": 2, "reason": "a test of lengths", "expires": "2027-01-31"},
    ]
    text = dump_request(made).replace("overrides: []", f"overrides: {forced}")
    return plan(load_request(text, "request.yaml"), CATALOG, the_settings)


def test_replicas_follow_the_typical_load_and_memory_the_longest_and_the_plan_says_both() -> None:
    patient = {"p95_ttft_seconds": 120.0, "tokens_per_second_per_user": 0.1}  # so that memory decides
    longest = on_an_l4(ask(**patient))
    typical = on_an_l4(ask(typical_prompt_tokens=3000, typical_answer_tokens=300, **patient))
    assert typical.max_model_len == longest.max_model_len == 17152
    assert typical.max_concurrency == longest.max_concurrency
    assert longest.typical is None
    assert typical.typical is not None
    assert (typical.typical.prompt_tokens, typical.typical.answer_tokens) == (3000, 300)
    assert typical.replicas.min == math.ceil(64 / typical.typical.max_concurrency) < longest.replicas.min
    told = " ".join(typical.reasons)
    assert f"{typical.typical.max_concurrency} users at typical length ({typical.max_concurrency} users at full" in told
    assert "prompt 3000 tokens (as the form says) and answer 300 tokens (as the form says)" in told
    assert "KV cache of one request of 17152 tokens and " in told
    assert "vLLM interrupts some and computes them again" in told
    # At least as many as the typical load brings are computed at once.
    (at_once,) = (int(flag.partition("=")[2]) for flag in typical.vllm_args if flag.startswith("--max-num-seqs="))
    assert math.ceil(64 / typical.replicas.min) <= at_once <= typical.typical.max_concurrency


def test_what_does_not_hold_one_longest_request_is_refused_however_short_the_typical_ones_are() -> None:
    long = {"longest_prompt_tokens": 120_000, "concurrent_users": 1, "p95_ttft_seconds": 120.0}
    small = {"typical_prompt_tokens": 10, "typical_answer_tokens": 10}
    prod = SETTINGS.environments["prod"]
    for request in (ask(**long), ask(**long, **small)):
        case = Case(request, CATALOG.models[LLAMA], "prod", prod, CATALOG, {"accelerator": "nvidia-l4"})
        (one, *_) = [one for one in candidates(case) if one.count == 1 and one.arguments.kv_cache_dtype == "auto"]
        assert [failure.kind for failure in one.failures if failure.kind == "memory"] == ["memory"]


def test_where_the_form_does_not_say_it_the_settings_do_and_by_default_all_are_of_full_length() -> None:
    assert SETTINGS.environments["prod"].typical_share == 1
    told = " ".join(on_an_l4(ask()).reasons)
    assert "Every request is counted at full length" in told
    half = on_an_l4(ask(), with_share(0.5))
    assert half.typical is not None
    assert (half.typical.prompt_tokens, half.typical.answer_tokens) == (8000, 512)
    assert "prompt 8000 tokens (0.5 of the longest, by the settings of prod)" in " ".join(half.reasons)
    # The form comes first, field by field.
    said = on_an_l4(ask(typical_prompt_tokens=100), with_share(0.5))
    assert said.typical is not None
    assert (said.typical.prompt_tokens, said.typical.answer_tokens) == (100, 512)


def test_a_request_and_a_plan_from_before_the_fields_are_written_back_byte_for_byte() -> None:
    old = load_request(OLD, "request.yaml")
    assert dump_request(old) == OLD
    # What their locks recorded for these very answers, before a request had typical lengths.
    assert request_digest(old) == "sha256:5e92be9dd2f2e4d9f86ce6a52734ef0c2e7fa34f1c021c65b1a644586a853de6"
    made = plan(old, CATALOG, SETTINGS)
    text = dump_plan(made)
    assert "typical" not in "".join(text.split("reasons:")[0])
    assert load_plan(text, "plan.yaml") == made
    typical = plan(ask(typical_prompt_tokens=100), CATALOG, SETTINGS)
    assert load_plan(dump_plan(typical), "plan.yaml") == typical


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("typical_prompt_tokens: 16001", "typical_prompt_tokens"),
        ("typical_answer_tokens: 1025", "typical_answer_tokens"),
        ("typical_answer_tokens: 0", "typical_answer_tokens"),
        ("typical_prompt_tokens: many", "typical_prompt_tokens"),
    ],
)
def test_a_typical_length_that_cannot_be_is_named_with_its_line(line: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        load_request(f"{OLD}{line}\n", "request.yaml")
    (problem,) = caught.value.problems
    assert (problem.field, problem.line) == (field, 12)
    assert problem.fix


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    model=st.sampled_from(sorted(CATALOG.models)),
    users=st.integers(1, 500),
    prompt=st.integers(1, 30_000),
    share=st.floats(0.001, 1),
)
def test_shorter_typical_requests_never_need_more_and_never_less_than_the_longest_alone(
    model: str, users: int, prompt: int, share: float
) -> None:
    request = ask(model=model, concurrent_users=users, longest_prompt_tokens=prompt)
    environment = with_share(share).environments["prod"]
    full = environment.model_copy(update={"typical_share": 1.0})
    entry = CATALOG.models[model]
    for usual, longest in zip(
        sorted(candidates(Case(request, entry, "prod", environment, CATALOG, {})), key=_which),
        sorted(candidates(Case(request, entry, "prod", full, CATALOG, {})), key=_which),
        strict=True,
    ):
        assert usual.capacity == longest.capacity == longest.typical_capacity
        assert usual.typical_capacity >= usual.capacity
        assert usual.replicas.min <= longest.replicas.min
        # Whatever fits by one count fits by the other: a longest request must.
        assert (usual.capacity == 0) == (usual.typical_capacity == 0)


def _which(candidate: Any) -> tuple[str, int, str]:
    return candidate.accelerator.name, candidate.count, candidate.arguments.kv_cache_dtype
