"""Says in words what a change of a service asks for, and what its merge does to the pods that run."""

from __future__ import annotations

from collections.abc import Iterable

from neuroscale.core.printable import counted
from neuroscale.core.printable import markdown_code as code
from neuroscale.gate.verdict import ServiceReport
from neuroscale.planning.explain import MEMORY_SENTENCE
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import Escape, accelerators, needs
from neuroscale.planning.rollout import MergeEffect, merge_effect, move
from neuroscale.report import phrases
from neuroscale.report.memory_bar import memory_bar
from neuroscale.report.phrases import price, priced, speed
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
    "model_revision": "Revision of the model",
}
"""The form's questions, by field."""


_ENDS = "pods that serve end so that it can start"


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
        lines.append(f"**The merge** {rollout_of(service, plan, code)}")
    return lines


def rollout_of(service: ServiceReport, plan: Plan, name: Escape = str) -> str:
    """What the merge of a service's plan does to the running service, by all that the report knows."""
    return rollout(
        service.plan_before,
        plan,
        name,
        same_pods=service.same_pods,
        quota=service.quota,
        unfinished=service.unfinished,
    )


def _short(text: str) -> str:
    return code(text, 120)


def placed(service: ServiceReport, plan: Plan) -> str:
    """Markdown of a plan's model and accelerators, of what its plan changes, and of its memory."""
    lines = [phrases.placement(plan, code)]
    if changed := phrases.differences(service, code):
        lines.append(f"Changed: {'; '.join(changed)}")
    if plan.accelerator_count > 1:
        lines.append(phrases.memory_caption(plan))
    return f"{'<br>'.join(lines)}\n\n```text\n{memory_bar(plan.memory_gib)}\n```"


def money(service: ServiceReport, plan: Plan) -> str:
    """Markdown of a plan's cost, and of the cost before where that differs."""
    told = priced(plan, lambda text: code(text, 80))
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
    before: Plan | None,
    after: Plan,
    name: Escape = str,
    *,
    same_pods: bool | None = None,
    quota: int | None = None,
    unfinished: bool | None = None,
) -> str:
    """What the merge of a plan does to the running service, in one line. `before`: the plan by which it runs (None: it
    does not run yet). `same_pods`, `unfinished`: see `merge_effect`. `quota`: the most accelerators of the plan's
    resource that the team's quota in Git holds, where that is known."""
    if before is None:
        start = needs(after, after.replicas.min * after.accelerator_count, name)
        return f"The service is new: it starts with {counted(after.replicas.min, 'replica')} and {start}."
    effect = merge_effect(before, after, same_pods=same_pods, unfinished=unfinished)
    old, new = effect.replicas
    about = f"about {effect.minutes:,} min"
    needed = needs(after, effect.more, name, more=not effect.is_other_kind and effect.kind != "move")
    device = after.resources.accelerator_resource
    holds = f" The team's quota holds {quota:,} {name(device)}." if quota is not None and effect.more and device else ""
    if effect.kind == "move":
        return f"{move(before, after, name)} The service {needed} there.{holds}"
    if effect.is_other_kind:
        where = "beside" if effect.kind in ("scale", "surge") else "in place of"
        needed += f" {where} the {accelerators(before, name)} that each replica holds now"
    elif effect.more_for_good and effect.more > effect.more_for_good:
        needed += f" at once, and {effect.more_for_good:,} of them from then on"
    if effect.is_freed:
        freed = _freed(effect)
        return f"{freed[0].upper()}{freed[1:]}: the newest version does not run yet, and {_ENDS}."
    if effect.kind in ("nothing", "scale"):
        waiting = effect.if_unfinished
        told = "Nothing while the newest version runs." if waiting else "Nothing: the running pods stay as they are."
        if effect.kind == "scale":
            told = f"No restart: {new:,} in place of {counted(old, 'replica')}."
            told += f" That {needed} within {about}.{holds}" if new > old else ""
        elif effect.most:
            told = f"No restart: at most {counted(effect.most, 'replica')} from then on; pods beyond that end."
        return f"{told} While the newest version waits or loads, {_ENDS}: {_freed(waiting)}." if waiting else told
    if effect.kind == "surge":
        told = needed if effect.more_for_good or effect.is_other_kind else f"{needed} for {about}"
        return f"No gap: each old pod answers until a new one is ready ({about}). The rollout {told}.{holds}"
    lead = f"A restart with a gap of {about}: the only replica ends before the new one starts."
    if effect.kind == "fewer":
        lead = f"No gap: {effect.fewer:,} of {new:,} replicas does not answer for {about}, in turn."
    if effect.more:
        free = f"until {'it is' if effect.more == 1 else 'they are'} free"
        if effect.kind == "fewer":
            return f"{lead} The rollout {needed}, and waits {free}.{holds}"
        instead = "The old version goes on answering until then with an override of rollout with surge."
        return f"{lead} The new one {needed}: nothing answers {free}. {instead}{holds}"
    return f"{lead} No more accelerators are needed." if device else lead


def _freed(effect: MergeEffect) -> str:
    """How long nothing or less answers, where a change of the rollout alone lets the newest version start."""
    about = f"about {effect.minutes:,} min"
    if effect.kind == "gap":
        return f"a gap of {about}"
    return f"{effect.fewer:,} of {effect.replicas[1]:,} replicas does not answer for {about}, in turn"
