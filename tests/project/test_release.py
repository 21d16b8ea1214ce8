"""A release: its version stands in one place, and a tag that names another version ends the workflow."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from neuroscale import __version__
from neuroscale.core import delivered
from wheel_lab import built_wheel

ROOT = delivered.FOLDER


def script(name: str) -> str:
    """A step of the release's build."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())["jobs"]
    (step,) = [step for step in jobs["build"]["steps"] if step.get("name") == name]
    return str(step["run"])


def test_the_version_stands_in_one_place(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0].rstrip(",") == __version__
    project = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project
    assert re.search(r"^version =", project, re.MULTILINE) is None
    built_wheel(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"neuroscale-{__version__}-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("tag", "status"),
    [(f"v{__version__}", 0), (__version__, 1), (f"v{__version__}.1", 1), (f"v{__version__}-rc1", 1), ("v", 1)],
)
def test_only_the_tag_of_the_packages_version_is_built(tag: str, status: int) -> None:
    done = subprocess.run(
        ["bash", "-c", script("Compare the tag with the package's version")],
        cwd=ROOT,
        env={**os.environ, "GITHUB_REF_NAME": tag},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert (f"::error::The tag is {tag}," in done.stdout) == bool(status)


def test_the_checksums_name_every_file_of_the_release(tmp_path: Path) -> None:
    folder = tmp_path / ".state/release"
    folder.mkdir(parents=True)
    for name in ("a.whl", "b.zip", "-c.json"):
        (folder / name).write_text(name)
    build, sums = script("Build the wheel, and write the checksums").split("\n", 2)[1:]
    assert build.split()[1:] == ["-P", "-m", "hatchling", "build", "-t", "wheel", "-d", ".state/release"]
    subprocess.run(["bash", "-e", "-c", sums], cwd=tmp_path, check=True, timeout=60)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=folder, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"{name}: OK" for name in sorted(("a.whl", "b.zip", "-c.json"))]
