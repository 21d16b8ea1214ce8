"""Changes one CEL expression so that a rule becomes looser, stricter or wrong. Each result is again an expression."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

# A text of CEL, with or without escapes (r'...'); what lies between two of them is code.
_TEXT = re.compile(r"r?'(?:[^'\\]|\\.)*'")
_SWAPS = {
    "==": "!=",
    "!=": "==",
    "<=": "<",
    ">=": ">",
    "&&": "||",
    "||": "&&",
    ".exists(": ".all(",
    ".all(": ".exists(",
    " * ": " + ",
    ".isGreaterThan(": ".isLessThan(",
    ".startsWith(": ".endsWith(",
    ".endsWith(": ".startsWith(",
}
_SWAP = re.compile("|".join(map(re.escape, sorted(_SWAPS, key=len, reverse=True))) + r"|(?<=\s)[<>](?=\s)")
_NEGATION = re.compile(r"!(?=[\[(a-z])")
_CALL = re.compile(r"\.(?:lowerAscii|upperAscii)\(\)|\.replace\([^()]*\)")
_DEFAULT = re.compile(r"orValue\((?:dyn\()?(true|false|[0-9]+)\)?\)")
_NUMBER = re.compile(r"(?<![\w.'])[0-9]+(?:\.0)?(?![\w'])")
_LIST = re.compile(r"\[(?:\s*(?:dyn\()?r?'(?:[^'\\]|\\.)*'\)?\s*,?)+\]")
_ITEM = re.compile(r"(?:dyn\()?r?'(?:[^'\\]|\\.)*'\)?")
_MAP_LINE = re.compile(r"^[ \t]*\{'at'.*\},?[ \t]*$", re.MULTILINE)


def expression_changes(expression: str) -> Iterator[tuple[str, str]]:
    """Every change of an expression: the operator's name, and the changed expression."""
    texts = [match.span() for match in _TEXT.finditer(expression)]

    def in_code(match: re.Match[str]) -> bool:
        return not any(start < match.end() and match.start() < end for start, end in texts)

    def number(match: re.Match[str]) -> int:
        return expression.count("\n", 0, match.start()) + 1

    def swapped(match: re.Match[str], other: str) -> str:
        return expression[: match.start()] + other + expression[match.end() :]

    for match in filter(in_code, _SWAP.finditer(expression)):
        other = _SWAPS.get(match[0]) or {"<": "<=", ">": ">="}[match[0]]
        yield f"operator:{match[0].strip()} {_around(expression, match)}", swapped(match, other)
    for match in filter(in_code, _NEGATION.finditer(expression)):
        yield f"negation dropped:{_around(expression, match)}", swapped(match, "")
    for match in _CALL.finditer(expression):
        yield f"call dropped:{match[0]} line {number(match)} {match.start()}", swapped(match, "")
    for match in filter(in_code, _DEFAULT.finditer(expression)):
        other = {"true": "false", "false": "true"}.get(match[1]) or str(int(match[1]) + 1)
        yield f"default:{_around(expression, match)}", swapped(match, match[0].replace(match[1], other))
    for match in filter(in_code, _NUMBER.finditer(expression)):
        other = "2.0" if match[0].endswith(".0") else str(int(match[0]) + 1)
        yield f"number:{_around(expression, match)}", swapped(match, other)
    for match in _LIST.finditer(expression):
        items = _ITEM.findall(match[0])
        for index, item in enumerate(items) if len(items) > 1 else ():
            rest = ", ".join(items[:index] + items[index + 1 :])
            yield f"list item dropped:{item} {match.start()}", swapped(match, f"[{rest}]")
    lines = list(_MAP_LINE.finditer(expression))
    for match in lines if len(lines) > 1 else ():
        if match[0].count("{") == match[0].count("}"):
            shorter = swapped(match, "")
            yield f"place dropped:{match[0].strip()[:60]}", re.sub(r",(\s*\])", r"\1", shorter)
    for start, end in texts:
        before, text = expression[:start], expression[start:end]
        for name, other in _pattern_changes(before, text):
            yield f"{name} {start}", before + other + expression[end:]


def _pattern_changes(before: str, text: str) -> Iterator[tuple[str, str]]:
    """Changes of a regular expression or of an allowed prefix."""
    body = text[text.index("'") + 1 : -1]
    opening = text[: text.index("'") + 1]
    if text.startswith("r'") or before.endswith(("matches(", "find(")):
        for index, (start, end) in enumerate(_alternatives(body)):
            rest = (
                body[: start - 1] + body[end:] if start and body[start - 1] == "|" else body[:start] + body[end + 1 :]
            )
            yield f"alternative dropped:{index} {body[start:end]}", f"{opening}{rest}'"
        if body.startswith("^"):
            yield "start not anchored:" + body[:30], f"{opening}{body[1:]}'"
        if body.endswith("$") and not body.endswith("\\$"):
            yield "end not anchored:" + body[-30:], f"{opening}{body[:-1]}'"
    elif body.endswith("/") and len(body) > 3:
        yield f"prefix loosened:{body}", f"{opening}{body[:-1]}'"


def _alternatives(body: str) -> Iterator[tuple[int, int]]:
    """The spans of the alternatives of a regular expression, in the deepest parentheses that hold `|`."""
    starts, parts = [0], [[]]  # type: list[int], list[list[int]]
    index = 0
    while index < len(body):
        char = body[index]
        if char == "\\":
            index += 2
            continue
        if char == "[":
            index = body.index("]", index + 2)
        elif char == "(":
            starts.append(index + 1)
            parts.append([])
        elif char == "|":
            parts[-1].append(index)
        elif char == ")" and len(starts) > 1:
            yield from _between(starts.pop(), parts.pop(), index)
        index += 1
    yield from _between(starts[0], parts[0], len(body))


def _between(start: int, bars: list[int], end: int) -> Iterator[tuple[int, int]]:
    if bars:
        edges = [start - 1, *bars, end]
        yield from ((one + 1, other) for one, other in itertools.pairwise(edges))


def _around(expression: str, match: re.Match[str]) -> str:
    """The text around a change, for its name, and its position, as the same text may stand twice."""
    found = " ".join(expression[max(0, match.start() - 18) : match.end() + 18].split())
    return f"{match.start()} in {found}"
