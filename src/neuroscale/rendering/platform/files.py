"""Renders and writes the files of `platform/`, and compares them with those in a repository."""

from __future__ import annotations

import contextlib
from pathlib import Path, PurePosixPath

from neuroscale.catalog import Catalog, load_catalog
from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.files import write_public
from neuroscale.core.yaml_io import decode
from neuroscale.manifests.objects import read_manifests
from neuroscale.rendering.platform import alertmanager, argocd, charts, monitoring
from neuroscale.rendering.platform.code_owners import render_code_owners
from neuroscale.rendering.platform.gateway import render_gateway
from neuroscale.rendering.platform.policy_lists import FOLDERS, render_policy_lists
from neuroscale.rendering.platform.runtimes import render_runtimes
from neuroscale.rendering.platform.tenancy import check_namespaces, render_for_clusters, render_tenancy
from neuroscale.repo.layout import CLUSTER_FILES, CODE_OWNERS, RUNTIMES, TENANCY
from neuroscale.repo.snapshot import Kind, Snapshot, read_text

COMMAND = "neuroscale platform render"
SOURCES = (*(folder.rstrip("/") for folder in CLUSTER_FILES), *FOLDERS.values())
"""The folders of the rendered files and of their sources beside catalog and settings."""


def render(snapshot: Snapshot, catalog: Catalog, settings: Settings) -> dict[str, str]:
    """Every rendered file that clusters get, by its path: the same for the same repository. Raises InputError."""
    upstream = charts.load_charts(snapshot)
    charts.check_charts(upstream, settings)
    check_namespaces(snapshot, catalog, upstream, settings)
    argocd.config_maps(read_text(snapshot, argocd.VALUES))
    files = charts.render(snapshot, upstream, settings) | render_gateway(upstream, settings)
    files |= render_runtimes(catalog) | render_tenancy(catalog) | render_for_clusters(catalog, settings)
    files |= monitoring.render(snapshot, catalog, settings) | render_policy_lists(snapshot, settings)
    files |= alertmanager.render(catalog, settings)
    for environment in settings.environments:
        for name, text in argocd.render(settings, catalog, upstream, environment).items():
            files[f"{argocd.FOLDER}/{environment}/{name}"] = text
    for path, text in files.items():
        # Prometheus' and Alertmanager's own formats are no manifests.
        if path != monitoring.SCRAPE and not alertmanager.is_configuration(path):
            read_manifests(text.encode(), path)  # raises if Argo CD would read another object, or none
    return dict(sorted(files.items()))


def render_all(snapshot: Snapshot, catalog: Catalog, settings: Settings) -> dict[str, str]:
    """As `render`, and the files that the repository's forge reads."""
    files = render(snapshot, catalog, settings)
    if settings.owners is not None:
        files[CODE_OWNERS] = render_code_owners(settings.owners)
    return files


def render_repository(snapshot: Snapshot) -> dict[str, str]:
    """As `render_all`, with the repository's own catalog and settings."""
    return render_all(snapshot, load_catalog(snapshot), load_settings(snapshot))


def is_rendered(path: str) -> bool:
    """Whether a path lies in a folder for rendered files alone: Argo CD applies everything there."""
    parts = PurePosixPath(path).parts
    return (
        path.startswith((f"{RUNTIMES}/", f"{TENANCY}/"))
        or (path.startswith(f"{charts.FOLDER}/") and len(parts) > 3)
        or (path.startswith((f"{argocd.FOLDER}/", f"{monitoring.FOLDER}/")) and len(parts) > 3)
        or path == monitoring.SCRAPE
        or alertmanager.is_configuration(path)
    )


def differences(snapshot: Snapshot, files: dict[str, str]) -> list[Problem]:
    """The differences between a repository and the rendered files: files that are missing, different or superfluous."""
    problems = []
    kinds = _present(snapshot, files)
    for path in sorted({*files, *kinds}):
        if path not in files:
            problems.append(Problem(path, "", "is not rendered from the settings and the catalog", "Remove it."))
        elif path not in kinds:
            problems.append(Problem(path, "", "is missing", f"Run `{COMMAND}` and commit the result."))
        elif kinds[path] != "file":
            problems.append(Problem(path, "", f"is a {kinds[path]}", f"Remove it and run `{COMMAND}`."))
        elif (data := snapshot.read(path)) != files[path].encode():
            line = _first_difference(data or b"", files[path])
            message = "differs from what the settings and the catalog render to"
            fix = f"Run `{COMMAND}` and commit the result; change the source that it is rendered from, not the file."
            problems.append(Problem(path, "", message, fix, line))
    return problems


def write(root: Path, snapshot: Snapshot, files: dict[str, str]) -> list[str]:
    """Make the repository at `root` hold the files and no other rendered ones; returns the paths that changed.

    Each file is replaced as a whole. Raises InputError, before it writes anything, if a path is not a plain file's.
    """
    present = _present(snapshot, files)
    problems = [
        Problem(path, "", f"is a {kind}, not a plain file", "Remove it and render again.")
        for path, kind in present.items()
        if kind != "file"
    ]
    for path in files:
        above = [parent for parent in [*PurePosixPath(path).parents][:-1] if (root / parent).is_symlink()]
        problems += [Problem(str(parent), "", "is a symlink", "Replace it with a plain folder.") for parent in above]
    if problems:
        raise InputError(problems)
    changed = [path for path, text in files.items() if snapshot.read(path) != text.encode()]
    gone = sorted(set(present) - set(files))
    try:
        for path in changed:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_public(root / path, files[path])
        for path in gone:
            (root / path).unlink()
            with contextlib.suppress(OSError):  # other files may remain in it
                (root / path).parent.rmdir()
    except OSError as error:
        where, why = str(error.filename or root), f"cannot be written: {error.strerror}"
        raise InputError.at(where, "", why, "Allow writing to the repository.") from error
    return sorted([*changed, *gone])


def _present(snapshot: Snapshot, files: dict[str, str]) -> dict[str, Kind]:
    """The kinds of what stands where the files belong, and of what stands in folders for rendered files alone."""
    entries = snapshot.entries(*SOURCES, *files)
    return {entry.path: entry.kind for entry in entries if entry.path in files or is_rendered(entry.path)}


def _first_difference(data: bytes, text: str) -> int | None:
    try:
        committed = decode(data, "").splitlines()
    except InputError:
        return None
    wanted = text.splitlines()
    return next(
        (number for number, (left, right) in enumerate(zip(committed, wanted, strict=False), 1) if left != right),
        max(1, min(len(committed), len(wanted))),
    )
