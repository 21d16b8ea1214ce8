"""Says what a change alters, in the lines that both the comment and the terminal show.

`name` and `prose` are the escaping functions of the calling report, as in `phrases`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from neuroscale.core.printable import counted
from neuroscale.gate.verdict import Alterations, ChangedFile, ChangedValue, Finding
from neuroscale.planning.plan_facts import Escape
from neuroscale.report.phrases import side
from neuroscale.report.summary import FINDINGS_SHOWN

_PATHS = 6  # of one kind that are named


def review_line(altered: Alterations | None, prose: Escape) -> str:
    """The files that a person must look at, in one sentence; "" if there are none."""
    kinds = [counted(kind.count, prose(kind.kind)) for kind in altered.files if kind.review] if altered else []
    if altered is None or not kinds:
        return ""
    protected = sum(kind.protected for kind in altered.files)
    owners = f", {protected:,} of them for owners alone" if protected else ""
    return f"Beside services, the change touches {', '.join(kinds)}{owners}."


def alert(finding: Finding, name: Escape, prose: Escape) -> str:
    """A notice that a reviewer must see first, on one line."""
    subject = f" · {name(finding.subject)}" if finding.subject else ""
    return f"{prose(finding.rule.replace('-', ' '))} · {name(finding.file)}{subject} · {prose(finding.message)}"


def alerts(found: Sequence[Finding], name: Escape, prose: Escape, room: int) -> list[str]:
    """A row for each notice in at most `room` bytes; the last names the kinds of the others, so that none is hidden."""
    rows: list[str] = []
    for number, one in enumerate(found[:FINDINGS_SHOWN], 1):
        row = f"- {alert(one, name, prose)}"
        room -= len(row.encode()) + 1
        if room < (len(rest(found[number:], prose).encode()) + 2 if number < len(found) else 0):
            break
        rows.append(row)
    left = found[len(rows) :]
    return [*rows, f"- {rest(left, prose)}"] if left else rows


def rest(alerts: Sequence[Finding], prose: Escape) -> str:
    """`and 3 more notices, see the JSON report: 2 changed source, 1 raised budget`: those without a line."""
    kinds = Counter(one.rule.replace("-", " ") for one in alerts)
    named = prose(", ".join(f"{count:,} {kind}" for kind, count in kinds.items()))
    return f"and {counted(len(alerts), 'more notice')}, see the JSON report: {named}"


def total(altered: Alterations) -> str:
    """`3 files, 12 values`."""
    files = counted(sum(kind.count for kind in altered.files), "file")
    values = len(altered.values) + altered.left_out
    return f"{files}, {counted(values, 'value')}" if values else files


def count_of_rows(altered: Alterations) -> int:
    """How many rows `rows` would give if the verdict listed every value."""
    return len(altered.files) + len(altered.values) + altered.left_out


def rows(altered: Alterations, name: Escape, prose: Escape) -> Iterator[str]:
    """A row for each kind of file, and one for each value."""
    for kind in altered.files:
        paths = ", ".join(_file(file, name) for file in kind.files[:_PATHS])
        more = f" and {kind.count - _PATHS:,} more" if kind.count > _PATHS else ""
        yield f"{counted(kind.count, prose(kind.kind))} · {paths}{more}"
    for value in altered.values:
        yield _value(value, name)


def _file(file: ChangedFile, name: Escape) -> str:
    return name(file.path) if file.change == "changed" else f"{name(file.path)} ({file.change})"


def _value(value: ChangedValue, name: Escape) -> str:
    place = " ".join(name(part) for part in (value.file, value.subject, value.field) if part)
    return f"{place}: {side(value.before, name)} → {side(value.after, name)}"
