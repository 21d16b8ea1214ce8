"""`neuroscale explain`: says why a server ended, from its log, and which configuration starts; or why it is slow."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.catalog.model_lookup import load_model
from neuroscale.cli.options import (
    TO_STDERR,
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
    say_source,
    split_words,
)
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.explain import LogLine, read_log
from neuroscale.explain.explanation import Explanation, explain_lines
from neuroscale.planning.fit_question import Question
from neuroscale.report.cause_view import cause_lines, cause_mapping

_LONGEST_READING = 600  # seconds


def explain(
    service: Annotated[
        str,
        typer.Argument(help="A service: its name, or ENVIRONMENT/SERVICE. With --log, its plan alone is read."),
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
    from neuroscale.actions.open_repository import open_inputs, repository_of

    if not service and log is None:
        fix = "Write explain SERVICE, or explain --log FILE (--log - for standard input), or both."
        raise InputError.at("the command line", "SERVICE", "names neither a service nor a log", fix)
    opened = open_inputs(repository)
    if service or record:
        repository_of(opened)
    say_source(opened.catalog_note)
    look_up = partial(load_model, catalog=opened.catalog)
    question = Question(
        model, accelerator or None, count, split_words(vllm_args), vllm_version, memory_gib, None, look_up=look_up
    )
    if log is not None and not service:
        explained = explain_lines(_read(log), question, opened.catalog, policies=opened.files)
    else:
        from neuroscale.actions.chosen_cluster import Where
        from neuroscale.actions.explained_service import explain_log_of, explain_service

        if not 0 <= seconds <= _LONGEST_READING or 0 < seconds < 1:
            fix = f"Write 1 to {_LONGEST_READING}, or 0."
            raise InputError.at("the command line", "--seconds", f"{seconds:g} is not a time to read counters", fix)
        where = Where(context, kubeconfig, state)
        if log is not None:
            explained = explain_log_of(service, environment, _read(log), question, where, repository_of(opened))
        else:
            seconds = 0 if record else seconds  # a start has no counters
            explained = explain_service(
                service, environment, where, question, repository_of(opened), seconds, TO_STDERR
            )
    if not record:
        return show(explained, as_json=as_json)
    from neuroscale.actions import measurement_records
    from neuroscale.actions.service_change import ForgeChoice
    from neuroscale.cli.options.change_outcome import record as record_measurement

    measured = measurement_records.of_start(explained, opened.catalog)
    forge = ForgeChoice(repository, remote, token_file, local)
    return record_measurement(measured, repository_of(opened).root, forge, dry_run=dry_run, as_json=as_json)


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
