"""How the commit that Argo CD is at stands to the merged one, as far as one service goes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from neuroscale.git import Git, GitError

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
        if not _known(git, deployed):
            _fetch(git)
            if not _known(git, deployed):
                return "unknown"
        there, wanted = (_tree(git, commit, folder) for commit in (deployed, merged))
        if there == wanted:
            return "equal"
        later = git.run("merge-base", "--is-ancestor", merged, deployed, check=False).returncode == 0
        return "ahead" if later else "behind"
    finally:
        git.close()


def _known(git: Git, commit: str) -> bool:
    return bool(commit) and git.run("cat-file", "-e", f"{commit}^{{commit}}", check=False).returncode == 0


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


def _tree(git: Git, commit: str, folder: str) -> bytes:
    """The id of a folder's content; empty where there is none."""
    done = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{folder}", check=False)
    return done.stdout.strip() if done.returncode == 0 else b""
