"""`neuroscale bench` and `neuroscale bench-merged`: measure how fast endpoints answer under loads, with guidellm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    RepositoryOption,
    ServiceEnvironmentOption,
    plain_console,
    print_json,
    split_words,
)
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import one_line, terminal

if TYPE_CHECKING:
    from neuroscale.actions.bench_run import BenchRun
    from neuroscale.actions.bench_subject import Place
    from neuroscale.actions.chosen_cluster import Where
    from neuroscale.actions.open_repository import Repository
    from neuroscale.bench.cells import PlannedCell
    from neuroscale.bench.guidellm import Progress
    from neuroscale.bench.run import Outcome

_COMMAND_LINE = "the command line"
_OUTPUT = ".state/bench"
_MOST_SERVICES = 2  # of a merge
_SEARCH_CELLS = 14  # of a search between 1 and 512 users, with its repetitions


def bench(
    service: Annotated[str, typer.Argument(help="A service of a cluster: its name, or ENVIRONMENT/SERVICE.")] = "",
    url: Annotated[str, typer.Option("--url", help="The address of any OpenAI-compatible endpoint instead.")] = "",
    users: Annotated[
        str, typer.Option("--users", help="Users who ask at once: 1,4,16. Default: up to those of the service's form.")
    ] = "",
    prompt_tokens: Annotated[
        str,
        typer.Option("--prompt-tokens", help="Tokens of a prompt; several lengths: 512,4096. Default: the form's."),
    ] = "",
    answer_tokens: Annotated[
        str,
        typer.Option("--answer-tokens", help="Tokens of an answer; each is that long. Default: the form's."),
    ] = "",
    largest_load: Annotated[
        bool, typer.Option("--largest-load", help="Search the most users who get their first token in time.")
    ] = False,
    p95_ttft: Annotated[
        float | None,
        typer.Option("--p95-ttft", help="Seconds within which 95 of 100 first tokens must come. Default: the form's."),
    ] = None,
    requests: Annotated[
        int, typer.Option("--requests", help="The fewest requests that a cell measures.", min=5, max=100_000)
    ] = 40,
    cell_seconds: Annotated[
        float | None,
        typer.Option("--cell-seconds", help="The most seconds of a cell. Default: twice the predicted ones.", min=5),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", help="Minutes after which no further cell begins.", min=0.1)
    ] = 60.0,
    tokenizer: Annotated[
        str,
        typer.Option("--tokenizer", help="A folder with the model's tokenizer, or a repository of the Hub."),
    ] = "",
    completions: Annotated[
        bool, typer.Option("--completions", help="Ask /v1/completions; a model without a chat template needs that.")
    ] = False,
    usd_per_hour: Annotated[
        float | None, typer.Option("--usd-per-hour", help="The replica's price. Default: the catalog's.", min=0)
    ] = None,
    model: Annotated[str, typer.Option("--model", help="With --url: the model, as `fit` takes it.")] = "",
    accelerator: Annotated[str, typer.Option("--accelerator", help="With --url: the catalog's accelerator.")] = "",
    count: Annotated[int | None, typer.Option("--count", help="With --url: the number of accelerators.")] = None,
    vllm_args: Annotated[str, typer.Option("--vllm-args", help="With --url: the arguments of `vllm serve`.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", help=f"The folder of the results. Default: one in {_OUTPUT}.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what an earlier run measured.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cells, their time and price; run none.")] = False,
    environment: ServiceEnvironmentOption = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Measure how fast a service or another endpoint answers, and write guidellm's report and bench.json. A run that
    was broken off goes on with the same command. The key is in $NEUROSCALE_API_KEY, or in the file that
    $NEUROSCALE_API_KEY_FILE names. Exit status: 0 each cell is measured or skipped with a reason, 1 one failed or was
    not run."""
    from neuroscale.actions.bench_run import BenchRun, Loads
    from neuroscale.actions.bench_subject import BenchOptions, opened_place
    from neuroscale.actions.chosen_cluster import Where
    from neuroscale.actions.open_repository import open_repository
    from neuroscale.bench.cells import Limits
    from neuroscale.planning.fit import PINNED
    from neuroscale.planning.fit_question import Question

    if bool(service) == bool(url):
        message = "names a service and an address" if service else "names neither a service nor an address"
        raise InputError.at(_COMMAND_LINE, "SERVICE", message, "Write one of both: bench SERVICE, or bench --url URL.")
    loads = Loads(
        _numbers(users, "--users", 512),
        _numbers(prompt_tokens, "--prompt-tokens", 10_000_000),
        _numbers(answer_tokens, "--answer-tokens", 1_000_000, fewest=2),
        largest_load,
        p95_ttft,
    )
    question = Question(model, accelerator or None, count, split_words(vllm_args), PINNED if url else "")
    hourly = None if usd_per_hour is None else Decimal(repr(usd_per_hour))
    options = BenchOptions(
        service, url, environment, Where(context, kubeconfig, state), question, tokenizer,
        "completions" if completions else "chat", hourly,
    )  # fmt: skip
    limits = Limits(requests, cell_seconds, time_limit * 60)
    with opened_place(options, lambda: open_repository(repository), TO_STDERR) as place:
        folder = output or _default_folder(repository, place)
        run = BenchRun(place, loads, limits, folder, _Terminal())
        return _show(run, as_json=as_json) if dry_run else _measure(run, again=again, as_json=as_json)


