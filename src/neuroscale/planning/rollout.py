"""Decides how a change reaches the pods that run, and says what a merge does to a running service.

The object's own `deploymentStrategy` comes before the one of KServe's configuration (KServe 0.20,
deployment_reconciler.go, `createRawDefaultDeployment`), and canaries inherit it (predictor.go, `buildCanaryPredictor`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from neuroscale.catalog import Catalog, Quota
from neuroscale.core.printable import plainly_counted
from neuroscale.planning.case import Case
from neuroscale.planning.plan import Plan, Rollout, Startup
from neuroscale.planning.startup import DRAIN_SECONDS


def rollout_of(case: Case, replicas: int, accelerators: int, start: Startup) -> Rollout:
    """How a change reaches so many `replicas` of so many `accelerators` each: by the override, else by the settings for
    the availability. High availability never has a gap: only an override replaces its only replica."""
    availability = case.request.availability
    kind = getattr(case.environment.rollout, availability)
    if availability == "high" and replicas == 1:
        kind = "surge"
    kind = case.overrides.get("rollout", kind)
    minutes = _minutes(replicas, start)
    is_surge = kind == "surge"
    return Rollout(
        kind=kind,
        availability=availability,
        max_surge=int(is_surge),
        max_unavailable=int(not is_surge),
        extra_accelerators=accelerators if is_surge else 0,
        minutes=minutes,
        gap_minutes=0 if is_surge or replicas > 1 else minutes,
    )


def _minutes(replicas: int, start: Startup) -> int:
    """Minutes until so many pods have started one after the other, and each old one has left the endpoints before."""
    return math.ceil(replicas * (start.expected_seconds + DRAIN_SECONDS) / 60)


def reason_of(case: Case, rollout: Rollout, replicas: int, label: str) -> str:
    """A plan's sentence on its rollout. `label`: the accelerators of one replica."""
    why = f"by the settings of {case.environment_name} for {rollout.availability} availability"
    if "rollout" in case.overrides:
        why = "as the override says"
    elif rollout.kind != getattr(case.environment.rollout, rollout.availability):
        why = "since high availability never has a gap"
    about = f"for about {rollout.minutes} min"
    if rollout.kind == "surge":
        return f"A later change starts a new pod before an old one ends, {why}: {label} more must be free {about}."
    told = f"one replica fewer of {replicas} answers {about}" if replicas > 1 else f"nothing answers {about}"
    return f"A later change ends an old pod before a new one starts, {why}: {told}. It needs no free accelerator."


@dataclass(frozen=True)
class MergeEffect:
    """What a merge does to the pods of a running service.

    `kind`: `nothing`; `scale` (pods start or end, and the others go on); `surge`; `fewer` (an old pod ends before a new
    one starts, and others answer); `gap` (nothing answers meanwhile); `move` (the same, and the service gets another
    namespace). `replicas`: before and after.

    `is_freed`: the merge lets a rollout go on that waited, and so ends pods that serve, although it changes no pod.
    `if_unfinished`: that effect, where files alone are known, and the newest version may not run yet.
    """

    kind: Literal["nothing", "scale", "surge", "fewer", "gap", "move"]
    replicas: tuple[int, int]
    minutes: int = 0
    # Accelerators of the plan's kind beside those that the service holds: at most at one time, and from then on.
    more: int = 0
    more_for_good: int = 0
    is_other_kind: bool = False  # the service holds accelerators of another kind until now
    fewer: int = 0  # replicas that answer less meanwhile
    most: int = 0  # the most replicas that run from then on, where that is fewer than until now
    is_freed: bool = False
    if_unfinished: MergeEffect | None = None


