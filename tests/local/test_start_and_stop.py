"""Starting a local platform where another program takes a port between its choice and its use."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from local_processes import local_state
from neuroscale.local import processes, start_and_stop
from neuroscale.local.process import INSTANCE_VARIABLE, PROCESS_VARIABLE, belonging, read_report
from neuroscale.local.state import LocalError, State
from neuroscale.local.supervisor import NAME
from waiting import wait_for


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """A platform of which no program really starts."""

    def prepared(state: State, checkout: Path | None) -> None:
        del state, checkout

    monkeypatch.setattr(processes, "prepare", prepared)
    with local_state(()) as found:
        yield found


def test_the_port_is_replaced(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a port that was taken after it was chosen would end the start."""
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


_SUPERVISOR = """
import os, pathlib, sys
from neuroscale.local import processes, supervisor
from neuroscale.local.process import Process

folder = pathlib.Path(sys.argv[1])
code = '''
import os, pathlib, subprocess, sys, time
marks = {**os.environ, "NEUROSCALE_LOCAL_PROCESS": "pods"}
# As vLLM's: its engine has no mark.
script = "from subprocess import *; Popen(['cat'], env={}, stdin=PIPE, start_new_session=True).wait()"
server = subprocess.Popen([sys.executable, "-c", script], env=marks, start_new_session=True)
pathlib.Path("server").write_text(str(server.pid))
time.sleep(600)
'''
there = lambda: None if (folder / "server").exists() else "no model server runs"
node = Process("node", (sys.executable, "-I", "-c", code), {"PATH": os.defpath}, folder, None, there)
processes.processes = lambda state: [node]
sys.exit(supervisor.main(folder))
"""


def test_a_model_server_goes_on_while_the_platform_starts_anew_and_ends_with_it(state: State) -> None:
    def program() -> psutil.Process:
        command = [sys.executable, "-c", _SUPERVISOR, str(state.folder)]
        marks = {INSTANCE_VARIABLE: state.instance.id, PROCESS_VARIABLE: NAME}
        (state.folder / "server").unlink(missing_ok=True)  # of the program before, whose report is still there
        subprocess.run(command, check=True, timeout=60, env={**os.environ, **marks})
        wait_for(lambda: (state.folder / "server").exists() and (state.folder / "server").read_text())
        wait_for(lambda: (report := read_report(state)) is not None and report.healthy)
        return psutil.Process(int((state.folder / "server").read_text()))

    server = program()
    wait_for(lambda: server.children())
    (node,), (engine,) = belonging(state.instance.id, "node"), server.children()

    def run(one: psutil.Process) -> bool:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE

    said: list[str] = []
    start_and_stop._stop(state, said.append, models=False)
    assert said == ["Stopping the platform's programs; the model servers go on."]
    assert (run(server), run(engine), run(node)) == (True, True, False)
    assert [one.pid for one in belonging(state.instance.id)] == [server.pid]
    start_and_stop._stop(state, print)
    assert not run(server)
    assert not list(belonging(state.instance.id))

    server = program()
    start_and_stop._stop(state, print)
    assert not run(server)
