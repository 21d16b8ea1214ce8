"""Waits for something that comes by itself: asks again and again, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Iterator


def attempts(within: float, pause: float) -> Iterator[None]:
    """Yields once for each attempt: at once, and then every `pause` seconds until `within` seconds have passed.

    There is at least one attempt, and the last one begins after the time is over. The body of the loop returns or
    breaks when an attempt succeeds; the lines after the loop say what was missing:

        for _ in attempts(within=10.0, pause=0.1):
            if is_ready():
                return
        raise LocalError("It is not ready after 10 s.")
    """
    ends = time.monotonic() + within
    yield
    while time.monotonic() < ends:
        time.sleep(pause)
        yield
