"""Shows a service's latency, tokens, queue and cache: as a table for people, and as a mapping for programs."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import Any

from neuroscale.cluster.metrics.line_chart import BLOCKS, Gap, chart
from neuroscale.cluster.metrics.service_metrics import Quantile, Row, ServiceMetrics, Unit, Value
from neuroscale.core.money_and_time import duration, pace
from neuroscale.core.printable import counted, terminal

# The most columns of a chart that fit beside the other text of a line.
_COLUMNS = (60, 45, 30, 20)
_BESIDE = 60


def chart_columns() -> int:
    """How many columns of a chart fit into the terminal beside the other text of a line."""
    width = shutil.get_terminal_size((120, 24)).columns
    return next((columns for columns in _COLUMNS if columns + _BESIDE <= width), _COLUMNS[-1])


def record(found: ServiceMetrics | None, service: str, told: str, place: str) -> dict[str, Any]:
    """A service's metrics, for programs; if there are none (None), `told` says why."""
    if found is None:
        return {"schema_version": 1, "prometheus": place, "service": service, "answers": False, "reason": told}
    return {
        "schema_version": 1,
        "prometheus": place,
        "namespace": found.namespace,
        "service": found.service,
        "answers": found.fresh,
        "reason": state_of(found),
        "at": datetime.fromtimestamp(found.at, UTC).isoformat(timespec="milliseconds"),
        "since_seconds": found.since,
        "step_seconds": found.step,
        "now_seconds": found.now,
        "scrape_interval_seconds": found.interval,
        "newest_sample_age_seconds": found.age,
        "pods": [{"name": pod.name, "node": pod.node, "answers": pod.answers, "why": pod.why} for pod in found.pods],
        "restarts": found.restarts,
        "counted": None
        if found.counted is None
        else {
            "requests": found.counted.requests,
            "prompt_tokens": found.counted.prompt_tokens,
            "generation_tokens": found.counted.generation_tokens,
        },
        "rows": [
            {
                "name": row.name,
                "unit": row.unit,
                "now": _value(row.now),
                "whole": _value(row.whole),
                "highest": _value(row.highest),
                "points": [point.name.lower() if isinstance(point, Gap) else point for point in row.points],
            }
            for row in found.rows
        ],
    }


def _value(value: Value | None) -> Any:
    if isinstance(value, Quantile):
        return {"seconds": value.seconds, "above": value.above, "up_to": value.up_to}
    return value


def print_metrics(found: ServiceMetrics, place: str) -> None:
    """Print a service's metrics as a table, with a chart for each row."""
    from rich.console import Console
    from rich.table import Table

    # Never cut off: text that a narrow terminal wraps can still be read.
    console = Console(highlight=False, soft_wrap=True, markup=False, width=max(200, shutil.get_terminal_size().columns))
    console.print(terminal(f"{found.namespace}/{found.service}: {state_of(found)}. Asked: {place}", 2000))
    for pod in found.pods:
        if not pod.answers:
            why = f": {pod.why}" if pod.why else ""
            told = f"{pod.name} on {pod.node or 'no node'} does not answer{why}"
            console.print(f"  {terminal(told)}")
    if found.counted is not None:
        total = found.counted
        console.print(
            f"Counted since its servers started: {counted(round(total.requests), 'request')}, "
            f"{counted(round(total.prompt_tokens), 'token')} in, {counted(round(total.generation_tokens), 'token')} out"
        )
    if all(row.now is None and row.highest is None for row in found.rows):
        return  # an empty table would not help
    ascii_only = not _can_print(BLOCKS)
    span = duration(found.since)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "now", f"{span}", f"{span}, {duration(found.step)} a column", "highest"):
        table.add_column(title, justify="right" if title in ("now", span, "highest") else "left", no_wrap=True)
    for row in found.rows:
        table.add_row(
            row.title,
            cell(row, row.now, found),
            cell(row, row.whole, found),
            chart(row.points, ascii_only=ascii_only),
            cell(row, row.highest, found),
        )
    console.print(table)
    for note in _notes(found, ascii_only=ascii_only):
        console.print(note)


def state_of(found: ServiceMetrics) -> str:
    """The service's state in words, which a reader needs first."""
    pods = len(found.pods)
    if not pods:
        told = "Prometheus no longer scrapes any of its pods"
    elif not found.answering:
        # A model that still loads has never been up.
        told = "not up yet: " if found.age is None else "down: "
        told += "its pod does not answer" if pods == 1 else f"none of its {counted(pods, 'pod')} answers"
    else:
        told = "its pod answers" if pods == 1 else f"{found.answering} of {counted(pods, 'pod')} answer"
    if found.restarts is not None:
        times = counted(found.restarts, "restart") if found.restarts else "no restart"
        told += f", {times} within {duration(found.since)}"
    if found.age is None:
        return f"{told}, no data of its server yet"
    every = "" if found.interval is None else f" (one every {duration(found.interval)})"
    old = "" if found.fresh or not found.answering else "OLD: "
    return f"{told}, {old}newest sample {duration(found.age)} ago{every}"


def _notes(found: ServiceMetrics, *, ascii_only: bool) -> list[str]:
    points = [point for row in found.rows for point in row.points]
    idle = "~" if ascii_only else Gap.IDLE.value
    notes = [f"now: the last {duration(found.now)} for times and rates, the newest sample for the others"]
    if Gap.IDLE in points:
        notes.append(f"{idle} no request was measured in that time")
    if Gap.UNSEEN in points:
        notes.append("(blank) nothing was measured: the server did not answer, or was not scraped")
    quantiles = [
        value for row in found.rows for value in (row.now, row.whole, row.highest) if isinstance(value, Quantile)
    ]
    if any(value.above == 0 or value.up_to is None for value in quantiles):
        notes.append("< and >: below the first and above the last bound that the server counts with")
    return notes


def cell(row: Row, value: Value | None, found: ServiceMetrics) -> str:
    if isinstance(value, Quantile):
        if value.up_to is None:
            return f"> {_text(value.above, row.unit)}"
        return f"< {_text(value.up_to, row.unit)}" if value.above == 0 else _text(value.seconds, row.unit)
    if value is not None:
        return _text(value, row.unit)
    return "no requests" if row.unit == "seconds" and found.answering and found.counted is not None else "no data"


def _text(value: float, unit: Unit) -> str:
    if unit == "seconds":
        return duration(value)
    if unit == "per second":
        return f"{pace(value)}/s"
    if unit == "share":
        return f"{value:.1%}"
    return pace(value)


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
