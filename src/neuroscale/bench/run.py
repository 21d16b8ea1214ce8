"""Runs the cells of a benchmark one after another, and keeps each result, so that a broken-off run goes on.

A cell's folder holds guidellm's report and, written last, the outcome with the report's digest. A finished cell is not
run again; a failed one is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from neuroscale.bench.cells import PlannedCell
from neuroscale.bench.guidellm import REPORT, Client, Progress, Target
from neuroscale.bench.reading import CellError, Figures, measured_load, read_report
from neuroscale.cluster.endpoint.metrics import Histogram, Snapshot
from neuroscale.core.errors import InputError
from neuroscale.core.files import sha256, text_if_there, write_public
from neuroscale.core.json_text import json_text
from neuroscale.core.money_and_time import duration

State = Literal["measured", "over-saturated", "skipped", "failed", "not run"]
_CELLS, _OUTCOME, _OF = "cells", "outcome.json", "bench-of.json"
_KEPT: tuple[State, ...] = ("measured", "over-saturated")
_CACHED = 0.05  # of the prompts' tokens: more make the figures those of a cache


@dataclass(frozen=True)
class ServerFigures:
    """What the server counted while a cell ran, with its warm-up, in seconds. `prefix_hit_share`: of the prompts'
    tokens, those that its prefix cache had, 0..1. None: it does not count that."""

    ttft_mean: float | None = None
    ttft_p95: float | None = None
    inter_token_mean: float | None = None
    inter_token_p95: float | None = None
    prefix_hit_share: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a cell. `report`: the digest of guidellm's report. `date`: in UTC, of its end. `reason`: a sentence
    on why it is not measured. `earlier`: whether an earlier run measured it."""

    planned: PlannedCell
    state: State
    reason: str = ""
    figures: Figures | None = None
    server: ServerFigures | None = None
    report: str = ""
    date: str = ""
    earlier: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what makes the figures worth less."""
        notes = self.figures.notes if self.figures else ()
        share = self.server.prefix_hit_share if self.server else None
        if share is not None and share > _CACHED:
            return (*notes, f"The server had {share:.0%} of the prompts' tokens in its prefix cache.")
        return notes


@dataclass
class Bench:
    """A benchmark of one endpoint in a folder. `counters`: the server's metrics now (None: it has none to read).
    `began`: `time.monotonic` of its begin; no cell begins `total_seconds` later."""

    folder: Path
    client: Client
    target: Target
    counters: Callable[[], Snapshot | None]
    total_seconds: float
    progress: Callable[[PlannedCell], Progress]
    clock: Callable[[], float] = time.monotonic
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._saturated: list[PlannedCell] = []

    def measure(self, planned: PlannedCell) -> Outcome:
        """Run a cell, unless that is done, or it would measure nothing."""
        outcome = self._kept(planned) or self._measured(planned)
        if outcome.state == "over-saturated":
            self._saturated.append(planned)
        self.outcomes.append(outcome)
        return outcome

    def reports(self) -> list[Path]:
        """guidellm's reports of the measured cells, in the order in which they were asked for."""
        kept = [outcome.planned for outcome in self.outcomes if outcome.state in _KEPT]
        return [self._place(planned) / REPORT for planned in kept]

    def _place(self, planned: PlannedCell) -> Path:
        return self.folder / _CELLS / planned.cell.name

    def _kept(self, planned: PlannedCell) -> Outcome | None:
        """The outcome that an earlier run left, if that asked for as much, and its report is as it was."""
        place = self._place(planned)
        try:
            told = json.loads(text_if_there(place / _OUTCOME) or "null")
            report = (place / REPORT).read_bytes()
            if told["state"] not in _KEPT or told["report"] != sha256(report) or told["asked"] != _asked(planned):
                return None
            figures = read_report(report, planned.cell, planned.requests)
            server = ServerFigures(**told["server"]) if told["server"] else None
            measured_load(planned.cell, figures, server.prefix_hit_share if server else None)
            reason, date = str(told["reason"]), str(told["date"])
        except (OSError, ValueError, KeyError, TypeError, CellError):
            return None
        return Outcome(planned, told["state"], reason, figures, server, told["report"], date, earlier=True)

    def _measured(self, planned: PlannedCell) -> Outcome:
        if planned.skipped:
            return Outcome(planned, "skipped", _sentence(planned.skipped))
        if larger := self._beyond_saturation(planned):
            return Outcome(planned, "skipped", f"The server is over-saturated already with {larger.cell}.")
        if self.clock() - self._began > self.total_seconds:
            told = f"The time limit of {duration(self.total_seconds)} is over. The same command goes on with it."
            return Outcome(planned, "not run", told)
        place = self._place(planned)
        place.mkdir(parents=True, exist_ok=True)
        (place / _OUTCOME).unlink(missing_ok=True)
        before = self.counters()
        try:
            self.client.run(self.target, planned, place, self.progress(planned))
            report = (place / REPORT).read_bytes()
            figures = read_report(report, planned.cell, planned.requests)
            server = _between(before, self.counters())
            measured_load(planned.cell, figures, server.prefix_hit_share if server else None)
        except CellError as error:
            return Outcome(planned, "failed", _sentence(str(error)))
        state: State = "over-saturated" if figures.saturated else "measured"
        reason = "Requests came faster than they were answered." if figures.saturated else ""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        outcome = Outcome(planned, state, reason, figures, server, sha256(report), now)
        kept = {
            "state": state,
            "reason": reason,
            "report": outcome.report,
            "asked": _asked(planned),
            "server": dataclasses.asdict(server) if server else None,
            "date": now,
        }
        write_public(place / _OUTCOME, json_text(kept))
        return outcome

    def _beyond_saturation(self, planned: PlannedCell) -> PlannedCell | None:
        lengths = (planned.cell.prompt_tokens, planned.cell.answer_tokens)
        return next(
            (
                each
                for each in self._saturated
                if (each.cell.prompt_tokens, each.cell.answer_tokens) == lengths
                and each.cell.users < planned.cell.users
            ),
            None,
        )


