"""Describes, starts and ends a supervised process: its environment, user, dependencies and readiness probe.

Reads what the supervisor reports of its processes.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import httpx
import psutil

from neuroscale.core.printable import one_line
from neuroscale.local.state import LocalError, State, read_json
from neuroscale.local.users import User, popen_arguments

INSTANCE_VARIABLE = "NEUROSCALE_LOCAL_INSTANCE"
PROCESS_VARIABLE = "NEUROSCALE_LOCAL_PROCESS"
"""Marks in the environment of every started process. Its children inherit them, so exactly these are found."""

PODS = "pods"
"""The name in the marks of all processes of pods; the node's agent has another mark, and ends without them."""

_ENDS_WITHIN = 60.0  # seconds that a command may take
_KILL_WITHIN = 20.0  # seconds that the system may take to end killed processes
_TRACKERS_PATIENCE = 2.0  # seconds
_SAME_START = 2.0  # seconds: the time of a start is computed from the clock, which may be set


@dataclass(frozen=True)
class Process:
    """A long-running process.

    `ready` says why it cannot be used yet, or None. `prepare` runs before each start, when all processes that it
    `needs` are healthy; both may raise LocalError. `settings` is the content of its files of settings: a change
    restarts it. Times are in seconds. Nothing secret may stand in `argv`, `environment` or `settings`.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    user: User | None
    ready: Callable[[], str | None]
    port: int | None = None
    needs: tuple[str, ...] = ()
    settings: str = ""
    prepare: Callable[[], None] = field(default=lambda: None)
    ready_within: float = 90.0
    stops_within: float = 15.0


RECORD = "supervisor.json"
Health = Literal["waiting", "starting", "healthy", "ill", "stopped"]


@dataclass
class Record:
    """The record of one process. `started` is in seconds since 1970, `restarts` counts the starts after the first."""

    health: Health = "waiting"
    pid: int | None = None
    started: float | None = None
    restarts: int = 0
    failures: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The supervisor's last report. `failures` of a process counts those since it was last healthy."""

    pid: int
    digest: str
    processes: dict[str, Record] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether every process is healthy."""
        return all(record.health == "healthy" for record in self.processes.values())


def read_report(state: State) -> Report | None:
    """The last report of a running supervisor; None if none runs."""
    if not is_running(state):
        return None
    data: dict[str, Any] = read_json(state.folder / RECORD)
    try:
        processes = {name: Record(**record) for name, record in data["processes"].items()}
        report = Report(data["pid"], data["digest"], processes)
    except (KeyError, TypeError, AttributeError):
        return None
    # Until a new supervisor writes, the file is the earlier supervisor's.
    return report if psutil.pid_exists(report.pid) else None


def is_running(state: State) -> bool:
    """Whether a supervisor holds its lock."""
    try:
        with (state.folder / "supervisor.lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def digest(processes: Iterable[Process]) -> str:
    """A digest of the process; it changes when a version, an option or a port does."""
    facts = [
        (one.name, one.argv, sorted(one.environment.items()), one.settings, str(one.folder), one.user and one.user.uid)
        for one in processes
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def answers(url: str, verify: ssl.SSLContext | None = None) -> str | None:
    """A readiness probe: None if the address answers 200, else its other reaction."""
    try:
        response = httpx.get(url, timeout=3.0, trust_env=False, verify=verify or _trusted())
    except httpx.HTTPError as error:
        return f"{url} does not answer ({type(error).__name__})"
    return None if response.status_code == 200 else f"{url} answers {response.status_code}"


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates that every program of this machine trusts. Reading them takes ten times as long as a probe."""
    return ssl.create_default_context()


def run_once(
    argv: Sequence[object], environment: Mapping[str, str], folder: Path, user: User | None, *, text: str = ""
) -> str:
    """The output of a command that ends, with `text` as its input. Raises LocalError with its error output.

    Its standard output may be secret, and so is not part of the error; its error output is.
    """
    command = [str(part) for part in argv]
    what = " ".join([Path(command[0]).name, *command[1:4]])
    try:
        done = subprocess.run(
            command,
            check=False,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=folder,
            env=dict(environment),
            timeout=_ENDS_WITHIN,
            **popen_arguments(user),
        )
    except subprocess.TimeoutExpired:
        raise LocalError(f"{what} did not end within {_ENDS_WITHIN:g} s.") from None
    except OSError as error:
        raise LocalError(f"{what} could not be started: {error.strerror}.") from error
    if done.returncode != 0:
        raise LocalError(f"{what} ended with exit status {done.returncode}: {one_line(done.stderr, 400)}")
    return str(done.stdout)


def start(process: Process, instance_id: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own, its output added to the log. Raises LocalError."""
    marks = {INSTANCE_VARIABLE: instance_id, PROCESS_VARIABLE: process.name}
    try:
        with open_log(log) as output:
            return subprocess.Popen(
                process.argv,
                cwd=process.folder,
                env={**process.environment, **marks},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
                **popen_arguments(process.user),
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalError(f"{process.name} could not be started: {error}.") from error


def open_log(path: Path) -> IO[bytes]:
    """A log that only its owner may read, opened at its end."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return open(descriptor, "ab", buffering=0)  # noqa: PTH123 - a descriptor has no path


def is_same(pid: int, started: float) -> bool:
    """Whether the recorded process still runs; its number may belong to another process meanwhile."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < _SAME_START and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def belonging(instance_id: str, name: str | None = None, *, models: bool = True) -> Iterator[psutil.Process]:
    """Every running process that the instance or its children started; `name`: only the processes of that part.

    `models`: also the processes of pods, which are the model servers.
    """
    for process in psutil.process_iter():
        try:
            marks = process.environ()
        except (psutil.Error, OSError):
            continue  # gone, a zombie, or another user's
        if marks.get(INSTANCE_VARIABLE) != instance_id or process.pid == os.getpid():
            continue
        mark = marks.get(PROCESS_VARIABLE)
        if name in (None, mark) and (models or mark != PODS):
            yield process


def end(find: Callable[[], Iterable[psutil.Process]], patience: float) -> None:
    """End the processes that `find` returns, by SIGTERM and after `patience` seconds by SIGKILL, until it returns none.

    Python's trackers of resources are killed two seconds later than the others, whose semaphores they remove. Raises
    LocalError if a process cannot be ended.
    """
    deadline = time.monotonic() + patience
    asked: set[psutil.Process] = set()
    while found := set(find()):
        late, later = (time.monotonic() >= deadline + more for more in (0.0, _TRACKERS_PATIENCE))
        if time.monotonic() >= deadline + _KILL_WITHIN:
            pids = ", ".join(str(process.pid) for process in found)
            raise LocalError(f"These processes of the local platform could not be ended: {pids}.")
        for process in found:
            kill = late and (later or not removes_semaphores(process))
            if kill or process not in asked:
                _send(process, signal.SIGKILL if kill else signal.SIGTERM)
        asked |= found
        psutil.wait_procs(list(found), timeout=0.2)


def removes_semaphores(process: psutil.Process) -> bool:
    """Whether it is Python's own program that removes what others leave in /dev/shm, and then ends by itself."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied as error:
        raise LocalError(
            f"Process {process.pid} belongs to another user: run this as the user who started it."
        ) from error


def say(text: str) -> None:
    """Write a line to the supervisor's own log."""
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    sys.stdout.flush()
