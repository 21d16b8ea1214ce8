"""Prints how accurate planning is in the terminal: one line for every case, wrong figures, and a summary by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from accuracy.comparison import FROM_HEADERS, Kind, Row, Summary, Tally, holds
from accuracy.reading import Cases
from neuroscale.core.printable import counted, terminal
from neuroscale.core.units import GIB
from neuroscale.report.plan_view import line

NAMES: dict[Kind, tuple[str, str]] = {
    "total_params": ("parameters", "10^9"),
    "active_params": ("active parameters", "10^9"),
    "checkpoint_bytes": ("checkpoint", "GiB"),
    "kv_bytes_per_token": ("bytes of a token", ""),
    "verdict": ("verdict", ""),
    "weights": ("weights", "GiB"),
    "kv_gib": ("KV cache", "GiB"),
    "kv_tokens": ("KV cache", "tokens"),
    "tokens_of_memory": ("tokens of the measured KV memory", "tokens"),
    "concurrency": ("requests at once", ""),
    "request_gib": ("one request", "GiB"),
    "max_context": ("longest context", "tokens"),
    "cudagraph": ("CUDA graphs", "GiB"),
}

OF_MODELS: tuple[Kind, ...] = ("total_params", "active_params", "checkpoint_bytes", "kv_bytes_per_token")
WITHOUT_ERROR: tuple[Kind, ...] = ("verdict", "kv_bytes_per_token")
"""Figures that are right or wrong, without an error in per cent."""

OF_STARTS: tuple[Kind, ...] = ("weights", "kv_gib", "kv_tokens", "tokens_of_memory")
"""The columns beside the verdict; other figures are in the summary, in --json and, with --only, in the table."""

_SCALES: dict[Kind, float] = {"total_params": 1e9, "active_params": 1e9, "checkpoint_bytes": GIB}
_STYLES = {
    "right": "",
    "shown": "",
    "wrong": "red",
    "explained": "yellow",
    "crashed": "bold red",
    "estimated": "yellow",
    "not judged": "yellow",
}


def print_accuracy(cases: Cases, rows: Sequence[Row], summaries: Sequence[Summary], console: Console) -> None:
    """Show a comparison to a person."""
    kinds = [summary.kind for summary in summaries]
    models = [kind for kind in OF_MODELS if kind in kinds]
    starts = [kind for kind in kinds if kind not in OF_MODELS]
    shown = [kind for kind in starts if kind == "verdict" or kind in OF_STARTS or len(starts) == 1]
    for title, of_part, columns in (("Models", models, models), ("Starts of vLLM", starts, shown)):
        if columns:
            _table(title, columns, [row for row in rows if row.kind in of_part], console)
    _open(rows, console)
    if starts:
        _left_out(cases, console)
    _summary(cases, summaries, console)
    if holds(rows):
        line(console, Text("Every aim holds.", "bold green"))
    else:
        missed = ", ".join(_name(summary.kind) for summary in summaries if not summary.good)
        line(console, Text(f"These aims do not hold: {missed}.", "bold red"))


def _table(title: str, kinds: Sequence[Kind], rows: Iterable[Row], console: Console) -> None:
    """One line a case; * marks a case that is held out. A case without any column's figure shows its others as text."""
    found: dict[str, dict[Kind, Row]] = defaultdict(dict)
    for row in rows:
        found[row.case][row.kind] = row
    tools = sorted({tool for of_case in found.values() for row in of_case.values() for tool in row.others})
    lines = [[Text(title, "bold"), *(cell for kind in kinds for cell in _head(kind)), *(Text(tool) for tool in tools)]]
    for case, of_case in found.items():
        star = "*" if next(iter(of_case.values())).held_out else ""
        cells = [cell for kind in kinds for cell in _cells(kind, of_case.get(kind))]
        lines.append([Text(f"{terminal(case)}{star}"), *cells, *(_others(tool, of_case) for tool in tools)])
        if not set(of_case) & set(kinds):
            lines[-1].append(Text("; ".join(_elsewhere(row) for row in of_case.values())))
    print_columns(lines, console)
    line(
        console,
        "* held out, a third of all by a hash of the name: shows whether figures were fitted to the rest",
        2,
    )
    if tools:
        line(
            console,
            "other tools: verdict, error of the weights, error of the KV cache's tokens; - if it has none",
            2,
        )


def _elsewhere(row: Row) -> str:
    measured, *rest = (cell.plain for cell in _cells(row.kind, row))
    return f"{_name(row.kind)} {measured} {NAMES[row.kind][1]}, ours {' '.join(rest)}".replace("  ", " ")


def _head(kind: Kind) -> list[Text]:
    if kind in WITHOUT_ERROR:
        return [Text(NAMES[kind][0]), Text("ours")]
    name, unit = NAMES[kind]
    return [Text(f"{'given KV, ' if kind == 'tokens_of_memory' else f'{name}, '}{unit}"), Text("ours"), Text("error")]


def _cells(kind: Kind, row: Row | None) -> list[Text]:
    if row is None:
        return [Text("")] * (2 if kind in WITHOUT_ERROR else 3)
    measured, style = _value(kind, row.measured), _STYLES[row.outcome]
    predicted = row.outcome if row.predicted is None else _value(kind, row.predicted)
    cells = [Text(measured), Text(predicted, style)]
    if kind not in WITHOUT_ERROR:
        cells.append(Text(_percent(row.error), style))
    return cells


