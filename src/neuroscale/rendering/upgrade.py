"""Says what planning a service anew would change: what moved since it was planned, and what that does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import amount, duration, usd
from neuroscale.core.yaml_io import decode
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.planning.planner import missed_promises, request_digest, settings_key
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render, same_pods
from neuroscale.repo.layout import PLAN_FILE, REQUEST_FILE, SERVICE_FILE, ServicePath
from neuroscale.repo.snapshot import Snapshot
from neuroscale.request.service_request import Request, check_request, load_request

# Parts of a plan that tell its making, and not what is served.
_TOLD = ("lock", "reasons", "alternatives")
_SLOWER = 1.01
"""The ratio of two estimates of speed from which one counts as slower: below it, they differ by rounding."""


@dataclass(frozen=True)
class Upgrade:
    """A service planned anew. `moved` names what moved since it was planned; `worse` says what would get worse.

    `same_pods`: whether both render the same pods, so that the merge restarts none. `missed`: clauses on what the
    servers of the earlier plan do not keep under the load, if the new plan has others.
    """

    request: Request
    before: Plan
    after: Plan
    moved: tuple[str, ...]
    worse: tuple[str, ...]
    same_pods: bool
    missed: tuple[str, ...] = ()


def look(snapshot: Snapshot, path: ServicePath, inputs: PlanningInputs) -> tuple[Request, Upgrade | None]:
    """The answers of a service of a snapshot, and its upgrade as `upgrade` makes it. Raises InputError."""
    names = (entry.path for entry in snapshot.entries(path.folder))
    files = {name.rpartition("/")[2]: snapshot.read(name) or b"" for name in names}
    where = f"{path.folder}/{REQUEST_FILE}"
    request = load_request(decode(files.get(REQUEST_FILE, b""), where), where)
    locked = read_plan(snapshot, path.folder)
    if locked is None:
        raise InputError.at(f"{path.folder}/{PLAN_FILE}", "", "is missing", f"Run: neuroscale replan {path.folder}")
    return request, upgrade(request, locked, files, inputs)


def upgrade(request: Request, locked: Plan, files: Mapping[str, bytes], inputs: PlanningInputs) -> Upgrade | None:
    """The upgrade of a service with these answers, this plan and these files (by name); None if nothing would change
    but the lock.

    Raises InputError for a plan of other answers, answers that the catalog no longer knows, and what cannot be
    rendered.
    """
    if locked.lock.request_digest != request_digest(request):
        told = "was made for other answers than request.yaml holds"
        fix = f"Run: neuroscale replan {locked.environment}/{locked.service}"
        raise InputError.at(PLAN_FILE, "", told, fix)
    check_request(request, inputs.known, REQUEST_FILE)
    fresh = inputs.plan(request)
    moved = tuple(_moved(locked, fresh))
    if fresh.verdict == "refused":
        why = " ".join(fresh.reasons).rstrip(".") or "the planner gave no reason"
        return Upgrade(request, locked, fresh, moved, (f"cannot be served any more: {why}",), same_pods=False)
    rendered = {name: text.encode() for name, text in render(request, fresh, inputs.template).items()}
    same_files = all(files.get(name) == data for name, data in rendered.items() if name != PLAN_FILE)
    if same_files and _served(locked) == _served(fresh):
        return None
    same = same_pods(files.get(SERVICE_FILE), rendered[SERVICE_FILE])
    missed: tuple[str, ...] = ()
    if _server(locked) != _server(fresh):
        missed = missed_promises(request, locked, inputs.catalog, inputs.settings)
    return Upgrade(request, locked, fresh, moved, tuple(_worse(locked, fresh)), same is True, missed)


def _served(made: Plan) -> dict[str, Any]:
    return made.model_dump(mode="json", exclude=set(_TOLD))


def _moved(before: Plan, after: Plan) -> list[str]:
    """What the new plan was made from that the earlier one was not."""
    old, new = before.lock, after.lock
    settings = settings_key(after.environment)
    names = {name: name.replace("/", " ", 1) for name in new.entries} | {settings: f"settings of {after.environment}"}
    told = [names[name] for name, digest in new.entries.items() if old.entries.get(name) != digest]
    measured = f"measurements/{after.model}"
    if measured in old.entries and measured not in new.entries:
        told.append(f"measurements {after.model} (removed)")
    if before.runtime.image != after.runtime.image:
        told.append(f"image {before.runtime.image} -> {after.runtime.image}")
    for what, earlier, later in (
        ("template", old.template_version, new.template_version),
        ("planner", old.planner_version, new.planner_version),
    ):
        if earlier != later:
            told.append(f"{what} {earlier} -> {later}")
    if not told:
        told.append("other entries of the catalog" if old.catalog_digest != new.catalog_digest else "the files alone")
    return told


def _worse(before: Plan, after: Plan) -> list[str]:
    """What a user or an owner of the service would lose, in words."""
    told = []
    if (before.verdict, after.verdict) == ("fits", "tight"):
        told.append("tight, where it fits now")
    old, new = before.cost.monthly_min, after.cost.monthly_min
    if old is not None and new is None:
        told.append("its price is no longer known")
    elif old is not None and new is not None and new > old:
        told.append(f"dearer: {amount(old)} -> {usd(new)} a month")
    told += _slower(before, after)
    if after.max_model_len < before.max_model_len:
        told.append(f"shorter context: {before.max_model_len:,} -> {after.max_model_len:,} tokens")
    held, wanted = (one.replicas.min * one.accelerator_count for one in (before, after))
    if after.accelerator == before.accelerator and wanted > held:
        told.append(f"more accelerators: {held:,} -> {wanted:,}")
    gaps = [one.rollout.gap_minutes if one.rollout else None for one in (before, after)]
    if gaps[0] == 0 and gaps[1]:
        told.append(f"a gap of about {gaps[1]:,} min in each later change, which has none now")
    if before.tenancy.namespace != after.tenancy.namespace:
        told.append(f"another address: namespace {before.tenancy.namespace} -> {after.tenancy.namespace}")
    return told


def _slower(before: Plan, after: Plan) -> list[str]:
    """What gets slower at the asked load, or is no longer known. A plan from before the load counted estimates an idle
    replica by other formulas, and two estimates of one server differ only by what the planner knows: neither is
    slower."""
    told = []
    where = " at the asked load" if before.load is not None and after.load is not None else ""
    (first, rate), (later, next_rate) = _pace(before), _pace(after)
    compared = bool(where) and _server(before) != _server(after)
    if first is not None and later is None:
        told.append(f"its time to the first token{where} is no longer known")
    elif compared and first is not None and later is not None and later > first * _SLOWER:
        told.append(f"slower{where}: first token after {duration(first)} -> {duration(later)}")
    if rate is not None and next_rate is None:
        told.append(f"its tokens/s{where} are no longer known")
    elif compared and rate is not None and next_rate is not None and next_rate * _SLOWER < rate:
        told.append(f"slower{where}: {rate:,.0f} -> {next_rate:,.0f} tokens/s")
    return told


def _pace(made: Plan) -> tuple[float | None, float | None]:
    """Seconds to the first token and tokens per second of a user: at the asked load, else on an idle replica."""
    if (load := made.load) is None:
        return made.speed.ttft_seconds, made.speed.decode_tokens_per_second
    return (
        load.ttft_seconds.p95.value if load.ttft_seconds else None,
        load.tokens_per_second.user.value if load.tokens_per_second else None,
    )


def _server(made: Plan) -> tuple[object, ...]:
    """What decides how fast a service really is."""
    arguments = [one for one in made.vllm_args if not one.startswith("--shutdown-timeout")]
    return made.accelerator, made.accelerator_count, made.replicas.min, made.runtime.image, arguments
