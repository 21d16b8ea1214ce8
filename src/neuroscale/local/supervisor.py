"""Starts the processes in the order of their needs, restarts those that die, and stops them in reverse order.

It runs detached from the terminal, as `python -m neuroscale.local.supervisor STATE`. Commands use only two ways: they
send SIGTERM (or SIGUSR1, by which the model servers go on), and read the file `supervisor.json`, in which it reports.
It runs if its lock is held.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import psutil

from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.files import write_private
from neuroscale.core.money_and_time import duration
from neuroscale.core.units import MIB
from neuroscale.core.waiting import attempts
from neuroscale.kube.client import KubernetesError, RefusedError
from neuroscale.local.process import (
    INSTANCE_VARIABLE,
    PODS,
    PROCESS_VARIABLE,
    RECORD,
    Process,
    Record,
    Report,
    belonging,
    digest,
    end,
    open_log,
    say,
    start,
)
from neuroscale.local.state import LocalError, State

NAME = "supervisor"
LEAVE_MODELS = signal.SIGUSR1
"""The signal that asks the supervisor to end with all processes but the model servers."""

_PROBE_EVERY = 5.0
_PROBE_WHILE_STARTING = 0.2
# How soon the end of a process is seen. Each look costs a platform of a dozen processes some processor time.
_LOOK_EVERY, _LOOK_WHILE_STARTING = 0.3, 0.05
_REAP_EVERY = 3.0
_ILL_PROBES = 6  # failed probes of a process that was healthy, before it is restarted
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY = 60.0  # seconds of health after which the pauses between restarts are reset
_LARGEST_LOG = 20 * MIB
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def launch(state: State) -> bool:
    """Start a supervisor, detached. Returns whether it runs now. No process of the instance may run before."""
    (state.folder / RECORD).unlink(missing_ok=True)
    marks = {INSTANCE_VARIABLE: state.instance.id, PROCESS_VARIABLE: NAME}
    with open_log(state.log(NAME)) as log:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "neuroscale.local.supervisor", str(state.folder)],
            check=False,
            cwd="/",
            env={**os.environ, **marks},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return done.returncode == 0


class Supervisor:
    """Runs processes until it is asked to stop. Each has a thread, so that a slow one delays only those that need
    it."""

    def __init__(self, state: State, processes: Sequence[Process]) -> None:
        self.state = state
        self.processes = {process.name: process for process in processes}
        self.records = {name: Record() for name in self.processes}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._digest = digest(processes)
        self._changed = threading.Condition()
        self._stopping = False
        self.leaves_models = False

    def run(self) -> None:
        """Start all processes, and return when all have stopped after `stop`."""
        for process in in_order(self.processes.values()):  # raises for needs that cannot be met, before anything starts
            say(f"{process.name} needs {', '.join(process.needs) or 'nothing'}")
        self._write()
        threads = [
            threading.Thread(target=self._keep, args=(process,), name=process.name)
            for process in self.processes.values()
        ]
        for thread in threads:
            thread.start()
        left_before: set[int] = set()
        while any(thread.is_alive() for thread in threads):
            with self._changed:
                self._changed.wait(_REAP_EVERY)
            left_before = self._reap(left_before)
            for name in (*self.processes, NAME):
                shorten(self.state.log(name))

    def stop(self, *, models: bool = True) -> None:
        """Request the end; safe in a signal handler, because it takes no lock. `models`: also of the model servers."""
        self.leaves_models = not models
        self._stopping = True

    def _keep(self, process: Process) -> None:
        """Keep one process running, from the health of the processes that it needs to the end of those that need it."""
        record = self.records[process.name]
        pause = _FIRST_PAUSE
        try:
            while self._wait(lambda: all(self.records[name].health == "healthy" for name in process.needs)):
                began = time.monotonic()
                try:
                    self._live(process, record)
                except NeuroscaleError as error:
                    # A slow API server does not count as a failure of this process.
                    slow = isinstance(error, KubernetesError) and not isinstance(error, RefusedError)
                    self._give_up(process, record, str(error), counted=not slow)
                except Exception as error:  # a defect must not end the supervision of this process unseen
                    self._give_up(process, record, f"a defect of this program: {type(error).__name__}: {error}")
                if self._stopping:
                    break
                say(f"{process.name}: {record.detail}")
                if time.monotonic() - began > _STEADY:
                    pause = _FIRST_PAUSE
                self._sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
                self._set(record, health="waiting", restarts=record.restarts + 1)
            users = [other.name for other in self.processes.values() if process.name in other.needs]
            while not all(self.records[name].health == "stopped" for name in users):
                time.sleep(0.05)
        finally:
            with contextlib.suppress(LocalError):
                self._end(process, record)
            self._set(record, health="stopped", pid=None, started=None)

    def _live(self, process: Process, record: Record) -> None:
        """Run a process once. Returns or raises when it has ended, and leaves it running only when stopping."""
        self._set(record, health="starting", detail="")
        self._end(process, record)  # processes that an earlier run left behind
        process.prepare()
        if self._stopping:
            return
        child = self._children[process.name] = start(process, self.state.instance.id, self.state.log(process.name))
        say(f"{process.name}: started as process {child.pid}")
        self._set(record, pid=child.pid, started=_start_time(child.pid))
        began = time.monotonic()
        unanswered = 0
        next_probe = 0.0
        while not self._stopping:
            status = child.poll()
            if status is not None:
                ending = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
                self._set(
                    record, health="ill", pid=None, started=None, detail=f"it {ending}", failures=record.failures + 1
                )
                return
            if time.monotonic() >= next_probe:
                problem = process.ready()
                if problem is None:
                    unanswered = 0
                    self._set(record, health="healthy", detail="", failures=0)
                elif record.health == "starting":
                    self._set(record, detail=problem)
                    if time.monotonic() - began > process.ready_within:
                        late = f"it was not ready within {duration(process.ready_within)}"
                        self._give_up(process, record, f"{late}: {problem}")
                        return
                else:
                    unanswered += 1
                    self._set(record, health="ill", detail=problem)
                    if unanswered >= _ILL_PROBES:
                        self._give_up(process, record, f"it stopped answering: {problem}")
                        return
                every = _PROBE_WHILE_STARTING if record.health == "starting" else _PROBE_EVERY
                next_probe = time.monotonic() + every
            time.sleep(_LOOK_WHILE_STARTING if record.health == "starting" else _LOOK_EVERY)

    def _give_up(self, process: Process, record: Record, detail: str, *, counted: bool = True) -> None:
        self._set(record, health="ill", detail=detail, failures=record.failures + counted)
        self._end(process, record)

    def _end(self, process: Process, record: Record) -> None:
        """End the process, first alone so that it can end its children well, then all that it left."""
        child = self._children.pop(process.name, None)
        if child is not None:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(process.stops_within)
        end(lambda: belonging(self.state.instance.id, process.name), patience=2.0)
        if child is not None:
            child.wait()
        self._set(record, pid=None, started=None)

    def _reap(self, left_before: set[int]) -> set[int]:
        """Reap orphaned children of ended processes, which came to this one. Returns those that are newly dead.

        Nothing waits for such a child; one for which something waits is gone by the next look.
        """
        own = {child.pid for child in list(self._children.values())}
        dead = {child.pid for child in psutil.Process().children() if _is_dead(child)} - own
        for pid in dead & left_before:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return dead - left_before

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds; False when asked to stop."""
        while not self._stopping:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def _sleep(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < ends:
            time.sleep(0.05)

    def _set(self, record: Record, **changes: Any) -> None:
        with self._changed:
            if all(getattr(record, name) == value for name, value in changes.items()):
                return
            for name, value in changes.items():
                setattr(record, name, value)
            self._write()
            self._changed.notify_all()

    def _write(self) -> None:
        report = Report(os.getpid(), self._digest, self.records)
        write_private(self.state.folder / RECORD, json.dumps(asdict(report), indent=2) + "\n")


def in_order(processes: Iterable[Process]) -> list[Process]:
    """The processes, each after those that it needs. Raises LocalError if there is no such order."""
    waiting = {process.name: process for process in processes}
    ordered: dict[str, Process] = {}
    while waiting:
        ready = [one for one in waiting.values() if all(name in ordered for name in one.needs)]
        if not ready:
            raise LocalError(f"These processes need each other, or one that does not exist: {', '.join(waiting)}.")
        for process in ready:
            ordered[process.name] = waiting.pop(process.name)
    return list(ordered.values())


def shorten(log: Path) -> None:
    """Keep a log below its bound: its older half moves to another file, and writers go on at its new end."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LARGEST_LOG:
            log.with_suffix(".old.log").write_bytes(log.read_bytes())
            os.truncate(log, 0)


def _start_time(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _left(state: State, *, models: bool) -> Iterable[psutil.Process]:
    """The processes that still run below this one; without `models`, not the model servers."""
    kept: set[psutil.Process] = set()
    for one in () if models else belonging(state.instance.id, PODS):
        # A server that renames itself, as vLLM's engine does, overwrites the environment with its mark.
        with contextlib.suppress(psutil.NoSuchProcess):
            kept |= {one, *one.children(recursive=True)}
    return set(psutil.Process().children(recursive=True)) - kept


def _take(lock: IO[str]) -> bool:
    """Take the lock. A command that checks for a supervisor holds it for a moment, so it is tried for a while."""
    for _ in attempts(3.0, pause=0.05):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def main(folder: Path) -> int:
    """Run the local platform of that state folder, detached, until SIGTERM."""
    from neuroscale.local.processes import processes

    os.umask(0o077)
    # Not SIGHUP's default: the terminal of its start may be closed.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    state = State.read(folder)
    if state is None:
        say(f"{folder} does not hold a local platform")
        return 2
    with (folder / "supervisor.lock").open("w") as lock:
        if not _take(lock):
            say("another supervisor runs")
            return 2
        supervisor = Supervisor(state, processes(state))
        # The child runs on without its parent, whose exit shows that the lock is held; both hold it.
        if os.fork():
            os._exit(0)
        # Orphans of its children become its own children, and are found and ended whatever their environment.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        signal.signal(LEAVE_MODELS, lambda *_: supervisor.stop(models=False))
        say(f"supervisor started as process {os.getpid()}")
        supervisor.run()
        end(lambda: _left(state, models=not supervisor.leaves_models), patience=2.0)
        say("supervisor stopped")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except NeuroscaleError as error:
        say(str(error))
        sys.exit(error.exit_status)
