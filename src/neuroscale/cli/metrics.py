"""`neuroscale metrics`."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from neuroscale.catalog.settings import Prometheus as Configured
from neuroscale.catalog.settings import Settings
from neuroscale.cli.clusters import Where, open_cluster, question
from neuroscale.cli.context import open_repository
from neuroscale.cluster.metrics import reach
from neuroscale.cluster.metrics.chart import BLOCKS, Gap, chart
from neuroscale.cluster.metrics.prometheus import Prometheus
from neuroscale.cluster.metrics.service_metrics import (
    Quantile,
    Row,
    ServiceMetrics,
    Unit,
    Value,
    namespaces,
    read,
    unseen,
)
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.printable import terminal

_SINCE = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LEAST, _MOST = 60, 30 * 86400
# Of a chart: the most that fit beside what else stands in a line.
_COLUMNS = (60, 45, 30, 20)
_BESIDE = 60


@dataclass(frozen=True)
class Asked:
    """What is asked: a service (`ENVIRONMENT/SERVICE`, or its name alone), and since when (`15m`)."""

    service: str
    environment: str = ""
    namespace: str = ""
    since: str = "15m"


def show_metrics(asked: Asked, where: Where, url: str, repository: Path | None, *, as_json: bool) -> int:
    """Print what Prometheus knows of a service. Exit status 0 only where it answers and the newest sample is fresh.

    `url`: of Prometheus ("": the one of the cluster). Raises InputError, PrometheusError, KubernetesError.
    """
    context = open_repository(repository)
    named = question(asked.service, asked.environment, context)
    service = named.name
    if not service:
        raise InputError(Problem("the command line", "SERVICE", "names no service", "Name it, or ENVIRONMENT/SERVICE."))
    since = _seconds(asked.since)
    with _prometheus(named.environment, where, url, context.settings) as prometheus:
        at = prometheus.now()
        seen = namespaces(prometheus, service, at, since)
        if asked.namespace:
            seen = [name for name in seen if name == asked.namespace]
        if len(seen) > 1:
            message = f"{service!r} is in several namespaces: {', '.join(seen)}"
            raise InputError(Problem("the command line", "SERVICE", message, "Name one with --namespace."))
        if seen:
            found, told = read(prometheus, seen[0], service, at, since, _columns()), ""
        else:
            found, told = None, unseen(prometheus, service, at, since)
        place = prometheus.place
    if as_json:
        typer.echo(json.dumps(_record(found, service, told, place), indent=2))
    elif found is None:
        inside = f" in the namespace {asked.namespace}" if asked.namespace else ""
        typer.echo(terminal(f"{service}{inside}: no data of the last {_span(since)}. {told}", 2000))
    else:
        _print(found, place)
    return ExitStatus.PASSED if found is not None and found.fresh else ExitStatus.FINDINGS


# ---------------------------------------------------------------------------------------------------- what is asked


def _seconds(text: str) -> float:
    found = _SINCE.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not _LEAST <= seconds <= _MOST:
        message = f"{text!r} is no time from 1m to 30d"
        raise InputError(Problem("the command line", "--since", message, "Write 15m, 90s, 6h or 2d."))
    return float(seconds)


@contextlib.contextmanager
def _prometheus(environment: str, where: Where, url: str, settings: Settings) -> Iterator[Prometheus]:
    named = [
        option
        for option, value in (
            (reach.OPTION, url),
            ("--state", where.state),
            ("--context", where.context or where.kubeconfig),
        )
        if value
    ]
    if len(named) > 1:
        message = f"{' and '.join(named)} name more than one Prometheus"
        raise InputError(Problem("the command line", named[0], message, "Give one of them."))
    if url:
        with reach.by_address(url) as prometheus:
            yield prometheus
    elif where.state is not None:
        from neuroscale.local.prometheus import address_in

        with reach.by_address(address_in(where.state)) as prometheus:
            yield prometheus
    else:
        environment, wanted = _configured(environment, settings)
        with open_cluster(where) as cluster, reach.in_cluster(cluster, wanted, environment) as prometheus:
            yield prometheus


def _configured(environment: str, settings: Settings) -> tuple[str, Configured]:
    """The environment whose Prometheus is asked, and where the settings say that it is."""
    if environment:
        return environment, settings.environments[environment].prometheus
    known = {name: one.prometheus for name, one in settings.environments.items() if one.cluster != "local"}
    if len(set(known.values())) > 1:
        message = "the environments have different Prometheus Services"
        raise InputError(Problem("the command line", "SERVICE", message, "Name the environment: ENVIRONMENT/SERVICE."))
    return next(iter(known.items()), (next(iter(settings.environments)), Configured()))


# ---------------------------------------------------------------------------------------------------- what is told


def _columns() -> int:
    width = shutil.get_terminal_size((120, 24)).columns
    return next((columns for columns in _COLUMNS if columns + _BESIDE <= width), _COLUMNS[-1])


def _record(found: ServiceMetrics | None, service: str, told: str, place: str) -> dict[str, Any]:
    if found is None:
        return {"schema_version": 1, "prometheus": place, "service": service, "answers": False, "reason": told}
    return {
        "schema_version": 1,
        "prometheus": place,
        "namespace": found.namespace,
        "service": found.service,
        "answers": found.fresh,
        "reason": _state(found),
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


def _print(found: ServiceMetrics, place: str) -> None:
    from rich.console import Console
    from rich.table import Table

    # Never cut off: what a narrow terminal wraps can still be read.
    console = Console(highlight=False, soft_wrap=True, markup=False, width=max(200, shutil.get_terminal_size().columns))
    console.print(terminal(f"{found.namespace}/{found.service}: {_state(found)}. Asked: {place}", 2000))
    for pod in found.pods:
        if not pod.answers:
            why = f": {pod.why}" if pod.why else ""
            told = f"{pod.name} on {pod.node or 'no node'} does not answer{why}"
            console.print(f"  {terminal(told)}")
    if found.counted is not None:
        counted = found.counted
        console.print(
            f"Counted since its servers started: {counted.requests:,.0f} requests, {counted.prompt_tokens:,.0f} tokens "
            f"in, {counted.generation_tokens:,.0f} tokens out"
        )
    if all(row.now is None and row.highest is None for row in found.rows):
        return  # a table of nothing tells nothing
    ascii_only = not _can_print(BLOCKS)
    span = _span(found.since)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "now", f"{span}", f"{span}, {_span(found.step)} a column", "highest"):
        table.add_column(title, justify="right" if title in ("now", span, "highest") else "left", no_wrap=True)
    for row in found.rows:
        table.add_row(
            row.title,
            _cell(row, row.now, found),
            _cell(row, row.whole, found),
            chart(row.points, ascii_only=ascii_only),
            _cell(row, row.highest, found),
        )
    console.print(table)
    for note in _notes(found, ascii_only=ascii_only):
        console.print(note)


def _state(found: ServiceMetrics) -> str:
    """How it is, in words; the first thing that a reader needs."""
    pods = len(found.pods)
    if not pods:
        told = "none of its pods is looked at any more"
    elif not found.answering:
        # A model that still loads was never up.
        told = "not up yet: " if found.age is None else "down: "
        told += "its pod does not answer" if pods == 1 else f"none of its {pods} pods answers"
    else:
        told = "its pod answers" if pods == 1 else f"{found.answering} of {pods} pods answer"
    if found.restarts is not None:
        times = "no restart" if not found.restarts else f"{found.restarts} restart{'s' if found.restarts > 1 else ''}"
        told += f", {times} within {_span(found.since)}"
    if found.age is None:
        return f"{told}, no data of its server yet"
    every = "" if found.interval is None else f" (one every {_span(found.interval)})"
    old = "" if found.fresh or not found.answering else "OLD: "
    return f"{told}, {old}newest sample {_span(found.age)} ago{every}"


def _notes(found: ServiceMetrics, *, ascii_only: bool) -> list[str]:
    points = [point for row in found.rows for point in row.points]
    idle = "~" if ascii_only else Gap.IDLE.value
    notes = [f"now: the last {_span(found.now)} for times and rates, the newest sample for the others"]
    if Gap.IDLE in points:
        notes.append(f"{idle} no request was measured in that time")
    if Gap.UNSEEN in points:
        notes.append("(blank) nothing was measured: the server did not answer, or was not looked at")
    quantiles = [
        value for row in found.rows for value in (row.now, row.whole, row.highest) if isinstance(value, Quantile)
    ]
    if any(value.above == 0 or value.up_to is None for value in quantiles):
        notes.append("< and >: below the first and above the last bound that the server counts with")
    return notes


def _cell(row: Row, value: Value | None, found: ServiceMetrics) -> str:
    if isinstance(value, Quantile):
        if value.up_to is None:
            return f"> {_text(value.above, row.unit)}"
        return f"< {_text(value.up_to, row.unit)}" if value.above == 0 else _text(value.seconds, row.unit)
    if value is not None:
        return _text(value, row.unit)
    return "no requests" if row.unit == "seconds" and found.answering and found.counted is not None else "no data"


def _text(value: float, unit: Unit) -> str:
    if unit == "seconds":
        return _span(value)
    if unit == "per second":
        return f"{_digits(value)}/s"
    if unit == "share":
        return f"{value:.1%}"
    return _digits(value)


def _span(seconds: float) -> str:
    """A time with three digits at most: `41 ms`, `1.23 s`, `15 min`, `6 h`."""
    if seconds < 0.9995:
        return f"{_digits(seconds * 1000)} ms"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and (seconds >= 10 * size or seconds % size == 0) and seconds != 60:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(value: float) -> str:
    """Three digits, and all of those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
