"""Renders and writes the files of `platform/`, and compares them with those in a repository.

Renders the serving runtimes: one for each of the catalog's, with its image but no field that a service sets.

Renders a team's place in a cluster: namespace, quota, network, access and tests, from its entry in the catalog.

Renders the way into a cluster from outside: a gateway with TLS, and the issuer of its certificate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from textwrap import indent
from typing import Any

from neuroscale.catalog import Catalog, Team, load_catalog
from neuroscale.catalog.settings import OwnAuthority, Settings, load_settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.files import write_public
from neuroscale.core.yaml_io import decode, dump, quoted, read_mapping
from neuroscale.manifests.objects import read_manifests
from neuroscale.rendering.platform import argocd, charts, monitoring
from neuroscale.rendering.platform.charts import CLUSTERS, FOLDER, Chart, Cluster
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.rendering.scaffolder.skeleton_values import TEMPORARY_GIB
from neuroscale.repo.layout import CATALOG, CLUSTER_FILES, RUNTIMES, TENANCY
from neuroscale.repo.snapshot import Snapshot, read_text

RUNTIMES_FOLDER = RUNTIMES


def render_runtimes(catalog: Catalog) -> dict[str, str]:
    """The runtimes, by their path in the repository."""
    return {
        f"{RUNTIMES_FOLDER}/{runtime.name}.yaml": filled(
            "runtime.yaml",
            entry=f"{CATALOG}/runtimes/{runtime.name}.yaml",
            name=runtime.name,
            title=runtime.title,
            version=runtime.version,
            image=runtime.reference,
            has_read_only_root=runtime.has_read_only_root,
            temporary_size=f"{TEMPORARY_GIB}Gi",
        )
        for runtime in catalog.runtimes.values()
    }


TENANCY_FOLDER = TENANCY
SMOKE_TESTS = "neuroscale:smoke-tests"
"""The group that may test running services, as the templates name it."""


def render_tenancy(catalog: Catalog) -> dict[str, str]:
    """The files of every team and of the group that tests its services, by their path in the repository."""
    resources = sorted({entry.resource for entry in catalog.accelerators.values() if entry.resource})
    files = {f"{TENANCY_FOLDER}/smoke-tests.yaml": filled("smoke-tests-cluster.yaml", group=SMOKE_TESTS)}
    for team in catalog.teams.values():
        named = {"namespace": team.namespace, "cost_center": team.cost_center}
        of_team = {
            "namespace.yaml": filled("namespace.yaml", team=team.name, owner=team.owner, contact=team.contact, **named),
            "quota.yaml": filled("quota.yaml", **_share(team, resources), **named),
            "network.yaml": filled("network.yaml", **named),
            "access.yaml": filled("access.yaml", namespace=team.namespace, group=team.group or team.owner),
            "smoke-tests.yaml": filled("smoke-tests.yaml", namespace=team.namespace, group=SMOKE_TESTS),
        }
        files |= {f"{TENANCY_FOLDER}/{team.name}/{name}": text for name, text in of_team.items()}
    return files


def _share(team: Team, resources: list[str]) -> dict[str, object]:
    quota = team.quota
    counts = {name: quota.accelerators.get(name, 0) for name in sorted({*resources, *quota.accelerators})}
    return {
        "pods": _count(quota.pods),
        "cpu": _count(quota.cpu),
        "memory": f"{quota.memory_gib // 1024}Ti" if quota.memory_gib % 1024 == 0 else f"{quota.memory_gib}Gi",
        # Kubernetes counts an extended resource only by its requests.
        "accelerators": [{"name": f"requests.{name}", "value": _count(count)} for name, count in counts.items()],
    }


def _count(number: int) -> Verbatim:
    """A quantity as text, as Kubernetes itself would write it."""
    return Verbatim(quoted(f"{number // 1000}k" if number and number % 1000 == 0 else str(number)))


_CHART = "envoy-gateway"
_SOLVER = " " * 10


def render_gateway(charts: Iterable[Chart], settings: Settings) -> dict[str, str]:
    """The gateway of every kind of cluster that gets Envoy Gateway, by its path in the repository."""
    used = {cluster for chart in charts if chart.name == _CHART for cluster in chart.clusters}
    return {f"{FOLDER}/{cluster}/gateway.yaml": _gateway(cluster, settings) for cluster in CLUSTERS if cluster in used}


def _gateway(cluster: Cluster, settings: Settings) -> str:
    signer = settings.certificates.get(cluster, OwnAuthority(issuer="own"))
    own = isinstance(signer, OwnAuthority)
    return filled(
        "gateway.yaml",
        hosts=f"*.{settings.domain}",
        own_authority=own,
        acme_server="" if isinstance(signer, OwnAuthority) else signer.server,
        acme_email="" if isinstance(signer, OwnAuthority) else signer.email,
        acme_dns01=Verbatim("" if isinstance(signer, OwnAuthority) else indent(dump(signer.dns01).rstrip(), _SOLVER)),
    )


KYVERNO = "platform/serving/kyverno.yaml"
COMMAND = "neuroscale platform render"
SOURCES = tuple(folder.rstrip("/") for folder in CLUSTER_FILES)
"""The folders of the rendered files and of their sources beside catalog and settings."""


def render(snapshot: Snapshot, catalog: Catalog, settings: Settings) -> dict[str, str]:
    """Every rendered file by its path: the same for the same repository. Raises InputError."""
    _check_namespaces(snapshot, catalog)
    upstream = charts.load_charts(snapshot)
    argocd.config_maps(read_text(snapshot, argocd.VALUES))
    files = charts.render(snapshot, upstream, settings) | render_gateway(upstream, settings)
    files |= render_runtimes(catalog) | render_tenancy(catalog) | monitoring.render(snapshot, catalog, settings)
    for environment in settings.environments:
        for name, text in argocd.render(settings, catalog, upstream, environment).items():
            files[f"{argocd.FOLDER}/{environment}/{name}"] = text
    for path, text in files.items():
        if path != monitoring.SCRAPE:  # Prometheus' own format, not a manifest
            read_manifests(text.encode(), path)  # raises if Argo CD would read another object, or none
    return dict(sorted(files.items()))


def render_repository(snapshot: Snapshot) -> dict[str, str]:
    """As `render`, with the repository's own catalog and settings."""
    return render(snapshot, load_catalog(snapshot), load_settings(snapshot))


