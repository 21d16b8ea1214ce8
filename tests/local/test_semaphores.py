"""What ended programs leave in /dev/shm: their own semaphores go with them, however they end, and no others."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from neuroscale.local.node import shim
from neuroscale.local.process import INSTANCE_VARIABLE, belonging, end
from waiting import wait_for

# As vLLM's server: a semaphore for processes that it may spawn, and a process of its own.
_PROGRAM = """
import multiprocessing, os, pathlib, signal, subprocess, sys, time
note, deaf, ends = sys.argv[1:]
if deaf == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = multiprocessing.get_context("spawn").Lock()
subprocess.Popen(["sleep", "600"])
pathlib.Path(note + ".half").write_text(lock._semlock.name)
os.rename(note + ".half", note)
if ends == "ends":
    os.kill(os.getpid(), signal.SIGKILL)
if ends == "grows":
    much = b"x" * 300_000_000
time.sleep(600)
"""


def semaphore(note: Path) -> Path:
    return Path(f"/dev/shm/sem.{note.read_text().removeprefix('/')}")


@pytest.fixture
def strangers() -> Iterator[Path]:
    """A semaphore of another program of the same user."""
    lock = multiprocessing.get_context("spawn").Lock()
    path = Path(f"/dev/shm/sem.{lock._semlock.name.removeprefix('/')}")  # type: ignore[attr-defined]
    yield path
    assert path.exists()


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize(
    ("deaf", "ends", "sent"),
    [
        ("hears", "stays", signal.SIGTERM),
        ("deaf", "stays", signal.SIGUSR1),
        ("hears", "ends", None),
        ("hears", "grows", None),
    ],
    ids=["asked to end", "killed at the end of its grace", "killed by itself", "killed for its memory"],
)
def test_a_container_leaves_no_semaphore(tmp_path: Path, deaf: str, ends: str, sent: signal.Signals | None) -> None:
    note = tmp_path / "note"
    asked = {
        "argv": [sys.executable, "-c", _PROGRAM, str(note), deaf, ends],
        "environment": dict(os.environ),
        "folder": str(tmp_path),
        "memory": 250_000_000,
        "log": str(tmp_path / "log"),
        "attempt": 0,
        "note": "",
        **dict.fromkeys(("uid", "gid", "log_gid", "read_only_root")),
    }
    command = [sys.executable, "-I", shim.__file__, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
        wait_for(note.exists)
        if sent is not None:
            assert semaphore(note).exists()
            process.send_signal(sent)
        process.wait(60)
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == {None: 137, signal.SIGTERM: 143}.get(sent, 137)
    assert not semaphore(note).exists()


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("deaf", ["hears", "deaf"])
def test_an_ended_platform_leaves_no_semaphore(tmp_path: Path, deaf: str) -> None:
    note = tmp_path / "note"
    environment = {**os.environ, INSTANCE_VARIABLE: tmp_path.name}
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, str(note), deaf, "stays"], env=environment) as process:
        wait_for(note.exists)
        assert semaphore(note).exists()
        end(lambda: [one for one in belonging(tmp_path.name) if one.status() != psutil.STATUS_ZOMBIE], patience=0.5)
        process.wait(60)
    assert not semaphore(note).exists()
