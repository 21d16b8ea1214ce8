"""Kyverno's memory in tests: what was asked before is answered from it, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from comparisons import ALL
from kyverno_once import cache_with_memory
from neuroscale.core import tool_cache

_COUNTS = """#!/bin/sh
echo asked >> {log}
cat "$2"
grep -q trouble "$2" && echo trouble >&2
exit 1
"""


def test_only_the_same_question_is_answered_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL, raising=False)
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    log, policy = tmp_path / "log", tmp_path / "policy.yaml"
    real = tool_cache.tool("kyverno")
    real.folder.mkdir(parents=True)
    real.binary.write_text(_COUNTS.format(log=log))
    real.binary.chmod(0o755)
    (real.folder / tool_cache.STAMP).write_text(json.dumps({"size": real.binary.stat().st_size}))

    def program(run: str) -> Path:
        """The remembering program of a test run."""
        (found,) = (cache_with_memory(tmp_path / run) / "tools" / "kyverno").glob("*/kyverno")
        return found

    def ask(text: str, first: str = "apply", run: str = "run") -> int:
        """Ask twice; how often Kyverno itself was asked."""
        policy.write_text(text)
        log.write_text("")
        binary = program(run)
        for _ in range(2):
            done = subprocess.run([binary, first, policy], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout) == (1, text)
            assert done.stderr == ("trouble\n" if "trouble" in text else "")
        return len(log.read_text().split())

    with monkeypatch.context() as patch:
        patch.setenv("NEUROSCALE_CACHE", str(cache_with_memory(tmp_path / "run")))
        assert tool_cache.problem(tool_cache.tool("kyverno")) is None
    assert ask("one") == 1
    assert ask("two") == 1
    assert ask("one") == 0
    # Its files name other files.
    assert ask("one", "test") == 2
    assert ask("trouble") == 2

    assert ask("one", run="next run") == 0
    for answer in (tmp_path / "cache" / "kyverno-answers").iterdir():
        os.utime(answer, (0, time.time() - 8 * 24 * 60 * 60))
    assert ask("one") == 1
    monkeypatch.setenv(ALL, "1")
    assert ask("one", run="run by night") == 1
    monkeypatch.delenv(ALL)

    # Another build of Kyverno.
    other = replace(real, folder=real.folder.with_name("other"))
    real.folder.rename(other.folder)
    monkeypatch.setattr(tool_cache, "tool", lambda _: other)
    assert ask("one", run="run with another build") == 1
