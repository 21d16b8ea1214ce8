"""A log costs bounded time, whatever it holds: a pod of a team must not hang those who read its log."""

from __future__ import annotations

import io
import json
import re
import re._constants as names  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import string
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroscale.explain import diagnose, facts_of_log, load_causes, log_text, read_lines, read_log, server_facts
from neuroscale.explain import diagnosis as diagnosis_module
from neuroscale.explain.line_index import LineIndex, OverBudgetError, needed_literals

SIZE = 250_000  # characters of a log
MOST = 2.0  # seconds of processor time for 1,000,000 characters
ORDINARY = 8  # times as long as a log of a server that works
OOM = "CUDA out of memory"
SERVED = (
    "(APIServer pid=1) INFO 01-20 16:32:02 [loggers.py:1] Engine 000: Avg prompt throughput: 31.4 tokens/s, Avg "
    "generation throughput: 30.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.3%"
)
STATED = read_lines("\n".join(cause.example for cause in load_causes()))


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Every pattern that decides about a cause."""
    matchers = [matcher for cause in load_causes() for matcher in cause.matchers]
    own = [matcher.line for matcher in matchers]
    own += [pattern for matcher in matchers for pattern in matcher.conditions.values()]
    return {pattern.pattern: pattern for pattern in own}


@cache
def readers() -> dict[str, re.Pattern[str]]:
    """The other patterns that a line of a log meets."""
    held: list[Any] = []
    for module in (log_text, server_facts, diagnosis_module):
        for value in vars(module).values():
            held += value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else [value]
    return {one.pattern: one for one in held if isinstance(one, re.Pattern)}


def unbounded(nodes: Any) -> bool:
    for node, value in nodes:
        parts: list[Any] = []
        if node in (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT):
            if value[1] is names.MAXREPEAT:
                return True
            parts = [value[2]]
        elif node is names.SUBPATTERN:
            parts = [value[-1]]
        elif node is names.ATOMIC_GROUP:
            parts = [value]
        elif node is names.BRANCH:
            parts = value[1]
        elif node in (names.ASSERT, names.ASSERT_NOT):
            parts = [value[1]]
        if any(unbounded(part) for part in parts):
            return True
    return False


def samples(nodes: Any, repeats: int) -> Iterator[str]:
    """What a sequence matches, from its start to each of its parts, with so many of what may repeat."""
    text = ""
    for node, value in nodes:
        text += sample(node, value, repeats)
        yield text


def whole(nodes: Any, repeats: int) -> str:
    return "".join(sample(node, value, repeats) for node, value in nodes)


def sample(node: Any, value: Any, repeats: int) -> str:
    if node is names.LITERAL:
        return chr(int(value))
    if node is names.IN:
        return next(str(c) for c in (*string.printable, *map(chr, range(32)), "█") if re.match(_class(value), c))
    if node in (names.MAX_REPEAT, names.MIN_REPEAT):
        return whole(value[2], 0) * int(min(int(value[1]), max(value[0], repeats)))
    if node is names.SUBPATTERN:
        return whole(value[-1], repeats)
    if node is names.BRANCH:
        return whole(value[1][-1], repeats)
    if node in (names.ANY, names.NOT_LITERAL):
        return "a"
    return ""


def _class(value: Any) -> str:
    told = {
        names.CATEGORY_DIGIT: r"\d",
        names.CATEGORY_NOT_DIGIT: r"\D",
        names.CATEGORY_SPACE: r"\s",
        names.CATEGORY_NOT_SPACE: r"\S",
        names.CATEGORY_WORD: r"\w",
        names.CATEGORY_NOT_WORD: r"\W",
    }
    parts = []
    for node, what in value:
        if node is names.NEGATE:
            parts.append("^")
        elif node is names.LITERAL:
            parts.append(re.escape(chr(what)))
        elif node is names.RANGE:
            parts.append(f"{re.escape(chr(what[0]))}-{re.escape(chr(what[1]))}")
        else:
            parts.append(told[what])
    return f"[{''.join(parts)}]"


def hostile(pattern: re.Pattern[str]) -> list[str]:
    """Lines of 4,000 characters that hold the beginning of a match as often as they can, cut after each part."""
    nodes = parser.parse(pattern.pattern, pattern.flags)
    starts = {start for repeats in (0, 1, 20) for start in samples(nodes, repeats)}
    starts |= {start[:-1] for start in starts}
    return [(start * (4000 // len(start) + 1))[:4000] for start in sorted(starts) if start]


def seconds(log: str) -> float:
    started = time.process_time()
    lines = read_log(io.BytesIO(log.encode()))
    diagnose(lines, load_causes())
    facts_of_log(lines)
    return time.process_time() - started


def assert_soon(log: str) -> None:
    """It takes less than 2 s for a megabyte; on a slow or busy machine, less than some times an ordinary log."""
    taken = seconds(log)
    if taken > MOST * len(log) / 1_000_000:
        assert taken < ORDINARY * seconds(counted(SERVED, len(log))), log[:200]


def repeated(line: str, size: int = SIZE) -> str:
    return f"{line}\n" * (size // (len(line) + 1))


def counted(line: str, size: int = SIZE) -> str:
    """A log of the line in which no two lines are the same."""
    return "\n".join(f"{line} {number}" for number in range(size // (len(line) + 8)))


def test_no_pattern_of_a_cause_repeats_without_a_bound() -> None:
    wrong = [text for text, pattern in patterns().items() if unbounded(parser.parse(text, pattern.flags))]
    assert not wrong, "write a bound: {1,80} instead of +, {0,80} instead of *"


def test_no_pattern_takes_long_for_a_line_of_its_own_beginnings() -> None:
    """The line is the longest that is read, so a log of 1 MB has 250 of them."""
    slow = {}
    for text, pattern in {**patterns(), **readers()}.items():
        for line in hostile(pattern)[::3]:
            if _searching(pattern, line) > 0.03 and min(_searching(pattern, line) for _ in range(5)) > 0.03:
                slow[text] = line[:80]
    assert not slow


def _searching(pattern: re.Pattern[str], line: str) -> float:
    started = time.thread_time()
    pattern.search(line)
    return time.thread_time() - started


@pytest.mark.parametrize("make", [repeated, counted])
@pytest.mark.parametrize("line", [OOM, "a", "ValueError: no", 'File "x.py", line 1', "eyJ-" * 900, "vllm serve '" * 9])
def test_a_log_of_one_line_takes_no_long_time(line: str, make: Any) -> None:
    assert_soon(make(line))


def test_a_log_of_a_patterns_own_text_takes_no_long_time() -> None:
    """One in thirty patterns; another one each time that patterns are added."""
    chosen = sorted(patterns().values(), key=lambda one: one.pattern)[::30]
    for pattern in chosen:
        line = whole(parser.parse(pattern.pattern, pattern.flags), 1) or "a"
        assert_soon(repeated(line.replace("\n", " ")))


@pytest.mark.slow
def test_a_log_of_any_patterns_own_text_takes_no_long_time() -> None:
    for pattern in patterns().values():
        line = (whole(parser.parse(pattern.pattern, pattern.flags), 1) or "a").replace("\n", " ")
        assert_soon(repeated(line, 1_000_000))
        assert_soon(counted(line))


def test_the_time_grows_with_the_length_of_the_log() -> None:
    traceback = f'(W pid=1)   File "/x/vllm/v1/worker.py", line 1, in load_model\n(W pid=1) ValueError: {OOM}'
    short, long = (seconds(counted(traceback, size)) for size in (SIZE // 8, SIZE))
    assert long < 30 * max(short, 0.01)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from([line.text for line in STATED]), min_size=1, max_size=4), st.booleans())
def test_a_log_of_any_real_lines_takes_no_long_time(lines: list[str], joined: bool) -> None:
    line = (" " if joined else "\n").join(lines)
    assert_soon(counted(line, SIZE // 4))


def test_a_search_that_takes_too_long_ends_as_not_judged() -> None:
    lines = read_lines(f"{OOM}\nINFO:     Application startup complete.")
    found = diagnose(lines, load_causes(), seconds=0.0)
    assert (found.verdict, found.cause, found.evidence) == ("not_judged", None, ())
    assert "takes more than 0 s" in found.sentence
    with pytest.raises(OverBudgetError):
        LineIndex(lines, 0.0).matching(re.compile(OOM))


def test_the_index_finds_what_a_search_of_each_line_finds() -> None:
    index = LineIndex(STATED, 60)
    for pattern in patterns().values():
        expected = [at for at, line in enumerate(STATED) if pattern.search(line.text)]
        assert index.matching(pattern) == expected, pattern.pattern


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"\d{1,3} is not divisible by", [{" is not divisible by"}]),
        ("CUDA|HIP error", [{"cuda", "hip error"}]),
        ("(?i)Fabric.?Manager", [{"manager"}, {"fabric"}]),
        ("(?:Error )?of [ab]", [{"of "}]),
        ("(?:Error|x) [ab]", []),
        ("(?=error)x", []),
        ("!{12,}", [{"!" * 12}]),
        ("Value(?:Error)?: no", [{"value"}, {": no"}]),
    ],
)
def test_the_texts_that_a_pattern_needs(pattern: str, literals: list[set[str]]) -> None:
    compiled = re.compile(pattern)
    assert needed_literals(compiled.pattern, compiled.flags) == tuple(literals)


def test_a_log_of_many_lines_is_read_at_both_ends() -> None:
    lines = read_lines("\n".join(str(number) for number in range(1, 100_001)))
    assert len(lines) == 40_000
    assert [(one.number, one.text) for one in (lines[0], lines[-1])] == [(1, "1"), (100_000, "100000")]


@pytest.mark.parametrize("distinct", [False, True])
def test_a_log_of_json_that_holds_many_lines_is_read_at_both_ends(distinct: bool) -> None:
    """Each line in JSON holds 5,000 lines of its program."""
    held = ("\n".join(f"{row}{at}" if distinct else "ab"[at % 2] for at in range(5_000)) for row in range(40))
    log = "\n".join(json.dumps({"log": text}) for text in held)
    lines = read_lines(log)
    assert len(lines) == 40_000
    assert [one.number for one in (lines[0], lines[7_999], lines[8_000], lines[-1])] == [1, 2, 34, 40]
    assert_soon(log)
    assert len(read_lines("\n".join(log.split("\n")[:8]))) == 40_000, "as many as are read"
