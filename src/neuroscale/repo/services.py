"""Finds the service that a command line names, among those of a clone's files, of a commit or of a branch's past."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from neuroscale.core.errors import ASKED, InputError
from neuroscale.core.validation import suggest
from neuroscale.repo.git import Git
from neuroscale.repo.layout import KEY_FILE, MANIFESTS, REQUEST_FILE, ServicePath
from neuroscale.repo.snapshot import GitSnapshot, Snapshot

_WHERE = (ASKED, "service")


def services_of(snapshot: Snapshot) -> tuple[ServicePath, ...]:
    """The services of a snapshot, in order: the folders that hold a request."""
    paths = (entry.path for entry in snapshot.entries(MANIFESTS))
    named = (ServicePath.of(path) for path in paths if path.endswith(f"/{REQUEST_FILE}") and path.count("/") == 3)
    return tuple(service for service in named if service is not None)


def has_stored_key(snapshot: Snapshot, service: ServicePath) -> bool:
    """Whether External Secrets writes the service's API key, so that nothing here may make one."""
    return snapshot.read(f"{service.folder}/{KEY_FILE}") is not None


def parts_of(named: str, root: Path | None = None) -> tuple[str, str] | None:
    """The environment ("": not named) and the name of a service that is named by its folder, as ENVIRONMENT/SERVICE or
    by its name alone; None for text that can name no service. `root`: the clone, where any path may name a folder.
    """
    parts = PurePosixPath(named).parts
    if root is not None and Path(named).exists():
        there, base = Path(named).resolve(), root.resolve()
        if there.is_relative_to(base) and there.relative_to(base).parts[:1] == (MANIFESTS,):
            parts = there.relative_to(base).parts
    if parts[:1] == (MANIFESTS,):
        parts = parts[1:]
    if not 1 <= len(parts) <= 2:
        return None
    return ("" if len(parts) == 1 else parts[0], parts[-1])


def find_service(
    named: str,
    services: Collection[ServicePath],
    root: Path | None = None,
    where: str = "this repository",
    fix: str = "Or name its folder.",
) -> ServicePath:
    """The one of the `services` that is named as `parts_of` reads it. `where` says whose services these are, `fix` what
    else to do for one that is missing.

    Raises InputError if there is none, or more than one.
    """
    environment, name = parts_of(named, root) or ("", "")
    found = [one for one in services if one.service == name and environment in ("", one.environment)]
    if len(found) > 1:
        places = ", ".join(one.folder for one in found)
        raise InputError.at(*_WHERE, f"{named!r} is in {places}", "Name one of them.")
    if not found:
        known = {one.service for one in services} | {f"{one.environment}/{one.service}" for one in services}
        names = [one for one in known if ("/" in one) == bool(environment)]
        near = suggest(named if environment else name, names, MANIFESTS)
        raise InputError.at(*_WHERE, f"{named!r} is not a service of {where}", f"{near} {fix}")
    return found[0]


def removed_services(git: Git, tip: str) -> dict[ServicePath, str]:
    """The services that a branch had and that its commit `tip` lacks, each with the commit that removed it last.

    A merge counts as the changes that it brought.
    """
    options = ("--first-parent", "-m", "--diff-filter=D", "--no-renames", "--name-only", "--format=commit %H")
    there = set(services_of(GitSnapshot(git, tip)))
    found: dict[ServicePath, str] = {}
    commit = ""
    for line in git.text("log", *options, tip, "--", MANIFESTS).splitlines():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line.endswith(f"/{REQUEST_FILE}") and (path := ServicePath.of(line)) is not None and path not in there:
            found.setdefault(path, commit)
    return found
