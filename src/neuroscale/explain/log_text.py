"""Takes a server's log apart: bounded lines without colours, timestamps and the names of processes.

A log is text of unknown origin: it holds what users asked, and whatever a container printed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO

from neuroscale.core.masked_secrets import masked

_HEAD, _TAIL = 512 << 10, 1536 << 10  # bytes that are read of a longer log: the start's arguments, and its end
_LONGEST = 4000  # characters of a line; the arguments of an engine take some 3,000
_FIRST_LINES, _LAST_LINES = 8_000, 32_000  # that are read of a log of more lines

_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)?)")
_DATE = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]{0,12}(?:Z|[+-]\d\d:?\d\d)?\]?\s{1,4}"
_OF_COLLECTORS = re.compile(
    rf"(?:{_DATE})?(?:[\w.-]{{1,80}} )?[\w@./-]{{1,60}}\[\d{{1,8}}\]: "  # journald, with its date in another form
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} [\w@./-]{1,60}(?:\[\d{1,8}\])?: "  # syslog
    r"|\[pod/[^\]\n]{1,200}\]\s"  # kubectl logs --prefix
    r"|(?=\S{0,120}\d)[a-z0-9][a-z0-9.-]{2,120}-[a-z0-9]{5} [a-z][a-z0-9-]{1,62} "  # stern: the pod and its container
    r"|[\w.-]{1,80}\s{1,20}\|\s"  # docker compose
    rf"|{_DATE}"
    r"|std(?:out|err) [FP] "
    r"|\| (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) {1,8}\| (?:std(?:out|err) \| |[\w.:<>-]{1,120} - )"
    r"|>\s"
)
_REPEATED = re.compile(r"\s\[repeated \d{1,9}x across cluster\][^\n]{0,200}$")
_MESSAGES = ("log", "message", "msg", "MESSAGE", "line", "text")
"""The fields of a line in JSON that hold what a program wrote."""
_PROCESS = re.compile(r"\(([^()\n]{0,60}\bpid=\d{1,10}[^()\n]{0,60})\)\s?|\[(rank\d{1,4})\]:\s?")
_LEVEL = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::\s{1,10}|\s(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{1,6})? "
    r"(?:\[[^\]\n]{1,80}\]|[\w./-]{1,80}:\d{1,6}\])\s?)"
)
_NOTE = re.compile(
    r"\[?(?P<letter>[IW])\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} |\S{1,120}:\d{1,8}:\d{1,8} \[\d{1,3}\] NCCL (?P<nccl>INFO)\b"
)
"""A note or a warning of PyTorch's or NCCL's own."""
_QUOTES = re.compile(
    r"((?:Received|Added|Aborted) request|Generated response|Error with model) (?=\S)|(Request) (?=\S{1,200} details: )"
)
"""A line that goes on with what a client sent, or with what it was answered."""
_ASKED = re.compile(r'(- "[A-Z]{3,8} )(?!/(?:health|ping|metrics|version|v1[a-z_/]{0,60}) )\S{1,4000}(?= HTTP/)')
_CUT = re.compile(r"(?:Error|Exception): .{40}")
_GOES_ON = re.compile(r"(?!frame #|terminate called|what\(\): )[a-z\d(]")


@dataclass(frozen=True)
class LogLine:
    """A line of a log by its number, from 1; `process`: the one of several that wrote it, as vLLM names it ("": it does
    not); `text`: what it wrote, without secrets."""

    number: int
    process: str
    text: str
    level: str = ""


def read_log(stream: BinaryIO) -> list[LogLine]:
    """The lines of a log that is read to its end: of a longer one than 2 MiB, the first and the last."""
    head = stream.read(_HEAD)
    tail, passed = b"", 0
    while part := stream.read(1 << 20):
        tail += part
        if len(tail) > _TAIL:
            passed += tail.count(b"\n", 0, len(tail) - _TAIL)
            tail = tail[-_TAIL:]
    first = head.decode("utf-8", errors="replace")
    if not passed:
        return read_lines(first + tail.decode("utf-8", errors="replace"))
    # What is left out begins and ends within a line.
    ended = first.rpartition("\n")[0]
    rest = tail.decode("utf-8", errors="replace").partition("\n")[2]
    return [*read_lines(ended), *read_lines(rest, first=first.count("\n") + passed + 2)]


def read_lines(text: str, process: str = "", first: int = 1) -> list[LogLine]:
    """The lines of a text that are not empty, numbered from `first`; `process` wrote those that do not say who did. Of
    more than 40,000 lines, the first and the last."""
    numbered = _both_ends(list(enumerate(text.split("\n"), first)))
    indented = min((len(one) - len(one.lstrip(" ")) for _, one in numbered if one.strip()), default=0)
    # One line in JSON may hold thousands, so they are counted again.
    parts = _both_ends([(number, part) for number, whole in numbered for part in _parts(whole.rstrip("\r"))])
    found = []
    seen: dict[str, LogLine] = {}  # by the text of a line, since logs repeat themselves
    for number, part in parts:
        if part not in seen:
            # A progress bar writes over its line: what it wrote last counts.
            seen[part] = _line(number, part.rpartition("\r")[2][indented:], process)
        if (line := seen[part]).text:
            found.append(line if line.number == number else replace(line, number=number))
    return _joined(found)


def _both_ends(numbered: list[tuple[int, str]]) -> list[tuple[int, str]]:
    most = _FIRST_LINES + _LAST_LINES
    return numbered if len(numbered) <= most else [*numbered[:_FIRST_LINES], *numbered[-_LAST_LINES:]]


def _joined(lines: list[LogLine]) -> list[LogLine]:
    """The lines, with an error's message whole that a terminal or a page broke in two: it ends within a sentence, and
    what follows begins within one."""
    joined = list(lines)
    for at, (line, after) in enumerate(pairwise(lines)):
        same = not after.level and after.process in ("", line.process)
        ends_within = line.text[-1].isalnum() or line.text[-1] in "_,"
        if same and ends_within and _GOES_ON.match(after.text) and _CUT.search(line.text):
            joined[at] = replace(line, text=masked(f"{line.text} {after.text}"[:_LONGEST]))
    return joined


def _parts(raw: str) -> list[str]:
    """What a program wrote in a line: several lines where it is JSON around them."""
    if not (raw.startswith("{") and raw.endswith("}")) or len(raw) > 16 * _LONGEST:
        return [raw]
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return [raw]
    fields = found.get("fields")
    held = {**found, **fields} if isinstance(fields, dict) else found
    told = next((held[name] for name in _MESSAGES if isinstance(held.get(name), str)), raw)
    return told.rstrip("\n").split("\n")


def _line(number: int, raw: str, process: str) -> LogLine:
    text = _REPEATED.sub("", _COLOUR.sub("", raw[: 2 * _LONGEST])[:_LONGEST].rstrip())
    level = ""
    for _ in range(8):
        if match := _PROCESS.match(text):
            process = match[1] or match[2]
            text = text[match.end() :]
        elif match := _LEVEL.match(text):
            level = level or match[0].partition(" ")[0].rstrip(":")
            text = text[match.end() :]
        elif not level and (match := _OF_COLLECTORS.match(text)):
            text = text[match.end() :]
        else:
            break
    if not level and (match := _NOTE.match(text)):
        level = "WARNING" if match["letter"] == "W" else "INFO"
    if quoted := _QUOTES.match(text):
        text = f"{quoted[1] or quoted[2]} ***"
    elif " HTTP/" in text:
        text = _ASKED.sub(r"\1***", text)
    return LogLine(number, process, masked(text), level)
