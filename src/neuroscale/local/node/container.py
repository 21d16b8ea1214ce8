"""Runs one container as a process, and keeps its log, its exit and its number of restarts.

The process belongs to a shim of its own (shim.py), so it outlives this program. Its records lie in the container's
folder, so that the next agent continues where this one was killed.

Makes a pod's empty folders on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from neuroscale.core.files import write_private
from neuroscale.kube.client import Object
from neuroscale.local.node import shim
from neuroscale.local.node.launch import Launch, scratch, volume
from neuroscale.local.node.probes import Kind, Probe, Results
from neuroscale.local.node.waiting import BackOff
from neuroscale.local.process import INSTANCE_VARIABLE, PODS, PROCESS_VARIABLE, belonging, removes_semaphores
from neuroscale.local.state import PASSABLE, read_json
from neuroscale.local.users import User


def make_volumes(root: Path, launch: Launch, cache_of_server: Path | None, user: User | None) -> None:
    """Make the pod's empty folders below `root`. They last as long as the pod, and belong to the user of its processes.

    `cache_of_server`: vLLM's compiled files of this machine, the first content of a volume for its cache.
    """
    for made in (root, root / "logs", volume(root, "x").parent, scratch(root, "x").parent):
        made.mkdir(exist_ok=True)
        made.chmod(PASSABLE)
    for name in launch.volumes:
        path = volume(root, name)
        if path.exists():
            continue
        # Made elsewhere first: in a folder that a process may write to, its links could lead anywhere.
        half = path.with_name(f".new-{name}")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(mode=0o700)
        cache = Path(launch.environment.get("VLLM_CACHE_ROOT", "/"))
        if cache_of_server is not None and cache_of_server.is_dir() and cache.is_relative_to(path):
            shutil.copytree(cache_of_server, half / cache.relative_to(path), dirs_exist_ok=True)
        if user is not None:
            for folder, _, files in os.walk(half):
                for one in (folder, *(os.path.join(folder, file) for file in files)):  # noqa: PTH118
                    os.chown(one, user.uid, user.gid, follow_symlinks=False)
        half.replace(path)


_CONTAINER_VARIABLE = "NEUROSCALE_LOCAL_CONTAINER"
_SHIM_VARIABLE = "NEUROSCALE_LOCAL_SHIM"
_QUOTED_LINES, _QUOTED_BYTES = 80, 2048


@dataclass(frozen=True)
class Waits:
    """It does not run: the kubelet's reason for that, and a sentence."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """It runs since `started`, in seconds since 1970."""

    started: float


@dataclass(frozen=True)
class Terminated:
    """It has ended. Times in seconds since 1970."""

    code: int
    reason: str
    started: float
    finished: float
    message: str = ""


@dataclass(frozen=True)
class Keeper:
    """The settings that all containers of this machine share: marks, their user, and the group that may read their
    logs.

    `instance`: the mark of the local platform. `log_gid`: the group of KWOK, which answers `kubectl logs`.
    """

    instance: str
    user: User | None
    log_gid: int | None

    def marked(self, uid: str) -> list[psutil.Process]:
        """The marks of every process of a pod."""
        return [one for one in belonging(self.instance, PODS) if _mark(one, _CONTAINER_VARIABLE).startswith(f"{uid}/")]

    def pods(self) -> set[str]:
        """The uids of the pods that have processes."""
        marks = (_mark(one, _CONTAINER_VARIABLE) for one in belonging(self.instance, PODS))
        return {mark.partition("/")[0] for mark in marks if mark}


@dataclass
class Stop:
    """A requested end: when the process gets its signal, and when it is killed, by `time.monotonic`."""

    tell_at: float
    kill_at: float
    told: bool = False
    killed: bool = False


