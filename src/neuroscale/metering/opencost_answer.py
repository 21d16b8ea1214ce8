"""Reads OpenCost's JSON. It refuses answers that lack a number, or that are about another window."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.json_text import read_object
from neuroscale.core.printable import one_line
from neuroscale.core.units import GIB
from neuroscale.metering.allocation import LABELS, Kind, Metered, Place
from neuroscale.metering.window import Window

AGGREGATE: Final = ",".join(("cluster", "namespace", *(f"label:{label}" for label in LABELS)))
"""The keys of a row in an answer. OpenCost joins their values with slashes, which no label or namespace contains."""

_PARTS = 2 + len(LABELS)
_PARTS_OF_TOTAL = ("gpuCost", "cpuCost", "ramCost")
_ROUNDING = Decimal("1e-6")
_IDLE, _UNALLOCATED, _UNMOUNTED = "__idle__", "__unallocated__", "__unmounted__"


class OpenCostError(NeuroscaleError):
    """OpenCost does not answer, refuses, or gives an unusable answer; the message says where, and what to do.

    `again`: whether the same question may succeed a moment later.
    """

    def __init__(self, message: str, *, again: bool = False) -> None:
        self.again = again
        super().__init__(message)


def read_answer(body: bytes, status: int, place: str, window: Window) -> tuple[list[Metered], str]:
    """OpenCost's costs of one step of a window, and its warning ("" if it gives none).

    The list is empty if OpenCost has no data of that time. Raises OpenCostError for any other answer that is not
    complete.
    """
    data, warning = read_data(body, status, place, window)
    return _rows(data, f"OpenCost at {place}", window), warning


def read_data(body: bytes, status: int, place: str, window: Window) -> tuple[Any, str]:
    """The `data` of OpenCost's envelope, and its warning ("" if it gives none). Numbers are decimals.

    `status`: the HTTP status; an error can also be a `code` inside an answer with the status 200. Raises OpenCostError.
    """
    who = f"OpenCost at {place}"
    try:
        envelope = read_object(body, Decimal) or {}
    except ValueError:
        if status >= 400:
            message = one_line(body[:400].decode("utf-8", "replace"), 200) or "nothing"
            raise OpenCostError(f"{who} answers {status} and says: {message}. {_ADVICE}", again=status >= 500) from None
        raise OpenCostError(
            f"{who} answers about {window} with something that is not complete JSON, so no figure of it can be used. "
            "Ask again; if it stays, see OpenCost's log and what lies between it and here.",
            again=True,
        ) from None
    if "code" not in envelope:
        raise OpenCostError(
            f"{who} answers {status}, and not as OpenCost does. "
            "Name the address below which /allocation/compute answers, such as http://127.0.0.1:9003."
        )
    code = envelope["code"]
    if status >= 400 or code != 200:
        shown = status if status >= 400 else code
        message = one_line(str(envelope.get("message") or "nothing"), 300).removesuffix(".")
        temporary = status >= 500 or (isinstance(code, Decimal) and code >= 500)
        raise OpenCostError(f"{who} answers {shown} about {window} and says: {message}. {_ADVICE}", again=temporary)
    return envelope.get("data"), one_line(str(envelope.get("warning") or ""), 300)


_ADVICE = "See OpenCost's log, and whether its Prometheus answers."


def _rows(data: Any, who: str, window: Window) -> list[Metered]:
    if not isinstance(data, list) or len(data) > 1 or not all(step is None or isinstance(step, dict) for step in data):
        raise OpenCostError(f"{who} answers about {window} with another list of times than one. Is it OpenCost 1.108?")
    rows = [] if not data or data[0] is None else list(data[0].items())
    return [_row(str(name), row, who, window) for name, row in rows]


def _row(name: str, row: Any, who: str, window: Window) -> Metered:
    shown = one_line(name, 120)
    if not isinstance(row, dict):
        raise OpenCostError(f"{who} names {shown!r} in {window} without its costs, so the bill cannot be added up.")
    check_time(row.get("window"), shown, who, window)

    def amount(field: str) -> Decimal:
        return number(row, field, shown, who, window)

    kind, place = _place(name, who)
    total = amount("totalCost")
    # What is idle is a difference, so its parts may have different signs: virtual GPUs are charged for more than the
    # node has of them. Source: https://github.com/kubecost/kubecost/issues/1978
    for part in () if kind == "idle" else _PARTS_OF_TOTAL:
        if amount(part) > total + _ROUNDING * max(abs(total), Decimal(1)):
            raise OpenCostError(
                f"{who} gives {shown!r} in {window} a {part} of {amount(part)}, above its totalCost of {total}, so "
                "the bill cannot be divided. Compare its prices and their adjustments, or choose another window."
            )
    start, end = _moment(row.get("start")), _moment(row.get("end"))
    return Metered(
        kind=kind,
        place=place,
        total=total,
        gpu=amount("gpuCost"),
        cpu=amount("cpuCost"),
        memory=amount("ramCost"),
        gpu_hours=amount("gpuHours"),
        cpu_core_hours=amount("cpuCoreHours"),
        hours=amount("minutes") / 60,
        start=start,
        end=end,
        memory_gib_hours=amount("ramByteHours") / GIB,
        spans=() if start is None or end is None else ((start, end),),
    )


def number(row: Any, field: str, shown: str, who: str, window: Window) -> Decimal:
    """The number in a field of a row. Raises OpenCostError if there is none."""
    value = row.get(field)
    if not isinstance(value, Decimal) or not value.is_finite():
        raise OpenCostError(
            f"{who} gives no number as {field} of {shown!r} in {window} (OpenCost writes null for what it could "
            "not compute), so the bill cannot be added up. Choose a window without that time, or see OpenCost's "
            "log for the price that it lacks."
        )
    return value


def _place(name: str, who: str) -> tuple[Kind, Place]:
    parts = name.split("/")
    if _IDLE in parts:
        return "idle", Place(cluster=parts[0] if parts[0] != _IDLE else "")
    if _UNMOUNTED in parts:
        return "unmounted", Place()
    if parts == [_UNALLOCATED]:
        return "pods", Place()
    if len(parts) < _PARTS:
        raise OpenCostError(
            f"{who} divided its costs by other labels than it was asked for: {one_line(name, 120)!r} is not one value "
            f"for each of {AGGREGATE}. It leaves out a label that it does not know without a word."
        )
    # The cluster's name comes first, and may itself contain a slash.
    tail = ["" if part == _UNALLOCATED else part for part in parts[-_PARTS + 1 :]]
    return "pods", Place("/".join(parts[: -_PARTS + 1]), *tail)


def check_time(window_of_row: Any, shown: str, who: str, window: Window) -> None:
    """Raises OpenCostError if the window in an answer is another one than was asked about."""
    if not isinstance(window_of_row, dict):
        return
    start, end = _moment(window_of_row.get("start")), _moment(window_of_row.get("end"))
    if (start is not None and start != window.start) or (end is not None and end != window.end):
        raise OpenCostError(f"{who} was asked about {window} and answers about another time in {shown!r}.")


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    # OpenCost writes the first day of the year 1 for a time that it does not know.
    return moment if moment.tzinfo is not None and moment.year > 1 else None