def is_rendered(path: str) -> bool:
    """Whether a path lies in a folder for rendered files alone: Argo CD applies everything there."""
    parts = PurePosixPath(path).parts
    return (
        path.startswith((f"{RUNTIMES_FOLDER}/", f"{TENANCY_FOLDER}/"))
        or (path.startswith(f"{charts.FOLDER}/") and len(parts) > 3)
        or (path.startswith((f"{argocd.FOLDER}/", f"{monitoring.FOLDER}/")) and len(parts) > 3)
        or path == monitoring.SCRAPE
    )


def differences(snapshot: Snapshot, files: dict[str, str]) -> list[Problem]:
    """The differences between a repository and the rendered files: files that are missing, different or superfluous."""
    problems = []
    kinds = {entry.path: entry.kind for entry in snapshot.entries(*SOURCES) if is_rendered(entry.path)}
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
    there = {entry.path: entry.kind for entry in snapshot.entries(*SOURCES) if is_rendered(entry.path)}
    problems = [
        Problem(path, "", f"is a {kind}, not a plain file", "Remove it and render again.")
        for path, kind in there.items()
        if kind != "file"
    ]
    for path in files:
        above = [parent for parent in [*PurePosixPath(path).parents][:-1] if (root / parent).is_symlink()]
        problems += [Problem(str(parent), "", "is a symlink", "Replace it with a plain folder.") for parent in above]
    if problems:
        raise InputError(problems)
    changed = [path for path, text in files.items() if snapshot.read(path) != text.encode()]
    gone = sorted(set(there) - set(files))
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


def system_namespaces(values: Any) -> tuple[str, ...]:
    """The namespaces that Kyverno's webhooks leave alone, from its values. Raises InputError."""
    try:
        (rule,) = values["config"]["webhooks"]["namespaceSelector"]["matchExpressions"]
        if (rule["key"], rule["operator"]) == ("kubernetes.io/metadata.name", "NotIn"):
            return tuple(rule["values"])
    except (KeyError, TypeError, ValueError):
        pass
    field = "config.webhooks.namespaceSelector.matchExpressions"
    raise InputError.at(KYVERNO, field, "is not one list of names", "Write one kubernetes.io/metadata.name NotIn.")


def _check_namespaces(snapshot: Snapshot, catalog: Catalog) -> None:
    """Refuse a team in a namespace that Kyverno leaves alone: no policy would judge its objects."""
    spared = system_namespaces(read_mapping(read_text(snapshot, KYVERNO), KYVERNO).value)
    problems = [
        Problem(
            f"{CATALOG}/teams/{team.name}.yaml",
            "namespace",
            f"{team.namespace!r} is a namespace that Kyverno leaves alone ({KYVERNO})",
            "Give the team a namespace of its own.",
        )
        for team in catalog.teams.values()
        if team.namespace in spared
    ]
    if problems:
        raise InputError(problems)


def _first_difference(data: bytes, text: str) -> int | None:
    try:
        found = decode(data, "").splitlines()
    except InputError:
        return None
    wanted = text.splitlines()
    return next(
        (number for number, (left, right) in enumerate(zip(found, wanted, strict=False), 1) if left != right),
        max(1, min(len(found), len(wanted))),
    )
