"""Waits for a condition, up to a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 30.0, what: str = "") -> None:
    """Return as soon as the condition holds. Fails the test if it does not hold within `seconds`."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what or condition}"
        time.sleep(0.2)
