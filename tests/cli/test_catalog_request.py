"""`neuroscale catalog add --pull-request` on a real forge: a model from its config to a pull request that passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA, write_checkpoint
from forge_server import ForgeServer
from measured_models import measured_load
from pull_request_lab import cloned, committed_repository

pytestmark = pytest.mark.tools


def test_a_model_comes_from_its_config_to_a_pull_request_that_passes_and_stays_one(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    project = cloned(forge_server, committed_repository(tmp_path), tmp_path / "clone")
    config = write_checkpoint(tmp_path / "model", LLAMA) / "config.json"
    command = [
        sys.executable,
        "-P",
        "-m",
        "neuroscale",
        "catalog",
        "add",
        str(config),
        "--name",
        "someone/Some-Model",
        "--hub",
    ]
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


ANSWERS = """\
service: help-desk
model: Qwen/Qwen3-8B
team: team-alpha
environment: dev
concurrent_users: 8
longest_prompt_tokens: 1024
longest_answer_tokens: 256
p95_ttft_seconds: 2
availability: standard
"""


def test_a_benchmark_comes_from_its_result_to_a_merge_that_the_next_plan_believes(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    project = cloned(forge_server, committed_repository(tmp_path), tmp_path / "clone")
    told = {
        "schema_version": 1,
        "service": "dev/help-desk",
        "model": "Qwen/Qwen3-8B",
        "accelerator": "nvidia-l4",
        "count": 1,
        "vllm_version": "0.32.0",
        "vllm_args": ["--max-num-seqs=14"],
        "date": "2026-11-28",
        "report": f"sha256:{'5' * 64}",
        "loads": [measured_load(8, inter_token=0.07), measured_load(256, inter_token=0.08, ttft=0.25)],
    }
    (tmp_path / "bench.json").write_text(json.dumps(told))
    (tmp_path / "answers.yaml").write_text(ANSWERS)

    def said_by(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-P", "-m", "neuroscale", *words, "--json"]
        done = subprocess.run(command, cwd=project.clone.root, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    record = ["catalog", "record", "--from", str(tmp_path / "bench.json"), "--pull-request"]
    record += ["--token-file", str(forge_server.token_file("developer"))]
    before = said_by("plan", str(tmp_path / "answers.yaml"))
    said = [said_by(*record) for _ in range(2)]
    assert [one["outcome"] for one in said] == ["opened", "unchanged"]
    pull = project.developer.pull(said[0]["number"])
    assert pull.title == "Record a measurement of Qwen/Qwen3-8B"
    assert "8 users, 1,024 + 256 tokens" in pull.body
    assert "Plans do not believe it" in pull.body
    assert project.status(pull) == "success"
    project.owner.approve(pull.number, pull.head_sha)
    project.owner.merge(pull.number, pull.head_sha)
    project.clone.run("switch", "--quiet", "--detach", project.main())
    after = said_by("plan", str(tmp_path / "answers.yaml"))
    assert {"--max-num-seqs=14"} <= set(before["vllm_args"]) & set(after["vllm_args"])
    assert (before["load"]["coverage"], after["load"]["coverage"]) == ("interpolated", "measured")
    assert after["load"]["ttft_seconds"]["p95"]["value"] == pytest.approx(0.25, rel=0.1)  # as the benchmark says
    project.clone.git.close()
