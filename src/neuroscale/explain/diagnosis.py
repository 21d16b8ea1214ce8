"""Finds the cause of a server's end: the first line that matters, and not the last one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from neuroscale.explain.causes import Cause, Change, Matcher
from neuroscale.explain.line_index import LineIndex, OverBudgetError
from neuroscale.explain.log_text import LogLine

SECONDS = 3.0  # of processor time; 2 MiB of a real server take a tenth of it
_MOST_ALSO, _MOST_EVIDENCE = 4, 6
_MOST_WARNINGS = 3  # of one kind

_NOTES = ("INFO", "WARNING")
_STARTED = re.compile(
    r"Application startup complete|Starting vLLM (?:API )?server (?:\d{1,3} )?on "
    r"|Uvicorn running on|Avg prompt throughput|\"GET /health HTTP/[\d.]{1,3}\" 200"
)
_NEVER = re.compile(
    r"Engine core initialization failed|Engine process failed to start|WorkerProc initialization failed"
    r"|EngineCore failed to start|See root cause above|EngineCore encountered a fatal error"
    r"|Worker failed with error|Executor failed"
)
"""Lines that say only that something failed before: never a cause."""
_MATTERS = re.compile(
    r"^(?:[\w.]{1,80}(?:Error|Exception|Exit|Interrupt)\b|(?:FATAL|fatal|Fatal)\b|Error:|error:)|: error: "
)
_MUST_NOT = ("without", "not_around", "before")
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_ENDS = re.compile(r"(?i)\b(?:failed|fatal|cannot|unable to|killed|segmentation fault|core dumped|terminated)\b")


@dataclass(frozen=True)
class Evidence:
    """A line that the judgement rests on, by its number in the log."""

    line: int
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """What a log says. `verdict`: `cause` (it is known), `healthy` (it started, and no cause was seen), `unknown`
    (neither) or `not_judged` (the search took too long, so that nothing is known). `captured`: what the line said, by
    the cause's own names; `also`: other causes that were seen, each with its first line."""

    verdict: str
    cause: Cause | None
    sentence: str
    evidence: tuple[Evidence, ...]
    captured: Mapping[str, str] = field(default_factory=dict)
    next: tuple[Change, ...] = ()
    also: tuple[tuple[Cause, Evidence], ...] = ()


@dataclass(frozen=True)
class _Match:
    cause: Cause
    matcher: Matcher
    at: int  # the index of its line
    captured: Mapping[str, str]
    level: str

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """First errors, then what no other cause explains, then the first line, then what fits it best."""
        weight = self.matcher.weight
        return self.level in _NOTES, max(-weight, 0), self.at, -weight, -len(self.matcher.conditions)


def diagnose(lines: Sequence[LogLine], causes: Sequence[Cause], seconds: float | None = None) -> Diagnosis:
    """The cause that the lines show. `seconds`: the most processor time that the search for it takes (None: 3 s)."""
    seconds = SECONDS if seconds is None else seconds
    try:
        return _diagnosed(LineIndex(lines, seconds), causes)
    except OverBudgetError:
        told = f"The log was not judged: it takes more than {seconds:g} s of processor time. Read its last lines."
        return Diagnosis("not_judged", None, told, ())


def _diagnosed(index: LineIndex, causes: Sequence[Cause]) -> Diagnosis:
    lines = index.lines
    started = max(index.matching(_STARTED), default=-1)
    matches = sorted(_matches(index, causes, started), key=lambda match: match.rank)
    # What came before a start did not prevent it.
    ending = [match for match in matches if match.at > started]
    if ending and ending[0].level in _NOTES and _errors(index, started + 1):
        ending = []  # an error that no cause explains matters more than a note
    also: dict[str, tuple[Cause, Evidence]] = {}
    if not ending:
        for match in matches:
            also.setdefault(match.cause.name, (match.cause, _evidence(lines[match.at])))
        if started >= 0 and not _errors(index, started + 1):
            found = (_evidence(lines[started]),)
            return Diagnosis("healthy", None, "The server started.", found, also=tuple(also.values())[:_MOST_ALSO])
        if _is_no_text(lines):
            return Diagnosis("unknown", None, "The log is no text: name the file that holds the server's output.", ())
        told = "No cause is known for these lines." if lines else "The log is empty."
        return Diagnosis("unknown", None, told, _lines_that_matter(index))
    first = ending[0]
    for match in matches:
        if match.cause.name != first.cause.name and match.at != first.at:
            also.setdefault(match.cause.name, (match.cause, _evidence(lines[match.at])))
    same = [match.at for match in ending if match.cause.name == first.cause.name and match.at != first.at]
    shown = [first.at, *sorted(set(same))[: _MOST_EVIDENCE - 1]]
    texts: dict[str, int] = {}
    for at in shown:
        texts.setdefault(lines[at].text, at)
    return Diagnosis(
        "cause",
        first.cause,
        _sentence(first),
        tuple(_evidence(lines[at]) for at in texts.values()),
        first.captured,
        (*first.matcher.next, *first.cause.next),
        tuple(also.values())[:_MOST_ALSO],
    )


