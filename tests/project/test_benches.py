"""The benchmarks run at their smallest size, so that nobody finds them broken on the day of a measurement."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from roots import CHECKOUT

_WITH_THE_PLATFORM = (pytest.mark.tools, pytest.mark.platform, pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("plan", r"a YAML document beside it [\d.]+ ms: ratio [\d.]+", id="plan", marks=pytest.mark.slow),
        pytest.param("gate", r"^ +100 +[\d.]+ +[\d.]+ +[\d.]+", id="gate", marks=pytest.mark.tools),
        pytest.param("sync", r"Synced and Healthy +[\d.]+", id="sync", marks=_WITH_THE_PLATFORM),
    ],
)
def test_a_benchmark_runs_at_its_smallest_size(name: str, shown: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts" / f"bench-{name}", "--smallest"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(shown, done.stdout, re.MULTILINE), done.stdout


def test_the_nightly_workflow_runs_each_benchmark_that_has_a_smallest_size() -> None:
    workflow = (CHECKOUT / ".github/workflows/nightly.yaml").read_text()
    (listed,) = re.findall(r"for bench in ([a-z ]+); do", workflow)
    files = (CHECKOUT / "scripts").glob("bench-*")
    assert listed.split() == sorted(file.name[6:] for file in files if "--smallest" in file.read_text())
