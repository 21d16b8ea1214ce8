"""Reads both sides of a change for its cost, which stands in the verdict beside the findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

from neuroscale.catalog.settings import Environment, Settings, check_settings
from neuroscale.core.errors import InputError
from neuroscale.costs.bill import CostChange
from neuroscale.costs.difference import NAME, ChangedService, Side, compare, platform_side, price_side
from neuroscale.costs.pricing import Prices
from neuroscale.gate.checks.planned_without import Without
from neuroscale.gate.merged_change import Change
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.manifests.objects import MANIFEST_SUFFIXES, Manifest, read_manifests
from neuroscale.manifests.serving_runtimes import runtime_key, runtimes_below
from neuroscale.manifests.workloads import Unpriced
from neuroscale.planning.plan import Plan
from neuroscale.rendering.platform.chart_pods import WORKLOADS_FILE as CHART_PODS
from neuroscale.repo.layout import CATALOG, MANIFESTS, METER, PLAN_FILE, REQUEST_FILE, RUNTIMES, SETTINGS, ServicePath
from neuroscale.repo.snapshot import Entry, Snapshot

PLATFORM_SOURCES = ("platform/clusters", "platform/serving", METER)
"""The folders whose files decide which pods the platform's own programs have."""
_MOST_PREFIXES = 300  # a command line has a limited length


@dataclass(frozen=True)
class CostOfChange:
    """What a change costs, as reports show it and as the rules judge it."""

    shown: CostChange  # at the prices of the merge result
    # Before the change at the base's prices; after it at the dearer price of both sides, and by the dearer plan with
    # the change's own facts or without.
    judged: CostChange
    new_prices: tuple[str, ...] = ()  # ENVIRONMENT/NAME of the services that only the merge result gives a price


def cost_of_change(
    change: Change,
    base: PlatformSources,
    after: PlatformSources,
    manifests: Sequence[Manifest],
    plans: Mapping[str, Plan],
    today: date,
    without: Sequence[Without] = (),
) -> CostOfChange | None:
    """The cost of the change; None if it alters nothing that costs anything: services, and the platform's programs.

    `base` and `after` are the platform's files on both sides. `manifests` and `plans` (by service folder) are those of
    the merge result, which other checks have read already. `without`: services whose plan without the change's own
    facts is judged where it is the dearer one. Raises InputError if the prices cannot be read.
    """
    folders = _folders(change.paths)
    of_platform = change.touches(*PLATFORM_SOURCES, SETTINGS)
    if not folders and not of_platform:
        return None
    prices = prices_of(after)
    before = _prices_before(base) if change.touches(CATALOG, SETTINGS) else prices
    read: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        read.setdefault(manifest.file, []).append(manifest)
    services = list(_services(change, folders, read, plans))
    past = _with_runtimes([service.before for service in services], change.before)
    new = _with_runtimes([service.after for service in services], change.after)
    known = [replace(service, before=old, after=now) for service, old, now in zip(services, past, new, strict=True)]
    if of_platform:
        known += _platform(change, base, after)
    shown = _without_the_usual(compare(known, prices, before, today))
    deciding = _deciding(prices, before)
    others = {(one.path.environment, one.path.service): one.objects for one in without if one.objects}
    dearer = [_dearer(service, others.get((service.environment, service.name), ()), deciding) for service in known]
    if before is None or (deciding is prices and dearer == known):
        return None if shown is None else CostOfChange(shown, shown)
    judged = _without_the_usual(compare(dearer, deciding, before, today))
    if judged is None:  # then nothing differs by the prices of either side
        return None
    at_base = compare(known, deciding.base or before, before, today)
    unpriced = (_unpriced_after(cost) if cost else set() for cost in (at_base, judged))
    return CostOfChange(shown or judged, judged, tuple(sorted(set.difference(*unpriced))))


def _dearer(service: ChangedService, objects: Sequence[Mapping[str, Any]], prices: Prices) -> ChangedService:
    """The service with other objects after the change, if there are some and they cost more."""

    def usd(one: ChangedService) -> Decimal:
        workloads, _ = price_side(one.after, one.environment, prices)
        return sum((workload.monthly.max for workload in workloads), Decimal(0))

    other = replace(service, after=replace(service.after, objects=tuple(objects)))
    return other if objects and usd(other) > usd(service) else service


def _unpriced_after(cost: CostChange) -> set[str]:
    items = (item for item in cost.unpriced if item.side != "before" and item.service != NAME)
    return {f"{item.environment}/{item.service}" for item in items}


def _platform(change: Change, base: PlatformSources, after: PlatformSources) -> Iterator[ChangedService]:
    """The platform's own programs in each environment, on both sides."""
    settings = after.settings()
    try:
        past = base.settings()
    except InputError:
        past = settings
    for environment in sorted({*past.environments, *settings.environments}):
        before = _platform_side(change.before, past, environment)
        yield ChangedService(environment, NAME, before, _platform_side(change.after, settings, environment))


def _platform_side(snapshot: Snapshot, settings: Settings, environment: str) -> Side:
    try:
        return platform_side(snapshot, settings, environment)
    except InputError as error:
        reason = f"cannot be read: {error.problems[0]}"
        return Side(unreadable=(Unpriced(CHART_PODS, reason, decisive=True, content=reason),))


def _without_the_usual(cost: CostChange | None) -> CostChange | None:
    """The cost without the platform's pods that have no price on either side: `neuroscale platform cost` names them."""
    if cost is None:
        return None
    items = tuple(item for item in cost.unpriced if item.service != NAME or item.side != "both")
    return cost.model_copy(update={"unpriced": items})