def merge_effect(
    before: Plan, after: Plan, *, same_pods: bool | None = None, unfinished: bool | None = None
) -> MergeEffect:
    """What a merge of the plan `after` does to a service that runs by the plan `before`. `same_pods`: whether both
    render the same pod template; without it, the plans decide, and another version of the template counts as other
    pods. `unfinished`: whether pods of an earlier version serve, since the newest version does not run yet (None: that
    is not known)."""
    old, new = before.replicas.min, after.replicas.min
    held, each = before.accelerator_count, after.accelerator_count
    is_other_kind = before.accelerator != after.accelerator
    if before.tenancy.namespace != after.tenancy.namespace:
        # No rollout: Argo CD makes other objects there, and deletes those of the old namespace in the same sync.
        return MergeEffect("move", (old, new), _minutes(1, after.startup), more=new * each, more_for_good=new * each)
    if same_pods is None:
        same_pods = _pods(before) == _pods(after)
    if same_pods:
        added = max(0, new - old) * each
        kind: Literal["nothing", "scale"] = "nothing" if new == old else "scale"
        minutes = _minutes(1, after.startup) if new > old else 0
        most = after.replicas.max if after.replicas.max < before.replicas.max else 0
        effect = MergeEffect(kind, (old, new), minutes, more=added, more_for_good=added, most=most)
        freed = _freed(before, after)
        if freed is None or unfinished is False:
            return effect
        return freed if unfinished else replace(effect, if_unfinished=freed)
    surge, fewer = strategy(after)
    # One pod at a time, so the most is held beside the last of the larger pods.
    most = new * each if is_other_kind else new * max(held, each) + surge * min(held, each) - old * held
    for_good = new * each - (0 if is_other_kind else old * held)
    minutes = after.rollout.minutes if after.rollout else _minutes(new, after.startup)
    if old < new and old <= new - fewer:
        # Kubernetes starts the pods of the growth at once, and ends no old one before they are ready.
        minutes, fewer = _minutes(old + fewer, after.startup), 0
    return MergeEffect(
        "gap" if fewer >= new else "fewer" if fewer else "surge",
        (old, new),
        minutes,
        more=max(0, most),
        more_for_good=max(0, for_good),
        is_other_kind=is_other_kind,
        fewer=fewer,
    )


def _freed(before: Plan, after: Plan) -> MergeEffect | None:
    """What a change of the rollout alone does while its newest version does not run yet; None if it ends no pod.

    A Deployment ends pods of earlier versions as far as `maxUnavailable` allows, also those that serve while a new pod
    waits (Kubernetes, deployment/rolling.go, `reconcileOldReplicaSets`). A strategy that allows more so lets a rollout
    go on that waited."""
    new, fewer = after.replicas.min, strategy(after)[1]
    if fewer <= strategy(before)[1]:
        return None
    minutes = after.rollout.minutes if after.rollout else _minutes(new, after.startup)
    return MergeEffect(
        "gap" if fewer >= new else "fewer", (before.replicas.min, new), minutes, fewer=fewer, is_freed=True
    )


def move(before: Plan, after: Plan, name: Callable[[str], str] = str) -> str:
    """What a merge does by which a service goes on in another namespace, or under another name: Argo CD makes other
    objects there. `name` escapes names."""
    sides = [f"{plan.environment}/{plan.service}" for plan in (before, after)]
    lead = ""
    if before.tenancy.namespace != after.tenancy.namespace:
        sides, lead = [before.tenancy.namespace, after.tenancy.namespace], "namespace "
    centers = before.tenancy.cost_center, after.tenancy.cost_center
    pays = f" {name(centers[1])} pays for it in place of {name(centers[0])}." if centers[0] != centers[1] else ""
    gap = f"A gap of about {_minutes(1, after.startup):,} min, another address and another API key"
    places = f"{lead}{name(sides[0])} to {name(sides[1])}"
    return f"{gap}: the service moves from {places}. Argo CD deletes the old pods at once.{pays}"


def strategy(plan: Plan) -> tuple[int, int]:
    """The pods more and the pods fewer of a rollout. A plan without one leaves it to KServe: a quarter each way, of
    which Kubernetes rounds the surge up and the other down."""
    if plan.rollout is not None:
        return plan.rollout.max_surge, plan.rollout.max_unavailable
    return math.ceil(plan.replicas.min / 4), plan.replicas.min // 4


