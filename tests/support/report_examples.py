"""Verdicts for the tests of the reports: a few realistic ones, and strategies that generate any."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from pydantic import BaseModel

from neuroscale.catalog.cluster_settings import SecretStore
from neuroscale.costs.bill import (
    CenterCost,
    CostChange,
    PriceListUsed,
    Range,
    ServiceCost,
    TokenPrice,
    Totals,
    UnpricedItem,
)
from neuroscale.gate.verdict import Check, Finding, Outcome, ServiceReport, Severity, Verdict, exit_status
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
    Surroundings,
    Tenancy,
)

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
    startup=Startup(
        expected_seconds=410,
        download_seconds=180,
        load_seconds=50,
        compile_seconds=100,
        other_seconds=80,
        probe_budget_seconds=1230,
        termination_grace_seconds=60,
    ),
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
    surroundings=Surroundings(
        token_secret="hugging-face", token_key="token", client_namespaces=("kourier-system", "monitoring")
    ),
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


def cost_of(
    *rows: tuple[str, str, str, Range | None, Range | None], unpriced: tuple[UnpricedItem, ...] = (), **values: Any
) -> CostChange:
    """A change of the cost with these services (environment, name, change, past, new), one cost centre each."""
    services = tuple(
        ServiceCost(
            environment=environment,
            name=name,
            change=change,  # type: ignore[arg-type]
            past=past,
            new=new,
            difference=Range(min=new.min - past.min, max=new.max - past.max) if past and new else None,
            partly=past is None or new is None,
            workloads_before=(),
            workloads=(),
        )
        for environment, name, change, past, new in rows
    )
    known = [one for one in services if one.difference]
    past, new, difference = (
        Range(min=sum((one.min for one in side), Decimal(0)), max=sum((one.max for one in side), Decimal(0)))
        for side in (
            [one.past for one in known if one.past],
            [one.new for one in known if one.new],
            [one.difference for one in known if one.difference],
        )
    )
    centers = (CenterCost(cost_center="cc-1001", past=past, new=new, difference=difference),) if known else ()
    return CostChange(
        **{
            "total": Totals(past=past, new=new, difference=difference),
            "left_out": len(services) - len(known),
            "services": services,
            "cost_centers": centers,
            "unpriced": unpriced,
            "price_lists": (PRICE_LIST,),
            "prices_altered": False,
            "at_base_prices": None,
            **values,
        }
    )


def usd(low: str, high: str) -> Range:
    """US dollars a month."""
    return Range(min=Decimal(low), max=Decimal(high))


NOTHING = usd("0.00", "0.00")
CHAT = usd("518.30", "1554.90")
PRICE_LIST = PriceListUsed(
    name="google-cloud",
    date=date(2026, 11, 1),
    region="US regions",
    tier="on-demand list price",
    source="https://cloud.google.com/run/pricing",
    old=False,
    ahead=False,
)


def with_outcome(name: str, outcome: Outcome, **values: Any) -> tuple[Check, ...]:
    """The checks of a passed run, with another outcome for one of them."""
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
        cost=cost_of(("dev", "support-chat", "added", NOTHING, CHAT)),
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
        cost=refused_cost(),
        notes=("The change alters policies or exceptions: the base's decided, and the change's own ran beside them.",),
    )


def refused_cost() -> CostChange:
    """A service that grows, one that goes, one whose accelerator has no price; altered, old prices; output tokens."""
    lost = UnpricedItem(
        environment="prod",
        service="long-documents",
        subject="InferenceService team-alpha/long-documents predictor",
        reason="no price list of the environment prod has a price for 1 x nvidia-h200-141gb",
        side="after",
    )
    cost = cost_of(
        ("dev", "support-chat", "changed", CHAT, usd("1036.60", "3109.80")),
        ("dev", "old-chat", "removed", usd("100.00", "100.00"), NOTHING),
        ("prod", "long-documents", "added", NOTHING, None),
        unpriced=(lost,),
        price_lists=(PRICE_LIST.model_copy(update={"old": True}),),
        prices_altered=True,
        at_base_prices=Totals(past=CHAT, new=CHAT, difference=usd("400.00", "1400.00")),
    )
    first, *others = cost.services
    tokens = TokenPrice(usd_per_million=Decimal("3.23"), tokens_per_second=Decimal("61.0"))
    return cost.model_copy(update={"services": (first.model_copy(update={"output_tokens": tokens}), *others)})


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
    return verdict(checks, "The gate cannot be trusted, so this is not a verdict: Policies", services=(service,))


def nothing_to_check() -> Verdict:
    """A change without manifests, for which the tripwires still ran."""
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
    cost = cost_of(*(("prod", service.name, "changed", CHAT, usd("1036.60", "3109.80")) for service in services))
    return verdict(checks, f"Refused: {count} findings", findings=findings, services=services, cost=cost)


EXAMPLES: dict[str, Callable[[], Verdict]] = {
    "passed": passed,
    "refused": refused,
    "untrusted": untrusted,
    "nothing-to-check": nothing_to_check,
    "plain-folder": plain_folder,
    "1000-findings": lambda: many_findings(1000),
}


# Text that attacks its reader: markup, mentions, links, commands, terminal and XML control.
FRAGMENTS = (
    "@team",
    "@org/team",
    "#12",
    "!7",
    "GH-3",
    "https://evil.example/x",
    "www.evil.example",
    "mailto:a@b.example",
    "[text](https://evil.example)",
    "![image](https://evil.example/i.png)",
    "[ref]: https://evil.example",
    "<https://evil.example>",
    "<img src=x onerror=alert(1)>",
    "<details>",
    "</details>",
    "</summary>",
    "<!-- neuroscale-gate -->",
    "-->",
    "<!--",
    "&lt;b&gt;",
    "&#64;team",
    "# heading",
    "## ✅ Passed",
    "===",
    "---",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "> quote",
    "```",
    "``",
    "`",
    "` `",
    "~~gone~~",
    "~~~",
    "**bold**",
    "__bold__",
    "_em_",
    "$x$",
    "$$",
    "| a | b |",
    "|---|---|",
    "    code",
    "\\",
    "\\`",
    ":tada:",
    "[bold red]rich[/]",
    "[/]",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
    "\x9b31m",
    "\r",
    "\n",
    "\r\n",
    "\n\n",
    "\t",
    "\x00",
    "\x0b",
    "\x85",
    "\u2028",
    "\u202e",
    "\u200b",
    "\ufeff",
    "\ufffe",
    "\ud800",
    "\udcff",
    "::error::injected",
    "\n::set-env name=X::y",
    "\n##[set-env name=X]y",
    "::stop-commands::x",
    "%0A::error::x",
    "%",
    ",",
    ":",
    "]]>",
    "<![CDATA[",
    "\U0001f600",
    " ",
    "word",
)

_PIECES = st.one_of(
    st.sampled_from(FRAGMENTS),
    st.text(st.characters(), max_size=6),
    st.text(st.characters(codec="ascii"), max_size=6),
)


@st.composite
def _hostile(draw: st.DrawFn) -> str:
    return "".join(draw(st.lists(_PIECES, max_size=6)))


HOSTILE = _hostile()


def any_value(model: type[BaseModel], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any value of a model, all its text hostile; `given` replaces the strategy of a field."""
    hints = get_type_hints(model)
    return st.builds(model, **{name: given.get(name, _strategy(hints[name])) for name in model.model_fields})


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_strategy(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(HOSTILE, _strategy(arguments[1]), max_size=2)
    if origin in (Union, UnionType):
        return st.one_of(*map(_strategy, arguments))
    if hint is SecretStore:  # its texts have forms
        return st.builds(SecretStore, kind=st.just("external-secrets"), store=st.just("vault"))
    if issubclass(hint, BaseModel):
        return any_value(hint)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    simple: dict[type, st.SearchStrategy[Any]] = {
        NoneType: st.none(),
        str: HOSTILE,
        bool: st.booleans(),
        int: st.integers(-(2**53), 2**53) | st.integers(0, 5),
        float: st.floats(allow_nan=False, allow_infinity=False) | st.floats(0, 100),
        Decimal: st.decimals(-(10**11), 10**11, places=2) | st.decimals(0, 1000, places=4),
        date: st.dates(),
    }
    return simple[hint]


_PLANS = st.one_of(st.just(GEMMA_MOE), st.just(GEMMA_DENSE_REFUSED), any_value(Plan))
_SERVICES = any_value(ServiceReport, plan=st.none() | _PLANS, plan_before=st.none() | _PLANS)

# Any verdict at all, also ones that contradict themselves.
VERDICTS: st.SearchStrategy[Verdict] = any_value(Verdict, services=st.lists(_SERVICES, max_size=2).map(tuple))


def _consistent(value: Verdict) -> Verdict:
    checks = value.checks
    if any(finding.severity is Severity.ERROR for finding in value.findings):
        checks = (*checks, with_outcome("policy", Outcome.FINDINGS)[1])
    elif not any(check.outcome is Outcome.PASSED for check in checks):
        checks = (*checks, CHECKS[0])
    return value.model_copy(update={"checks": checks, "exit_status": exit_status(checks).value})


# Verdicts as the gate builds them: the exit status is that of the checks, and something was checked.
CONSISTENT_VERDICTS = VERDICTS.map(_consistent)
