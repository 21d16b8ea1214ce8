"""`neuroscale platform`: renders a cluster's objects into the repository, and installs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, KubeconfigOption, RepositoryOption
from neuroscale.cli.platform_cost import show_platform_costs
from neuroscale.cli.platform_forge import check_forge
from neuroscale.core.errors import ExitStatus

if TYPE_CHECKING:
    from neuroscale.cluster.platform_install import Applied

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
    """Render Argo CD's files, runtimes, tenancy and upstream's charts from settings and catalog."""
    from neuroscale.catalog import load_catalog
    from neuroscale.catalog.settings import check_settings, load_settings
    from neuroscale.rendering.platform import files
    from neuroscale.repo.layout import find_root
    from neuroscale.repo.snapshot import FolderSnapshot

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
    from neuroscale.cli.platform_install import installed_objects
    from neuroscale.cluster.platform_install import install
    from neuroscale.kube.client import Cluster

    wanted, settings = installed_objects(repository, environment, repo_url, revision)

    def tell(one: Applied) -> None:
        if not as_json:
            typer.echo(f"{one.identity}: {'would be ' if dry_run and one.result != 'unchanged' else ''}{one.result}")

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
                    "kind": one.identity.kind,
                    "namespace": one.identity.namespace,
                    "name": one.identity.name,
                    "result": one.result,
                }
                for one in done.applied
            ],
            "notes": notes,
        }
        print_json(answer)
        return ExitStatus.PASSED
    for note in notes:
        typer.echo(f"Note: {note}")
    return ExitStatus.PASSED