@contextlib.contextmanager
def opened(folder: Path, of: Mapping[str, Any], *, again: bool) -> Iterator[None]:
    """Hold the folder of a benchmark. `of`: what is measured; `again`: what an earlier run left counts no more.

    Raises InputError if another benchmark runs there, or its results are of something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            told = "is the folder of a benchmark that runs now"
            raise InputError.at(str(folder), "", told, "Wait for its end, or name another with --output.") from error
        place = folder / _OF
        if again:
            for outcome in (folder / _CELLS).glob(f"*/{_OUTCOME}"):
                outcome.unlink()
        elif (known := text_if_there(place)) and (differs := _differing(known, of)):
            told = f"holds results of another {' and '.join(differs)}"
            raise InputError.at(str(folder), "", told, "Name another folder with --output, or measure anew: --again.")
        write_public(place, json_text(of))
        yield


def combined(reports: list[Path], client: Client, folder: Path) -> Path | None:
    """Join guidellm's reports of the cells into one, with its HTML and CSV beside it; None without a report."""
    if not reports:
        return None
    whole = json.loads(reports[0].read_bytes())
    for report in reports[1:]:
        whole["benchmarks"] += json.loads(report.read_bytes())["benchmarks"]
    path = folder / REPORT
    write_public(path, json.dumps(whole))
    client.export(path)
    return path


def _asked(planned: PlannedCell) -> dict[str, int]:
    return {"warm_up": planned.warm_up, "requests": planned.requests}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _differing(known: str, of: Mapping[str, Any]) -> list[str]:
    try:
        there = json.loads(known)
    except ValueError:
        return ["kind"]
    return [name.replace("_", " ") for name, value in of.items() if there.get(name) != value]


def _between(before: Snapshot | None, after: Snapshot | None) -> ServerFigures | None:
    if before is None or after is None:
        return None
    ttft, inter_token = _since(after.ttft, before.ttft), _since(after.itl, before.itl)
    share = None
    if None not in (before.prefix_queries, after.prefix_queries, before.prefix_hits, after.prefix_hits):
        asked = (after.prefix_queries or 0) - (before.prefix_queries or 0)
        share = ((after.prefix_hits or 0) - (before.prefix_hits or 0)) / asked if asked > 0 else None
    return ServerFigures(
        *(ttft.mean, ttft.quantile(0.95)) if ttft else (None, None),
        *(inter_token.mean, inter_token.quantile(0.95)) if inter_token else (None, None),
        prefix_hit_share=share,
    )


def _since(after: Histogram | None, before: Histogram | None) -> Histogram | None:
    return None if after is None or before is None else after.since(before)
