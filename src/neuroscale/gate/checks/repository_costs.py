"""Adds up what all services of some cost centres cost, mostly by their locked plans.

The drift check has seen that a merged plan renders to the service's manifests, so a service that the change leaves
alone is priced by a few lines of its plan.yaml. A service without a plan is priced by its manifests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.costs.change import Side, price_side
from neuroscale.costs.pricing import Prices
from neuroscale.gate.checks.cost import read_side
from neuroscale.gate.judged_files import group_services
from neuroscale.manifests.objects import MANIFEST_SUFFIXES
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.planning.plan import load_plan
from neuroscale.planning.price import HOURS_PER_MONTH, pod_price
from neuroscale.rendering.platform.runtimes import FOLDER as RUNTIME_FOLDER
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE
from neuroscale.repo.snapshot import Entry, Snapshot, read_all

_CENT = Decimal("0.01")

# A plan as `dump` writes it. One that looks otherwise is read as YAML.
_PLAN = re.compile(
    r"^verdict: (?:fits|tight)\n.*?^accelerator: (?P<accelerator>[a-z0-9-]+)\naccelerator_count: (?P<count>\d+)\n"
    r".*?^replicas:\n  min: \d+\n  max: (?P<most>\d+)\n"
    r".*?^resources:\n  cpu: (?P<cpu>\d+)\n  memory_gib: (?P<memory>\d+)\n(?:  [^\n]*\n)*?"
    r"  accelerator_resource: (?P<resource>[^\n]*)\n"
    r".*?^tenancy:\n(?:  [^\n]*\n)*?  cost_center: (?P<center>[A-Za-z0-9][-A-Za-z0-9_.]*)\n",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class CenterSum:
    """US dollars a month with the most replicas, and the services whose cost is not known."""

    usd: Decimal = Decimal(0)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Locked:
    """What a locked plan says of a service's pods and of who pays."""

    center: str
    accelerator: str
    count: int
    cpu: int
    memory_gib: int
    most: int


class RepositoryCosts:
    """The services of a repository without those of the folders `left_out`: read once, priced by any prices."""

    def __init__(self, snapshot: Snapshot, left_out: Collection[str]) -> None:
        services, strays = group_services(snapshot.entries(MANIFESTS))
        folders = {service.folder: entries for service, entries in services.items()}
        folders |= {entry.path: [entry] for entry in strays}
        self._snapshot = snapshot
        self._folders = {
            folder: entries for folder, entries in folders.items() if folder not in left_out and _deploys(entries)
        }
        self._plans = _plans(snapshot, self._folders)

    def by_center(self, prices: Prices, centers: Collection[str]) -> Mapping[str, CenterSum]:
        """The costs of the cost centres `centers`. A service whose cost centre is not known is unknown for each."""
        found: dict[str, CenterSum] = {center: CenterSum() for center in centers}
        runtimes = cache(lambda: tuple(one.value for one in runtimes_below(self._snapshot, RUNTIME_FOLDER)))
        price, free = _price_of(prices), prices.free
        for folder, entries in self._folders.items():
            name = folder.removeprefix(f"{MANIFESTS}/")
            environment = name.partition("/")[0] if "/" in name else ""
            if environment in free:
                continue
            locked = _locked(folder, self._plans.get(folder))
            amounts = (
                [(locked.center, price(environment, locked))]
                if locked is not None
                else _by_manifests(self._snapshot, entries, environment, prices, runtimes())
            )
            for center, usd in amounts:
                for one in found.values() if center is None else [found[center]] if center in found else []:
                    if usd is None:
                        one.unknown.append(name)
                    else:
                        one.usd += usd
        return found


def _deploys(entries: list[Entry]) -> bool:
    return any(entry.path.endswith(MANIFEST_SUFFIXES) or entry.kind not in ("file", "executable") for entry in entries)


def _plans(snapshot: Snapshot, folders: Mapping[str, list[Entry]]) -> Mapping[str, bytes]:
    """The plans of the services, by folder."""
    files = [
        entry
        for folder, entries in folders.items()
        for entry in entries
        if entry.path == f"{folder}/{PLAN_FILE}" and entry.kind == "file"
    ]
    return {path.removesuffix(f"/{PLAN_FILE}"): data for path, data in read_all(snapshot, files).items()}


def _locked(folder: str, data: bytes | None) -> _Locked | None:
    if data is None:
        return None
    path, text = f"{folder}/{PLAN_FILE}", data.decode("utf-8", "replace")
    match = _PLAN.search(text)
    if match is not None:
        return _Locked(
            match["center"],
            match["accelerator"] if match["resource"].strip("\"'") else "",
            int(match["count"]),
            int(match["cpu"]),
            int(match["memory"]),
            int(match["most"]),
        )
    try:
        plan = load_plan(text, path)
    except InputError:
        return None
    resources = plan.resources
    accelerator = plan.accelerator if resources.accelerator_resource else ""
    count = plan.accelerator_count
    return _Locked(plan.tenancy.cost_center, accelerator, count, resources.cpu, resources.memory_gib, plan.replicas.max)


def _price_of(prices: Prices) -> Callable[[str, _Locked], Decimal | None]:
    """US dollars a month of a locked service with the most replicas; None where it has no price."""

    @cache
    def hourly(environment: str, accelerator: str, count: int, cpu: int, memory_gib: int) -> Decimal | None:
        named = prices.environments.get(environment)
        if named is None or (accelerator and accelerator not in prices.catalog.accelerators):
            return None
        found = pod_price(prices.catalog, named.price_lists, accelerator, count if accelerator else 0, cpu, memory_gib)
        return None if found is None else found.hourly

    def price(environment: str, one: _Locked) -> Decimal | None:
        found = hourly(environment, one.accelerator, one.count, one.cpu, one.memory_gib)
        return None if found is None else (found * one.most * HOURS_PER_MONTH).quantize(_CENT)

    return price


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
