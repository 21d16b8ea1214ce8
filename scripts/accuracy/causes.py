"""Compares the causes that `neuroscale explain` names with those that people gave to public logs."""

from __future__ import annotations

import hashlib
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from neuroscale.catalog import Catalog
from neuroscale.cli.options import print_json
from neuroscale.core.printable import counted, terminal
from neuroscale.core.yaml_io import read_mapping
from neuroscale.explain import diagnose, load_causes, read_lines
from neuroscale.explain.explanation import explain_lines
from neuroscale.planning.fit_question import Question, answer

LOGS = "logs"
MOST_WRONG = 0.05
"""The share of causes that may be wrong, of the written-on logs and of the held-out ones alike."""
MOST_UNPLANNED = 0.1
"""The share of logs with a configuration to change whose next configuration may be missing or not fit."""


@dataclass(frozen=True)
class LogCase:
    """The lines of a public log that matter, and the cause that a person gave it. `planned_with`: what its next
    configuration is planned with. `written_on`: patterns are written on all cases of its file, whose first run is the
    measure instead."""

    source: str
    cause: str
    lines: tuple[str, ...]
    planned_with: Mapping[str, Any] = field(default_factory=dict)
    written_on: bool = False

    @property
    def held_out(self) -> bool:
        """Whether no pattern may be written on it: one issue in three."""
        if self.written_on:
            return False
        digest = hashlib.sha256(self.source.split()[0].encode()).hexdigest()
        return int(digest, 16) % 3 == 0

    @cached_property
    def found(self) -> str:
        """The cause that the lines show, or the verdict without one."""
        diagnosis = diagnose(read_lines("\n".join(self.lines)), load_causes())
        return diagnosis.cause.name if diagnosis.cause else diagnosis.verdict

    def without_next(self, catalog: Catalog) -> str:
        """Why it has no next configuration that fits; empty where it has one, judged again from its arguments alone."""
        asked = self.planned_with
        words = tuple(shlex.split(asked["arguments"]))
        given = Question(asked["model"], asked["accelerator"], asked["count"], words, asked["version"])
        found = explain_lines(read_lines("\n".join(self.lines)), given, catalog)
        if found.next is None:
            return found.no_next or "none was found"
        fit = found.next.fit
        named = fit.model if fit.model in catalog.models else asked["model"]
        again = answer(Question(named, fit.accelerator, None, found.next.words, asked["version"]), catalog)
        return "; ".join(again.reasons) or "it is refused" if again.verdict == "refused" else ""


def read_logs(folder: Path) -> tuple[LogCase, ...]:
    """The logs of a folder of cases."""
    read = [read_mapping(path.read_text(encoding="utf-8"), path.name).value for path in sorted(folder.glob("*.yaml"))]
    return tuple(
        LogCase(
            one["source"],
            one["cause"],
            tuple(one["lines"]),
            one.get("planned_with", {}),
            cases.get("written_on", False),
        )
        for cases in read
        for one in cases["cases"]
    )


def show_causes(folder: Path, catalog: Catalog, as_json: bool) -> bool:
    """Prints how many causes are right, and whether that is enough."""
    logs = read_logs(folder)
    wrong = [log for log in logs if log.found != log.cause]
    planned = [log for log in logs if log.planned_with]
    without = {log.source: reason for log in planned if (reason := log.without_next(catalog))}
    parts = {name: [log for log in logs if log.held_out is held] for name, held in _PARTS.items()}
    told: dict[str, Any] = {
        "causes": {name: {"logs": len(part), "right": _right(part)} for name, part in parts.items()},
        "wrong": [{"source": log.source, "cause": log.cause, "found": log.found} for log in wrong],
        "next": {"logs": len(planned), "fits": len(planned) - len(without), "without": without},
    }
    if as_json:
        print_json(told)
    else:
        _print(logs, told)
    enough = all(len(part) - _right(part) <= MOST_WRONG * len(part) for part in parts.values())
    return enough and len(without) <= MOST_UNPLANNED * len(planned)


_PARTS = {"written on": False, "held out": True}


def _right(logs: Sequence[LogCase]) -> int:
    return sum(log.found == log.cause for log in logs)


def _print(logs: Sequence[LogCase], told: Mapping[str, Any]) -> None:
    by_cause: dict[str, list[LogCase]] = defaultdict(list)
    for log in logs:
        by_cause[log.cause].append(log)
    for name, part in sorted(by_cause.items()):
        print(terminal(f"{name}: {_right(part)} of {counted(len(part), 'log')}"))
    for one in told["wrong"]:
        print(terminal(f"wrong: {one['source']} is {one['cause']}, and {one['found']} was found"))
    for name, part in told["causes"].items():
        print(f"{name}: {part['right']} of {part['logs']} causes are right")
    print(f"next configuration: {told['next']['fits']} of {told['next']['logs']} fit")
    for source, reason in told["next"]["without"].items():
        print(terminal(f"none that fits: {source}: {reason}"))