def accelerator_quota(plan: Plan, catalog: Catalog) -> int | None:
    """The most accelerators of the plan's resource that its team's quota in Git holds; None without such a resource or
    team."""
    team = catalog.teams.get(plan.tenancy.team)
    device = plan.resources.accelerator_resource
    return team.quota.accelerators.get(device, 0) if team and device else None


@dataclass(frozen=True)
class Shortage:
    """What a team's quota in Git can never hold of a plan, whoever else runs: `told` is a clause about the service,
    `fix` says what works."""

    told: str
    fix: str


def quota_shortage(plan: Plan, quota: Quota, beside: Mapping[str, int] = MappingProxyType({})) -> Shortage | None:
    """Why a quota holds the plan's replicas never, or never with the pods that its rollout starts beside them; None if
    it can hold them. A plan that is refused has no pods. `beside`: what the team's other services of the environment
    take, by the names of a quota's fields (`pods`, `accelerators.nvidia.com/gpu`)."""
    if plan.verdict == "refused":
        return None
    surge, _ = strategy(plan)
    resources, replicas = plan.resources, plan.replicas.min
    rows = [("pods", 1, quota.pods), ("cpu", resources.cpu, quota.cpu)]
    rows.append(("memory_gib", resources.memory_gib, quota.memory_gib))
    if device := resources.accelerator_resource:
        rows.append((f"accelerators.{device}", plan.accelerator_count, quota.accelerators.get(device, 0)))
    alone = [row for row in rows if replicas * row[1] > row[2]]
    short = [row for row in rows if (replicas + surge) * row[1] + beside.get(row[0], 0) > row[2]]
    if not short:
        return None
    team = plan.tenancy.team
    raised = ", ".join(f"quota.{name} to {(replicas + surge) * each + beside.get(name, 0)}" for name, each, _ in short)
    fix = f"Raise {raised} in platform/catalog/teams/{team}.yaml"
    name, each, held = (alone or short)[0]
    what = name.removeprefix("accelerators.").replace("memory_gib", "GiB of memory")
    pods = plainly_counted(replicas, "replica")
    if alone:
        told = f"its {pods} {'needs' if replicas == 1 else 'need'} {replicas * each} {what}, and the quota of {team}"
        return Shortage(f"{told} holds {held}: the cluster refuses the pods", f"{fix}, or ask for less.")
    others = beside.get(name, 0)
    if not surge:
        told = f"its {pods} and the team's other services in {plan.environment} take {replicas * each + others} {what}"
        return Shortage(f"{told}, and the quota of {team} holds {held}: not all pods start", f"{fix}, or ask for less.")
    told = (
        f"its rollout starts {plainly_counted(surge, 'pod')} beside its {pods}, which takes "
        + (f"with the team's other services in {plan.environment} " if others else "")
        + f"{(replicas + surge) * each + others} {what}, and the quota of {team} holds {held}: "
        + "a change would wait for ever"
    )
    if plan.rollout is None:
        return Shortage(told, f"Renew the plan, so that it decides the rollout, or {fix[0].lower()}{fix[1:]}.")
    cost = "nothing answers during a change" if replicas == 1 else "one replica fewer answers during a change"
    return Shortage(told, f"Override rollout with replace in request.yaml ({cost}), or {fix[0].lower()}{fix[1:]}.")


def _pods(plan: Plan) -> list[Any]:
    """Everything of a plan that its pod template shows: KServe also copies the service's labels to the pods."""
    return [
        (plan.model_source, plan.tensor_parallel_size, plan.vllm_args, plan.environment_variables),
        (plan.needs_hugging_face_token, plan.surroundings.token_secret, plan.surroundings.token_key),
        (plan.surroundings.service_account,),
        (plan.startup.probe_budget_seconds, plan.startup.termination_grace_seconds),
        (plan.runtime, plan.resources, plan.tenancy, plan.architecture, plan.memory_gib.weights),
        # High availability spreads the pods.
        (plan.rollout and plan.rollout.availability, plan.lock.template_version),
    ]
