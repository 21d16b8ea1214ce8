"""Finds the forge that a clone's git remote leads to."""

from __future__ import annotations

from neuroscale.core.errors import InputError, Problem
from neuroscale.repo.git import Git


def remote_address(git: Git, remote: str) -> str:
    """The address of a git remote, by the remote's name."""
    done = git.run("remote", "get-url", "--", remote, check=False)
    if done.returncode != 0:
        named = git.text("remote").split()
        raise InputError(
            Problem(
                "the command line",
                "--remote",
                f"{remote!a} is not a git remote of this clone",
                f"Name one of {', '.join(named)}." if named else "Add one: git remote add origin URL.",
            )
        )
    return done.stdout.decode(errors="replace").strip()
