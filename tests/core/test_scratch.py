"""Temporary folders: what a killed program left is removed by the next one, and nothing that is in use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from neuroscale.core.files import scratch_folder

_HOLD = """
import sys, time
from neuroscale.core.files import scratch_folder
with scratch_folder("neuroscale-test-") as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_program_left_is_removed_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        (folder / "file").write_text("x")
        os.utime(folder, (1, 1))
        with scratch_folder("neuroscale-test-") as own:
            assert own.is_dir()
        assert folder.is_dir(), "a folder in use was removed"
        process.kill()
        process.wait()
    (tmp_path / "neuroscale-test-file").write_text("x")
    (tmp_path / "neuroscale-test-link").symlink_to("/")
    new = tmp_path / "neuroscale-test-new"
    new.mkdir()
    with scratch_folder("neuroscale-test-") as own:
        left = {path.name for path in tmp_path.iterdir()} - {own.name}
    assert left == {"neuroscale-test-file", "neuroscale-test-link", "neuroscale-test-new"}
    assert not own.exists()
