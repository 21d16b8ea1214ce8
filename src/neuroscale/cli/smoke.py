"""`neuroscale smoke`: runs the smoke tests against live services, and writes their results."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.smoke_now import Question, smoke_report
from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    KubeconfigOption,
    Reports,
    RepositoryOption,
    write_whole,
)
from neuroscale.core.errors import ExitStatus, NeuroscaleError, UntrustedError
from neuroscale.smoke.results import Report, Result, line, print_table, to_json, to_junit, to_markdown


def run_smoke_tests(question: Question, where: Where, repository: Path | None, reports: Reports) -> int:
    """Run the tests, report, and return the exit status: 0 only if every check ran and passed.

    Raises InputError for options that cannot be used, UntrustedError if there is nothing to test.
    """
    for path in (reports.json, reports.junit, reports.markdown):
        if path is not None:
            path.unlink(missing_ok=True)  # an older run's report must never be taken for this run's
    started = datetime.now(UTC)
    try:
        # It is written before the causes are looked up, too: a command that is ended meanwhile leaves its report.
        report = smoke_report(question, where, repository, lambda tested: _write(tested, reports), _tell, TO_STDERR)
    except NeuroscaleError as error:
        if error.exit_status is not ExitStatus.UNTRUSTED:
            raise
        when = started.isoformat(timespec="seconds").replace("+00:00", "Z")
        report = Report(question.environment, question.revision, when, 0.0, (), (str(error),))
    _write(report, reports)
    from rich.console import Console

    print_table(report, Console(highlight=False, soft_wrap=True))
    return report.status


def _tell(result: Result) -> None:
    sys.stderr.write(f"{line(result)}\n")
    sys.stderr.flush()


def _write(report: Report, reports: Reports) -> None:
    for path, text in ((reports.json, to_json), (reports.junit, to_junit), (reports.markdown, to_markdown)):
        if path is None:
            continue
        try:
            write_whole(path, text(report))
        except OSError as error:
            # The findings are not lost: the terminal shows them, and the exit status says that a report is missing.
            raise UntrustedError(f"{path}: the report cannot be written: {error.strerror}") from error


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
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            help="Seconds after which the tests are stopped, and what is known is reported. Default: 300, and 30 times "
            "the patience for each service.",
            min=1,
        ),
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON here.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the result as JUnit XML here.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write the result as Markdown here.")] = None,
    repository: RepositoryOption = None,
) -> int:
    """Test whether deployed services match Git. Exit status: 0 all passed, 1 findings, 3 cannot be trusted."""

    question = Question(environment, service, base_url, revision, patience, within or 0.0, tuple(connect_to or ()))
    reports = Reports(json_file, junit_file, markdown_file)
    return run_smoke_tests(question, Where(context, kubeconfig, state), repository, reports)
