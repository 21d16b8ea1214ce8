"""`neuroscale comment`, on a real forge: what a workflow's step writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forge_server import ForgeServer
from neuroscale.forge.branches import Access, Branches
from neuroscale.report.markdown import MARKER
from repositories import Repository
from waiting import wait_for

pytestmark = pytest.mark.tools


def test_a_gate_that_was_ended_without_a_report_takes_back_the_one_before(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    """What stands there is of an older commit, and may say that all is well."""
    clone = Repository(tmp_path / "clone")
    clone.commit({"a.txt": "a"})
    repository = forge_server.create_repository(clone.root)
    forge = forge_server.forge(repository, forge_server.owner)
    branches = Branches(clone.git, Access(repository.clone_url, forge_server.owner))

    def tell(report: Path, run: int, number: int, head: str) -> str:
        environment = os.environ | {
            "GITHUB_SERVER_URL": forge_server.url,
            "GITHUB_REPOSITORY": repository.slug,
            "GITHUB_RUN_ID": str(run),
            "GITHUB_RUN_NUMBER": str(run),
            "GITHUB_RUN_ATTEMPT": "1",
            "NEUROSCALE_FORGE_TOKEN": forge_server.owner.secret,
        }
        command = [sys.executable, "-P", "-m", "neuroscale", "comment", str(report)]
        command += ["--pull-request", str(number), "--head", head]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (comment,) = forge.comments(number)
        assert f"{forge_server.url}/{repository.slug}/actions/runs/{run})" in comment.body
        return comment.body

    first = clone.commit({"b.txt": "b"})
    branches.push(repository, "topic", first, None)
    pull = forge.open_pull("Topic", "", repository, "topic", "main")
    report = tmp_path / "verdict.md"
    report.write_text(f"{MARKER}\n## No findings\n")
    assert "No findings" in tell(report, 1, pull.number, first)
    report.unlink()
    second = clone.commit({"c.txt": "c"})
    branches.push(repository, "topic", second, first)
    wait_for(lambda: forge.pull(pull.number).head_sha == second)
    comment = tell(report, 2, pull.number, second)
    assert "not a judgement of the change" in comment
    assert "No findings" not in comment
