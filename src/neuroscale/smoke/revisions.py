"""Compares the commit that Argo CD has deployed with the merged one, for one service."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from neuroscale.repo.git import Git
from neuroscale.repo.origin import fetch_origin

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
            fetch_origin(git)
            if not git.knows(deployed):
                return "unknown"
        there, wanted = (git.tree(commit, folder) for commit in (deployed, merged))
        if there == wanted:
            return "equal"
        later = git.run("merge-base", "--is-ancestor", merged, deployed, check=False).returncode == 0
        return "ahead" if later else "behind"
    finally:
        git.close()
