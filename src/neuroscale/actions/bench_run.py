"""Runs a benchmark of an open endpoint: which loads it measures, the search of the largest one, and its result."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from neuroscale.actions.bench_subject import Place
from neuroscale.bench.cells import Cell, Limits, PlannedCell, plan_cell
from neuroscale.bench.guidellm import Client, Guidellm, Progress
from neuroscale.bench.largest_load import LargestLoad, OverError, Trial, search
from neuroscale.bench.result import RESULT, as_mapping
from neuroscale.bench.run import Bench, Outcome, combined, opened
from neuroscale.bench.server import counters
from neuroscale.core.errors import InputError
from neuroscale.core.files import sha256, write_public
from neuroscale.core.json_text import json_text
from neuroscale.planning.plan import PlannedLoad
from neuroscale.planning.speed.load import MOST_USERS
from neuroscale.repo.git import Git
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, ServicePath

_COMMAND_LINE = "the command line"
_MOST_CELLS = 32
_USERS, _PROMPT, _ANSWER = (1, 4, 16), (512,), (128,)


@dataclass(frozen=True)
class Loads:
    """The loads that the options ask for. `users`, `prompts` and `answers`: None where no option says it. `promise`:
    seconds of the p95 of TTFT, for the search of the largest load (None: by the service's form)."""

    users: tuple[int, ...] | None
    prompts: tuple[int, ...] | None
    answers: tuple[int, ...] | None
    largest: bool
    promise: float | None


class Teller(Protocol):
    """Shows a benchmark as it goes: the loads before it begins, each step, the answers that have come, each outcome."""

    def planned(self, run: BenchRun, planned: Sequence[PlannedCell]) -> None: ...

    def step(self, text: str) -> None: ...

    def answers(self, planned: PlannedCell) -> Progress: ...

    def outcome(self, outcome: Outcome) -> None: ...


@dataclass(frozen=True)
class Finished:
    """A benchmark that ended: its result for programs, the outcome of each load, guidellm's report (None: there is
    none), and whether each load is measured, or skipped with a reason."""

    values: dict[str, Any]
    outcomes: Sequence[Outcome]
    report: Path | None
    passed: bool


class BenchRun:
    """A benchmark of an open endpoint."""

    def __init__(self, place: Place, loads: Loads, limits: Limits, folder: Path, teller: Teller) -> None:
        self.place, self.limits, self.folder, self._teller = place, limits, folder, teller
        self.searches = loads.largest
        self.cells = _cells(loads, place.load)
        self.largest: tuple[float, LargestLoad] | None = None
        self.promise = _promise(loads, place) if loads.largest else 0.0

    def planned_cells(self) -> list[PlannedCell]:
        """The loads, each with its requests and seconds, or why it is skipped."""
        return [self._planned(cell) for cell in self.cells]

    def measure(self, *, again: bool) -> Finished:
        """Run the cells, or the search, and write the results."""
        client = Guidellm()
        planned = self.planned_cells()
        self._teller.planned(self, planned)
        place = self.place
        with opened(self.folder, _identity(place, client), again=again):
            bench = Bench(
                self.folder,
                client,
                place.target,
                lambda: counters(place.endpoint)[0],
                self.limits.total_seconds,
                self._teller.answers,
            )
            if self.searches:
                self.largest = (self.promise, self._search(bench))
            else:
                for number, each in enumerate(planned, start=1):
                    self._teller.step(f"[{number}/{len(planned)}] {each.cell}")
                    self._teller.outcome(bench.measure(each))
            return self._finish(bench, client)

    def _planned(self, cell: Cell) -> PlannedCell:
        return plan_cell(cell, self.limits, self.place.room(cell), self.place.predict(cell))

    def _search(self, bench: Bench) -> LargestLoad:
        first = self.cells[0]
        room = self.place.room(first)
        most = min(MOST_USERS, room.held or MOST_USERS)
        why = (
            f"{most} requests of this length are what the KV cache holds ({room.source})." if room.held == most else ""
        )
        predicted = self.place.largest_predicted(first, self.promise)
        planned = self.place.load.replica_users if self.place.load else 0
        begin = predicted or planned or first.users
        return search(lambda users, run: self._trial(bench, users, run), self.promise, begin, most, why)

    def _trial(self, bench: Bench, users: int, run: int) -> Trial:
        first = self.cells[0]
        planned = self._planned(Cell(users, first.prompt_tokens, first.answer_tokens, run))
        self._teller.step(str(planned.cell))
        outcome = bench.measure(planned)
        self._teller.outcome(outcome)
        figures = outcome.figures
        if figures is None:
            raise OverError(f"The search ended at {planned.cell}: {outcome.reason}")
        late = sum(seconds > self.promise for seconds in figures.first_tokens)
        problem = outcome.reason if outcome.state == "over-saturated" else ""
        return Trial(users, figures.ttft.p95, figures.requests, late, problem)

    def _finish(self, bench: Bench, client: Client) -> Finished:
        report = combined(bench.reports(), client, self.folder)
        values = as_mapping(
            self.place.subject,
            bench.outcomes,
            self.place.predict,
            date=datetime.now(UTC).date().isoformat(),
            guidellm_version=client.version,
            report=sha256(report.read_bytes()) if report else "",
            largest=self.largest,
        )
        write_public(self.folder / RESULT, json_text(values))
        return Finished(values, bench.outcomes, report, self._passed(bench))

    def _passed(self, bench: Bench) -> bool:
        states = {outcome.state for outcome in bench.outcomes}
        bad = bool(states & {"failed", "not run"}) or not states & {"measured", "over-saturated"}
        if self.largest is not None:
            largest = self.largest[1]
            bad = bad or not largest.users or largest.sure == "unsure"
        return not bad


def _cells(loads: Loads, load: PlannedLoad | None) -> list[Cell]:
    """The cells, in rising order of users for each length: by the options, else by the load that the service's form
    promises. Raises InputError where they are too many."""
    most = load.replica_users if load else 0
    form = tuple(sorted({1, max(1, most // 4), most})) if most else _USERS
    users = loads.users or form
    prompts = loads.prompts or ((load.prompt_tokens,) if load else _PROMPT)
    answers = loads.answers or ((load.answer_tokens,) if load else _ANSWER)
    cells = [Cell(each, prompt, answer) for prompt in prompts for answer in answers for each in sorted(users)]
    if len(cells) > _MOST_CELLS:
        message = f"make {len(cells)} cells, and more than {_MOST_CELLS} take a day"
        raise InputError.at(_COMMAND_LINE, "--users", message, "Name fewer users or lengths.")
    return cells


def _promise(loads: Loads, place: Place) -> float:
    """The seconds of the p95 of TTFT that a search keeps: the option's, else those of the service's form."""
    if loads.promise is not None:
        if loads.promise <= 0:
            raise InputError.at(_COMMAND_LINE, "--p95-ttft", f"{loads.promise:g} is not above 0", "Write seconds.")
        return loads.promise
    if place.promise is not None:
        return place.promise
    fault = "is not given, and no form of a service promises one"
    raise InputError.at(_COMMAND_LINE, "--p95-ttft", fault, "Write the seconds within which the first token must come.")


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


def added_services(root: Path, environment: str) -> list[str]:
    """The services of an environment that the newest commit has and its first parent has not."""
    with contextlib.closing(Git(root)) as git:
        if git.run("rev-parse", "--quiet", "--verify", "HEAD^1", check=False).returncode != 0:
            return []
        folder = f"{MANIFESTS}/{environment}"
        paths = git.records("diff", "-z", "--name-only", "--no-renames", "--diff-filter=A", "HEAD^1", "HEAD", folder)
    plans = (ServicePath.of(path) for path in paths if path.endswith(f"/{PLAN_FILE}"))
    return sorted({path.service for path in plans if path is not None})
