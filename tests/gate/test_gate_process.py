"""A tool that gives no answer is noticed: missing, crashed, killed, too slow, or with a status of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.run_upstream_tool import run_tool


def script(folder: Path, text: str) -> Path:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_status_and_output_come_back(tmp_path: Path) -> None:
    run = run_tool(
        [script(tmp_path, "echo out; echo err >&2; exit 1")], folder=tmp_path, timeout=10, statuses=frozenset({0, 1})
    )
    assert (run.exit_status, run.output, run.errors) == (1, "out\n", "err\n")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("echo panic >&2; exit 2", "exit status 2.*panic"),
        ("kill -9 $$", "signal 9"),
        ("exit 127", "exit status 127"),
    ],
)
def test_any_other_ending_is_no_answer(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(UntrustedError, match=word):
        run_tool([script(tmp_path, text)], folder=tmp_path, timeout=10, statuses=frozenset({0, 1}))


def test_a_tool_that_is_not_there_or_cannot_run_is_no_answer(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF truncated")
    broken.chmod(0o755)
    for path in (tmp_path / "missing", broken):
        with pytest.raises(UntrustedError, match="could not be started"):
            run_tool([path], folder=tmp_path, timeout=10, statuses=frozenset({0}))


def test_a_tool_that_does_not_end_is_stopped_with_everything_it_started(tmp_path: Path) -> None:
    text = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(UntrustedError, match="did not end within"):
        run_tool([script(tmp_path, text)], folder=tmp_path, timeout=0.5, statuses=frozenset({0}))
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while running(child):
        assert time.monotonic() < deadline, "the tool's own child is still running"


def running(process: int) -> bool:
    """Whether a process is there and more than an entry that nobody has collected yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_callers_environment_does_not_reach_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("GITLEAKS_CONFIG", "mine")
    run = run_tool([script(tmp_path, "env")], folder=tmp_path, timeout=10, statuses=frozenset({0}))
    assert "secret" not in run.output
    assert "GITLEAKS_CONFIG" not in run.output
    assert f"HOME={tmp_path}" in run.output
    assert os.environ["PATH"] in run.output
