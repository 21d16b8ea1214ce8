"""Reads the causes: one file each, which says by which lines a cause is known, what it means, and what to try next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import read_mapping

FOLDER = Path(__file__).with_name("causes")

_OUT_OF_MEMORY = (
    r"(?:(?:CUDA|HIP|XPU|NPU|HPU|MUSA) (?:error: )?out of memory\b(?! occurred when warming)"
    r"|torch\.(?:cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"
    r"|Cuda failure (?:\d{1,3} )?'out of memory'"
    r"|cudaErrorMemoryAllocation|NVML_SUCCESS == r INTERNAL ASSERT FAILED at [^\n]{0,80}CUDACachingAllocator"
    r"|RESOURCE_EXHAUSTED[^\n]{0,200}\b(?:hbm|HBM|allocat\w{1,20})\b)"
)
_CONDITIONS = ("with", "without", "frame", "around", "not_around", "after", "before", "followed")

Kind = Literal["set", "drop", "lower", "planned", "fewer_ranks", "free_share", "without_refused"]


@dataclass(frozen=True)
class Change:
    """A change of the configuration to try; the fit judges what becomes of it.

    `set`: arguments with their values, in which {NAME} is what the line captured. `drop`: arguments that go. `lower`:
    arguments with values, of which the first that is less than the present one is taken. The others are computed:
    `planned` (the changes that planning finds), `fewer_ranks` (a smaller tensor parallel size), `free_share` (the share
    of the memory that is free), `without_refused` (the command without what its version refuses).
    """

    kind: Kind
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Matcher:
    """A line by which a cause is known.

    `with_`, `without`: what the same line must and must not hold. `frame`: what the line of its traceback must hold
    that names where it was raised. `around`, `not_around`: what the lines of the same process shortly before it must
    and must not hold: its traceback. `after`, `before`: what any earlier line must and must not hold. `followed`: what
    a later line must hold. `weight`: below 0 for a line that may also follow from another cause; among matches on one
    line the largest counts. `numbers`: a sentence with what the line captured.
    """

    line: re.Pattern[str]
    conditions: Mapping[str, re.Pattern[str]]
    weight: int
    numbers: str
    next: tuple[Change, ...]

    @property
    def elsewhere(self) -> list[re.Pattern[str]]:
        """What some line of the log must hold so that a line of it can match."""
        return [self.conditions[name] for name in ("frame", "around", "after", "followed") if name in self.conditions]


@dataclass(frozen=True)
class Cause:
    """A cause of a server's end: `follows` says what to do about it; `next` are changes of its arguments to try, the
    best first; `example` is a real line with its source."""

    name: str
    title: str
    sentence: str
    follows: str
    source: str
    matchers: tuple[Matcher, ...]
    next: tuple[Change, ...]
    example: str
    example_source: str


@cache
def load_causes() -> tuple[Cause, ...]:
    """All causes, by name. Raises InputError for a wrong file."""
    return tuple(_cause(path) for path in sorted(FOLDER.glob("*.yaml")))


def _cause(path: Path) -> Cause:
    where = path.name
    found = read_mapping(path.read_text(encoding="utf-8"), where).value
    _known(found, {"title", "sentence", "matches", "follows", "next", "source", "example"}, where, "")
    example = found.get("example", {})
    try:
        return Cause(
            name=path.stem,
            title=found["title"],
            sentence=found["sentence"],
            follows=found["follows"],
            source=found["source"],
            matchers=tuple(_matcher(one, where, f"matches[{at}]") for at, one in enumerate(found["matches"])),
            next=_changes(found.get("next", ()), where),
            example=example.get("line", ""),
            example_source=example.get("source", ""),
        )
    except KeyError as error:
        raise InputError.at(where, str(error.args[0]), "is missing", "Write it.") from error


def _matcher(found: Mapping[str, Any], where: str, at: str) -> Matcher:
    _known(found, {"line", "weight", "numbers", "next", *_CONDITIONS}, where, at)
    return Matcher(
        line=_pattern(found["line"], where, f"{at}.line"),
        conditions={name: _pattern(found[name], where, f"{at}.{name}") for name in _CONDITIONS if name in found},
        weight=found.get("weight", 0),
        numbers=found.get("numbers", ""),
        next=_changes(found.get("next", ()), where),
    )


def _pattern(text: str, where: str, at: str) -> re.Pattern[str]:
    try:
        return re.compile(text.replace("@oom", _OUT_OF_MEMORY))
    except re.error as error:
        raise InputError.at(where, at, f"is not a pattern: {error}", "Correct it.") from error


def _changes(found: Any, where: str) -> tuple[Change, ...]:
    changes = []
    for one in found:
        _known(one, {"set", "drop", "lower", "planned", "fewer_ranks", "free_share", "without_refused"}, where, "next")
        ((kind, values),) = one.items()
        named = values if isinstance(values, dict) else dict.fromkeys(values) if isinstance(values, list) else {}
        changes.append(Change(kind, named))
    return tuple(changes)


def _known(found: Mapping[str, Any], fields: set[str], where: str, at: str) -> None:
    for name in found:
        if name not in fields:
            raise InputError.at(where, f"{at}.{name}".lstrip("."), "is not a field", f"Write {', '.join(fields)}.")
