"""Calls a function again after an error, where the caller says that the error may pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


def repeatedly(
    ask: Callable[[], _Answer], *, attempts: int, again: Callable[[Exception], bool], first_pause: float = 0.0
) -> _Answer:
    """The result of `ask`, in at most `attempts` attempts.

    `again` says after which errors another attempt follows; any other error, and the last attempt's, is raised.
    `first_pause`: seconds before the second attempt, doubled before each further one.
    """
    for attempt in range(attempts - 1):
        try:
            return ask()
        except Exception as error:
            if not again(error):
                raise
        time.sleep(first_pause * 2**attempt)
    return ask()