def prices_of(files: PlatformSources) -> Prices:
    """The prices of one side. Raises InputError where the catalog or the settings cannot be read."""
    catalog, settings = files.catalog(), files.settings()
    check_settings(settings, catalog)
    return Prices(catalog, settings.environments)


def deciding_prices(base: PlatformSources, after: PlatformSources) -> Prices:
    """The dearer prices of both sides; those of the merge result where they are equal or the base's cannot be read."""
    return _deciding(prices_of(after), _prices_before(base))


def _deciding(prices: Prices, before: Prices | None) -> Prices:
    if before is None or (prices.same_as(before) and prices.catalog.teams == before.catalog.teams):
        return prices
    return replace(
        prices, base=replace(before, environments={**_new_environments(prices, before), **before.environments})
    )


def _new_environments(prices: Prices, before: Prices) -> dict[str, Environment]:
    """The environments that only the change has, with the price lists that the base has for such clusters.

    Otherwise a service in a new environment without a list, or with a cheap one, would pass every budget.
    """
    lists: dict[str, dict[str, None]] = {}
    for known in before.environments.values():
        lists.setdefault(known.cluster, {}).update(dict.fromkeys(known.price_lists))
    return {
        name: environment.model_copy(update={"price_lists": tuple(lists.get(environment.cluster, ()))})
        for name, environment in prices.environments.items()
        if name not in before.environments
    }


def _prices_before(base: PlatformSources) -> Prices | None:
    try:
        return prices_of(base)
    except InputError:
        return None


def _folders(paths: Sequence[str]) -> list[str]:
    """The service folders of the changed paths, and the changed files that lie in no service folder."""
    below = (path for path in paths if path == MANIFESTS or path.startswith(f"{MANIFESTS}/"))
    return sorted({service.folder if (service := ServicePath.of(path)) else path for path in below})


def _services(
    change: Change, folders: Sequence[str], read: Mapping[str, list[Manifest]], plans: Mapping[str, Plan]
) -> Iterator[ChangedService]:
    parsed: dict[str, Side] = {}
    before, after = (_entries(side, folders) for side in (change.before, change.after))
    for folder in folders:
        service = ServicePath.of(f"{folder}/file")
        parts = folder.split("/")
        yield ChangedService(
            environment=service.environment if service else "/".join(parts[1:-1]),
            name=service.service if service else parts[-1],
            before=_side(change.before, before.get(folder, []), {}, parsed),
            after=_side(change.after, after.get(folder, []), read, parsed),
            plan=plans.get(folder),
        )


def _with_runtimes(sides: Sequence[Side], snapshot: Snapshot) -> list[Side]:
    """The services with the serving runtimes that the platform and the other services of the change bring."""
    platforms = (runtime.value for runtime in runtimes_below(snapshot, RUNTIMES))
    others = (value for side in sides for value in side.objects if runtime_key(value))
    known = (*platforms, *others)
    return [replace(side, runtimes=known) for side in sides]


def _entries(snapshot: Snapshot, folders: Sequence[str]) -> dict[str, list[Entry]]:
    wanted = set(folders)
    by_folder: dict[str, list[Entry]] = {}
    for entry in snapshot.entries(*(folders if len(folders) <= _MOST_PREFIXES else [MANIFESTS])):
        service = ServicePath.of(entry.path)
        folder = service.folder if service else entry.path
        if folder in wanted:
            by_folder.setdefault(folder, []).append(entry)
    return by_folder


def _side(
    snapshot: Snapshot, entries: Sequence[Entry], read: Mapping[str, list[Manifest]], parsed: dict[str, Side]
) -> Side:
    files = [_file(snapshot, entry, read, parsed) for entry in entries]
    return Side(
        objects=tuple(value for file in files for value in file.objects),
        unreadable=tuple(problem for file in files for problem in file.unreadable),
        empty=not entries,
    )


def read_side(snapshot: Snapshot, entries: Sequence[Entry], runtimes: Sequence[Mapping[str, Any]]) -> Side:
    """The objects of a service's files, with the serving runtimes that are known beside its own."""
    return replace(_side(snapshot, entries, {}, {}), runtimes=tuple(runtimes))


def _file(snapshot: Snapshot, entry: Entry, read: Mapping[str, list[Manifest]], parsed: dict[str, Side]) -> Side:
    """The objects of one file; a file that is the same on both sides is read once."""
    service = ServicePath.of(entry.path)
    name = entry.path.removeprefix(f"{service.folder}/") if service else entry.path.rpartition("/")[2]
    if service is not None and name in (REQUEST_FILE, PLAN_FILE):
        return Side()
    if entry.kind not in ("file", "executable"):
        return _unreadable(entry, f"is a {entry.kind}, and the file behind it is not known")
    if not entry.path.endswith(MANIFEST_SUFFIXES):
        return Side()
    if entry.path in read:
        return Side(tuple(manifest.value for manifest in read[entry.path]))
    key = f"{entry.object_id} {entry.path}"
    if key not in parsed:
        parsed[key] = _parse(snapshot, entry)
    return parsed[key]


def _parse(snapshot: Snapshot, entry: Entry) -> Side:
    data = snapshot.read(entry.path)
    if data is None:
        return _unreadable(entry, "cannot be read")
    try:
        return Side(tuple(manifest.value for manifest in read_manifests(data, entry.path)))
    except InputError as error:
        problem = error.problems[0]
        return _unreadable(entry, f"cannot be read: {' '.join(filter(None, (problem.field, problem.message)))}")


def _unreadable(entry: Entry, reason: str) -> Side:
    return Side(unreadable=(Unpriced(entry.path, reason, decisive=True, content=entry.object_id),))