class _Terminal:
    """Shows a benchmark on standard error, as progress."""

    def planned(self, run: BenchRun, planned: Sequence[PlannedCell]) -> None:
        """Say what is run, for how long and at what price, before it begins."""
        from neuroscale.bench.cells import Estimate, estimate, usd
        from neuroscale.report.bench_view import print_plan, print_totals, title_of
        from neuroscale.report.plan_view import line

        console, subject = plain_console(100), run.place.subject
        console.stderr = True
        if not run.searches:
            total = estimate(planned, run.limits, subject.hourly)
            print_plan(subject, planned, total, run.place.remarks_on(planned[0].cell), console)
            return
        first = planned[0].cell
        lengths = f"{first.prompt_tokens:,} + {first.answer_tokens:,} tokens"
        line(console, title_of(subject))
        line(console, f"The most users, each with {lengths}, with a first token in {duration(run.promise)}:", 2)
        line(console, f"about {_SEARCH_CELLS} cells, each of {run.limits.requests} requests or more.", 2)
        seconds = run.limits.total_seconds
        print_totals(subject, Estimate(None, seconds, None, usd(subject.hourly, seconds)), console)

    def step(self, text: str) -> None:
        _say(text)

    def answers(self, planned: PlannedCell) -> Progress:
        wanted = planned.warm_up + planned.requests

        def tell(answered: int, failed: int, seconds: float) -> None:
            wrong = f", {failed} failed" if failed else ""
            _say(f"{duration(round(seconds))}: {answered} of {wanted} answers{wrong}", "    ")

        return tell

    def outcome(self, outcome: Outcome) -> None:
        from neuroscale.report.bench_view import outcome_line

        _say(outcome_line(outcome), "    ")


def _show(run: BenchRun, *, as_json: bool) -> int:
    """Print what would be run. Exit status 1: no cell would."""
    planned = run.planned_cells()
    _Terminal().planned(run, planned)
    if as_json:
        from neuroscale.bench.cells import estimate

        total = estimate(planned, run.limits, run.place.subject.hourly)
        values = {name: str(value) if isinstance(value, Decimal) else value for name, value in asdict(total).items()}
        print_json({"schema_version": 1, **values, "cells": [asdict(each) for each in planned]})
    return ExitStatus.PASSED if any(not each.skipped for each in planned) else ExitStatus.FINDINGS


def _measure(run: BenchRun, *, again: bool, as_json: bool) -> int:
    """Run it, and print its result."""
    from neuroscale.bench.result import RESULT
    from neuroscale.report.bench_view import print_largest, print_outcomes

    finished = run.measure(again=again)
    if as_json:
        print_json(finished.values)
    else:
        console = plain_console(120)
        print_outcomes(run.place.subject, finished.outcomes, run.place.predict, console)
        if run.largest is not None:
            print_largest(*run.largest, console)
    if report := finished.report:
        _say(f"{report.with_suffix('.html')}, .csv and .json are guidellm's; {run.folder / RESULT} is the result.")
    return ExitStatus.PASSED if finished.passed else ExitStatus.FINDINGS


