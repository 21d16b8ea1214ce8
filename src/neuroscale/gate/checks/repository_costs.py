"""Adds up what all services of some cost centres cost, mostly by their locked plans.

The drift check has seen that a merged plan renders to the service's manifests, so a service that the change leaves
alone is priced by a few lines of its plan.yaml. A service without a plan, or whose plan allows fewer and more replicas,
is priced by its manifests, as a service of the change is.

Reads what locked plans say of the cost of services, and stores it by git's id of each service's folder.

A repository of thousands of services is not read again for every change: the id of a folder's tree determines all that
lies in it. The store lies in the cache beside the tools, and is trusted as they are. A store that is damaged, that
another user could have written or that another version of this module wrote counts as none.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_private
from neuroscale.core.tool_cache import cache_folder
from neuroscale.core.units import MIB
from neuroscale.costs.change import Side, price_side
from neuroscale.costs.pricing import Prices
from neuroscale.gate.checks.cost_of_change import read_side
from neuroscale.gate.judged_files import group_services
from neuroscale.gate.merged_change import MOST_PATHS
from neuroscale.manifests.objects import MANIFEST_SUFFIXES
from neuroscale.manifests.serving_runtimes import runtimes_below
from neuroscale.planning.plan import load_plan
from neuroscale.planning.price import HOURS_PER_MONTH, pod_price
from neuroscale.rendering.platform.files import RUNTIMES_FOLDER as RUNTIME_FOLDER
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE
from neuroscale.repo.snapshot import Entry, GitSnapshot, Snapshot, child_folders, read_all

STORE_FROM = 200
"""The number of services that are read anew rather than stored: to read them takes less time than a store."""
_LARGEST_STORE = 256 * MIB
_OTHERS = 20_000  # rows of folders that this repository does not have now: other branches and repositories

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
    rb"(?>" + _LINES + rb"tenancy:\n)(?:  [^\n]*\n)*?  cost_center: ([A-Za-z0-9][-A-Za-z0-9_.]*)\n",
    re.MULTILINE,
)
_PLAN_RECORD = re.compile(
    rb"(?<![^\0])100644 blob ([0-9a-f]{40,64})\t([^\0]+)/" + re.escape(PLAN_FILE).encode() + rb"\0"
)


class LockedPlan(NamedTuple):
    """What a locked plan says of a service's pods, and the cost centre that pays: cores and GiB of one replica.

    A replica takes `devices` of the kind `accelerator`, "" for none. `replicas` run at all times.
    """

    center: str
    accelerator: str
    devices: int
    cpu: int
    memory_gib: int
    replicas: int


def locked_plans(snapshot: Snapshot, folders: Mapping[str, str]) -> dict[str, LockedPlan]:
    """The locked plans of service folders, each with git's id of its tree ("" outside git).

    A folder is left out if its plan is missing, is not a regular file or cannot be read. So is one whose plan allows
    fewer and more replicas, because only its manifests say whether anything scales between the two.
    """
    store = _read_store() if len(folders) > STORE_FROM else {}
    found = {folder: store[tree] for folder, tree in folders.items() if tree in store}
    unread = [folder for folder in folders if folder not in found]
    fresh: dict[str, LockedPlan] = {}
    for folder, data in _plans(snapshot, unread).items():
        plan = _by_lines(data)
        if plan is not None:
            fresh[folders[folder]] = plan
        else:
            plan = _by_yaml(folder, data)
        if plan is not None:
            found[folder] = plan
    fresh.pop("", None)
    if len(fresh) > STORE_FROM:
        used = {folders[folder]: plan for folder, plan in found.items() if folders[folder] in store} | fresh
        others = [(tree, plan) for tree, plan in store.items() if tree not in used]
        _write_store(dict(others[-_OTHERS:]) | used)
    return found


def _plans(snapshot: Snapshot, folders: list[str]) -> dict[str, bytes]:
    """The plans of folders, as they lie there."""
    if not folders:
        return {}
    if not isinstance(snapshot, GitSnapshot):
        wanted = {f"{folder}/{PLAN_FILE}" for folder in folders}
        files = [entry for entry in snapshot.entries(MANIFESTS) if entry.path in wanted and entry.kind == "file"]
    else:
        # Parsed here and not by `entries`, since a large repository has tens of thousands of other files.
        below = folders if len(folders) <= MOST_PATHS else [MANIFESTS]
        listed = snapshot.git.run("ls-tree", "-r", "-z", "--full-tree", snapshot.tree, "--", *below).stdout
        ids = {
            path.decode(errors="surrogateescape"): object_id.decode()
            for object_id, path in _PLAN_RECORD.findall(listed)
        }
        files = [Entry(f"{folder}/{PLAN_FILE}", "file", ids[folder]) for folder in folders if folder in ids]
    return {path.removesuffix(f"/{PLAN_FILE}"): data for path, data in read_all(snapshot, files).items()}


def _by_lines(data: bytes) -> LockedPlan | None:
    match = _PLAN.search(data)
    if match is None:
        return None
    accelerator, count, replicas, cpu, memory, resource, center = (
        part.decode("utf-8", "replace") for part in match.groups()
    )
    device = accelerator if resource.strip("\"'") else ""
    return LockedPlan(center, device, int(count), int(cpu), int(memory), int(replicas))


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
    return LockedPlan(plan.tenancy.cost_center, device, count, resources.cpu, resources.memory_gib, replicas)


def store_file() -> Path:
    """The file of the store, in the user's cache."""
    return cache_folder() / "plans" / "locked-plans.txt"


@cache
def _version() -> str:
    """A store is of use only for the very program that wrote it: this module alone decides what a row holds."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _checksum(rows: bytes) -> str:
    return hashlib.sha256(_version().encode() + rows).hexdigest()


def _read_store() -> dict[str, LockedPlan]:
    """The stored plans by the ids of their folders' trees; none where there is the least doubt."""
    try:
        with store_file().open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_uid != os.geteuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return {}
            header, _, rows = file.read(_LARGEST_STORE).partition(b"\n")
        if header.decode() != _checksum(rows):
            return {}
        plans = cache(_from_row)
        return {tree: plans(row) for tree, _, row in (line.partition(" ") for line in rows.decode().splitlines())}
    except (OSError, ValueError):
        return {}


def _from_row(row: str) -> LockedPlan:
    center, accelerator, *numbers = row.split(" ")
    count, cpu, memory, replicas = map(int, numbers)
    return LockedPlan(center, "" if accelerator == "-" else accelerator, count, cpu, memory, replicas)


def _write_store(plans: Mapping[str, LockedPlan]) -> None:
    rows = "".join(
        f"{tree} {one.center} {one.accelerator or '-'} {one.devices} {one.cpu} {one.memory_gib} {one.replicas}\n"
        for tree, one in plans.items()
    )
    try:
        store_file().parent.mkdir(parents=True, exist_ok=True)
        write_private(store_file(), f"{_checksum(rows.encode())}\n{rows}")
    except OSError:
        return  # a cache that cannot be written costs time, and changes no amount


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
