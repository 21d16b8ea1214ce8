"""`neuroscale smoke`: tests live services against their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import ClusterStateOption, ContextOption, KubeconfigOption, RepositoryOption


def look_at_services(
    environment: Annotated[str, typer.Option("--environment", help="The environment whose services are tested.")],
    service: Annotated[str, typer.Option("--service", help="Only this service.")] = "",
    base_url: Annotated[
        str, typer.Option("--base-url", help="The address of the one service for its clients. Default: a port-forward.")
    ] = "",
    connect_to: Annotated[
        list[str] | None,
        typer.Option(
            "--connect-to",
            help="Connect to HOST:PORT at ADDRESS:PORT, as curl does: HOST:PORT:ADDRESS:PORT. Without --base-url, the "
            "URL is the service's own. Default: the gateway of the local platform that --state names.",
        ),
    ] = None,
    revision: Annotated[
        str, typer.Option("--revision", help="The merged commit. Default: the default branch's newest here.")
    ] = "",
    patience: Annotated[
        float, typer.Option("--patience", help="Seconds that a first answer may take.", min=1, max=600)
    ] = 60.0,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON here.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the result as JUnit XML here.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write the result as Markdown here.")] = None,
    repository: RepositoryOption = None,
) -> int:
    """Test whether deployed services match Git. Exit status: 0 all passed, 1 findings, 3 cannot be trusted."""
    from neuroscale.cli.chosen_cluster import Where
    from neuroscale.cli.report_files import Reports
    from neuroscale.cli.smoke_run import Question, run_smoke_tests

    question = Question(environment, service, base_url, revision, patience, tuple(connect_to or ()))
    reports = Reports(json_file, junit_file, markdown_file)
    return run_smoke_tests(question, Where(context, kubeconfig, state), repository, reports)
