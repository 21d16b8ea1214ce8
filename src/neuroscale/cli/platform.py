"""`neuroscale platform`: renders, installs and prices a cluster's objects, and checks the forge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.open_repository import open_repository, remote_address, repository_root
from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import Settings, check_settings, domain_notes, image_notes, load_settings
from neuroscale.cli.options import (
    JsonOption,
    KubeconfigOption,
    RepositoryOption,
    TokenFileOption,
    plain_console,
    print_json,
)
from neuroscale.cluster.platform_install import Applied, install
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import terminal
from neuroscale.core.validation import suggest
from neuroscale.costs.difference import platform_side, priced
from neuroscale.costs.pricing import Prices
from neuroscale.forge.connect import connect
from neuroscale.forge.main_protection import problems
from neuroscale.forge.token import find_token
from neuroscale.kube.client import Cluster
from neuroscale.rendering.platform import argocd, charts, files
from neuroscale.rendering.platform.filling import Object
from neuroscale.repo.git import Git
from neuroscale.repo.layout import SETTINGS
from neuroscale.repo.snapshot import FolderSnapshot, read_text
from neuroscale.report import platform_cost_view


def show_platform_costs(
    environment: Annotated[
        str, typer.Option("--environment", help="One environment. Default: all that have a cluster of their own.")
    ] = "",
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show what the platform's own programs cost, by what their pods request: Argo CD, KServe, Kyverno, the gateway,
    Prometheus and OpenCost. Programs without a price are named with the reason."""
    opened = open_repository(repository)
    settings = opened.settings
    names = [name for name, configured in settings.environments.items() if configured.cluster != "local"]
    if environment and environment not in names:
        why = (
            "runs on this machine, where its programs are processes"
            if environment in settings.environments
            else "is not in the settings"
        )
        raise InputError.at("command line", "--environment", f"{environment!r} {why}", suggest(environment, names))
    prices = Prices(opened.catalog, settings.environments)
    snapshot = FolderSnapshot(opened.root)
    costs = {
        name: priced(platform_side(snapshot, settings, name), name, prices)
        for name in ([environment] if environment else names)
    }
    if as_json:
        print_json(platform_cost_view.as_mapping(costs))
        return ExitStatus.PASSED
    platform_cost_view.print_costs(costs, plain_console(120))
    return ExitStatus.PASSED


