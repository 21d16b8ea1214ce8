"""How the commit that Argo CD is at stands to the merged one, as far as one service goes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from neuroscale.repo.git import Git, GitError

_FETCH_SECONDS = 60.0

Standing = Literal["the same", "equal", "behind", "ahead", "unknown"]


def standing(root: Path, folder: str, merged: str, deployed: str) -> Standing:
    """Of two commits of a clone: the same one; equal, where the folder is; behind or ahead, where it is not.

    `ahead`: the deployed commit comes after the merged one, and the folder was changed again. `unknown`: neither the
    clone nor its origin has the deployed commit. The origin is asked because others merge while tests run.
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
    """Bring the newest commits of the origin, where it can be asked without asking anybody for a password."""
    with contextlib.suppress(GitError):
        git.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "origin"),
            check=False,
            # What the caller gives git to log in with, which nothing else here needs.
            environment={key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG_")},
            timeout=_FETCH_SECONDS,
        )
