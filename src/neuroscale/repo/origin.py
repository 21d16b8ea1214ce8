"""Fetches what others have merged into a clone's origin meanwhile."""

from __future__ import annotations

import contextlib
import os

from neuroscale.repo.git import Git, GitError

_SECONDS = 60.0


def fetch_origin(git: Git) -> None:
    """Fetch the newest commits of the origin, if that is possible without a password prompt."""
    with contextlib.suppress(GitError):
        git.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "origin"),
            check=False,
            # The variables with which the caller lets git log in; nothing else here needs them.
            environment={key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG_")},
            timeout=_SECONDS,
        )
