"""Adds up what all services of some cost centres cost, mostly by their locked plans.

The drift check has seen that a merged plan renders to the service's manifests, so a service that the change leaves
alone is priced by a few lines of its plan.yaml. A service without a plan, or whose plan allows fewer and more replicas,
is priced by its manifests, as a service of the change is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any, NamedTuple

from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.costs.difference import Side, price_side
from neuroscale.costs.pricing import Prices
from neuroscale.gate.checks.priced_change import read_side
from neuroscale.gate.judged_files import group_services
from neuroscale.gate.merged_change import few_paths
from neuroscale.manifests.objects import MANIFEST_SUFFIXES
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.price import HOURS_PER_MONTH, pod_price
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, RUNTIMES
from neuroscale.repo.snapshot import Entry, GitSnapshot, Snapshot, child_folders, read_all

# A plan as `dump` writes it; each group takes the first line that fits, and never a later one. A plan that looks
# otherwise is read as YAML.
_LINES = rb"(?:[^\n]*\n)*?"
_NUMBER = rb"([1-9][0-9]{0,8}|0)"  # other numbers, such as 010, mean what YAML says
_PLAN = re.compile(
    rb"^verdict: (?:fits|tight)\n"
    rb"(?>" + _LINES + rb"accelerator: ([a-z0-9][a-z0-9-]*)\n)accelerator_count: " + _NUMBER + rb"\n"
    rb"(?>" + _LINES + rb"replicas:\n)  min: " + _NUMBER + rb"\n  max: \3\n"
    rb"(?>" + _LINES + rb"resources:\n)  cpu: " + _NUMBER + rb"\n  memory_gib: " + _NUMBER + rb"\n"
    rb"(?>(?:  [^\n]*\n)*?  accelerator_resource: ([^\n]*)\n)"
    rb"(?>" + _LINES + rb"tenancy:\n)  team: ([A-Za-z0-9][-A-Za-z0-9_.]*)\n"
    rb"(?:  [^\n]*\n)*?  cost_center: ([A-Za-z0-9][-A-Za-z0-9_.]*)\n",
    re.MULTILINE,
)


class LockedPlan(NamedTuple):
    """What a locked plan says of a service's pods, their team, and the cost centre that pays: cores and GiB for each.

    A replica takes `devices` of the kind `accelerator`, "" for none. `replicas` run at all times.
    """

    team: str
    center: str
    accelerator: str
    devices: int
    cpu: int
    memory_gib: int
    replicas: int


def locked_plans(snapshot: Snapshot, folders: Sequence[str]) -> dict[str, LockedPlan]:
    """The locked plans of service folders.

    A folder is left out if its plan is missing, is not a regular file or cannot be read. So is one whose plan allows
    fewer and more replicas, because only its manifests say whether anything scales between the two.
    """
    plans = ((folder, _by_lines(data) or _by_yaml(folder, data)) for folder, data in _plans(snapshot, folders).items())
    return {folder: plan for folder, plan in plans if plan is not None}


class TeamUse:
    """What the services of a repository take of their teams' quotas: at least, since a service whose locked plan does
    not say it by itself is left out. It reads an environment once, when it is first asked about it."""

    def __init__(self, snapshot: Snapshot, catalog: Catalog) -> None:
        self._snapshot, self._catalog = snapshot, catalog
        self._environments: dict[str, tuple[dict[str, LockedPlan], dict[str, Counter[str]]]] = {}

    def beside(self, plan: Plan) -> dict[str, int]:
        """What the other services of a plan's team and environment take, by the names of a quota's fields."""
        if plan.environment not in self._environments:
            self._environments[plan.environment] = self._read(f"{MANIFESTS}/{plan.environment}")
        locked, teams = self._environments[plan.environment]
        taken = Counter(teams.get(plan.tenancy.team, Counter()))
        own = locked.get(f"{MANIFESTS}/{plan.environment}/{plan.service}")
        if own is not None and own.team == plan.tenancy.team:
            taken.subtract(self._of(own))
        return dict(taken)

    def _read(self, environment: str) -> tuple[dict[str, LockedPlan], dict[str, Counter[str]]]:
        locked = locked_plans(self._snapshot, list(child_folders(self._snapshot, environment)))
        teams: dict[str, Counter[str]] = {}
        for one in locked.values():
            teams.setdefault(one.team, Counter()).update(self._of(one))
        return locked, teams

    def _of(self, one: LockedPlan) -> dict[str, int]:
        each = {"pods": 1, "cpu": one.cpu, "memory_gib": one.memory_gib}
        if one.accelerator in self._catalog.accelerators:
            each[f"accelerators.{self._catalog.accelerators[one.accelerator].resource}"] = one.devices
        return {name: one.replicas * amount for name, amount in each.items()}


def _plans(snapshot: Snapshot, folders: Sequence[str]) -> dict[str, bytes]:
    """The plans of folders, as they lie there."""
    if not folders:
        return {}
    wanted = {f"{folder}/{PLAN_FILE}" for folder in folders}
    entries = snapshot.entries(*few_paths(folders))
    files = [entry for entry in entries if entry.path in wanted and entry.kind == "file"]
    return {path.removesuffix(f"/{PLAN_FILE}"): data for path, data in read_all(snapshot, files).items()}


def _by_lines(data: bytes) -> LockedPlan | None:
    match = _PLAN.search(data)
    if match is None:
        return None
    accelerator, count, replicas, cpu, memory, resource, team, center = (
        part.decode("utf-8", "replace") for part in match.groups()
    )
    device = accelerator if resource.strip("\"'") else ""
    return LockedPlan(team, center, device, int(count), int(cpu), int(memory), int(replicas))


def _by_yaml(folder: str, data: bytes) -> LockedPlan | None:
    try:
        plan = load_plan(data.decode("utf-8", "replace"), f"{folder}/{PLAN_FILE}")
    except InputError:
        return None
    if plan.replicas.min != plan.replicas.max:
        return None
    resources = plan.resources
    device = plan.accelerator if resources.accelerator_resource else ""
    count, replicas = plan.accelerator_count, plan.replicas.min
    of = plan.tenancy
    return LockedPlan(of.team, of.cost_center, device, count, resources.cpu, resources.memory_gib, replicas)


_CENT = Decimal("0.01")


@dataclass
class CenterSum:
    """US dollars a month with the most replicas, and the services whose cost is not known."""

    usd: Decimal = Decimal(0)
    unknown: list[str] = field(default_factory=list)


class RepositoryCosts:
    """The services of a repository without those of the folders `left_out`: read once, priced by any prices."""

    def __init__(self, snapshot: Snapshot, left_out: Collection[str]) -> None:
        strays: list[Entry] = []
        environments = _children(snapshot, MANIFESTS, strays)
        folders = [folder for environment in environments for folder in _children(snapshot, environment, strays)]
        services = [folder for folder in folders if folder not in left_out]
        self._snapshot = snapshot
        self._locked: dict[tuple[str, LockedPlan], list[str]] = {}
        locked = locked_plans(snapshot, services)
        for folder, plan in locked.items():
            _, environment, name = folder.split("/", 2)
            self._locked.setdefault((environment, plan), []).append(f"{environment}/{name}")
        others = [folder for folder in services if folder not in locked]
        self._others = {folder: entries for folder, entries in _grouped(snapshot, others).items() if _deploys(entries)}
        _, strays = group_services(strays)
        self._others |= {entry.path: [entry] for entry in strays if entry.path not in left_out and _deploys([entry])}

    def by_center(self, prices: Prices, centers: Collection[str]) -> Mapping[str, CenterSum]:
        """The costs of the cost centres `centers`. A service whose cost centre is not known is unknown for each."""
        sums: dict[str, CenterSum] = {center: CenterSum() for center in centers}
        price, free = _price_of(prices), prices.free
        for (environment, plan), names in self._locked.items():
            if environment in free or plan.center not in sums:
                continue
            usd = price(environment, plan)
            if usd is None:
                sums[plan.center].unknown += names
            else:
                sums[plan.center].usd += usd * len(names)
        runtimes = tuple(runtime.value for runtime in runtimes_below(self._snapshot, RUNTIMES)) if self._others else ()
        for folder, entries in self._others.items():
            name = folder.removeprefix(f"{MANIFESTS}/")
            environment = name.partition("/")[0] if "/" in name else ""
            if environment in free:
                continue
            for center, usd in _by_manifests(self._snapshot, entries, environment, prices, runtimes):
                for center_sum in sums.values() if center is None else [sums[center]] if center in sums else []:
                    if usd is None:
                        center_sum.unknown.append(name)
                    else:
                        center_sum.usd += usd
        for center_sum in sums.values():
            center_sum.unknown.sort()
        return sums


def _children(snapshot: Snapshot, folder: str, strays: list[Entry]) -> list[str]:
    """The folders in a folder. What is not a folder goes to `strays`."""
    if isinstance(snapshot, GitSnapshot):
        entries = snapshot.children(folder)
        strays += [entry for entry in entries if entry.kind != "folder"]
        return [entry.path for entry in entries if entry.kind == "folder"]
    depth = folder.count("/") + 2
    strays += [entry for entry in snapshot.entries(folder) if entry.path.count("/") + 1 == depth]
    return list(child_folders(snapshot, folder))


def _grouped(snapshot: Snapshot, folders: Sequence[str]) -> dict[str, list[Entry]]:
    """The entries of service folders."""
    if not folders:
        return {}
    services, _ = group_services(snapshot.entries(*few_paths(folders)))
    wanted = set(folders)
    return {service.folder: entries for service, entries in services.items() if service.folder in wanted}


def _deploys(entries: list[Entry]) -> bool:
    return any(entry.path.endswith(MANIFEST_SUFFIXES) or entry.kind not in ("file", "executable") for entry in entries)


def _price_of(prices: Prices) -> Callable[[str, LockedPlan], Decimal | None]:
    """US dollars a month of a locked service; None where it has no price."""

    @cache
    def hourly(environment: str, accelerator: str, count: int, cpu: int, memory_gib: int) -> Decimal | None:
        asked = (accelerator, count if accelerator else 0, cpu, memory_gib)
        prices_of_sides = (_hourly(side, environment, *asked) for side in prices.sides)
        return max((price for price in prices_of_sides if price is not None), default=None)

    def price(environment: str, plan: LockedPlan) -> Decimal | None:
        usd = hourly(environment, plan.accelerator, plan.devices, plan.cpu, plan.memory_gib)
        return None if usd is None else (usd * plan.replicas * HOURS_PER_MONTH).quantize(_CENT, ROUND_HALF_UP)

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
