"""Compares the commit that Argo CD has deployed with the merged one, for one service."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from neuroscale.repo.git import Git, GitError

_FETCH_SECONDS = 60.0

Standing = Literal["the same", "equal", "behind", "ahead", "unknown"]


def standing(root: Path, folder: str, merged: str, deployed: str) -> Standing:
    """Compare two commits of a clone: `same` commit, or `equal` folder; else the deployed one is `behind` or `ahead`.

    `ahead`: the deployed commit comes after the merged one, and the folder was changed again. `unknown`: neither the
    clone nor its origin has the deployed commit. The origin is asked because others may merge while tests run.
    """
    if deployed == merged:
        return "the same"
    git = Git(root)
    try:
        if not git.knows(deployed):
            _fetch(git)
            if not git.knows(deployed):
                return "unknown"
        there, wanted = (git.tree(commit, folder) for commit in (deployed, merged))
        if there == wanted:
            return "equal"
        later = git.run("merge-base", "--is-ancestor", merged, deployed, check=False).returncode == 0
        return "ahead" if later else "behind"
    finally:
        git.close()


def _fetch(git: Git) -> None:
    """Fetch the newest commits of the origin, if that is possible without a password prompt."""
    with contextlib.suppress(GitError):
        git.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "origin"),
            check=False,
            # The variables with which the caller lets git log in; nothing else here needs them.
            environment={key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG_")},
            timeout=_FETCH_SECONDS,
        )
