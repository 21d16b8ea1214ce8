"""What the planner plans and the template renders comes through the fit check clean, whatever was asked for."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples, one_or_by_night_all, some_where_fewer_are_asked
from neuroscale.core.errors import InputError
from neuroscale.gate.fit.check import evaluate_fit
from neuroscale.gate.fit.known_models import Knowledge
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.manifests.serving_runtimes import runtimes_of
from neuroscale.planning.fit import Fit, device, fit
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import plan
from neuroscale.planning.replica_memory import served_facts
from neuroscale.planning.vllm_flags import vllm_args
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import ServicePath
from neuroscale.request.service_request import Request
from neuroscale.vllm.accelerator_rules import Place
from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.command_rules import check_command
from neuroscale.vllm.engine_arguments import EngineArguments
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, TEMPLATE

KNOWLEDGE = Knowledge(CATALOG, SETTINGS)
LEVELS = ("low", "medium", "high")


def judged(*requests: Request) -> dict[str, tuple[Finding, ...]]:
    """By service: the findings of those that requests lead to. The names of services differ."""
    manifests: list[Manifest] = []
    plans: dict[ServicePath, Plan] = {}
    for request in requests:
        with suppress(InputError):
            planned = plan(request, CATALOG, SETTINGS, TEMPLATE.version)
            if planned.verdict == "refused":
                continue
            text = render(request, planned, TEMPLATE)["inferenceservice.yaml"]
            service = ServicePath(request.environment, request.service)
            manifests += read_manifests(text.encode(), f"{service.folder}/inferenceservice.yaml", service)
            plans[service] = planned
    evaluation = evaluate_fit(manifests, runtimes_of(SNAPSHOT), lambda: KNOWLEDGE)
    assert evaluation.evaluated == len(plans)
    found: dict[str, tuple[Finding, ...]] = {}
    for service, planned in plans.items():
        assert LEVELS.index(planned.confidence) <= LEVELS.index(fit_of(planned).confidence), (
            "a plan is not surer than fit"
        )
        findings = [one for one in evaluation.findings if one.file.startswith(f"{service.folder}/")]
        # Little room is the planner's to say; all else that a reader would be told is a defect.
        assert planned.verdict == "tight" or "tight" not in {one.rule for one in findings}
        found[service.service] = tuple(one for one in findings if one.rule != "tight")
    assert all(any(one.file.startswith(f"{service.folder}/") for service in plans) for one in evaluation.findings)
    return found


def fit_of(planned: Plan) -> Fit:
    """What `neuroscale fit` computes for the planned command."""
    model, card = CATALOG.models[planned.model], CATALOG.accelerators[planned.accelerator]
    card = card.on(SETTINGS.environments[planned.environment].cluster)
    version = CATALOG.runtime(card.family, model.facts).version
    arguments = parse_arguments(planned.vllm_args, version).arguments
    return fit(served_facts(model), device(card), arguments, version=version)


@pytest.mark.parametrize("environment", sorted(SETTINGS.environments))
def test_each_model_of_the_catalog_as_planned_in_each_environment(environment: str) -> None:
    """Each model with each size in one environment; by night in all of them."""
    place = sorted(SETTINGS.environments).index(environment)
    requests = [
        make_request(
            service=f"service-{number}-{prompt}",
            model=model,
            environment=environment,
            concurrent_users=users,
            longest_prompt_tokens=prompt,
            longest_answer_tokens=256,
            p95_ttft_seconds=60,
        )
        for number, model in some_where_fewer_are_asked(list(enumerate(sorted(CATALOG.models))))
        for prompt, users in one_or_by_night_all(((512, 1), (4096, 16), (32768, 4)), number + place)
    ]
    wrong = {name: findings for name, findings in judged(*requests).items() if findings}
    assert wrong == {}


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_asked_for(data: st.DataObject) -> None:
    prompt, answer = data.draw(st.integers(1, 200_000)), data.draw(st.integers(1, 16_000))
    request = make_request(
        model=data.draw(st.sampled_from(sorted(CATALOG.models))),
        environment=data.draw(st.sampled_from(sorted(SETTINGS.environments))),
        concurrent_users=data.draw(st.integers(1, 200)),
        longest_prompt_tokens=prompt,
        longest_answer_tokens=answer,
        typical_prompt_tokens=data.draw(st.none() | st.integers(1, prompt)),
        typical_answer_tokens=data.draw(st.none() | st.integers(1, answer)),
        p95_ttft_seconds=data.draw(st.sampled_from([0.5, 2, 30, 60])),
        availability=data.draw(st.sampled_from(["standard", "high"])),
    )
    assert judged(request) in ({}, {request.service: ()})


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_the_arguments_that_are_written_are_ones_that_vllm_takes(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from([CATALOG.models[name] for name in sorted(CATALOG.models)]))
    facts = model.facts
    cards = [one for one in CATALOG.accelerators.values() if one.family in model.serving.families]
    cards = [
        one
        for one in cards
        if model.checkpoint.quantization in one.quantizations and model.checkpoint.dtype in one.dtypes
    ]
    card = data.draw(st.sampled_from(cards))
    count = data.draw(st.sampled_from([one for one in card.counts if facts.heads % one == 0]))
    runtime = CATALOG.runtime(card.family, facts)
    environment = next(iter(SETTINGS.environments.values()))
    length = data.draw(st.integers(16, facts.max_position_embeddings))
    arguments = EngineArguments(
        tensor_parallel_size=count,
        enable_expert_parallel=facts.experts > 0 and count > 1,
        max_model_len=length,
        max_num_seqs=data.draw(st.integers(1, 256)),
        max_num_batched_tokens=data.draw(st.integers(2560, 8192)),
        gpu_memory_utilization=data.draw(st.sampled_from([None, 0.9, 0.92])),
        kv_cache_dtype=data.draw(st.sampled_from(card.kv_cache_dtypes)),
    )
    args = vllm_args(model, runtime, environment, arguments, shutdown_timeout=data.draw(st.integers(0, 600)))
    parsed = parse_arguments(args, runtime.version)
    assert parsed.problems == ()
    assert parsed.exact
    # How wide a model may be spread is the planner's choice, not the writing's.
    faults = check_command(parsed, facts, model, Place(card, count))
    found = [one for one in faults if one.refused and one.rule not in ("quantized-groups", "kv-heads")]
    assert found == []
    read = parsed.arguments
    assert (read.tensor_parallel_size, read.max_model_len) == (count, length)


def test_most_models_are_planned_and_so_really_judged() -> None:
    names = some_where_fewer_are_asked(sorted(CATALOG.models))
    requests = [make_request(service=f"service-{at}", model=name, p95_ttft_seconds=60) for at, name in enumerate(names)]
    assert len(judged(*requests)) > len(names) * 0.7
