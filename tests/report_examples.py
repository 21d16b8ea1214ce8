"""Verdicts for the tests of the reports: a few as they occur, and strategies that generate any."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from neuroscale.planning.plan import (
    Alternative,
    AppliedOverride,
    Architecture,
    Cost,
    Lock,
    Memory,
    Plan,
    Replicas,
    Resources,
    Runtime,
    Speed,
    Startup,
    Tenancy,
)
from neuroscale.verdict import Check, Finding, Outcome, ServiceReport, Severity, Verdict, exit_status

_DIGEST = "sha256:" + "0" * 64
_NOT_ASKED = "Rules that only an API server knows (CEL rules of custom resources, quantities): none was asked."

GEMMA_MOE = Plan(
    verdict="fits",
    service="support-chat",
    environment="dev",
    model="gemma-4-26B-A4B-it-qat-w4a16-ct",
    model_source="hf://google/gemma-4-26B-A4B-it-qat-w4a16-ct",
    accelerator="nvidia-l4",
    accelerator_count=1,
    tensor_parallel_size=1,
    replicas=Replicas(min=1, max=3),
    memory_gib=Memory(weights=14.37, kv_cache=2.11, overhead=2.4, usable=20.69, free=1.81),
    architecture=Architecture(
        kind="moe",
        total_params=25_233_142_272,
        active_params=3_822_000_000,
        active_params_without_embedding=3_084_000_000,
        active_ratio=0.1515,
    ),
    max_model_len=8192,
    max_concurrency=8,
    vllm_args=("--model=/mnt/models", "--max-model-len=8192", "--max-num-seqs=8", "--gpu-memory-utilization=0.92"),
    environment_variables={"HF_HOME": "/tmp/hf"},
    needs_hugging_face_token=True,
    startup=Startup(expected_seconds=410, probe_budget_seconds=1230),
    speed=Speed(ttft_seconds=0.8, decode_tokens_per_second=61.0),
    cost=Cost(
        hourly=Decimal("0.71"),
        monthly_min=Decimal("518.30"),
        monthly_max=Decimal("1554.90"),
        price_date=date(2026, 11, 1),
        price_source="https://cloud.google.com/run/pricing",
    ),
    runtime=Runtime(name="neuroscale-vllm", image="docker.io/vllm/vllm-openai:v0.14.0", version="0.14.0"),
    resources=Resources(
        cpu=4, memory_gib=24, shared_memory_gib=2, accelerator_resource="nvidia.com/gpu", node_selector={}
    ),
    tenancy=Tenancy(team="team-alpha", owner="team-alpha", cost_center="cc-1001", namespace="team-alpha"),
    overrides=(),
    alternatives=(),
    confidence="medium",
    reasons=(
        "128 experts, 8 of them active for a token: a mixture of experts with 3.8 B of 25.2 B parameters active.",
        "The weights take 14.37 GiB: 4-bit experts and attention, the embedding in bf16.",
        "nvidia-l4 is the cheapest of 5 accelerators that hold weights, KV cache and overhead.",
        "No measurement of this model on this accelerator is known, so the speed is an estimate.",
    ),
    lock=Lock(catalog_digest=_DIGEST, entries={}, request_digest=_DIGEST, planner_version="1", template_version="1"),
)

GEMMA_DENSE_REFUSED = GEMMA_MOE.model_copy(
    update={
        "verdict": "refused",
        "service": "long-documents",
        "environment": "prod",
        "model": "gemma-4-31B-it-qat-w4a16-ct",
        "memory_gib": Memory(weights=19.62, kv_cache=6.4, overhead=2.4, usable=20.69, free=-7.73),
        "reasons": (
            "Weights of 19.62 GiB, 6.40 GiB KV cache and 2.40 GiB overhead need 28.42 GiB; "
            "nvidia-l4 offers 20.69 GiB, so 7.73 GiB are missing.",
        ),
        "alternatives": (
            Alternative(
                change="Let the planner choose the accelerator",
                model="gemma-4-31B-it-qat-w4a16-ct",
                accelerator="nvidia-rtx-pro-6000",
                accelerator_count=1,
                hourly=Decimal("3.76"),
            ),
            Alternative(
                change="Choose the mixture of experts of the same family",
                model="gemma-4-26B-A4B-it-qat-w4a16-ct",
                accelerator="nvidia-l4",
                accelerator_count=1,
                hourly=Decimal("0.71"),
            ),
        ),
    }
)

CHECKS = (
    Check(
        name="files",
        title="Files",
        outcome=Outcome.PASSED,
        evaluated=5,
        expected=5,
        unit="files",
        tripwires=6,
        tripwires_caught=6,
        seconds=0.021,
    ),
    Check(
        name="policy",
        title="Policies",
        outcome=Outcome.PASSED,
        evaluated=14,
        expected=14,
        unit="pairs of policy and object",
        tripwires=12,
        tripwires_caught=12,
        seconds=0.71,
    ),
    Check(
        name="schema",
        title="Schemas",
        outcome=Outcome.PASSED,
        evaluated=3,
        expected=3,
        unit="objects",
        tripwires=3,
        tripwires_caught=3,
        seconds=0.34,
    ),
    Check(
        name="secrets",
        title="Secrets",
        outcome=Outcome.PASSED,
        evaluated=5,
        expected=5,
        unit="texts",
        tripwires=4,
        tripwires_caught=4,
        seconds=0.4,
    ),
    Check(
        name="drift",
        title="Drift",
        outcome=Outcome.PASSED,
        evaluated=5,
        expected=5,
        unit="files",
        tripwires=1,
        tripwires_caught=1,
        seconds=0.05,
    ),
)


def with_outcome(name: str, outcome: Outcome, **values: Any) -> tuple[Check, ...]:
    """The checks of a passed run, one of which ended otherwise."""
    return tuple(
        check.model_copy(update={"outcome": outcome, **values}) if check.name == name else check for check in CHECKS
    )


def verdict(checks: tuple[Check, ...] = CHECKS, headline: str = "", **values: Any) -> Verdict:
    """A verdict over `checks` with the exit status that they have."""
    return Verdict(
        tool_version="0.1.0",
        exit_status=exit_status(checks).value,
        headline=headline,
        checks=checks,
        **{"not_checked": (_NOT_ASKED,), **values},
    )


def passed() -> Verdict:
    """One service added on an L4."""
    return verdict(
        headline="Passed: 1 service checked",
        base="3f2a9c1d" * 5,
        head="b776eab0" * 5,
        services=(ServiceReport(environment="dev", name="support-chat", change="added", plan=GEMMA_MOE),),
    )


def refused() -> Verdict:
    """Findings of policy, schema and drift in three services, a refused plan, a price change, an override."""
    folder = "manifests/prod/long-documents"
    chat = "manifests/dev/support-chat/inferenceservice.yaml"
    grown = GEMMA_MOE.model_copy(
        update={
            "accelerator_count": 2,
            "tensor_parallel_size": 2,
            "verdict": "tight",
            "memory_gib": Memory(weights=7.4, kv_cache=10.4, overhead=2.7, usable=20.69, free=0.19),
            "cost": GEMMA_MOE.cost.model_copy(
                update={"hourly": Decimal("1.42"), "monthly_min": Decimal("1036.60"), "monthly_max": Decimal("3109.80")}
            ),
            "overrides": (
                AppliedOverride(
                    field="accelerator_count",
                    value=2,
                    planned="1",
                    reason="Load test of 2026-11-12 showed a p95 time to first token of 4 s, see the team's notes",
                    expires=date(2027, 1, 31),
                ),
            ),
        }
    )
    findings = (
        Finding(
            gate="policy",
            rule="no-mutable-tags",
            file=chat,
            line=31,
            subject="InferenceService team-alpha/support-chat",
            message="the image docker.io/vllm/vllm-openai:latest has a tag that can move",
            fix="Name a version and its digest: docker.io/vllm/vllm-openai:v0.14.0@sha256:...",
        ),
        Finding(
            gate="schema",
            rule="invalid",
            file=chat,
            line=44,
            subject="InferenceService team-alpha/support-chat",
            message="spec.predictor.model.resources: additional property 'limit' is not allowed",
            fix="Correct the field's name: did you mean limits?",
        ),
        Finding(
            gate="drift",
            rule="edited",
            file=chat,
            message="differs from what request and plan render to: line 31, line 44",
            fix="Run `neuroscale render`, or put the exception into overrides in request.yaml.",
        ),
        Finding(
            gate="drift",
            rule="refused-plan",
            file=f"{folder}/plan.yaml",
            message="the plan is refused: 7.73 GiB are missing on nvidia-l4",
            fix="Choose one of the alternatives.",
        ),
        Finding(
            gate="drift",
            rule="stale-lock",
            severity=Severity.NOTICE,
            file="manifests/dev/support-chat/plan.yaml",
            message="the plan is older than the catalog: price/google-cloud changed",
            fix="Run `neuroscale replan support-chat` in a pull request of its own.",
        ),
    )
    checks = with_outcome("policy", Outcome.FINDINGS)
    checks = tuple(
        check.model_copy(update={"outcome": Outcome.FINDINGS}) if check.name in ("schema", "drift") else check
        for check in checks
    )
    return verdict(
        checks,
        "Refused: 4 findings in 2 files",
        base="3f2a9c1d" * 5,
        head="b776eab0" * 5,
        findings=findings,
        services=(
            ServiceReport(environment="dev", name="support-chat", change="changed", plan=grown, plan_before=GEMMA_MOE),
            ServiceReport(environment="prod", name="long-documents", change="added", plan=GEMMA_DENSE_REFUSED),
            ServiceReport(environment="dev", name="old-chat", change="removed", plan_before=GEMMA_MOE),
        ),
        notes=("The change alters policies or exceptions: the base's decided, and the change's own ran beside them.",),
    )


def untrusted() -> Verdict:
    """A policy that did not load."""
    checks = with_outcome(
        "policy",
        Outcome.UNTRUSTED,
        evaluated=13,
        tripwires_caught=11,
        detail="caught 11 of 12 tripwires. The policy no-mutable-tags gave no answer for its tripwire.",
    )
    service = ServiceReport(environment="dev", name="support-chat", change="added", plan=GEMMA_MOE)
    return verdict(checks, "The gate cannot be trusted, so this is no verdict: Policies", services=(service,))


def nothing_to_check() -> Verdict:
    """A change that touches no manifest: the tripwires ran all the same."""
    checks = tuple(check.model_copy(update={"evaluated": 0, "expected": 0}) for check in CHECKS)
    return verdict(checks, "Nothing to check: no manifest differs", base="3f2a9c1d" * 5, head="b776eab0" * 5)


def plain_folder() -> Verdict:
    """Manifests of another repository, for which one check does not apply."""
    checks = with_outcome(
        "drift",
        Outcome.NOT_RUN,
        evaluated=0,
        expected=0,
        tripwires=0,
        tripwires_caught=0,
        seconds=0.0,
        detail="no service folder of this repository is among the files",
    )
    return verdict(checks, "Passed: 4 files checked", paths=("examples",))


def many_findings(count: int) -> Verdict:
    """`count` findings over many files, with long texts."""
    findings = tuple(
        Finding(
            gate="policy",
            rule=f"rule-{number % 20}",
            file=f"manifests/prod/service-{number // 3:05}/inferenceservice.yaml",
            line=number % 90 + 1,
            subject=f"InferenceService team-alpha/service-{number // 3:05}",
            message=f"finding {number}: " + "the container vllm has no memory limit " * (number % 12),
            fix="Set spec.predictor.model.resources.limits.memory.",
        )
        for number in range(count)
    )
    services = tuple(
        ServiceReport(
            environment="prod",
            name=f"service-{number:05}",
            change="changed",
            plan=GEMMA_MOE.model_copy(update={"service": f"service-{number:05}", "environment": "prod"}),
        )
        for number in range((count + 2) // 3)
    )
    checks = with_outcome("policy", Outcome.FINDINGS)
    return verdict(checks, f"Refused: {count} findings", findings=findings, services=services)


EXAMPLES = {
    "passed": passed,
    "refused": refused,
    "untrusted": untrusted,
    "nothing-to-check": nothing_to_check,
    "plain-folder": plain_folder,
    "1000-findings": lambda: many_findings(1000),
}
