"""`neuroscale explain`: says why a server ended, from its log, and which configuration starts; or why it is slow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.catalog import Catalog
from neuroscale.cli.chosen_cluster import Where
from neuroscale.cli.fit import Question, answer
from neuroscale.cli.next_configuration import known, next_configuration
from neuroscale.cli.options import (
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    ServiceEnvironmentOption,
    TokenFileOption,
    print_json,
)
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.files import sha256
from neuroscale.explain import LogLine, diagnose, facts_of_log, load_causes, read_log
from neuroscale.planning.fit import PINNED
from neuroscale.report.cause_view import Explanation, Proposal, cause_lines, cause_mapping

OVERRIDDEN = timedelta(days=30)
"""How long the overrides hold that it proposes: until the request itself is changed."""
_LONGEST_READING = 600  # seconds


def explain_lines(
    lines: list[LogLine],
    given: Question,
    catalog: Catalog,
    service: str = "",
    asks: Callable[[Proposal], bool] = lambda _: True,
) -> Explanation:
    """What a log says, and the next configuration. In `given`, an empty text or None is what the log tells. `asks`:
    whether the service's request can ask for a configuration."""
    diagnosis, facts = diagnose(lines, load_causes()), facts_of_log(lines)
    found = known(facts, given, catalog)
    proposal, planned, no_next = None, None, ""
    if found.question is None:
        no_next = found.lacks if diagnosis.next else ""
    elif diagnosis.verdict in ("cause", "healthy"):
        question = _judged(found.question)
        unjudged = ""
        try:
            planned = answer(question, catalog)
        except InputError as error:
            told = error.problems[0]
            unjudged = f"The plan cannot judge it: {told.where} {told.field} {told.message}. {told.fix}"
        proposal, no_next = next_configuration(diagnosis, question, catalog, asks)
        no_next = no_next and (unjudged or no_next)
    until = (datetime.now(UTC).date() + OVERRIDDEN).isoformat()
    digest = sha256("\n".join(line.text for line in lines).encode())
    return Explanation(diagnosis, facts, proposal, no_next, planned, service, until, log_digest=digest)


def _judged(question: Question) -> Question:
    """The question for a version that the fit judges: what a log says of a build (0.16.0rc2.dev236+g3b30e6150) may be
    none."""
    version = question.vllm_version.partition("+")[0].partition("rc")[0].partition(".dev")[0].partition(".post")[0]
    return replace(question, vllm_version=version or PINNED)


def explain(
    service: Annotated[
        str,
        typer.Argument(help="A service: its name, or ENVIRONMENT/SERVICE. With --log, its plan in this clone is read."),
    ] = "",
    log: Annotated[
        Path | None, typer.Option("--log", help="The server's log, of a start or a crash; - reads standard input.")
    ] = None,
    model: Annotated[str, typer.Option("--model", help="The model, as `fit` takes it. Default: the log's.")] = "",
    accelerator: Annotated[
        str, typer.Option("--accelerator", help="An accelerator of the catalog. Default: the log's.")
    ] = "",
    count: Annotated[int | None, typer.Option("--count", help="The number of accelerators.")] = None,
    vllm_args: Annotated[
        str, typer.Option("--vllm-args", help="The arguments of `vllm serve`, as one text. Default: the log's.")
    ] = "",
    vllm_version: Annotated[
        str, typer.Option("--vllm-version", help="The version of vLLM. Default: the log's, or that of the manifests.")
    ] = "",
    memory_gib: Annotated[
        float | None, typer.Option("--memory-gib", help="Memory of one accelerator, in GiB. Default: the log's.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", help="How long to read the counters of a service that answers; 0: not at all."),
    ] = 10.0,
    environment: ServiceEnvironmentOption = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Propose a good start's weights, KV cache and seconds as a measurement."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --record: show the measurement, and push nothing.")
    ] = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Say why a server ended: the cause, the lines that it rests on, and the next configuration, planned to fit. It
    reads a log (--log), or the logs and the state of a service's pod in its cluster. Of a service that answers, say why
    it is slow: the bound that it hits, by its counters, beside its plan, and what would help. Exit status: 0 it started
    and hits no bound, 1 it did not or does, 2 the log cannot be read."""
    from neuroscale.cli.open_repository import open_repository

    if not service and log is None:
        fix = "Write explain SERVICE, or explain --log FILE (--log - for standard input), or both."
        raise InputError.at("the command line", "SERVICE", "names neither a service nor a log", fix)
    opened = open_repository(repository)
    given = Question(model, accelerator or None, count, vllm_args, vllm_version, memory_gib, None)
    if log is not None and not service:
        explained = explain_lines(_read(log), given, opened.catalog)
    else:
        from neuroscale.cli.explained_service import explain_log_of, explain_service

        if not 0 <= seconds <= _LONGEST_READING or 0 < seconds < 1:
            fix = f"Write 1 to {_LONGEST_READING}, or 0."
            raise InputError.at("the command line", "--seconds", f"{seconds:g} is not a time to read counters", fix)
        if log is not None:
            explained = explain_log_of(service, environment, _read(log), given, opened)
        else:
            seconds = 0 if record else seconds  # a start has no counters
            where = Where(context, kubeconfig, state)
            explained = explain_service(service, environment, where, given, opened, seconds)
    if not record:
        return show(explained, as_json=as_json)
    from neuroscale.cli import measurements
    from neuroscale.cli.service_change import Forge

    measured = measurements.of_start(explained, opened.catalog)
    forge = Forge(repository, remote, token_file, local)
    return measurements.record(measured, opened.root, forge, dry_run=dry_run, as_json=as_json)


def show(explained: Explanation, *, as_json: bool) -> int:
    """Print the explanation. Returns the exit status."""
    if as_json:
        print_json(cause_mapping(explained))
    else:
        typer.echo("\n".join(cause_lines(explained)))
    serving = explained.serving.serving if explained.serving else None
    started = explained.diagnosis.verdict == "healthy" and not explained.unready
    well = started and (serving is None or not serving.bounds)
    return ExitStatus.PASSED if well else ExitStatus.FINDINGS


def _read(log: Path) -> list[LogLine]:
    if str(log) == "-":
        return read_log(sys.stdin.buffer)
    try:
        with log.open("rb") as stream:
            return read_log(stream)
    except OSError as error:
        fix = "Name a file that holds the server's log."
        raise InputError.at("--log", "", f"{log} cannot be read ({error.strerror})", fix) from error
