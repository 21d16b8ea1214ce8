"""Runs one container's process, also when the node's agent ends: writes its log and its exit.

A program of its own, `python -I shim.py FOLDER`, with nothing but the standard library; the parent of the process as a
container runtime's shim is. It reads from its standard input one JSON object:

    argv, environment, folder   of the process
    uid, gid                    of the user that it runs as; null: the same as this program's
    memory                      bytes that it and what it starts may use; null without limit
    log, log_gid                its log in the format of the container runtime interface (CRI), and the group that may
                                read it; null: nobody else
    attempt                     a number that the records repeat
    read_only_root              what `read_only_root.py` beside this file needs to know; null: the process may write
                                wherever its user may
    note                        the first line of the log; empty for none

It writes `running.json` when the process has started and `exit.json` when it has ended, both into FOLDER. SIGTERM goes
on to the process; SIGUSR1 ends it and all that it started at once. What it started ends with it, as in a container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_PARENT_DEATH_SIGNAL, _SUBREAPER = 1, 36  # of prctl
_TRACKER = b"multiprocessing.resource_tracker"  # in the command line of Python's own program
_LOOK_EVERY = 0.1  # seconds
_WEIGH_EVERY = 1.0
_LAST_WORDS = 2.0  # seconds for output that was written before the end
_LARGEST_LOG = 10 * 2**20  # bytes; as a kubelet's containerLogMaxSize
_LONGEST_LINE = 16 * 2**10  # bytes; a longer line is written in parts, as container runtimes do


def main(folder: Path) -> None:
    """Run the process that the standard input describes until it has ended."""
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    os.umask(0o077)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    log = Log(Path(asked["log"]), asked["log_gid"])
    if asked["note"]:
        log.write("stderr", f"{asked['note']}\n".encode())
    started = time.time()
    with contextlib.ExitStack() as outputs:
        try:
            process = _start(asked)
        except (OSError, subprocess.SubprocessError) as error:
            log.write("stderr", f"cannot be started: {error}\n".encode())
            record(folder / "exit.json", _ended(asked, started, 128, killed_for_memory=False))
            return
        assert process.stdout is not None
        assert process.stderr is not None
        streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
        outputs.enter_context(process.stdout)
        outputs.enter_context(process.stderr)
        signal.signal(signal.SIGTERM, lambda *_: _send(process, signal.SIGTERM))
        signal.signal(signal.SIGUSR1, lambda *_: _kill_all())
        running = {"attempt": asked["attempt"], "pid": os.getpid(), "process": process.pid, "started": started}
        record(folder / "running.json", running)
        too_large = _attend(process, streams, log, asked["memory"])
    status = process.returncode
    code = 128 - status if status < 0 else status
    record(folder / "exit.json", _ended(asked, started, 137 if too_large else code, killed_for_memory=too_large))


def _start(asked: dict[str, Any]) -> subprocess.Popen[bytes]:
    argv: list[str] = asked["argv"]
    user: dict[str, Any] = {}
    if asked["read_only_root"] is not None:
        told = {**asked["read_only_root"], "uid": asked["uid"], "gid": asked["gid"]}
        argv = [sys.executable, "-I", str(Path(__file__).with_name("read_only_root.py")), json.dumps(told), *argv]
    elif asked["uid"] is not None:
        user = {"user": asked["uid"], "group": asked["gid"], "extra_groups": []}
    return subprocess.Popen(
        argv,
        cwd=asked["folder"],
        env=asked["environment"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        umask=0o077,
        preexec_fn=_end_with_parent,  # this program has no other thread
        **user,
    )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _attend(process: subprocess.Popen[bytes], streams: dict[int, str], log: Log, limit: int | None) -> bool:
    """Write the process's output until it has ended, and end its remaining children. Returns whether it used too much
    memory."""
    too_large = False
    next_look = 0.0
    silent_at = 0.0
    while True:
        readable, _, _ = select.select(list(streams), [], [], _LOOK_EVERY)
        for descriptor in readable:
            data = os.read(descriptor, 2**16)
            if data:
                log.write(streams[descriptor], data)
            else:
                log.finish(streams.pop(descriptor))
        now = time.monotonic()
        if process.poll() is None:
            if limit is not None and now >= next_look:
                next_look = now + _WEIGH_EVERY
                if _weight() > limit:
                    too_large = True
                    log.write("stderr", f"uses more than its limit of {limit} bytes of memory, and is ended\n".encode())
                    _kill_all()
            continue
        # As in a container, the end of the first process ends all.
        _kill_all()
        silent_at = silent_at or now + _LAST_WORDS
        if not streams or now >= silent_at:
            break
    for stream in streams.values():
        log.finish(stream)
    while _descendants():
        _kill_all(trackers=time.monotonic() >= silent_at)
        _bury()
        time.sleep(0.01)
    return too_large


class Log:
    """A log in CRI format: `TIME STREAM P|F TEXT` a line, P where the line goes on. The one before is kept as `.1`."""

    def __init__(self, path: Path, gid: int | None) -> None:
        self._path = path
        self._gid = gid
        self._unfinished = {"stdout": b"", "stderr": b""}
        self._file = self._open()

    def write(self, stream: str, data: bytes) -> None:
        """Add bytes of a stream."""
        *lines, rest = (self._unfinished[stream] + data).split(b"\n")
        for line in lines:
            self._line(stream, line, b"F")
        while len(rest) >= _LONGEST_LINE:
            self._line(stream, rest[:_LONGEST_LINE], b"P")
            rest = rest[_LONGEST_LINE:]
        self._unfinished[stream] = rest

    def finish(self, stream: str) -> None:
        """Add the rest without a line break."""
        rest, self._unfinished[stream] = self._unfinished[stream], b""
        if rest:
            self._line(stream, rest, b"F")

    def _line(self, stream: str, line: bytes, tag: bytes) -> None:
        while tag == b"F" and len(line) > _LONGEST_LINE:
            self._line(stream, line[:_LONGEST_LINE], b"P")
            line = line[_LONGEST_LINE:]
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        self._file.write(b" ".join((moment.encode(), stream.encode(), tag, line)) + b"\n")
        if self._file.tell() > _LARGEST_LOG:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._open()

    def _open(self) -> Any:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if self._gid is not None:
            os.fchown(descriptor, -1, self._gid)
            os.fchmod(descriptor, 0o640)
        file = open(descriptor, "ab", buffering=0)  # noqa: PTH123, SIM115 - a descriptor has no path
        file.seek(0, os.SEEK_END)
        return file


def record(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    half = path.with_name(f".{path.name}")
    half.write_text(json.dumps(value), encoding="utf-8")
    half.replace(path)


def _ended(asked: dict[str, Any], started: float, code: int, *, killed_for_memory: bool) -> dict[str, Any]:
    return {
        "attempt": asked["attempt"],
        "code": code,
        "memory": killed_for_memory,
        "started": started,
        "finished": time.time(),
    }


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _kill_all(*, trackers: bool = False) -> None:
    """End all at once. `trackers`: also those that remove what the others leave in /dev/shm, and then end."""
    for pid in _descendants():
        with contextlib.suppress(OSError):
            if trackers or _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def _bury() -> None:
    """Reap processes that came to this program when their own parent ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants() -> list[int]:
    """The processes below this one that are not dead yet."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            # The name in parentheses may have any characters.
            state, parent = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append(int(entry.name))
            if state in ("Z", "X"):
                dead.add(int(entry.name))
    found = list(_below(os.getpid(), children))
    return [pid for pid in found if pid not in dead]


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    for child in children.get(pid, ()):
        yield child
        yield from _below(child, children)


def _weight() -> int:
    """Bytes of memory that the processes below this one hold for themselves, without pages of files."""
    own, shared = 0, 0
    for pid in _descendants():
        with contextlib.suppress(OSError):
            sizes = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
                if line.startswith(("RssAnon:", "RssShmem:"))
            )
            own += _bytes(sizes.get("RssAnon", "0 kB"))
            shared = max(shared, _bytes(sizes.get("RssShmem", "0 kB")))
    return own + shared


def _bytes(text: str) -> int:
    return int(text.split()[0]) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
