"""Runs the servers that the tests of a lane share: they take processor time as long as they run, idle ones, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest

from lanes import lane_of

T = TypeVar("T")


class LaneServers:
    """The servers of one worker, each from the first to the last file of a lane that uses it.

    `following` is the next test of this worker, which the hooks note after each test (None: the last one was run).
    """

    def __init__(self) -> None:
        self.following: pytest.Item | None = None
        self._running: dict[str, tuple[contextlib.ExitStack, Any]] = {}

    def used(self, start: Callable[[], AbstractContextManager[T]], request: pytest.FixtureRequest) -> Iterator[T]:
        """For a fixture of a file's tests: the server that `start` runs, started if the lane has none yet."""
        name = start.__name__
        if name not in self._running:
            ending = contextlib.ExitStack()
            self._running[name] = ending, ending.enter_context(start())
        yield self._running[name][1]
        if self.following is None or lane_of(self.following.nodeid) != lane_of(request.node.nodeid):
            self._running.pop(name)[0].close()

    def end(self) -> None:
        """End what a run that was broken off has left."""
        while self._running:
            self._running.popitem()[1][0].close()
