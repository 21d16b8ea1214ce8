"""Starting a local platform where another program takes a port between its choice and its use."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local_processes import local_state
from neuroscale.local import processes, start_and_stop
from neuroscale.local.errors import LocalError
from neuroscale.local.state import State


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """A platform without a cluster, of which no program really starts."""

    def prepared(state: State, checkout: Path | None) -> None:
        del state, checkout

    monkeypatch.setattr(processes, "prepare", prepared)
    with local_state(()) as found:
        yield found


def test_the_port_is_replaced(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    with contextlib.ExitStack() as others:

        def launch(state: State, tell: Callable[[str], None]) -> None:
            del tell
            port = state.instance.ports["gitea"]
            starts.append(port)
            if len(starts) == 1:
                others.enter_context(socket.create_server(("127.0.0.1", port)))
                raise LocalError("gitea does not run")

        monkeypatch.setattr(start_and_stop, "_launch_and_wait", launch)
        said: list[str] = []
        start_and_stop._start(state, None, said.append)
    first, second = starts
    assert first != second
    assert said == [f"Port {first} of gitea is taken by another program: gitea now listens on {second}."]


def test_another_failure_is_not_tried_again(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = 0

    def launch(state: State, tell: Callable[[str], None]) -> None:
        nonlocal starts
        del state, tell
        starts += 1
        raise LocalError("gitea does not run")

    monkeypatch.setattr(start_and_stop, "_launch_and_wait", launch)
    with pytest.raises(LocalError, match="gitea does not run"):
        start_and_stop._start(state, None, print)
    assert starts == 1
