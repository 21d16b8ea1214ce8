"""Shows how accurate planning's speeds are: medians against the aims, beside other planners, by class, and orders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from accuracy.speed_cases import SpeedCases
from accuracy.speed_comparison import (
    AIM_OF_ORDER,
    KINDS,
    Errors,
    Order,
    Part,
    SpeedKind,
    SpeedRow,
    between_versions,
    by,
    floor,
    orders,
    pairs,
    parts,
    speed_holds,
)
from accuracy.speed_others import SpeedOthers
from accuracy.view import print_columns
from neuroscale.core.printable import counted, terminal
from neuroscale.report.plan_view import line

NAMES: dict[SpeedKind, str] = {
    "inter_token": "inter-token time",
    "throughput": "tokens a second",
    "ttft": "TTFT",
    "ttft_p95": "TTFT p95",
}


def print_speed(cases: SpeedCases, rows: Sequence[SpeedRow], others: SpeedOthers, console: Console) -> bool:
    """Show a comparison to a person; returns whether every aim holds."""
    found, ordered = parts(rows), orders(pairs(rows))
    _summary(found, rows, console)
    _split("Coverage", by(rows, lambda row: row.coverage), console)
    _split("Held out", by((row for row in rows if row.held_out), lambda row: row.group), console)
    _split("Not held out", by((row for row in rows if not row.held_out), lambda row: row.group), console)
    _order(ordered, console)
    _left_out(cases, console)
    for tool in others.tools:
        line(console, f"{terminal(tool.name)} {terminal(tool.version)}, asked {tool.asked}: {terminal(tool.how, 1000)}")
    holds = speed_holds(found, ordered)
    if holds:
        line(console, Text("Every aim holds.", "bold green"))
    else:
        missed = [f"{NAMES[part.kind]} ({part.name})" for part in found if not part.holds]
        missed += [f"order by {NAMES[order.kind]} ({order.name})" for order in ordered if not order.holds]
        line(console, Text(f"These aims do not hold: {', '.join(missed) or 'nothing was compared'}.", "bold red"))
    return holds


def _summary(found: Sequence[Part], rows: Sequence[SpeedRow], console: Console) -> None:
    head = ("Speed", "rows", "aim", "answered", "median", "9 of 10", "in the band", "beside")
    lines = [[Text(head[0], "bold"), *(Text(word) for word in head[1:])]]
    for part in found:
        told = part.errors
        lines.append(
            [
                Text(f"{NAMES[part.kind]}, {part.name}"),
                Text(str(told.rows)),
                Text("" if part.aim is None else f"{part.aim:.0%}"),
                Text(str(told.answered)),
                Text(_share(told.median), "green" if part.holds else "red"),
                Text(_share(told.ninth)),
                Text(_share(told.in_band)),
                Text("; ".join(_beside(tool, *both) for tool, both in part.others.items())),
            ]
        )
    print_columns(lines, console)
    line(console, "errors as shares of the measured value: the median, and what nine of ten rows do not exceed", 2)
    for what, differ in (
        ("two measurements of the same cell", floor(rows)),
        ("the same cell with two versions of vLLM", between_versions(rows)),
    ):
        if differ:
            twice = [f"{NAMES[kind]} {_share(told.median)} ({told.rows})" for kind, told in differ.items()]
            line(console, f"{what}: they differ by, in the median, {', '.join(twice)}", 2)
    line(console, "beside: another tool's median on the rows that it answers, and ours on the same rows", 2)


def _beside(tool: str, theirs: Errors, ours: Errors) -> str:
    return f"{tool} {_share(theirs.median)} of {theirs.answered}, ours {_share(ours.median)}"


def _split(title: str, found: Mapping[str, Mapping[SpeedKind, Errors]], console: Console) -> None:
    lines = [[Text(title, "bold"), *(Text(NAMES[kind]) for kind in KINDS)]]
    lines += [[Text(terminal(name)), *(_cell(kinds.get(kind)) for kind in KINDS)] for name, kinds in found.items()]
    print_columns(lines, console)


def _cell(told: Errors | None) -> Text:
    return Text("" if told is None else f"{_share(told.median)} of {told.rows}")


def _order(ordered: Iterable[Order], console: Console) -> None:
    head = ("Right order of two", "aim", "decided", "right", "", "abstains", "of these right")
    lines = [[Text(head[0], "bold"), *(Text(word) for word in head[1:])]]
    for order in ordered:
        lines.append(
            [
                Text(f"{NAMES[order.kind]}, {order.name}"),
                Text(f"{AIM_OF_ORDER:.0%}"),
                Text(str(order.decided)),
                Text(str(order.right)),
                Text(_share(order.share), "green" if order.holds else "red"),
                Text(str(order.abstained)),
                Text(str(order.abstained_right)),
            ]
        )
    print_columns(lines, console)


def _left_out(cases: SpeedCases, console: Console) -> None:
    reasons: dict[str, int] = {}
    for series in cases.series:
        if series.left_out is not None:
            reasons[series.left_out] = reasons.get(series.left_out, 0) + len(series.rows)
    for reason, count in reasons.items():
        line(console, f"Left out: {counted(count, 'row')}, {terminal(reason, 600)}")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def as_mapping(cases: SpeedCases, rows: Sequence[SpeedRow], others: SpeedOthers) -> dict[str, Any]:
    """The comparison for programs. Errors are shares of the measured values; times are seconds."""
    found, compared = parts(rows), pairs(rows)
    ordered = orders(compared)
    return {
        "schema_version": 1,
        "holds": speed_holds(found, ordered),
        "summary": [
            {
                "kind": part.kind,
                "part": part.name,
                "aim": part.aim,
                "holds": part.holds,
                **_errors(part.errors),
                "others": {
                    tool: {"theirs": _errors(theirs), "ours": _errors(ours)}
                    for tool, (theirs, ours) in part.others.items()
                },
            }
            for part in found
        ],
        "classes": _classes(by(rows, lambda row: row.group)),
        "floor": {kind: _errors(told) for kind, told in floor(rows).items()},
        "between_versions": {kind: _errors(told) for kind, told in between_versions(rows).items()},
        "coverage": _classes(by(rows, lambda row: row.coverage)),
        "order": [
            {
                "kind": order.kind,
                "part": order.name,
                "aim": AIM_OF_ORDER,
                "holds": order.holds,
                "decided": order.decided,
                "right": order.right,
                "abstained": order.abstained,
                "abstained_right": order.abstained_right,
            }
            for order in ordered
        ],
        "wrong_order": [[pair.kind, *pair.names] for pair in compared if not pair.right and not pair.abstains],
        "rows": [_row(row) for row in rows],
        "left_out": {series.id: series.left_out for series in cases.series if series.left_out is not None},
        "tools": [tool.model_dump(mode="json") for tool in others.tools],
    }


def _classes(found: Mapping[str, Mapping[SpeedKind, Errors]]) -> dict[str, Any]:
    return {name: {kind: _errors(told) for kind, told in kinds.items()} for name, kinds in found.items()}


def _errors(told: Errors) -> dict[str, Any]:
    return {
        "rows": told.rows,
        "answered": told.answered,
        "median": _rounded(told.median),
        "ninth": _rounded(told.ninth),
        "in_band": _rounded(told.in_band),
    }


def _row(row: SpeedRow) -> dict[str, Any]:
    asked, ours = row.measurement, row.predicted
    return {
        "series": asked.series.id,
        "case": asked.name,
        "kind": row.kind,
        "measured": row.measured,
        "derived": row.derived,
        "predicted": None if ours is None else {"value": ours.value, "low": ours.low, "high": ours.high},
        "error": _rounded(row.error),
        "coverage": row.coverage,
        "held_out": row.held_out,
        "class": row.group,
        "others": dict(row.others),
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
