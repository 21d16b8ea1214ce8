"""Finds the cause of a server's end: the first line that matters, and not the last one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from neuroscale.explain.causes import Cause, Change, Matcher
from neuroscale.explain.log_text import LogLine

_TRACEBACK = 150  # lines of the same process before a line that may belong to its traceback
_LAST_FRAME = 5  # lines of the same process before a line among which its traceback says where it was raised
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
_FRAME = re.compile(r'File "[^"\n]{1,300}", line \d')
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_ENDS = re.compile(r"(?i)\b(?:failed|fatal|cannot|unable to|killed|segmentation fault|core dumped|terminated)\b")


@dataclass(frozen=True)
class Evidence:
    """A line that the judgement rests on, by its number in the log."""

    line: int
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """What a log says. `verdict`: `cause` (it is known), `healthy` (it started, and no cause was seen) or `unknown`
    (neither). `captured`: what the line said, by the cause's own names; `also`: other causes that were seen, each with
    its first line."""

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


def diagnose(lines: Sequence[LogLine], causes: Sequence[Cause]) -> Diagnosis:
    """The cause that the lines show."""
    started = max((at for at, line in enumerate(lines) if _STARTED.search(line.text)), default=-1)
    matches = sorted(_matches(lines, causes, started), key=lambda match: match.rank)
    # What came before a start did not prevent it.
    ending = [match for match in matches if match.at > started]
    if ending and ending[0].level in _NOTES and _errors(lines[started + 1 :]):
        ending = []  # an error that no cause explains matters more than a note
    also: dict[str, tuple[Cause, Evidence]] = {}
    if not ending:
        for match in matches:
            also.setdefault(match.cause.name, (match.cause, _evidence(lines[match.at])))
        if started >= 0 and not _errors(lines[started + 1 :]):
            found = (_evidence(lines[started]),)
            return Diagnosis("healthy", None, "The server started.", found, also=tuple(also.values())[:_MOST_ALSO])
        if _is_no_text(lines):
            return Diagnosis("unknown", None, "The log is no text: name the file that holds the server's output.", ())
        told = "No cause is known for these lines." if lines else "The log is empty."
        return Diagnosis("unknown", None, told, _lines_that_matter(lines))
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


def _matches(lines: Sequence[LogLine], causes: Sequence[Cause], started: int) -> Iterator[_Match]:
    """The first match of each matcher, and its first after the last start of the server. A pattern is tried on the
    whole text first, since most are in no line of it."""
    whole = "\n".join(line.text for line in lines)
    for cause in causes:
        for matcher in cause.matchers:
            if not matcher.anchored and matcher.line.search(whole) is None:
                continue
            parts = [(0, started + 1), (started + 1, len(lines))] if started >= 0 else [(0, len(lines))]
            for first, end in parts:
                yield from _first(lines, first, end, cause, matcher)


def _first(lines: Sequence[LogLine], first: int, end: int, cause: Cause, matcher: Matcher) -> Iterator[_Match]:
    """The first match among some lines, and those on warnings and notes before it."""
    warned = 0
    for at in range(first, end):
        line = lines[at]
        match = matcher.line.search(line.text)
        if match and line.level != "DEBUG" and not _never(line.text, match) and _holds(lines, at, matcher.conditions):
            captured = {name: value for name, value in match.groupdict().items() if value is not None}
            yield _Match(cause, matcher, at, captured, line.level)
            warned += 1
            if line.level not in _NOTES or warned == _MOST_WARNINGS:
                return


def _never(text: str, match: re.Match[str]) -> bool:
    """Whether the line says only that something failed before, and the match is not what it quotes of that."""
    found = _NEVER.search(text)
    return found is not None and match.start() < found.end()


def _holds(lines: Sequence[LogLine], at: int, conditions: Mapping[str, re.Pattern[str]]) -> bool:
    line = lines[at]
    for name, pattern in conditions.items():
        if name in ("with", "without"):
            seen = pattern.search(line.text) is not None
        elif name == "frame":
            frames = [one.text for one in _own(lines, at)[-_LAST_FRAME - 1 : -1] if _FRAME.search(one.text)]
            seen = bool(frames) and pattern.search(frames[-1]) is not None
        elif name in ("around", "not_around"):
            seen = any(pattern.search(one.text) for one in _own(lines, at))
        elif name == "followed":
            seen = any(pattern.search(one.text) for one in lines[at + 1 :])
        else:
            seen = any(pattern.search(one.text) for one in lines[:at])
        if seen is (name in _MUST_NOT):
            return False
    return True


def _own(lines: Sequence[LogLine], at: int) -> list[LogLine]:
    """A line and those of its process shortly before it."""
    near, process = lines[max(0, at - _TRACEBACK) : at + 1], lines[at].process
    return [one for one in near if not process or one.process in ("", process)]


def _is_no_text(lines: Sequence[LogLine]) -> bool:
    """Whether one in ten characters of the first lines is no character of text."""
    text = "".join(line.text for line in lines[:200])
    return bool(text) and 10 * len(_NO_TEXT.findall(text)) > len(text)


def _errors(lines: Sequence[LogLine]) -> dict[str, LogLine]:
    """The lines that name an error, each text once."""
    found: dict[str, LogLine] = {}
    for line in lines:
        if (_MATTERS.search(line.text) or line.level == "CRITICAL") and not _NEVER.search(line.text):
            found.setdefault(line.text, line)
    return found


def _lines_that_matter(lines: Sequence[LogLine]) -> tuple[Evidence, ...]:
    """The first lines that name an error, or else the last lines."""
    found = _errors(lines)
    if not found:
        found = {line.text: line for line in lines if _ENDS.search(line.text) and not _NEVER.search(line.text)}
    chosen = list(found.values())[:_MOST_EVIDENCE] or list(lines[-3:])
    return tuple(_evidence(line) for line in chosen)
