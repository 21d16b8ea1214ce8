"""Shows what planning services anew would change: a table for people, and the same for programs and pull requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuroscale.core.printable import counted, terminal
from neuroscale.planning.plan import Plan
from neuroscale.planning.plan_facts import facts
from neuroscale.planning.rollout import merge_effect
from neuroscale.rendering.upgrade import Upgrade
from neuroscale.repo.layout import ServicePath
from neuroscale.report import phrases

COLUMNS = ("memory", "speed", "money", "rollout")


def differences(upgrade: Upgrade) -> dict[str, str]:
    """What changes in memory, speed and money, "" where nothing does; and what the merge does to the running pods."""
    before, after = upgrade.before, upgrade.after
    if after.verdict == "refused":
        return dict.fromkeys(COLUMNS, "")
    old, new = _figures(before), _figures(after)
    return {**{name: _change(old[name], new[name]) for name in old}, "rollout": _rollout(upgrade)}


def sentences(upgrade: Upgrade) -> list[str]:
    """The upgrade in sentences, for its pull request, which says by itself what the merge does to the pods."""
    same = {name: text or "as before" for name, text in differences(upgrade).items()}
    told = [
        f"The answers stay. Planned anew, since these moved: {', '.join(upgrade.moved)}.",
        f"Memory on each accelerator: {same['memory']}. Speed: {same['speed']}. Money: {same['money']}.",
    ]
    if upgrade.missed:
        told.append(f"{until_now(upgrade)}.")
    return [*told, *(f"It gets worse: {one}." for one in upgrade.worse)]


def until_now(upgrade: Upgrade) -> str:
    """What the servers of the earlier plan do not keep under the load; "" if nothing."""
    if not upgrade.missed:
        return ""
    asked = counted(upgrade.request.concurrent_users, "user")
    return f"The plan until now does not keep what is asked for: with {asked} at once {', and '.join(upgrade.missed)}"


def print_upgrades(upgrades: Mapping[ServicePath, Upgrade], console: Console) -> None:
    """A row for each service. What moved for all of them, or for all of an environment, stands in a line of its own."""
    shared = moved_alike(upgrades)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("service", *COLUMNS, "what else moved" if shared else "what moved"):
        table.add_column(name, overflow="fold")
    for path, upgrade in upgrades.items():
        alike = {*shared.get("", ()), *shared.get(path.environment, ())}
        own = ", ".join(item for item in upgrade.moved if item not in alike)
        cells = (path.name, *differences(upgrade).values(), own)
        table.add_row(*(Text(terminal(cell or "-")) for cell in cells))
    console.print(table)
    for environment, items in shared.items():
        line = f"Moved for all of {environment or 'them'}: {', '.join(items)}"
        console.print(Text(terminal(line, 1000)))


def moved_alike(upgrades: Mapping[ServicePath, Upgrade]) -> dict[str, tuple[str, ...]]:
    """What moved for each of several services, under "", and what more moved for each of an environment's, under its
    name: the settings of an environment are no news of each of its services."""
    groups = {"": list(upgrades.values())}
    for path, upgrade in upgrades.items():
        groups.setdefault(path.environment, []).append(upgrade)
    shared: dict[str, tuple[str, ...]] = {}
    for name, group in groups.items():
        if len(group) < 2:
            continue
        common = set.intersection(*(set(one.moved) for one in group)) - set(shared.get("", ()))
        if common:
            shared[name] = tuple(item for item in group[0].moved if item in common)
    return shared


def as_mapping(upgrade: Upgrade) -> dict[str, Any]:
    """The differences for programs, with both plans' figures."""
    sides = {"before": upgrade.before, "after": upgrade.after}
    return {
        "moved": list(upgrade.moved),
        "worse": list(upgrade.worse),
        "missed_until_now": list(upgrade.missed),
        "differences": differences(upgrade),
        "restarts_pods": not upgrade.same_pods,
        **{
            side: made.model_dump(
                mode="json", include={"verdict", "replicas", "memory_gib", "speed", "cost", "runtime"}
            )
            for side, made in sides.items()
        },
    }


def _figures(made: Plan) -> dict[str, str]:
    known = facts(made)
    price = known["Price a month"]
    return {
        "memory": f"{known['Memory']} of {known['Accelerators']}",
        "speed": phrases.speed(made) or "not known",
        "money": f"{price} a month" if price.unit else "no price",
    }


def _change(before: str, after: str) -> str:
    return "" if before == after else f"{before} -> {after}"


def _rollout(upgrade: Upgrade) -> str:
    """In a few words; `change_phrases.rollout` has the sentences."""
    effect = merge_effect(upgrade.before, upgrade.after, same_pods=upgrade.same_pods)
    more = f"{effect.more:,} more {upgrade.after.accelerator} for" if effect.more else "within"
    return {
        "nothing": f"nothing restarts; a gap of {freed.minutes:,} min while the newest version does not run"
        if (freed := effect.if_unfinished)
        else "nothing restarts",
        "move": f"a gap of {effect.minutes:,} min, and another address",
        "scale": f"{effect.replicas[0]:,} -> {effect.replicas[1]:,} replicas",
        "surge": f"no gap, {more} {effect.minutes:,} min",
        "fewer": f"{effect.fewer:,} of {effect.replicas[1]:,} fewer for {effect.minutes:,} min",
        "gap": f"a gap until {effect.more:,} more {upgrade.after.accelerator} is free"
        if effect.more
        else f"a gap of {effect.minutes:,} min",
    }[effect.kind]
