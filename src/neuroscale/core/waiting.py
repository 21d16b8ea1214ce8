"""Waits for something that comes by itself: asks again and again, for a limited time.

Calls a function again after an error, where the caller says that the error may pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

_Answer = TypeVar("_Answer")


def repeatedly(
    ask: Callable[[], _Answer],
    *,
    attempts: int,
    again: Callable[[Exception], bool | float],
    first_pause: float = 0.0,
) -> _Answer:
    """The result of `ask`, in at most `attempts` attempts.

    `again` says whether another attempt follows an error, or after how many seconds; any other error, and the last
    attempt's, is raised. `first_pause`: seconds before the second attempt, doubled before each further one.
    """
    for attempt in range(attempts - 1):
        try:
            return ask()
        except Exception as error:
            pause = again(error)
            if pause is False:
                raise
        time.sleep(first_pause * 2**attempt if pause is True else pause)
    return ask()


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
