"""Reads what locked plans say of the cost of services, and stores it by git's id of each service's folder.

A repository of thousands of services is not read again for every change: the id of a folder's tree determines all that
lies in it. The store lies in the cache beside the tools, and is trusted as they are. A store that is damaged, that
another user could have written or that another version of this module wrote counts as none.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_private
from neuroscale.core.tool_cache import cache_folder
from neuroscale.core.units import MIB
from neuroscale.gate.merged_change import MOST_PATHS
from neuroscale.planning.plan import load_plan
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE
from neuroscale.repo.snapshot import Entry, GitSnapshot, Snapshot, read_all

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
