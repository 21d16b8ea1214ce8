"""Says where overrides give a request less than its form asks for, and which demands of production a plan misses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import FEWEST_IN_PRODUCTION, Settings
from neuroscale.core.printable import plainly_counted
from neuroscale.planning.plan import AppliedOverride, Plan
from neuroscale.planning.rollout import quota_shortage
from neuroscale.request.service_request import Request


def unmet_demands(plan: Plan, catalog: Catalog, settings: Settings) -> tuple[str, ...]:
    """Sentences on the rules that block a merge and that planning can see: a model without a revision, one replica, a
    quota that never holds the pods. They are no part of the plan, which holds whatever the rules are. The gate's drift
    and production checks judge the files."""
    if plan.verdict == "refused":
        return ()
    team = catalog.teams.get(plan.tenancy.team)
    short = quota_shortage(plan, team.quota) if team else None
    quota = (f"The gate refuses it, since {short.told}. {short.fix}",) if short else ()
    if plan.environment not in settings.production.environments:
        return quota
    return (*quota, *_unmet(plan, catalog, settings))


def _unmet(plan: Plan, catalog: Catalog, settings: Settings) -> Iterator[str]:
    rules, weights = settings.production, catalog.models[plan.model].weights
    has_revision = any(argument.startswith("--revision=") for argument in plan.vllm_args)
    if rules.model_revision == "block" and weights.kind == "hub" and not has_revision:
        yield (
            f"The gate refuses it in {plan.environment}, since the catalog has no revision of {plan.model}: request it "
            f"where the Hub can be reached, or run `neuroscale catalog add {weights.path}` there."
        )
    if rules.replicas == "block" and plan.replicas.min < FEWEST_IN_PRODUCTION:
        yield (
            f"The gate refuses it in {plan.environment} with {plan.replicas.min} replica: answer high to the question "
            "about availability."
        )


_NUMBER = re.compile(r"[0-9]{1,7}")


def shortfalls(
    request: Request,
    applied: Sequence[AppliedOverride],
    *,
    max_model_len: int,
    replicas: int,
    each: int,
    gap_minutes: int = 0,
    kept: int | None = None,
) -> tuple[str, ...]:
    """Clauses on users who wait, on requests that vLLM refuses, and on availability; none without overrides. `replicas`
    run, and `each` of them computes so many requests at once; nothing answers for `gap_minutes` of a change. `kept`:
    the users who get their first token and their tokens per second as asked for (None: not known). A plan with a
    shortfall works, and is tight."""
    if not applied:
        return ()
    clauses = []
    if waiting := max(0, request.concurrent_users - replicas * each):
        clauses.append(
            f"{replicas} x {plainly_counted(each, 'user')} is less than the {request.concurrent_users} asked for, by "
            f"the overrides: {waiting} of them wait in the queue at the busiest time"
        )
    elif kept is not None and kept < request.concurrent_users:
        clauses.append(
            f"by the overrides, {kept} of the {plainly_counted(request.concurrent_users, 'user')} asked for may ask at "
            "once without a later first token, or fewer tokens per second, than asked for"
        )
    # A plan that somebody wrote by hand may say anything here; the drift check compares it with the planner's.
    texts = (override.planned for override in applied if override.field == "max_model_len")
    planned = next((int(text) for text in texts if _NUMBER.fullmatch(text)), 0)
    if max_model_len < planned:
        clauses.append(
            f"the context of {max_model_len} tokens is shorter than the {planned} that the longest prompt, the longest "
            "answer and the chat template need: vLLM refuses such requests"
        )
    if request.availability == "high" and replicas < 2:
        clauses.append("the form asks for high availability, and one replica answers nothing while its node drains")
    if request.availability == "high" and gap_minutes:
        clauses.append(
            f"the form asks for high availability, and nothing answers for about {gap_minutes} min of each change, by "
            "the override of rollout"
        )
    return tuple(clauses)


def shortfalls_of(request: Request, plan: Plan) -> tuple[str, ...]:
    """The shortfalls of a plan that is written already; none if it is refused."""
    if plan.verdict == "refused":
        return ()
    each = plan.typical.max_concurrency if plan.typical else plan.max_concurrency
    return shortfalls(
        request,
        plan.overrides,
        max_model_len=plan.max_model_len,
        replicas=plan.replicas.min,
        each=each,
        gap_minutes=plan.rollout.gap_minutes if plan.rollout else 0,
        kept=plan.load.users + plan.load.head_room_users
        if plan.load and plan.load.head_room_users is not None
        else None,
    )
