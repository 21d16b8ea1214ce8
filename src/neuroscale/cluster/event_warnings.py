"""Reads the warnings among a namespace's events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from neuroscale.cluster.object_fields import part, seconds_since, sentence
from neuroscale.kube.client import Object


def last_warnings(found: tuple[Object, ...], now: datetime) -> tuple[str, ...]:
    """The last ten warnings in words with their age, the newest last."""
    rows = sorted((_last(one), _told(one), seconds_since(_last(one), now)) for one in warnings(found))
    return tuple(text if age is None else f"{_age(age)}: {text}" for _, text, age in rows)[-10:]


def _last(one: Object) -> str:
    """When the event was seen last."""
    series = part(one, "series").get("lastObservedTime")
    return str(series or one.get("lastTimestamp") or one.get("eventTime") or "")


def _age(seconds: int) -> str:
    return f"{seconds} s ago" if seconds < 120 else f"{seconds // 60} min ago"


def warnings(found: tuple[Object, ...]) -> list[Object]:
    """Warnings, without those of a write that its controller repeats at once."""
    last: dict[tuple[Any, ...], Object] = {}
    for one in found:
        if one.get("type") == "Warning" and "the object has been modified" not in str(one.get("message")):
            last[part(one, "involvedObject").get("name"), one.get("reason"), one.get("message")] = one
    return list(last.values())


def _told(one: Object) -> str:
    return sentence(part(one, "involvedObject").get("name"), one.get("reason"), one.get("message"))
