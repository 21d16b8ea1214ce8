"""Plans the changes of a request that may help a slow service: those that give it more, by the plan, are told as lines
of `neuroscale update`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import plainly_counted
from neuroscale.explain.explanation import Help, ServingReport
from neuroscale.explain.server_facts import engine_values
from neuroscale.explain.slow_service import Bound, Promise, Serving
from neuroscale.planning.case import asked_rate
from neuroscale.planning.fit_question import Question
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import accelerators
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.request.field_changes import OVERRIDES, FieldChanges, changed
from neuroscale.vllm.argument_values import values_of, words_of

if TYPE_CHECKING:  # a comparison of models asks no cluster
    from neuroscale.cluster.services_in_git import Planned

_MOST_HELPS = 2  # of one bound


def question_of(plan: Plan, options: Question | None = None) -> Question:
    """What a service's plan asks of the fit and the speed; `options`: the options, of which those that a plan decides
    are replaced."""
    return replace(
        options or Question(),
        model=plan.model,
        accelerator=plan.accelerator,
        count=plan.accelerator_count,
        words=words_of(engine_values(values_of(plan.vllm_args, plan.runtime.version)), plan.runtime.version),
        vllm_version=plan.runtime.version,
        environment=tuple(f"{name}={value}" for name, value in plan.environment_variables.items()),
    )


def promise_of(planned: Planned, inputs: PlanningInputs) -> Promise:
    """What the files of a service promise."""
    request, plan = planned.request, planned.plan
    load = plan.load
    rate = load.tokens_per_second.user if load and load.tokens_per_second else None
    return Promise(
        users=request.concurrent_users,
        replica_users=load.replica_users if load else -(-request.concurrent_users // plan.replicas.min),
        replicas=plan.replicas.min,
        ttft_p95=load.ttft_seconds.p95.value if load and load.ttft_seconds else None,
        rate=rate.value if rate else None,
        slowest=rate.low if rate else None,
        asked_ttft=request.p95_ttft_seconds,
        asked_rate=asked_rate(request, inputs.settings.environments[request.environment]),
        overridden=frozenset(override.field for override in request.overrides),
    )


def with_help(
    serving: Serving, planned: Planned | None, inputs: PlanningInputs, until: str, *, local: bool
) -> ServingReport:
    """The judgement with the changes that help by the plan. `until`: the last day of overrides."""
    if planned is None or serving.verdict != "bound":
        return ServingReport(serving)
    helps = [each for bound in serving.bounds for each in _helps(bound, planned, inputs, until)]
    tried = any(bound.tries for bound in serving.bounds)
    no_help = "No change of its request that was tried gives it more by the plan: `neuroscale advise` compares others."
    return ServingReport(serving, tuple(helps), no_help if tried and not helps else "", planned.name, local)


def _helps(bound: Bound, planned: Planned, inputs: PlanningInputs, until: str) -> Iterator[Help]:
    sentences: set[str] = set()
    for tried in bound.tries:
        if len(sentences) == _MOST_HELPS:
            return
        overriding = any(name.startswith(OVERRIDES) for name in tried.values)
        reason = f"explain: {bound.name}"
        changes = FieldChanges(tried.values, tried.removed, reason if overriding else "", until if overriding else "")
        sentence = _gain(planned, changes, inputs)
        if sentence and sentence not in sentences:
            sentences.add(sentence)
            yield Help(bound.name, changes, sentence)


def planned_with(planned: Planned, changes: FieldChanges, inputs: PlanningInputs) -> Plan | None:
    """The plan of the service with the changes, which may be refused; None if the request cannot take them."""
    try:
        return inputs.plan(changed(planned.request, changes, inputs.known))
    except InputError:
        return None


def _gain(planned: Planned, changes: FieldChanges, inputs: PlanningInputs) -> str:
    """What the changes give by the plan; "" if they cannot be planned, are refused, or give nothing more."""
    before, after = planned.plan, planned_with(planned, changes, inputs)
    if after is None or after.verdict == "refused":
        return ""
    gains = []
    if after.replicas.min > before.replicas.min:
        gains.append(f"{plainly_counted(after.replicas.min, 'replica')} instead of {before.replicas.min}")
    if (place := accelerators(after)) != (earlier := accelerators(before)):
        gains.append(f"{place} instead of {earlier}")
    places, less = _places(after.vllm_args), _places(before.vllm_args)
    if places is not None and less is not None and places > less:
        gains.append(f"{places} requests at a time (--max-num-seqs) instead of {less}")
    if after.max_concurrency * after.replicas.min > before.max_concurrency * before.replicas.min:
        room, had = after.max_concurrency * after.replicas.min, before.max_concurrency * before.replicas.min
        gains.append(f"room for {plainly_counted(room, 'request')} of full length instead of {had}")
    if not gains:
        return ""
    cost = ""
    if after.cost.monthly_min is not None and before.cost.monthly_min is not None:
        more = Decimal(after.cost.monthly_min) - Decimal(before.cost.monthly_min)
        cost = f"; {usd(more, signed=True)} a month" if more else "; at the same price"
    sure = ", close to the limit of the memory" if after.verdict == "tight" else ""
    return f"By the plan: {', '.join(gains)}{cost}{sure}."


def _places(words: Sequence[str]) -> int | None:
    places = values_of(words).get("max_num_seqs")
    return places if isinstance(places, int) else None
