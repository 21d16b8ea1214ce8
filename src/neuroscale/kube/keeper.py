"""Runs processes for as long as its parent process lives, and removes their folder at the end.

A program of its own, `python -I keeper.py FOLDER`, with nothing but the standard library. It reads from its standard
input one line of JSON for each process to start (`name`, `argv`, `environment`) and ends everything when that input
ends, however its parent ended. The system's signal on a parent's death follows a thread, not a process. If this
program is killed, that signal ends its processes. If a process ends by itself, this program prints one line of JSON,
ends the others, and leaves their logs until its input ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LOOK_EVERY = 0.1  # seconds


def main(folder: Path) -> None:
    """Start the processes that the input names, until the input ends."""
    signal.signal(signal.SIGTERM, _leave)
    running: dict[str, subprocess.Popen[bytes]] = {}
    unread = b""
    try:
        while True:
            readable, _, _ = select.select([0], [], [], _LOOK_EVERY)
            if readable:
                chunk = os.read(0, 65536)
                if not chunk:
                    return
                *lines, unread = (unread + chunk).split(b"\n")
                for line in lines:
                    wanted = json.loads(line)
                    running[wanted["name"]] = _start(wanted, folder)
            ended = [(name, process.returncode) for name, process in running.items() if process.poll() is not None]
            if ended:
                _end(running)
                running.clear()
                os.write(1, json.dumps(ended).encode() + b"\n")
    finally:
        _end(running)
        shutil.rmtree(folder, ignore_errors=True)


def _end(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    # They hold no data that needs an orderly end.
    for process in running.values():
        process.kill()
    for process in running.values():
        process.wait()


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


def _start(wanted: dict[str, object], folder: Path) -> subprocess.Popen[bytes]:
    argv, environment = wanted["argv"], wanted["environment"]
    assert isinstance(argv, list)
    assert isinstance(environment, dict)
    with (folder / f"{wanted['name']}.log").open("ab") as log:
        return subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,  # there is no other thread here
        )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
