"""Reads and formats values of Kubernetes objects for several parts of the node."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

from neuroscale.kube.client import Object
from neuroscale.manifests.quantity import quantity


def timestamp(seconds: float) -> str:
    """Seconds since 1970 in the API's format of a time, such as `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """The reverse of `timestamp`: seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def now_precisely() -> str:
    """The time in the API's format for leases and events, with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def name_of(pod: Object) -> str:
    """`name_namespace(uid)`, as a kubelet names a pod in messages."""
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"


def amount(container: Object, kind: str, resource: str) -> Decimal | None:
    """The amount that a container requests (`requests`) or may use (`limits`): cores, or bytes. None if it is not
    set.
    """
    text = ((container.get("resources") or {}).get(kind) or {}).get(resource)
    return None if text is None else quantity(text)


def rounded_up(value: Decimal) -> int:
    """The smallest whole number that is not less."""
    return math.ceil(value)
