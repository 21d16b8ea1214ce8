"""`neuroscale platform`: what a cluster gets, rendered into the repository and installed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import typer

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import Settings, check_settings, load_settings
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.rendering.platform import argocd, charts, files
from neuroscale.rendering.platform.filling import Object
from neuroscale.repo.layout import SETTINGS, find_root
from neuroscale.repo.snapshot import FolderSnapshot, read_text

# No name or password: they would be readable for everybody who reads an Application.
_URL = re.compile(
    r"https://[^\s@]+|http://127\.0\.0\.1(:[0-9]+)?/[^\s@]*|ssh://[^\s:]+@[^\s@]+|[\w.-]+@[\w.-]+:[^\s@]+"
)


@dataclass(frozen=True)
class Target:
    """The cluster to install into, and what Argo CD is to read (empty: what the settings say)."""

    context: str
    environment: str
    kubeconfig: Path | None = None
    repository_url: str = ""
    revision: str = ""


def render_platform(repository: Path | None, *, check: bool) -> int:
    """Write every rendered file of platform/, or only say which are not as they would be written."""
    root = find_root(repository or Path.cwd())
    snapshot = FolderSnapshot(root)
    settings, catalog = load_settings(snapshot), load_catalog(snapshot)
    check_settings(settings, catalog)
    rendered = files.render(snapshot, catalog, settings)
    if check:
        problems = files.differences(snapshot, rendered)
        for problem in problems:
            typer.echo(str(problem))
        if not problems:
            typer.echo(f"{len(rendered)} files are as settings and catalog render them.")
        return ExitStatus.FINDINGS if problems else ExitStatus.PASSED
    changed = files.write(root, snapshot, rendered)
    for path in changed:
        typer.echo(f"{path}: {'written' if path in rendered else 'removed'}")
    typer.echo(f"{len(changed)} of {len(rendered)} files changed.")
    return ExitStatus.PASSED


def install_platform(target: Target, repository: Path | None, *, dry_run: bool, as_json: bool) -> int:
    """Tell the cluster's Argo CD what to deploy. Raises InputError, KubernetesError, HalfInstalledError."""
    from neuroscale.cluster.platform_install import Applied, install
    from neuroscale.kube.client import Cluster

    wanted, settings = _wanted(target, repository)

    def tell(one: Applied) -> None:
        if not as_json:
            typer.echo(f"{one.identity}: {'would be ' if dry_run and one.result != 'unchanged' else ''}{one.result}")

    with Cluster.of_kubeconfig(target.kubeconfig, target.context) as cluster:
        done = install(cluster, target.environment, wanted, dry_run=dry_run, tell=tell)
    notes = [*done.notes]
    if not dry_run and settings.environments[target.environment].cluster == "local":
        notes.append("The environment's cluster is local: KServe and Kyverno are not among what is deployed.")
    if as_json:
        answer = {
            "schema_version": 1,
            "context": target.context,
            "environment": target.environment,
            "dry_run": dry_run,
            "objects": [
                {
                    "kind": one.identity.kind,
                    "namespace": one.identity.namespace,
                    "name": one.identity.name,
                    "result": one.result,
                }
                for one in done.applied
            ],
            "notes": notes,
        }
        typer.echo(json.dumps(answer, indent=2))
        return ExitStatus.PASSED
    for note in notes:
        typer.echo(f"Note: {note}")
    return ExitStatus.PASSED


def _wanted(target: Target, repository: Path | None) -> tuple[list[Object], Settings]:
    """What is applied. Raises InputError for an unknown environment, and for a repository that is not rendered."""
    root = find_root(repository or Path.cwd())
    snapshot = FolderSnapshot(root)
    settings, catalog = load_settings(snapshot), load_catalog(snapshot)
    check_settings(settings, catalog)
    if target.environment not in settings.environments:
        message = f"has no environment {target.environment!r}"
        raise InputError(Problem(SETTINGS, "environments", message, suggest(target.environment, settings.environments)))
    if target.repository_url and not _URL.fullmatch(target.repository_url):
        fix = "Write https://HOST/PATH or ssh://USER@HOST/PATH; a password belongs in Argo CD's repository Secret."
        raise InputError(Problem("the command line", "--repo-url", "is not an address without a password", fix))
    # What Argo CD will read from Git is what is checked in: files that are older would undo what is installed here.
    if problems := files.differences(snapshot, files.render(snapshot, catalog, settings)):
        raise InputError(problems)
    rendered = argocd.render(
        settings,
        catalog,
        charts.load_charts(snapshot),
        target.environment,
        target.repository_url or None,
        target.revision or None,
    )
    config = argocd.config_maps(read_text(snapshot, argocd.VALUES))
    return [*config, *argocd.environment_objects(rendered)], settings
