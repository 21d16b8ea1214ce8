"""Reads the warnings among a namespace's events."""

from __future__ import annotations

from typing import Any

from neuroscale.cluster.object_fields import part, sentence
from neuroscale.kube.client import Object


def last_warnings(found: tuple[Object, ...]) -> tuple[str, ...]:
    """The last ten warnings in words, the newest last."""
    rows = sorted((str(one.get("lastTimestamp") or one.get("eventTime") or ""), _told(one)) for one in warnings(found))
    return tuple(text for _, text in rows)[-10:]


def warnings(found: tuple[Object, ...]) -> list[Object]:
    """Warnings, without those of a write that its controller repeats at once."""
    last: dict[tuple[Any, ...], Object] = {}
    for one in found:
        if one.get("type") == "Warning" and "the object has been modified" not in str(one.get("message")):
            last[part(one, "involvedObject").get("name"), one.get("reason"), one.get("message")] = one
    return list(last.values())


def _told(one: Object) -> str:
    return sentence(part(one, "involvedObject").get("name"), one.get("reason"), one.get("message"))