def _others(tool: str, of_case: dict[Kind, Row]) -> Text:
    parts = []
    for kind in ("verdict", "weights", "kv_tokens"):
        said = row.others.get(tool) if (row := of_case.get(kind)) else None
        if said is None or said.value is None:
            parts.append("-")
        else:
            parts.append(str(said.value) if kind == "verdict" else _percent(said.error))
    return Text(" ".join(parts) if any(part != "-" for part in parts) else "-")


def _open(rows: Sequence[Row], console: Console) -> None:
    """Every figure that misses its aim, with planning's reasons."""
    found = [row for row in rows if row.outcome not in ("right", "shown")]
    if not found:
        return
    line(console, Text("Not right", "bold"))
    for row in found:
        what = f"{terminal(row.case)}, {_name(row.kind)}: "
        told = (
            "" if row.predicted is None else f" {_value(row.kind, row.predicted)} for {_value(row.kind, row.measured)}"
        )
        allowed = " (may be)" if row.good and row.outcome != "explained" else ""
        told_why = row.reason or row.words
        words = f": {terminal(told_why, 300)}" if told_why else ""
        line(console, Text.assemble(what, (f"{row.outcome}{allowed}{told}", _STYLES[row.outcome]), words), 2)


def _left_out(cases: Cases, console: Console) -> None:
    reasons: dict[str, list[str]] = defaultdict(list)
    for case in cases.starts:
        if case.left_out is not None:
            reasons[case.left_out].append(case.id)
    if not reasons:
        return
    line(console, Text("Left out", "bold"))
    for reason, names in sorted(reasons.items(), key=lambda entry: -len(entry[1])):
        line(console, f"{counted(len(names), 'case')}, {terminal(reason)}: {terminal(', '.join(names), 4000)}", 2)


def _summary(cases: Cases, summaries: Sequence[Summary], console: Console) -> None:
    head = ["Summary", "aim", "rows", "right", "other outcomes", "median", "held out", "rest", "worst", ""]
    lines = [[Text(head[0], "bold"), *(Text(word) for word in head[1:])]]
    for each in summaries:
        open_ = ", ".join(f"{count} {name}" for name, count in each.outcomes.items() if name not in ("right", "shown"))
        lines.append(
            [
                Text(_name(each.kind)),
                Text(_aim(each)),
                Text(str(each.rows)),
                Text("" if each.all.right is None else str(each.all.right), "green" if each.good else "red"),
                Text(open_, "" if each.good else "red"),
                *(Text(_percent(tally.median, signed=False)) for tally in (each.all, each.held_out, each.rest)),
                Text(_percent(each.all.worst, signed=False)),
                Text(terminal(each.all.worst_case)),
            ]
        )
        lines += [_of_tool(tool, tally) for tool, tally in each.others.items()]
    print_columns(lines, console)
    shown = {tool for each in summaries for tool in each.others}
    for tool in cases.others.tools:
        if tool.name not in shown:
            continue
        line(
            console,
            f"{terminal(tool.name)} {terminal(tool.version)}, asked {tool.asked}: {terminal(tool.how, 1000)}",
            2,
        )


def _of_tool(tool: str, tally: Tally) -> list[Text]:
    return [
        Text(f"  {terminal(tool)}"),
        Text(""),
        Text(str(tally.answered)),
        Text("" if tally.right is None else str(tally.right)),
        Text(""),
        Text(_percent(tally.median, signed=False)),
        *(Text(""), Text("")),
        Text(_percent(tally.worst, signed=False)),
        Text(terminal(tally.worst_case)),
    ]


def print_columns(lines: Sequence[Sequence[Text]], console: Console) -> None:
    """Columns as wide as their cells: names to the left, and cells that start with a figure to the right."""
    widths = [max(row[column].cell_len for row in lines) for column in range(len(lines[0]))] + [0]
    for row in lines:
        text = Text()
        for column, cell in enumerate(row):
            pad = " " * max(0, widths[column] - cell.cell_len)
            right = cell.plain[:1] in "+-0123456789" and cell.plain != ""
            text.append_text(Text.assemble(pad, cell) if right else Text.assemble(cell, pad)).append("  ")
        text.rstrip()
        line(console, text)


def _name(kind: Kind) -> str:
    name, unit = NAMES[kind]
    return f"{name} in {unit}" if name == "KV cache" else name


def _aim(summary: Summary) -> str:
    if summary.aim is None:
        return "shown"
    headers = FROM_HEADERS.get(summary.kind)
    share = "all" if summary.kind in WITHOUT_ERROR else f"{summary.aim:.0%}"
    return share if headers is None else f"{share} ({headers:.0%} from headers)"


def _value(kind: Kind, value: float | str) -> str:
    if isinstance(value, str):
        return terminal(value)
    value = value / _SCALES.get(kind, 1.0)
    if NAMES[kind][1] == "tokens":
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def _percent(share: float | None, *, signed: bool = True) -> str:
    if share is None:
        return ""
    return f"{share:+.1%}" if signed else f"{share:.2%}"
