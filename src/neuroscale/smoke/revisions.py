"""How the commit that Argo CD is at stands to the merged one, as far as one service goes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from neuroscale.git import Git

Standing = Literal["the same", "equal", "behind", "ahead", "unknown"]


def standing(root: Path, folder: str, merged: str, deployed: str) -> Standing:
    """Of two commits of a clone: the same one; equal, where the folder is; behind or ahead, where it is not.

    `ahead`: the deployed commit comes after the merged one, and the folder was changed again. `unknown`: the clone does
    not have the deployed commit.
    """
    if deployed == merged:
        return "the same"
    git = Git(root)
    try:
        known = bool(deployed) and git.run("cat-file", "-e", f"{deployed}^{{commit}}", check=False).returncode == 0
        if not known:
            return "unknown"
        there, wanted = (_tree(git, commit, folder) for commit in (deployed, merged))
        if there == wanted:
            return "equal"
        later = git.run("merge-base", "--is-ancestor", merged, deployed, check=False).returncode == 0
        return "ahead" if later else "behind"
    finally:
        git.close()


def _tree(git: Git, commit: str, folder: str) -> bytes:
    """The id of a folder's content; empty where there is none."""
    done = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{folder}", check=False)
    return done.stdout.strip() if done.returncode == 0 else b""
