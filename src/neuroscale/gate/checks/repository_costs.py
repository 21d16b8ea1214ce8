"""Adds up what all services of some cost centres cost, mostly by their locked plans.

The drift check has seen that a merged plan renders to the service's manifests, so a service that the change leaves
alone is priced by a few lines of its plan.yaml. A service without a plan, or whose plan allows fewer and more replicas,
is priced by its manifests, as a service of the change is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any

from neuroscale.costs.change import Side, price_side
from neuroscale.costs.pricing import Prices
from neuroscale.gate.checks.cost_of_change import read_side
from neuroscale.gate.checks.locked_plans import LockedPlan, locked_plans
from neuroscale.gate.judged_files import group_services
from neuroscale.gate.merged_change import MOST_PATHS
from neuroscale.manifests.objects import MANIFEST_SUFFIXES
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.planning.price import HOURS_PER_MONTH, pod_price
from neuroscale.rendering.platform.runtimes import FOLDER as RUNTIME_FOLDER
from neuroscale.repo.layout import MANIFESTS
from neuroscale.repo.snapshot import Entry, GitSnapshot, Snapshot, child_folders

_CENT = Decimal("0.01")


@dataclass
class CenterSum:
    """US dollars a month with the most replicas, and the services whose cost is not known."""

    usd: Decimal = Decimal(0)
    unknown: list[str] = field(default_factory=list)


class RepositoryCosts:
    """The services of a repository without those of the folders `left_out`: read once, priced by any prices."""

    def __init__(self, snapshot: Snapshot, left_out: Collection[str]) -> None:
        services: dict[str, str] = {}
        strays: list[Entry] = []
        for environment in _children(snapshot, MANIFESTS, strays):
            services |= _children(snapshot, environment, strays)
        services = {folder: tree for folder, tree in services.items() if folder not in left_out}
        self._snapshot = snapshot
        self._locked: dict[tuple[str, LockedPlan], list[str]] = {}
        locked = locked_plans(snapshot, services)
        for folder, plan in locked.items():
            _, environment, name = folder.split("/", 2)
            self._locked.setdefault((environment, plan), []).append(f"{environment}/{name}")
        others = [folder for folder in services if folder not in locked]
        self._others = {folder: entries for folder, entries in _grouped(snapshot, others).items() if _deploys(entries)}
        _, strays = group_services(strays)
        self._others |= {one.path: [one] for one in strays if one.path not in left_out and _deploys([one])}

    def by_center(self, prices: Prices, centers: Collection[str]) -> Mapping[str, CenterSum]:
        """The costs of the cost centres `centers`. A service whose cost centre is not known is unknown for each."""
        found: dict[str, CenterSum] = {center: CenterSum() for center in centers}
        price, free = _price_of(prices), prices.free
        for (environment, plan), names in self._locked.items():
            if environment in free or plan.center not in found:
                continue
            usd = price(environment, plan)
            if usd is None:
                found[plan.center].unknown += names
            else:
                found[plan.center].usd += usd * len(names)
        runtimes = tuple(one.value for one in runtimes_below(self._snapshot, RUNTIME_FOLDER)) if self._others else ()
        for folder, entries in self._others.items():
            name = folder.removeprefix(f"{MANIFESTS}/")
            environment = name.partition("/")[0] if "/" in name else ""
            if environment in free:
                continue
            for center, usd in _by_manifests(self._snapshot, entries, environment, prices, runtimes):
                for one in found.values() if center is None else [found[center]] if center in found else []:
                    if usd is None:
                        one.unknown.append(name)
                    else:
                        one.usd += usd
        for one in found.values():
            one.unknown.sort()
        return found


def _children(snapshot: Snapshot, folder: str, strays: list[Entry]) -> dict[str, str]:
    """The folders in a folder with git's ids of their trees. What is not a folder goes to `strays`."""
    if isinstance(snapshot, GitSnapshot):
        entries = snapshot.children(folder)
        strays += [entry for entry in entries if entry.kind != "folder"]
        return {entry.path: entry.object_id for entry in entries if entry.kind == "folder"}
    depth = folder.count("/") + 2
    strays += [entry for entry in snapshot.entries(folder) if entry.path.count("/") + 1 == depth]
    return child_folders(snapshot, folder)


def _grouped(snapshot: Snapshot, folders: Sequence[str]) -> dict[str, list[Entry]]:
    """The entries of service folders."""
    if not folders:
        return {}
    below = folders if len(folders) <= MOST_PATHS else [MANIFESTS]
    services, _ = group_services(snapshot.entries(*below))
    wanted = set(folders)
    return {one.folder: entries for one, entries in services.items() if one.folder in wanted}


def _deploys(entries: list[Entry]) -> bool:
    return any(entry.path.endswith(MANIFEST_SUFFIXES) or entry.kind not in ("file", "executable") for entry in entries)


def _price_of(prices: Prices) -> Callable[[str, LockedPlan], Decimal | None]:
    """US dollars a month of a locked service; None where it has no price."""

    @cache
    def hourly(environment: str, accelerator: str, count: int, cpu: int, memory_gib: int) -> Decimal | None:
        asked = (accelerator, count if accelerator else 0, cpu, memory_gib)
        prices_of_sides = (_hourly(side, environment, *asked) for side in prices.sides)
        return max((price for price in prices_of_sides if price is not None), default=None)

    def price(environment: str, one: LockedPlan) -> Decimal | None:
        found = hourly(environment, one.accelerator, one.devices, one.cpu, one.memory_gib)
        return None if found is None else (found * one.replicas * HOURS_PER_MONTH).quantize(_CENT, ROUND_HALF_UP)

    return price


def _hourly(
    prices: Prices, environment: str, accelerator: str, count: int, cpu: int, memory_gib: int
) -> Decimal | None:
    named = prices.environments.get(environment)
    if named is None or (accelerator and accelerator not in prices.catalog.accelerators):
        return None
    price = pod_price(prices.catalog, named.price_lists, accelerator, count, cpu, memory_gib)
    return None if price is None else price.hourly


def _by_manifests(
    snapshot: Snapshot, entries: list[Entry], environment: str, prices: Prices, runtimes: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str | None, Decimal | None]]:
    """Cost centres with their US dollars a month; a centre or an amount that is not known is None."""
    side: Side = read_side(snapshot, entries, runtimes)
    workloads, is_complete = price_side(side, environment, prices)
    for workload in workloads:
        yield workload.cost_center, workload.monthly.max
    if not is_complete:
        yield None, None