def bench_merged(
    environment: Annotated[str, typer.Option("--environment", help="The environment whose new services are measured.")],
    output: Annotated[Path, typer.Option("--output", help="The folder of the results, one folder for each service.")],
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    repository: RepositoryOption = None,
) -> int:
    """Measure each service that the newest merge added, with the load of its form, if the settings ask for that
    (`bench_after_merge: short`). It changes no verdict. Exit status 1: one could not be measured."""
    from neuroscale.actions.bench_run import added_services
    from neuroscale.actions.chosen_cluster import Where
    from neuroscale.actions.open_repository import open_repository
    from neuroscale.core.validation import suggest

    opened = open_repository(repository)
    if environment not in opened.settings.environments:
        fix = suggest(environment, opened.settings.environments)
        raise InputError.at("the command line", "--environment", f"{environment!r} is not in the settings", fix)
    if opened.settings.environments[environment].bench_after_merge == "off":
        typer.echo(f"{environment}: bench_after_merge is off")
        return ExitStatus.PASSED
    names = added_services(opened.root, environment)
    typer.echo(f"{environment}: {', '.join(names) or 'no service'} is new in the newest merge")
    where, worst = Where(context, kubeconfig, state), ExitStatus.PASSED
    for name in names[:_MOST_SERVICES]:
        folder = output / name
        try:
            status = _measure_merged(name, environment, where, folder, opened)
        except NeuroscaleError as error:
            typer.echo(terminal(f"{environment}/{name}: {error}", 2000), err=True)
            _not_measured(folder, f"{environment}/{name}", str(error))
            status = ExitStatus.FINDINGS
        worst = max(worst, ExitStatus(status))
    return worst


def _measure_merged(name: str, environment: str, where: Where, folder: Path, opened: Repository) -> int:
    from neuroscale.actions.bench_run import BenchRun, Loads
    from neuroscale.actions.bench_subject import BenchOptions, opened_place
    from neuroscale.bench.cells import Limits
    from neuroscale.planning.fit_question import Question

    question = Question()
    options = BenchOptions(f"{environment}/{name}", "", "", where, question, "", "chat", None)
    with opened_place(options, lambda: opened, TO_STDERR) as place:
        users = place.load.replica_users if place.load else 1
        loads = Loads((users,), None, None, largest=False, promise=None)
        run = BenchRun(place, loads, Limits(requests=20, cell_seconds=90.0, total_seconds=60.0), folder, _Terminal())
        return _measure(run, again=True, as_json=False)


def _not_measured(folder: Path, service: str, why: str) -> None:
    """Leave a result that says why there is none, for the comment."""
    from neuroscale.bench.result import RESULT
    from neuroscale.core.files import write_public
    from neuroscale.core.json_text import json_text

    folder.mkdir(parents=True, exist_ok=True)
    cell = {"state": "failed", "reason": one_line(why, 500), "measured": None}
    write_public(folder / RESULT, json_text({"schema_version": 1, "service": service, "cells": [cell]}))


def _numbers(text: str, option: str, most: int, fewest: int = 1) -> tuple[int, ...] | None:
    """The numbers of an option, such as `1,4,16`; None for an empty text. Raises InputError."""
    if not text:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", word) and fewest <= int(word) <= most for word in words):
        fix = f"Write numbers from {fewest} to {most:,} with commas between them, such as 1,4,16."
        raise InputError.at(_COMMAND_LINE, option, f"{text!a} is no list of numbers that it takes", fix)
    return tuple(dict.fromkeys(map(int, words)))


def _default_folder(repository: Path | None, place: Place) -> Path:
    from neuroscale.repo.layout import find_root

    name = re.sub(r"[^A-Za-z0-9.-]+", "-", place.subject.service or place.subject.url.partition("//")[2]).strip("-.")
    return find_root(repository or Path.cwd()) / _OUTPUT / (name or "endpoint")


def _say(text: str, indent: str = "") -> None:
    typer.echo(indent + terminal(text, 2000), err=True)
