"""`neuroscale catalog add --pull-request` on a real forge: a model from its config to a pull request that passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import LLAMA, write_checkpoint
from forge_server import ForgeServer
from pull_request_lab import cloned, committed_repository

pytestmark = pytest.mark.tools


def test_a_model_comes_from_its_config_to_a_pull_request_that_passes_and_stays_one(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    project = cloned(forge_server, committed_repository(tmp_path), tmp_path / "clone")
    config = write_checkpoint(tmp_path / "model", LLAMA) / "config.json"
    command = [sys.executable, "-P", "-m", "neuroscale", "catalog", "add", str(config), "--name", "someone/Some-Model"]
    command += ["--pull-request", "--json", "--token-file", str(forge_server.token_file("developer"))]
    said = []
    for _ in range(2):
        done = subprocess.run(command, cwd=project.clone.root, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(json.loads(done.stdout))
    assert [one["outcome"] for one in said] == ["opened", "unchanged"]
    assert said[0]["number"] == said[1]["number"]
    pull = project.developer.pull(said[0]["number"])
    assert pull.title == "Add someone/Some-Model to the catalog"
    assert "In dev: " in pull.body
    assert project.status(pull) == "success"
    assert project.clone.run("status", "--porcelain") == ""
    project.clone.git.close()
