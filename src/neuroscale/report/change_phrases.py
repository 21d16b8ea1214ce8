"""Says in words what a change of a service asks for, and what its merge does to the pods that run."""

from __future__ import annotations

from collections.abc import Iterable

from neuroscale.core.printable import counted
from neuroscale.core.printable import markdown_code as code
from neuroscale.gate.verdict import ServiceReport
from neuroscale.planning.explain import MEMORY_SENTENCE
from neuroscale.planning.plan import Plan
from neuroscale.planning.rollout import merge_effect, move
from neuroscale.report.phrases import Escape, accelerators, price, speed, unpriced
from neuroscale.request.service_request import ChangedAnswer

LABELS = {
    "model": "Model",
    "team": "Team",
    "environment": "Environment",
    "concurrent_users": "Concurrent users",
    "longest_prompt_tokens": "Longest prompt (tokens)",
    "longest_answer_tokens": "Longest answer (tokens)",
    "typical_prompt_tokens": "Typical prompt (tokens)",
    "typical_answer_tokens": "Typical answer (tokens)",
    "p95_ttft_seconds": "Time to first token (seconds, p95)",
    "tokens_per_second_per_user": "Tokens per second for each user",
    "availability": "Availability",
}
"""The form's questions, by field."""


def answers(changed: Iterable[ChangedAnswer], name: Escape) -> list[str]:
    """The answers that a change alters, old and new: `Concurrent users: 4 to 8`."""
    return [
        f"{LABELS.get(one.field) or name(one.field)}: {_side(one.before, name)} to {_side(one.after, name)}"
        for one in changed
    ]


def _side(value: str | None, name: Escape) -> str:
    return "not set" if value is None else name(value)


def is_change(service: ServiceReport) -> bool:
    """Whether a service that runs is changed, and both plans are known."""
    return service.change == "changed" and service.plan is not None and service.plan_before is not None


def of_change(service: ServiceReport) -> list[str]:
    """Markdown lines on a changed service: what is asked for otherwise, and what the merge does to the pods that run.
    None for any other service."""
    before, plan = service.plan_before, service.plan
    if before is None or plan is None or not is_change(service):
        return []
    asked = answers(service.answers, _short)
    lines = [f"**Asked for** {'; '.join(asked) or 'the same as before'}"]
    if plan.verdict != "refused":
        effect = rollout(before, plan, code, same_pods=service.same_pods, quota=service.quota)
        lines.append(f"**The merge** {effect}")
    return lines


def _short(text: str) -> str:
    return code(text, 120)


def money(service: ServiceReport, plan: Plan) -> str:
    """Markdown of a plan's cost, and of the cost before where that differs."""
    told = price(plan)
    if unpriced(service) is not None:
        told += f": the catalog has no price for {code(plan.accelerator, 80)}"
    if service.plan_before is None or not is_change(service) or (old := price(service.plan_before)) == price(plan):
        return told
    return f"{told}; before, {old}"


def figures(service: ServiceReport, plan: Plan) -> str:
    """Markdown of a plan's cost and of its speed at the asked load, and of the speed before where that differs."""
    told = f"**Price** {money(service, plan)}"
    if not (now := speed(plan)):
        return told
    before = speed(service.plan_before) if service.plan_before is not None and is_change(service) else now
    return f"{told}<br>**Speed** {now}" + ("" if before == now else f"; before, {before or 'not known'}")


def reasons(plan: Plan) -> list[str]:
    """The reasons of a plan; where it is served, without the sentence on the memory, whose figures the bar has."""
    return [one for one in plan.reasons if plan.verdict == "refused" or not one.startswith(MEMORY_SENTENCE)]


def rollout(
    before: Plan | None, after: Plan, name: Escape = str, *, same_pods: bool | None = None, quota: int | None = None
) -> str:
    """What the merge of a plan does to the running service, in one line. `before`: the plan by which it runs (None: it
    does not run yet). `same_pods`: see `merge_effect`. `quota`: the most accelerators of the plan's resource that the
    team's quota in Git holds, where that is known."""
    if before is None:
        needs = _needed(after, after.replicas.min * after.accelerator_count, name)
        return f"The service is new: it starts with {counted(after.replicas.min, 'replica')} and {needs}."
    effect = merge_effect(before, after, same_pods=same_pods)
    old, new = effect.replicas
    about = f"about {effect.minutes:,} min"
    needs = _needed(after, effect.more, name, more=not effect.is_other_kind and effect.kind != "move")
    device = after.resources.accelerator_resource
    holds = f" The team's quota holds {quota:,} {name(device)}." if quota is not None and effect.more and device else ""
    if effect.kind == "move":
        return f"{move(before, after, name)} The service {needs} there.{holds}"
    if effect.is_other_kind:
        where = "beside" if effect.kind in ("scale", "surge") else "in place of"
        needs += f" {where} the {accelerators(before, name)} that each replica holds now"
    elif effect.more_for_good and effect.more > effect.more_for_good:
        needs += f" at once, and {effect.more_for_good:,} of them from then on"
    if effect.kind == "nothing":
        return "Nothing: the running pods stay as they are."
    if effect.kind == "scale":
        told = f"No restart: {new:,} in place of {counted(old, 'replica')}"
        return f"{told}. That {needs} within {about}.{holds}" if new > old else f"{told}."
    if effect.kind == "surge":
        told = needs if effect.more_for_good or effect.is_other_kind else f"{needs} for {about}"
        return f"No gap: each old pod answers until a new one is ready ({about}). The rollout {told}.{holds}"
    lead = f"A restart with a gap of {about}: the only replica ends before the new one starts."
    if effect.kind == "fewer":
        lead = f"No gap: {effect.fewer:,} of {new:,} replicas does not answer for {about}, in turn."
    if effect.more:
        free = f"until {'it is' if effect.more == 1 else 'they are'} free"
        if effect.kind == "fewer":
            return f"{lead} The rollout {needs}, and waits {free}.{holds}"
        instead = "The old version goes on answering until then with an override of rollout with surge."
        return f"{lead} The new one {needs}: nothing answers {free}. {instead}{holds}"
    return f"{lead} No more accelerators are needed." if device else lead


def later_changes(plan: Plan, name: Escape = str) -> str:
    """What a later change of the pods does by this plan, in a few words; empty for a plan from before."""
    if (way := plan.rollout) is None:
        return ""
    about = f"for about {way.minutes:,} min of each change"
    if way.kind == "surge":
        return f"surge, {_needed(plan, way.extra_accelerators, name, more=True)} {about}"
    return f"replace, {'nothing answers' if way.gap_minutes else 'one replica fewer answers'} {about}"


def _needed(plan: Plan, count: int, name: Escape, more: bool = False) -> str:
    """`need 2 more `nvidia-l4``; for pods without an accelerator, their room on the nodes."""
    beside = " more" if more else ""
    if plan.resources.accelerator_resource:
        return f"needs {count:,}{beside} {name(plan.accelerator)}"
    pods = counted(count // max(plan.accelerator_count, 1), f"{beside} pod".strip())
    return f"needs room for {pods} of {plan.resources.cpu:,} CPU and {plan.resources.memory_gib:,} GiB"
