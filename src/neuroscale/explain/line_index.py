"""Finds which lines of a log a pattern matches, in time that grows with the log's length, and within a budget."""

from __future__ import annotations

import re
import re._constants as names  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

from neuroscale.explain.log_text import LogLine

TRACEBACK = 150  # lines of the same process before a line that may belong to its traceback
_LAST_FRAME = 5  # lines of the same process before a line among which its traceback says where it was raised
_FRAME = re.compile(r'File "[^"\n]{1,300}", line \d')
_LEAST_LITERAL = 3  # characters: a shorter text is in nearly every line


class OverBudgetError(Exception):
    """The log needs more processor time than it may take."""


class LineIndex:
    """The lines of a log. Each pattern is searched at most once in each text, however many lines have that text, and
    only where the line holds a text without which the pattern cannot match. Each method raises OverBudgetError once
    the thread has taken `seconds` of processor time since the index was made."""

    def __init__(self, lines: Sequence[LogLine], seconds: float) -> None:
        self.lines = lines
        self._until = time.thread_time() + seconds
        self._places: dict[str, list[int]] = defaultdict(list)
        for at, line in enumerate(lines):
            self._places[line.text].append(at)
        self._texts = list(self._places)
        lowered = [text.lower() for text in self._texts]
        self._whole = "\n".join(lowered)
        self._starts: list[int] = []
        start = 0
        for text in lowered:
            self._starts.append(start)
            start += len(text) + 1
        self._holding: dict[str, list[int]] = {}
        self._found: dict[str, list[int]] = {}
        self._of_processes: dict[str, dict[str, list[int]]] = {}
        self._frames: dict[int, str] = {}

    def matching(self, pattern: re.Pattern[str]) -> list[int]:
        """The indices of the lines that the pattern matches, in their order."""
        if pattern.pattern not in self._found:
            found: list[int] = []
            for at in self._candidates(pattern):
                self.check()
                text = self._texts[at]
                if pattern.search(text):
                    found += self._places[text]
            self._found[pattern.pattern] = sorted(found)
        return self._found[pattern.pattern]

    def near(self, pattern: re.Pattern[str], at: int) -> bool:
        """Whether a line, or one of its process shortly before it, matches."""
        process, first = self.lines[at].process, max(0, at - TRACEBACK)
        if not process:
            return _any_within(self.matching(pattern), first, at + 1)
        if pattern.pattern not in self._of_processes:
            own: dict[str, list[int]] = defaultdict(list)
            for place in self.matching(pattern):
                own[self.lines[place].process].append(place)
            self._of_processes[pattern.pattern] = own
        found = self._of_processes[pattern.pattern]
        return any(_any_within(found.get(name, ()), first, at + 1) for name in ("", process))

    def frame(self, at: int) -> str:
        """The line of a traceback that says where the error of a line was raised; "" if none stands before it."""
        if at not in self._frames:
            self.check()
            process, seen, frame = self.lines[at].process, 0, ""
            for place in range(at - 1, max(-1, at - TRACEBACK - 1), -1):
                line = self.lines[place]
                if process and line.process not in ("", process):
                    continue
                if _FRAME.search(line.text):
                    frame = line.text
                seen += 1
                if frame or seen == _LAST_FRAME:
                    break
            self._frames[at] = frame
        return self._frames[at]

    def _candidates(self, pattern: re.Pattern[str]) -> Sequence[int]:
        """The texts in which the pattern may be found, by their index."""
        found: set[int] | None = None
        for literals in needed_literals(pattern.pattern, pattern.flags):
            holding = {at for literal in literals for at in self._with_literal(literal)}
            found = holding if found is None else found & holding
            if not found:
                return ()
        return range(len(self._texts)) if found is None else sorted(found)

    def _with_literal(self, literal: str) -> list[int]:
        if literal not in self._holding:
            self.check()
            found, ends = [], len(self._whole)
            place = self._whole.find(literal)
            while place >= 0:
                at = bisect_left(self._starts, place + 1) - 1
                found.append(at)
                following = self._starts[at + 1] if at + 1 < len(self._starts) else ends
                place = self._whole.find(literal, following)
            self._holding[literal] = found
        return self._holding[literal]

    def check(self) -> None:
        """Go on only within the budget."""
        if time.thread_time() > self._until:
            raise OverBudgetError


def _any_within(places: Sequence[int], first: int, end: int) -> bool:
    at = bisect_left(places, first)
    return at < len(places) and places[at] < end


@cache
def needed_literals(pattern: str, flags: int = 0) -> tuple[frozenset[str], ...]:
    """Sets of texts in small letters: a line that the pattern matches has a text of each set. The rarest come first."""
    return tuple(sorted(_of_sequence(parser.parse(pattern, flags)), key=_rarity, reverse=True))


def _rarity(literals: frozenset[str]) -> tuple[int, int]:
    return min(map(len, literals)), -len(literals)


def _of_sequence(nodes: Any) -> list[frozenset[str]]:
    found: list[frozenset[str]] = []
    run = ""
    for node, value in [*nodes, (None, None)]:
        if node is names.LITERAL:
            run += chr(value).lower()
            continue
        if len(run) >= _LEAST_LITERAL:
            found.append(frozenset({run}))
        run = ""
        found += _of_node(node, value)
    return found


def _of_node(node: Any, value: Any) -> list[frozenset[str]]:
    if node is names.SUBPATTERN:
        return _of_sequence(value[-1])
    if node is names.ATOMIC_GROUP:
        return _of_sequence(value)
    if node in (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT) and value[0] > 0:
        return _of_sequence(list(value[2]) * min(value[0], 12))
    if node is names.BRANCH:
        parts = [max(_of_sequence(part), key=_rarity, default=None) for part in value[1]]
        return [] if None in parts else [frozenset().union(*(part for part in parts if part))]
    return []
