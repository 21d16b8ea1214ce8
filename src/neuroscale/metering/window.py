"""Reads the time window of a showback, and cuts it into steps that OpenCost answers without a time-out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from neuroscale.core.errors import InputError

OPTION = "--window"
STEP = timedelta(days=1)
"""The longest time in one question: OpenCost reads all its samples from Prometheus at once."""

_LAST = re.compile(r"([1-9][0-9]{0,4})(m|h|d|w)")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LONGEST = timedelta(days=366)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIX = "Write 24h, 7d, a day (2026-11-01), days (2026-11-01..2026-11-07), a month (2026-11), month or lastmonth."


@dataclass(frozen=True)
class Window:
    """The time from `start` until `end` (not included), in UTC, in whole minutes."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        return f"{_written(self.start)} to {_written(self.end)} UTC"

    @property
    def hours(self) -> float:
        """The length in hours."""
        return (self.end - self.start) / timedelta(hours=1)

    @property
    def parameter(self) -> str:
        """The value of OpenCost's `window`: two times, so that OpenCost does not round to whole days."""
        return f"{self.start:%Y-%m-%dT%H:%M:%SZ},{self.end:%Y-%m-%dT%H:%M:%SZ}"

    def without(self, others: Iterable[Window]) -> Iterator[Window]:
        """What is left of the window without the others, which are in order and do not overlap."""
        start = self.start
        for one in others:
            if one.start > start:
                yield Window(start, min(one.start, self.end))
            start = max(start, one.end)
        if start < self.end:
            yield Window(start, self.end)

    def within(self, other: Window) -> Window:
        """The part of the window that lies in the other one; it is empty if there is none."""
        start = max(self.start, other.start)
        return Window(start, max(start, min(self.end, other.end)))

    def on_grid(self, step: timedelta) -> Window:
        """The window whose bounds are moved back to multiples of `step`, at which OpenCost looks; it may be empty."""
        return Window(*(one - (one - _EPOCH) % step for one in (self.start, self.end)))

    def steps(self, cuts: Iterable[datetime] = ()) -> Iterator[Window]:
        """The window in pieces of at most a day, which end at midnight, at the `cuts`, or with the window."""
        left = sorted(cuts)
        start = self.start
        while start < self.end:
            midnight = start.replace(hour=0, minute=0) + STEP
            end = min([midnight, self.end, *(one for one in left if one > start)])
            yield Window(start, end)
            start = end


def joined(windows: Iterable[Window]) -> tuple[Window, ...]:
    """The windows, which are in order, with adjacent ones joined."""
    found: list[Window] = []
    for one in windows:
        if found and found[-1].end == one.start:
            found[-1] = Window(found[-1].start, one.end)
        else:
            found.append(one)
    return tuple(found)


def read_window(text: str, now: datetime) -> Window:
    """The window that `text` names; `now` is the latest time that can be metered.

    A length (24h, 7d) ends at `now`. A window that lies partly in the future is cut off at `now`. Raises InputError if
    `text` does not name a time, or names a time after now, or more than 366 days.
    """
    now = now.astimezone(UTC).replace(second=0, microsecond=0)
    try:
        found = _named(text, now)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise InputError.at("the command line", OPTION, f"{text!r} names no time", _FIX)
    start, end = found
    if start >= now:
        raise InputError.at("the command line", OPTION, f"{text!r} begins after now", _FIX)
    end = min(end, now)
    if end <= start:
        raise InputError.at("the command line", OPTION, f"{text!r} ends before it begins", _FIX)
    if end - start > _LONGEST:
        raise InputError.at("the command line", OPTION, f"{text!r} is more than 366 days", "Write a shorter time.")
    return Window(start, end)


def _named(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    today = now.replace(hour=0, minute=0)
    first = today.replace(day=1)
    if text == "today":
        return today, now
    if text == "yesterday":
        return today - STEP, today
    if text == "month":
        return first, now
    if text == "lastmonth":
        return (first - STEP).replace(day=1), first
    if found := _LAST.fullmatch(text):
        return now - int(found[1]) * _UNITS[found[2]], now
    if _MONTH.fullmatch(text):
        start = _day(f"{text}-01")
        return start, (start + timedelta(days=31)).replace(day=1)
    if _DAY.fullmatch(text):
        return _day(text), _day(text) + STEP
    start_text, _, end_text = text.partition("..")
    if _DAY.fullmatch(start_text) and _DAY.fullmatch(end_text):
        return _day(start_text), _day(end_text) + STEP
    return None


def _day(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
