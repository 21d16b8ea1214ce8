"""Reads a forge's answer: its body, the reason of a refusal, when it may be asked again, the next page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from neuroscale.core.printable import one_line


@dataclass(frozen=True)
class Received:
    """An answer as it came: HTTP's status, headers and the body."""

    status: int
    headers: httpx.Headers
    body: bytes


def decoded(body: bytes) -> tuple[Any, bool]:
    """The JSON value and whether there is one; an empty body is None."""
    if not body.strip():
        return None, True
    try:
        return json.loads(body), True
    except (ValueError, RecursionError):
        return None, False


def message_of(data: Any) -> str:
    """The forge's message in the body of a refusal, by GitHub's and Gitea's fields."""
    if not isinstance(data, Mapping):
        return ""
    parts = [data.get("message")]
    errors = data.get("errors")
    for entry in errors if isinstance(errors, list) else []:
        if isinstance(entry, Mapping):
            parts.append(entry.get("message") or " ".join(str(entry.get(key, "")) for key in ("field", "code")).strip())
        else:
            parts.append(entry)
    return one_line("; ".join(part for part in parts if isinstance(part, str) and part), 400)


def phrase(status: int) -> str:
    """HTTP's own words for a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "unknown status"


def advice(status: int) -> str:
    """What to do about a refusal with this status."""
    return {
        401: "The token is wrong, expired or withdrawn: make a new one.",
        403: "The token's account may not do that, or the token lacks the scope for it.",
        404: "It does not exist, or the token may not read it: check the name and the token's scopes.",
        410: "It is gone.",
    }.get(status, "Repair that, and run the command again.")


def rate_limit(received: Received, said: str) -> float | None:
    """Seconds until the forge takes requests again; None if it does not limit them. `said`: the forge's message."""
    headers = received.headers
    if received.status not in (403, 429):
        return None
    after = retry_after(headers)
    exhausted = headers.get("x-ratelimit-remaining", "").strip() == "0"
    if received.status == 403 and after is None and not exhausted and "rate limit" not in said.lower():
        return None
    if after is not None:
        return after
    reset = headers.get("x-ratelimit-reset", "").strip()
    if exhausted and re.fullmatch(r"[0-9]{1,12}", reset):
        return max(1.0, float(reset) - _now(headers))
    return 60.0  # GitHub's documented pause if it names no time


def retry_after(headers: httpx.Headers) -> float | None:
    """Seconds after which the forge wants to be asked again; None if it names no time."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    date = _date(value)
    return None if date is None else max(0.0, date - _now(headers))


def _now(headers: httpx.Headers) -> float:
    """The forge's clock, by which its other times are read; else this machine's."""
    date = _date(headers.get("date", ""))
    return time.time() if date is None else date


def _date(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def next_query(header: str) -> dict[str, str] | None:
    """The query of the next page, from a `Link` header; None on the last page."""
    for link in header.split(","):
        address, _, attributes = link.partition(";")
        if re.search(r"""\brel\s*=\s*"?next\b""", attributes):
            return dict(parse_qsl(urlsplit(address.strip().strip("<>")).query))
    return None