class Container:
    """One container of a pod. `root` is the pod's folder; only its pod's thread uses it."""

    def __init__(self, keeper: Keeper, uid: str, spec: Object, root: Path) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.state: Waits | Running | Terminated = Waits("ContainerCreating")
        self.last: Terminated | None = None
        self.restarts = 0
        self.results: Results | None = None
        self.crashes = BackOff()
        self.pulls = BackOff()
        self.retry_at = 0.0
        self.stop: Stop | None = None
        self._keeper = keeper
        self._mark = f"{uid}/{self.name}"
        self._folder: Path = root / "containers" / self.name
        self._logs: Path = root / "logs" / self.name
        self._attempt = -1
        self._started_at = 0.0
        self._shim: psutil.Process | None = None

    @property
    def log(self) -> Path:
        """The container's log in CRI format."""
        return self._logs / "current.log"

    @property
    def previous_log(self) -> Path:
        """The log of the previous run."""
        return self._logs / "previous.log"

    @property
    def runs(self) -> bool:
        return isinstance(self.state, Running)

    # ------------------------------------------------------------ its life

    def recover(self, probes: Callable[[], list[Probe]], told: Mapping[str, Any]) -> None:
        """Continue from the state of an earlier agent: a process that still runs, or the exit of the last one.

        `told`: the container's part of the pod's status, as that agent wrote it. As with a kubelet, a server that was
        ready stays ready while agents change, until a probe fails.
        """
        known = read_json(self._folder / "state.json")
        attempt = known.get("attempt")
        if not isinstance(attempt, int):
            return
        self._attempt = self.restarts = attempt
        last = known.get("last")
        self.last = Terminated(**last) if isinstance(last, dict) else None
        mark = f"{self._mark}/{attempt}"
        found = [one for one in belonging(self._keeper.instance, PODS) if _mark(one, _SHIM_VARIABLE) == mark]
        running = self._record("running.json")
        if found:
            self._shim = found[0]
            started = float(running.get("started", time.time()))
            self.state = Running(started)
            kinds: dict[Kind, str] = {"startup": "started", "readiness": "ready"}
            same = told.get("restartCount") == attempt
            shown = {kind for kind, field in kinds.items() if same and told.get(field) is True}
            # The clock of the probes started with the process.
            self.results = Results(probes(), time.monotonic() - max(0.0, time.time() - started), shown)
        else:
            self.state = self._ended(float(running.get("started", time.time())))

    def start(self, launch: Launch, probes: list[Probe], note: str = "") -> None:
        """Start its process. `note`: the first line of its log. Raises OSError if the shim cannot be started."""
        attempt = self._attempt + 1
        self._make_folders(launch)
        self._keep_log()
        if isinstance(self.state, Terminated):
            self.last = self.state
        facts = {"attempt": attempt, "last": asdict(self.last) if self.last else None}
        write_private(self._folder / "state.json", json.dumps(facts))
        for name in ("running.json", "exit.json"):
            (self._folder / name).unlink(missing_ok=True)
        marks = {INSTANCE_VARIABLE: self._keeper.instance, PROCESS_VARIABLE: PODS}
        user = self._keeper.user
        asked: dict[str, Any] = {
            "argv": launch.argv,
            "environment": {**launch.environment, **marks, _CONTAINER_VARIABLE: self._mark},
            "folder": str(launch.folder),
            "uid": user.uid if user else None,
            "gid": user.gid if user else None,
            "memory": launch.memory,
            "log": str(self.log),
            "log_gid": self._keeper.log_gid,
            "attempt": attempt,
            "read_only_root": asdict(launch.read_only_root) if launch.read_only_root else None,
            "note": note,
        }
        shim_marks = {_CONTAINER_VARIABLE: self._mark, _SHIM_VARIABLE: f"{self._mark}/{attempt}"}
        child = _spawn(self._folder, {**marks, **shim_marks}, json.dumps(asked, default=str).encode())
        self._attempt, self.restarts, self._shim = attempt, attempt, child
        self._started_at = time.monotonic()
        self.state = Running(time.time())
        self.results = Results(probes, self._started_at)
        self.stop = None

    def look(self) -> bool:
        """Check whether it has ended since the last check. Returns whether it has."""
        if not self.runs or self._shim is None:
            return False
        if _lives(self._shim):
            return False
        began = self.state.started if isinstance(self.state, Running) else time.time()
        self.state = self._ended(began)
        self._shim, self.results, self.stop = None, None, None
        self.crashes.failed(time.monotonic())
        return True

    def end(self, before: float, grace: float) -> None:
        """Request its end: it gets its signal `before` seconds from now, and is killed `grace` seconds from now.

        As with a kubelet, it gets at least two seconds after its signal. Of two requests the earlier end counts.
        """
        now = time.monotonic()
        tell_at = now + min(before, grace)
        kill_at = max(now + grace, tell_at + 2.0)
        if self.stop is None:
            self.stop = Stop(tell_at, kill_at)
        else:
            self.stop.tell_at = min(self.stop.tell_at, tell_at)
            self.stop.kill_at = min(self.stop.kill_at, kill_at)

    def go_on_ending(self) -> None:
        """Take the steps of a requested end that are due."""
        if self.stop is None or self._shim is None:
            return
        now = time.monotonic()
        with contextlib.suppress(psutil.NoSuchProcess):
            if not self.stop.told and now >= self.stop.tell_at:
                self.stop.told = True
                self._shim.send_signal(signal.SIGTERM)
            if not self.stop.killed and now >= self.stop.kill_at:
                self.stop.killed = True
                # Before the shim has reported its process, it may not handle this signal yet: then it simply ends.
                self._shim.send_signal(signal.SIGUSR1)

    def tail(self) -> str:
        """The end of its log without the format's own marks, as a kubelet quotes it."""
        try:
            text = self.log.read_bytes()[-(_QUOTED_LINES * 512) :].decode(errors="replace")
        except OSError:
            return ""
        words = [line.split(" ", 3)[3] for line in text.splitlines() if line.count(" ") >= 3]
        return "\n".join(words[-_QUOTED_LINES:])[-_QUOTED_BYTES:]

    # ------------------------------------------------------------ its files

    def _record(self, name: str) -> dict[str, Any]:
        """The shim's record of this run; empty if the record belongs to another run."""
        found = read_json(self._folder / name)
        return found if found.get("attempt") == self._attempt else {}

    def _ended(self, began: float) -> Terminated:
        ended = self._record("exit.json")
        if not ended:
            # Its shim was killed, or the machine went down: its exit is unknown.
            self._kill_rest()
            told = "The container could not be located when the pod was terminated"
            return Terminated(137, "ContainerStatusUnknown", began, time.time(), told)
        code = int(ended["code"])
        reason = "OOMKilled" if ended["memory"] else "Completed" if code == 0 else "Error"
        policy = self.spec.get("terminationMessagePolicy")
        message = self.tail() if policy == "FallbackToLogsOnError" and code != 0 else ""
        return Terminated(code, reason, float(ended["started"]), float(ended["finished"]), message)

    def _kill_rest(self) -> None:
        for one in belonging(self._keeper.instance, PODS):
            if _mark(one, _CONTAINER_VARIABLE) == self._mark and not removes_semaphores(one):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()

    def _make_folders(self, launch: Launch) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        gid = self._keeper.log_gid
        self._logs.mkdir(mode=0o700, exist_ok=True)
        if gid is not None:
            os.chown(self._logs, -1, gid, follow_symlinks=False)
            self._logs.chmod(0o750)
        launch.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._keeper.user is not None:
            os.chown(launch.folder, self._keeper.user.uid, self._keeper.user.gid, follow_symlinks=False)

    def _keep_log(self) -> None:
        """Keep the log of the previous run, and no other."""
        if self.log.exists():
            self.log.replace(self.previous_log)
        self.log.with_name(f"{self.log.name}.1").unlink(missing_ok=True)


def _spawn(folder: Path, marks: Mapping[str, str], asked: bytes) -> psutil.Process:
    """Start a shim and send it its instructions, not by arguments, because the environment holds keys. Raises OSError.

    The shim does not stay a child of this program, which may end before it.
    """
    reading, writing = os.pipe()
    with open(writing, "wb") as pipe, (folder / "shim.log").open("ab") as errors:  # noqa: PTH123
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", shim.__file__, str(folder)],
                {"PATH": os.defpath, **marks},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_DUP2, errors.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, errors.fileno(), 2),
                ],
                setsid=True,
            )
        finally:
            os.close(reading)
        found = psutil.Process(pid)
        with contextlib.suppress(BrokenPipeError):
            pipe.write(asked)
            pipe.flush()
    return found


def _lives(process: psutil.Process) -> bool:
    """Whether it runs. A child of this program that has ended is reaped."""
    try:
        return os.waitpid(process.pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        pass  # a child of another agent
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _mark(process: psutil.Process, variable: str) -> str:
    try:
        return str(process.environ().get(variable, ""))
    except (psutil.Error, OSError):
        return ""
