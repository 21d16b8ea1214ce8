"""Plans made by hand, for tests that are not about planning."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from neuroscale.planning.plan import (
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
    Surroundings,
    Tenancy,
)
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.scaffolder.interpreter import RenderedPullRequest
from neuroscale.rendering.scaffolder.plan_step import request_of
from neuroscale.rendering.service_folder import pull_request_of
from neuroscale.request.service_request import KnownNames, Request

ANSWERS: dict[str, Any] = {
    "service": "support-chat",
    "model": "google/gemma-4-26B-A4B-it-qat-w4a16-ct",
    "team": "team-alpha",
    "environment": "dev",
    "concurrent_users": 4,
    "longest_prompt_tokens": 2048,
    "longest_answer_tokens": 512,
    "p95_ttft_seconds": 5,
    "availability": "standard",
}
"""A form's answers that lead to a plan."""

DIGEST = "sha256:" + "0" * 64


def make_request(**changes: Any) -> Request:
    """A valid request; `changes` replace fields."""
    fields: dict[str, Any] = {
        "service": "support-chat",
        "model": "google/gemma-4-26B-A4B-it-qat-w4a16-ct",
        "team": "team-alpha",
        "environment": "dev",
        "concurrent_users": 8,
        "longest_prompt_tokens": 4096,
        "longest_answer_tokens": 1024,
        "p95_ttft_seconds": 2.0,
        "availability": "standard",
    }
    return Request.model_validate(fields | changes)


def pull_request_for(answers: Mapping[str, Any], inputs: PlanningInputs) -> RenderedPullRequest:
    """The pull request that a form's answers lead to, with a real plan. Raises InputError and RefusedPlanError."""
    catalog, settings, template = inputs.catalog, inputs.settings, inputs.template
    request = request_of(answers, KnownNames.of(catalog, settings))
    return pull_request_of(request, plan(request, catalog, settings, template.version), template)


def make_plan(request: Request | None = None, **changes: Any) -> Plan:
    """A plan that fits and belongs to `request`; `changes` replace fields."""
    request = request or make_request()
    plan = Plan(
        verdict="fits",
        service=request.service,
        environment=request.environment,
        model=request.model,
        model_source="hf://google/gemma-4-26B-A4B-it-qat-w4a16-ct",
        accelerator="nvidia-l4",
        accelerator_count=1,
        tensor_parallel_size=1,
        replicas=Replicas(min=1, max=2),
        memory_gib=Memory(weights=16.44, kv_cache=1.0, overhead=1.25, usable=19.76, free=1.07),
        architecture=Architecture(
            kind="moe",
            total_params=25_232_800_000,
            active_params=3_822_188_800,
            active_params_without_embedding=3_700_000_000,
            active_ratio=0.151,
        ),
        max_model_len=5248,
        max_concurrency=8,
        vllm_args=("--model=google/gemma-4-26B-A4B-it-qat-w4a16-ct", "--tensor-parallel-size=1"),
        environment_variables={"HOME": "/home/vllm", "USER": "vllm", "HF_HOME": "/home/vllm/huggingface"},
        needs_hugging_face_token=True,
        startup=Startup(expected_seconds=799, probe_budget_seconds=1505),
        speed=Speed(ttft_seconds=0.7, decode_tokens_per_second=44.9),
        cost=Cost(
            hourly=Decimal("1.3536"),
            monthly_min=Decimal("988.13"),
            monthly_max=Decimal("1976.26"),
            price_date=date(2026, 6, 10),
            price_source="a price list",
        ),
        runtime=Runtime(name="neuroscale-vllm", image="vllm/vllm-openai:v0.32.0", version="0.32.0", uid=1001, gid=1001),
        resources=Resources(
            cpu=4,
            memory_gib=32,
            shared_memory_gib=2,
            accelerator_resource="nvidia.com/gpu",
            node_selector={"cloud.google.com/gke-accelerator": "nvidia-l4"},
        ),
        tenancy=Tenancy(team=request.team, owner="team-alpha", cost_center="cc-ml-inference", namespace="team-alpha"),
        surroundings=Surroundings(
            token_secret="hugging-face", token_key="token", client_namespaces=("kourier-system", "monitoring")
        ),
        overrides=(),
        alternatives=(),
        confidence="high",
        reasons=("It fits.",),
        lock=Lock(
            catalog_digest=DIGEST,
            entries={},
            request_digest=DIGEST,
            planner_version="1.0.0",
            template_version="1.0.0",
        ),
    )
    return plan.model_copy(update=changes)