def check_forge(
    remote: Annotated[str, typer.Option("--remote", help="The git remote of the platform's repository.")] = "origin",
    token_file: TokenFileOption = None,
    patterns: Annotated[
        bool, typer.Option("--patterns", help="Print the protected files as Gitea's patterns, and ask no forge.")
    ] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Check that the forge protects main: a pull request, the gate's status, an approval, and no merge by rebasing.
    Exit status 1: one of them is missing. Who may pass the rules by is not checked."""
    from contextlib import closing

    if patterns:
        from neuroscale.local.forge_repository import protected_patterns

        typer.echo(protected_patterns())
        return ExitStatus.PASSED
    root = repository_root(repository)
    settings = load_settings(FolderSnapshot(root)).repository
    branch = settings.default_branch
    with closing(Git(root)) as git:
        forge = connect(remote_address(git, remote), find_token(token_file))
    faults = problems(forge, branch)
    if as_json:
        print_json({"schema_version": 1, "repository": forge.repository.slug, "branch": branch, "problems": faults})
    else:
        for problem in faults:
            typer.echo(terminal(problem))
        if not faults:
            typer.echo(terminal(f"{forge.repository.slug}: {branch} needs a pull request, the gate and an approval."))
        if not settings.smoke_account:
            missing = f"{SETTINGS} names no account of the smoke workflow (repository.smoke_account)"
            typer.echo(f"Note: {missing}, so no comment proves to `neuroscale promote` that a service passed.")
    return ExitStatus.FINDINGS if faults else ExitStatus.PASSED


# No name or password: everybody who can read an Application could read them.
_URL = re.compile(
    r"https://[^\s@]+|http://127\.0\.0\.1(:[0-9]+)?/[^\s@]*|ssh://[^\s:]+@[^\s@]+|[\w.-]+@[\w.-]+:[^\s@]+"
)


def installed_objects(
    repository: Path | None, environment: str, repository_url: str, revision: str
) -> tuple[list[Object], Settings]:
    """The objects that Argo CD of an environment's cluster gets, and the settings.

    `repository_url` and `revision`: the repository that Argo CD reads ("": by the settings). Raises InputError for an
    unknown environment, and for a repository that is not rendered.
    """
    root = repository_root(repository)
    snapshot = FolderSnapshot(root)
    settings, catalog = load_settings(snapshot), load_catalog(snapshot)
    check_settings(settings, catalog)
    if environment not in settings.environments:
        message = f"has no environment {environment!r}"
        raise InputError.at(SETTINGS, "environments", message, suggest(environment, settings.environments))
    if repository_url and not _URL.fullmatch(repository_url):
        fix = "Write https://HOST/PATH or ssh://USER@HOST/PATH; a password belongs in Argo CD's repository Secret."
        raise InputError.at("the command line", "--repo-url", "is not an address without a password", fix)
    # Argo CD reads the checked-in files from Git: outdated files would undo this installation.
    if problems := files.differences(snapshot, files.render(snapshot, catalog, settings)):
        raise InputError(problems)
    rendered = argocd.render(
        settings, catalog, charts.load_charts(snapshot), environment, repository_url or None, revision or None
    )
    config = argocd.config_maps(read_text(snapshot, argocd.VALUES))
    return [*config, *argocd.environment_objects(rendered)], settings


app = typer.Typer(
    name="platform",
    help="Render a cluster's objects into the repository, install them, price them, and check the forge.",
    no_args_is_help=True,
)


app.command("cost")(show_platform_costs)
app.command("forge")(check_forge)


@app.command("render")
def render_platform(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Exit status 1: some files differ from the rendered ones.")
    ] = False,
    repository: RepositoryOption = None,
) -> int:
    """Render what clusters get, two policies' lists and CODEOWNERS from settings and catalog."""

    root = repository_root(repository)
    snapshot = FolderSnapshot(root)
    settings, catalog = load_settings(snapshot), load_catalog(snapshot)
    check_settings(settings, catalog)
    rendered = files.render_all(snapshot, catalog, settings)
    for note in (*domain_notes(settings), *image_notes(settings, catalog)):
        typer.echo(f"Note: {note}", err=True)
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


@app.command("install")
def install_platform(
    context: Annotated[str, typer.Option("--context", help="The kubeconfig's context of the cluster.")],
    environment: Annotated[str, typer.Option("--environment", help="The cluster's environment.")],
    kubeconfig: KubeconfigOption = None,
    repo_url: Annotated[
        str, typer.Option("--repo-url", help="The repository that Argo CD reads. Default: the settings' URL.")
    ] = "",
    revision: Annotated[str, typer.Option("--revision", help="Default: the settings' default branch.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask the cluster, and change nothing.")] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Configure a cluster's Argo CD to deploy the platform. Repeat it after a change of settings, teams or charts."""
    wanted, settings = installed_objects(repository, environment, repo_url, revision)

    def tell(applied: Applied) -> None:
        if not as_json:
            would = "would be " if dry_run and applied.result != "unchanged" else ""
            typer.echo(f"{applied.identity}: {would}{applied.result}")

    with Cluster.of_kubeconfig(kubeconfig, context) as cluster:
        done = install(cluster, environment, wanted, dry_run=dry_run, tell=tell)
    notes = [*done.notes]
    if not dry_run and settings.environments[environment].cluster == "local":
        notes.append("The environment's cluster is local: Argo CD does not deploy KServe and Kyverno to it.")
    if as_json:
        answer = {
            "schema_version": 1,
            "context": context,
            "environment": environment,
            "dry_run": dry_run,
            "objects": [
                {
                    "kind": applied.identity.kind,
                    "namespace": applied.identity.namespace,
                    "name": applied.identity.name,
                    "result": applied.result,
                }
                for applied in done.applied
            ],
            "notes": notes,
        }
        print_json(answer)
        return ExitStatus.PASSED
    for note in notes:
        typer.echo(f"Note: {note}")
    return ExitStatus.PASSED
