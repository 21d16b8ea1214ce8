"""Checks that the machine has what set-up needs; one sentence names the first missing thing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuroscale.core.units import GIB
from neuroscale.repo.layout import WRITTEN
from neuroscale.tools.running import SetupError

GIT = (2, 38)  # the first whose `git merge-tree --write-tree` merges without a work tree


@dataclass(frozen=True)
class Machine:
    """The machine: the platform's name, the output of `git --version` (None: no git), whether venvs can be made."""

    platform: str
    git: str | None
    venv: bool


def inspect() -> Machine:
    """Look at this machine."""
    try:
        done = subprocess.run(["git", "--version"], capture_output=True, text=True, check=False, timeout=60)
        git = done.stdout if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        git = None
    venv = all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))
    return Machine(sys.platform, git, venv)


def check(machine: Machine) -> None:
    """Raises SetupError for the first thing that is missing."""
    if machine.platform != "linux":
        raise SetupError(f"Linux is needed, and this is {machine.platform}. Use a Linux machine, WSL 2 or a container.")
    if machine.git is None:
        raise SetupError("git is not installed. Install git 2.38 or newer.")
    match = re.search(r"(\d+)\.(\d+)", machine.git)
    if match is None or (int(match[1]), int(match[2])) < GIT:
        raise SetupError(
            f"git 2.38 or newer is needed, and this is {machine.git.strip() or 'unknown'}. Install a newer git."
        )
    if not machine.venv:
        raise SetupError(
            "This Python cannot make virtual environments. "
            "Install its venv package (Debian and Ubuntu: apt install python3-venv)."
        )


def check_untracked(repository: Path) -> None:
    """Raises SetupError if git tracks a path that set-up, workflows, tools or tests write to.

    It could be an environment that runs somebody else's program, or a link in place of a folder that set-up writes to.
    """
    patterns = [f":(glob,icase)**/{name}{below}" for name in WRITTEN for below in ("", "/**")]
    # The folder may belong to another user: this command runs nothing of its configuration.
    settings = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    done = subprocess.run(
        ["git", *settings, "-C", repository, "ls-files", "-z", "--", *patterns],
        capture_output=True,
        check=False,
        timeout=60,
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    )
    if done.returncode != 0:
        if not (repository / ".git").exists():
            return  # not a clone: git tracks nothing
        raise SetupError(f"git cannot say what it tracks in {repository}: {done.stderr.decode(errors='replace')}")
    if tracked := done.stdout.decode(errors="replace").split("\0")[0]:
        raise SetupError(
            f"git tracks {tracked!a}, where set-up and tests write, so that it could replace their own files. "
            "Look at who committed it and why; then run: git rm -r --cached with its name, and commit."
        )


def by_disk(needs: Mapping[Path, float]) -> list[tuple[Path, float, int]]:
    """For each disk: the last of the folders on it, the bytes that they need together, and those that are free."""
    disks: dict[int, tuple[Path, float, int]] = {}
    for folder, needed in needs.items():
        place = _existing(folder)
        disk = place.stat().st_dev
        before = disks[disk][1] if disk in disks else 0.0
        disks[disk] = (folder, before + needed, shutil.disk_usage(place).free)
    return list(disks.values())


def check_space(folder: Path, needed: int) -> None:
    """Raises SetupError when the disk that `folder` is or will be on has less than `needed` bytes free."""
    free = shutil.disk_usage(_existing(folder)).free
    if free < needed:
        raise SetupError(
            f"{folder} needs {needed / GIB:.1f} GiB of free disk space, and {free / GIB:.1f} GiB are left. "
            "Free some, or set NEUROSCALE_CACHE to a folder on a larger disk."
        )


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())
