"""Lessons and demo of an organisation whose environments, teams and cost centres all have names of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from neuroscale.catalog import load_catalog
from neuroscale.core.delivered import FOLDER as REPOSITORY
from neuroscale.milestones.lesson_platform import local_service
from neuroscale.repo.snapshot import FolderSnapshot
from renamed_repository import renamed_copy, run

pytestmark = [pytest.mark.tools, pytest.mark.slow, pytest.mark.xdist_group("other_names")]

JUDGED, PLANNED = "a-grep-that-matches-fail-0", "weights-that-cross-pcie"
FIRST_STEPS = """
import contextlib, sys
from pathlib import Path
from neuroscale.demo import run
from neuroscale.demo.setup import SetUp

run.platform_steps = lambda _: []
run.set_up_beside = lambda: contextlib.nullcontext(SetUp(None, None))
run.run_demo(Path(sys.argv[1]), None, keep=False)
"""


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return renamed_copy(REPOSITORY, tmp_path_factory.mktemp("other") / "names").root


def test_lessons_of_the_gate_and_of_planning_hold_with_the_output_of_their_pages(renamed: Path) -> None:
    done = run(renamed, "milestones", JUDGED, PLANNED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 lessons held" in done.stdout
    assert "another output" not in done.stdout


def test_a_lesson_is_red_where_the_organisation_has_removed_the_policy_that_prevents_the_failure(
    renamed: Path, tmp_path: Path
) -> None:
    policy = renamed / "policies/ownership-labels"
    policy.rename(tmp_path / "policy")
    try:
        done = run(renamed, "milestones", JUDGED)
    finally:
        (tmp_path / "policy").rename(policy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT SO: The gate refuses a bad pod." in done.stdout


def test_the_lesson_on_the_local_platform_changes_a_service_that_the_organisation_has_there(renamed: Path) -> None:
    (folder,) = (renamed / "manifests").glob("*/tiny-moe")
    assert not (renamed / "manifests/local").exists()
    request = yaml.safe_load((folder / "request.yaml").read_text())
    assert local_service(renamed) == (
        "tiny-moe",
        load_catalog(FolderSnapshot(renamed)).teams[request["team"]].namespace,
    )


def test_the_first_steps_of_the_demo_end_as_they_must(renamed: Path, tmp_path: Path) -> None:
    before = subprocess.run(["git", "-C", renamed, "status", "--porcelain"], capture_output=True, check=True).stdout
    done = subprocess.run(
        [sys.executable, "-c", FIRST_STEPS, tmp_path / "state"],
        env={"PYTHONPATH": str(renamed / "src"), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^platform: [34]\d\d files written", done.stdout, re.MULTILINE)
    assert "caught by the policy no-mutable-image-tags" in done.stdout
    after = subprocess.run(["git", "-C", renamed, "status", "--porcelain"], capture_output=True, check=True).stdout
    assert after == before == b""
