"""Running some processes of the local platform for a test, without its supervisor."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from folder_in_memory import ON_DISK
from neuroscale.local.process import Process, start
from neuroscale.local.state import PASSABLE, State, locked


@contextlib.contextmanager
def local_state(ports: Sequence[str]) -> Iterator[State]:
    """The state of a local platform of its own, with its ports chosen; it is removed afterwards."""
    # A short path outside the tests' folders, which other users cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="neuroscale-part-", dir=ON_DISK))
    try:
        with locked(folder, _ignore):
            state = State.open(folder)
            for place in (state.logs, state.run / "programs"):
                place.mkdir(mode=PASSABLE, exist_ok=True)
            state.choose_ports(tuple(ports), _ignore)
            try:
                yield state
            finally:
                state.delete()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ignore(_: str) -> None:
    """Nobody reads the messages of a test's platform."""


@dataclass
class Running:
    """Processes that were started, by name. `seconds`: from preparing each to its being ready."""

    state: State
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def start(self, process: Process) -> None:
        """Prepare and start a process and wait until it is ready; a failure shows the end of its log."""
        began = time.monotonic()
        process.prepare()
        child = start(process, self.state.instance.id, self.state.log(process.name))
        self.children[process.name] = child
        ends = began + process.ready_within
        while (why := process.ready()) is not None:
            assert child.poll() is None, f"{process.name} ended with {child.returncode}:\n{self.log(process.name)}"
            assert time.monotonic() < ends, f"{process.name} is not ready: {why}\n{self.log(process.name)}"
            time.sleep(0.1)
        self.seconds[process.name] = time.monotonic() - began

    def log(self, name: str) -> str:
        """The end of a process's log."""
        return self.state.log(name).read_text(encoding="utf-8", errors="replace")[-4000:]

    def kill(self, name: str) -> None:
        """End a process as a crash would."""
        child = self.children.pop(name)
        child.kill()
        child.wait(20)

    def end(self) -> None:
        """End all, the last one first."""
        for child in reversed(self.children.values()):
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(20)
        self.children.clear()


@contextlib.contextmanager
def running(state: State) -> Iterator[Running]:
    """Starts processes of the state, and ends them."""
    found = Running(state)
    try:
        yield found
    finally:
        found.end()
