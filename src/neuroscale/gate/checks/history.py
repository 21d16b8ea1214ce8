"""Looks up earlier states of the base branch: a folder that a revert brings back is not an edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from neuroscale.gate.merged_change import MOST_PATHS, Change
from neuroscale.repo.layout import MANIFESTS

_MOST_CHANGES = 1000


@dataclass(frozen=True)
class Stood:
    """A commit of the base branch, and its day as an ISO date."""

    commit: str
    day: str

    def __str__(self) -> str:
        return f"commit {self.commit[:12]} of {self.day}"


class History:
    """The base branch by its first parents: its own commits, without those of the branches merged into it.

    `folders`: the folders that `stood` may be called with. It asks Git once, at the first call.
    """

    def __init__(self, change: Change, folders: Sequence[str]) -> None:
        self._change = change
        self._folders = folders
        self._answers: dict[str, Stood | None] = {}

    def stood(self, folder: str) -> Stood | None:
        """The newest commit that made a folder of the base branch exactly what it is after the change.

        None if the folder was never like this in the commits that are looked through. The present state of a folder
        that the change leaves alone does not count: it must have been like this before its last change.
        """
        if folder not in self._answers:
            self._answers[folder] = self._find(folder)
        return self._answers[folder]

    @property
    def reach(self) -> str:
        """The part of the branch that was looked through, in words."""
        if len(self._commits) < _MOST_CHANGES:
            return "on the base branch"
        return f"in the last {_MOST_CHANGES} changes of the base branch (older ones were not looked at)"

    @cached_property
    def _commits(self) -> list[Stood]:
        """The commits of the base branch that changed one of the folders, newest first."""
        # A command line has a limited length.
        paths = self._folders if len(self._folders) <= MOST_PATHS else [MANIFESTS]
        options = ("--first-parent", f"--max-count={_MOST_CHANGES}", "--format=%H %cs")
        listed = self._change.git.text("log", *options, self._change.base, "--", *paths)
        return [Stood(*line.split(" ")) for line in listed.splitlines()]

    def _find(self, folder: str) -> Stood | None:
        git = self._change.git
        wanted = git.tree(self._change.tree, folder)
        if not wanted or "\n" in folder:  # git reads one name a line
            return None
        names = "".join(f"{one.commit}:{folder}\n" for one in self._commits)
        told = git.run("cat-file", "--batch-check=%(objectname)", data=names.encode(errors="surrogateescape"))
        states = [line == wanted for line in told.stdout.decode(errors="replace").split("\n")]
        start = 0
        if git.tree(self._change.base, folder) == wanted:
            start = states.index(False) if False in states else len(states)
        if True not in states[start:]:
            return None
        newest = states.index(True, start)
        # Commits that changed another folder saw it as well.
        after = states.index(False, newest) if False in states[newest:] else len(states)
        return self._commits[after - 1]
