"""`neuroscale bench`: measures how fast an endpoint answers under loads, with guidellm."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
)
from neuroscale.core.errors import ExitStatus, InputError

if TYPE_CHECKING:
    from neuroscale.actions.bench_subject import Place
    from neuroscale.bench.cells import Cell, Limits, PlannedCell
    from neuroscale.bench.guidellm import Client, Progress
    from neuroscale.bench.largest_load import LargestLoad, Trial
    from neuroscale.bench.run import Bench, Outcome
    from neuroscale.planning.plan import PlannedLoad

_COMMAND_LINE = "the command line"
_OUTPUT = ".state/bench"
_MOST_CELLS = 32
_USERS, _PROMPT, _ANSWER = (1, 4, 16), (512,), (128,)
_SEARCH_CELLS = 14  # of a search between 1 and 512 users, with its repetitions


@dataclass(frozen=True)
class Loads:
    """The loads that the options ask for. `users`, `prompts` and `answers`: None where no option says it. `promise`:
    seconds of the p95 of TTFT, for the search of the largest load (None: by the service's form)."""

    users: tuple[int, ...] | None
    prompts: tuple[int, ...] | None
    answers: tuple[int, ...] | None
    largest: bool
    promise: float | None


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
    from neuroscale.actions.bench_subject import Asked, opened_place
    from neuroscale.actions.chosen_cluster import Where
    from neuroscale.actions.open_repository import open_repository
    from neuroscale.bench.cells import Limits
    from neuroscale.planning.fit import PINNED
    from neuroscale.planning.fit_question import Question

    if bool(service) == bool(url):
        told = "names a service and an address" if service else "names neither a service nor an address"
        raise InputError.at(_COMMAND_LINE, "SERVICE", told, "Write one of both: bench SERVICE, or bench --url URL.")
    loads = Loads(
        _numbers(users, "--users", 512),
        _numbers(prompt_tokens, "--prompt-tokens", 10_000_000),
        _numbers(answer_tokens, "--answer-tokens", 1_000_000, fewest=2),
        largest_load,
        p95_ttft,
    )
    given = Question(model, accelerator or None, count, vllm_args, PINNED if url else "", None, None)
    hourly = None if usd_per_hour is None else Decimal(repr(usd_per_hour))
    asked = Asked(
        service, url, environment, Where(context, kubeconfig, state), given, tokenizer,
        "completions" if completions else "chat", hourly,
    )  # fmt: skip
    limits = Limits(requests, cell_seconds, time_limit * 60)
    with opened_place(asked, lambda: open_repository(repository), TO_STDERR) as place:
        folder = output or _default_folder(repository, place)
        run = BenchRun(place, loads, limits, folder, as_json)
        if dry_run:
            return run.show()
        return run.measure(again=again)


class BenchRun:
    """A benchmark of an open endpoint."""

    def __init__(self, place: Place, loads: Loads, limits: Limits, folder: Path, as_json: bool) -> None:
        self._place, self._limits, self._folder, self._as_json = place, limits, folder, as_json
        self._loads = loads
        self._cells = _cells(loads, place.load)
        self._largest: tuple[float, LargestLoad] | None = None
        self._promise = _promise(loads, place) if loads.largest else 0.0

    def show(self) -> int:
        """Print what would be run. Exit status 1: no cell would."""
        planned = [self._planned(cell) for cell in self._cells]
        self._announce(planned)
        if self._as_json:
            from neuroscale.bench.cells import estimate

            total = estimate(planned, self._limits, self._place.subject.hourly)
            values = {
                name: str(value) if isinstance(value, Decimal) else value for name, value in asdict(total).items()
            }
            print_json({"schema_version": 1, **values, "cells": [asdict(each) for each in planned]})
        return ExitStatus.PASSED if any(not each.skipped for each in planned) else ExitStatus.FINDINGS

    def measure(self, *, again: bool) -> int:
        """Run the cells, or the search, and write the results."""
        from neuroscale.bench.guidellm import Guidellm
        from neuroscale.bench.run import Bench, opened
        from neuroscale.bench.server import counters

        client = Guidellm()
        planned = [self._planned(cell) for cell in self._cells]
        self._announce(planned)
        place = self._place
        with opened(self._folder, _identity(place, client), again=again):
            bench = Bench(
                self._folder,
                client,
                place.target,
                lambda: counters(place.endpoint)[0],
                self._limits.total_seconds,
                _progress,
            )
            if self._loads.largest:
                self._largest = (self._promise, self._search(bench))
            else:
                for number, each in enumerate(planned, start=1):
                    _say(f"[{number}/{len(planned)}] {each.cell}")
                    _tell(bench.measure(each))
            return self._finish(bench, client)

    def _planned(self, cell: Cell) -> PlannedCell:
        from neuroscale.bench.cells import plan_cell

        return plan_cell(cell, self._limits, self._place.room(cell), self._place.predict(cell))

    def _announce(self, planned: list[PlannedCell]) -> None:
        """Say what is run, for how long and at what price, before it begins; on standard error, as progress."""
        from neuroscale.bench.cells import Estimate, estimate, usd
        from neuroscale.report.bench_view import print_plan, print_totals, title_of
        from neuroscale.report.plan_view import line

        console, subject = plain_console(100), self._place.subject
        console.stderr = True
        if not self._loads.largest:
            total = estimate(planned, self._limits, subject.hourly)
            print_plan(subject, planned, total, self._place.remarks_on(planned[0].cell), console)
            return
        first = planned[0].cell
        lengths = f"{first.prompt_tokens:,} + {first.answer_tokens:,} tokens"
        line(console, title_of(subject))
        line(console, f"The most users, each with {lengths}, with a first token in {self._promise:g} s:", 2)
        line(console, f"about {_SEARCH_CELLS} cells, each of {self._limits.requests} requests or more.", 2)
        seconds = self._limits.total_seconds
        print_totals(subject, Estimate(None, seconds, None, usd(subject.hourly, seconds)), console)

    def _search(self, bench: Bench) -> LargestLoad:
        from neuroscale.bench.largest_load import search
        from neuroscale.planning.speed.load import MOST_USERS

        first = self._cells[0]
        room = self._place.room(first)
        most = min(MOST_USERS, room.held or MOST_USERS)
        why = (
            f"{most} requests of this length are what the KV cache holds ({room.source})." if room.held == most else ""
        )
        predicted = self._place.largest_predicted(first, self._promise)
        planned = self._place.load.replica_users if self._place.load else 0
        begin = predicted or planned or first.users
        return search(lambda users, run: self._trial(bench, users, run), self._promise, begin, most, why)

    def _trial(self, bench: Bench, users: int, run: int) -> Trial:
        from neuroscale.bench.cells import Cell
        from neuroscale.bench.largest_load import OverError, Trial

        first = self._cells[0]
        planned = self._planned(Cell(users, first.prompt_tokens, first.answer_tokens, run))
        _say(str(planned.cell))
        outcome = bench.measure(planned)
        _tell(outcome)
        figures = outcome.figures
        if figures is None:
            raise OverError(f"The search ended at {planned.cell}: {outcome.reason}")
        late = sum(seconds > self._promise for seconds in figures.first_tokens)
        problem = outcome.reason if outcome.state == "over-saturated" else ""
        return Trial(users, figures.ttft.p95, figures.requests, late, problem)

    def _finish(self, bench: Bench, client: Client) -> int:
        from neuroscale.bench.result import RESULT, as_mapping
        from neuroscale.bench.run import combined
        from neuroscale.core.files import sha256, write_public
        from neuroscale.core.json_text import json_text
        from neuroscale.report.bench_view import print_largest, print_outcomes

        report = combined(bench.reports(), client, self._folder)
        values = as_mapping(
            self._place.subject,
            bench.outcomes,
            self._place.predict,
            date=datetime.now(UTC).date().isoformat(),
            guidellm_version=client.version,
            report=sha256(report.read_bytes()) if report else "",
            largest=self._largest,
        )
        write_public(self._folder / RESULT, json_text(values))
        if self._as_json:
            print_json(values)
        else:
            console = plain_console(120)
            print_outcomes(self._place.subject, bench.outcomes, self._place.predict, console)
            if self._largest is not None:
                print_largest(*self._largest, console)
        if report is not None:
            _say(
                f"{report.with_suffix('.html')}, .csv and .json are guidellm's; {self._folder / RESULT} is the result."
            )
        return self._status(bench)

    def _status(self, bench: Bench) -> int:
        states = {outcome.state for outcome in bench.outcomes}
        bad = bool(states & {"failed", "not run"}) or not states & {"measured", "over-saturated"}
        if self._largest is not None:
            found = self._largest[1]
            bad = bad or not found.users or found.sure == "unsure"
        return ExitStatus.FINDINGS if bad else ExitStatus.PASSED


def _cells(loads: Loads, load: PlannedLoad | None) -> list[Cell]:
    """The cells, in rising order of users for each length: by the options, else by the load that the service's form
    promises. Raises InputError where they are too many."""
    from neuroscale.bench.cells import Cell

    most = load.replica_users if load else 0
    form = tuple(sorted({1, max(1, most // 4), most})) if most else _USERS
    users = loads.users or form
    prompts = loads.prompts or ((load.prompt_tokens,) if load else _PROMPT)
    answers = loads.answers or ((load.answer_tokens,) if load else _ANSWER)
    cells = [Cell(each, prompt, answer) for prompt in prompts for answer in answers for each in sorted(users)]
    if len(cells) > _MOST_CELLS:
        told = f"make {len(cells)} cells, and more than {_MOST_CELLS} take a day"
        raise InputError.at(_COMMAND_LINE, "--users", told, "Name fewer users or lengths.")
    return cells


def _promise(loads: Loads, place: Place) -> float:
    """The seconds of the p95 of TTFT that a search keeps: the option's, else those of the service's form."""
    if loads.promise is not None:
        if loads.promise <= 0:
            raise InputError.at(_COMMAND_LINE, "--p95-ttft", f"{loads.promise:g} is not above 0", "Write seconds.")
        return loads.promise
    if place.promise is not None:
        return place.promise
    told = "is not given, and no form of a service promises one"
    raise InputError.at(_COMMAND_LINE, "--p95-ttft", told, "Write the seconds within which the first token must come.")


def _numbers(text: str, option: str, most: int, fewest: int = 1) -> tuple[int, ...] | None:
    """The numbers of an option, such as `1,4,16`; None for an empty text. Raises InputError."""
    if not text:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", word) and fewest <= int(word) <= most for word in words):
        fix = f"Write numbers from {fewest} to {most:,} with commas between them, such as 1,4,16."
        raise InputError.at(_COMMAND_LINE, option, f"{text!a} is no list of numbers that it takes", fix)
    return tuple(dict.fromkeys(map(int, words)))


def _identity(place: Place, client: Client) -> dict[str, Any]:
    """What the results of a folder are of."""
    subject = place.subject
    return {
        "endpoint": subject.service or subject.url,
        "model": subject.served_model,
        "vllm_version": subject.vllm_version,
        "vllm_args": list(subject.vllm_args or ()),
        "tokenizer": place.target.tokenizer,
        "api": subject.api,
        "guidellm_version": client.version,
    }


def _default_folder(repository: Path | None, place: Place) -> Path:
    from neuroscale.repo.layout import find_root

    name = re.sub(r"[^A-Za-z0-9.-]+", "-", place.subject.service or place.subject.url.partition("//")[2]).strip("-.")
    return find_root(repository or Path.cwd()) / _OUTPUT / (name or "endpoint")


def _progress(planned: PlannedCell) -> Progress:
    wanted = planned.warm_up + planned.requests

    def tell(answered: int, failed: int, seconds: float) -> None:
        wrong = f", {failed} failed" if failed else ""
        _say(f"{seconds:.0f} s: {answered} of {wanted} answers{wrong}", "    ")

    return tell


def _tell(outcome: Outcome) -> None:
    from neuroscale.report.bench_view import outcome_line

    _say(outcome_line(outcome), "    ")


def _say(text: str, indent: str = "") -> None:
    from neuroscale.core.printable import terminal

    typer.echo(indent + terminal(text, 2000), err=True)