def _sentence(match: _Match) -> str:
    numbers = match.matcher.numbers
    if not numbers or any(
        f"{{{name}}}" in numbers and name not in match.captured for name in match.matcher.line.groupindex
    ):
        return match.cause.sentence
    for name, value in match.captured.items():
        numbers = numbers.replace(f"{{{name}}}", value.strip().rstrip("."))
    return f"{match.cause.sentence} {numbers}"


def _evidence(line: LogLine) -> Evidence:
    return Evidence(line.number, line.text)


def _matches(index: LineIndex, causes: Sequence[Cause], started: int) -> Iterator[_Match]:
    """The first match of each matcher, and its first after the last start of the server."""
    for cause in causes:
        for matcher in cause.matchers:
            places = index.matching(matcher.line)
            if not places or any(not index.matching(one) for one in matcher.elsewhere):
                continue
            after = bisect_right(places, started)
            for part in (places[:after], places[after:]):
                yield from _first(index, part, cause, matcher)


def _first(index: LineIndex, places: Sequence[int], cause: Cause, matcher: Matcher) -> Iterator[_Match]:
    """The first match among some lines, and those on warnings and notes before it."""
    warned = 0
    for at in places:
        index.check()
        line = index.lines[at]
        if line.level == "DEBUG" or not _holds(index, at, matcher.conditions):
            continue
        match = matcher.line.search(line.text)
        if match and not _never(line.text, match):
            captured = {name: value for name, value in match.groupdict().items() if value is not None}
            yield _Match(cause, matcher, at, captured, line.level)
            warned += 1
            if line.level not in _NOTES or warned == _MOST_WARNINGS:
                return


def _never(text: str, match: re.Match[str]) -> bool:
    """Whether the line says only that something failed before, and the match is not what it quotes of that."""
    found = _NEVER.search(text)
    return found is not None and match.start() < found.end()


def _holds(index: LineIndex, at: int, conditions: Mapping[str, re.Pattern[str]]) -> bool:
    for name, pattern in conditions.items():
        if name in ("with", "without"):
            seen = pattern.search(index.lines[at].text) is not None
        elif name == "frame":
            seen = bool(frame := index.frame(at)) and pattern.search(frame) is not None
        elif name in ("around", "not_around"):
            seen = index.near(pattern, at)
        elif name == "followed":
            seen = max(index.matching(pattern)[-1:], default=-1) > at
        else:
            seen = min(index.matching(pattern)[:1], default=at) < at
        if seen is (name in _MUST_NOT):
            return False
    return True


def _is_no_text(lines: Sequence[LogLine]) -> bool:
    """Whether one in ten characters of the first lines is no character of text."""
    text = "".join(line.text for line in lines[:200])
    return bool(text) and 10 * len(_NO_TEXT.findall(text)) > len(text)


def _errors(index: LineIndex, first: int = 0) -> dict[str, LogLine]:
    """The lines that name an error, from an index on, each text once."""
    named = {*index.matching(_MATTERS), *(at for at, line in enumerate(index.lines) if line.level == "CRITICAL")}
    return _without_never(index, sorted(at for at in named if at >= first))


def _without_never(index: LineIndex, places: Sequence[int]) -> dict[str, LogLine]:
    found: dict[str, LogLine] = {}
    never = set(index.matching(_NEVER))
    for at in places:
        if at not in never:
            found.setdefault(index.lines[at].text, index.lines[at])
    return found


def _lines_that_matter(index: LineIndex) -> tuple[Evidence, ...]:
    """The first lines that name an error, or else the last lines."""
    found = _errors(index) or _without_never(index, index.matching(_ENDS))
    chosen = list(found.values())[:_MOST_EVIDENCE] or list(index.lines[-3:])
    return tuple(_evidence(line) for line in chosen)
