"""Looks up earlier states of the base branch, so that a folder that a revert brings back is not taken for an edit.

That a folder stood on the branch does not prove that anybody judged it: a merge by rebasing brings every commit of a
pull request, and the gate judged only their combined result. So the folder must also be what its own request and plan
rendered to with that commit's template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from neuroscale.core.errors import InputError
from neuroscale.gate.checks.repository_costs import locked_plans
from neuroscale.gate.merged_change import Change, few_paths
from neuroscale.planning.plan import Plan
from neuroscale.rendering.scaffolder.template import Template, load_template
from neuroscale.repo.layout import TEMPLATE
from neuroscale.repo.snapshot import GitSnapshot

_MOST_CHANGES = 1000
_MOST_TEMPLATES = 20  # with which one folder is rendered


@dataclass(frozen=True)
class Stood:
    """A commit of the base branch, and its day as an ISO date."""

    commit: str
    day: str

    def __str__(self) -> str:
        return f"commit {self.commit[:12]} of {self.day}"


Renders = Callable[[Template], bool]
"""Whether a template renders a folder as it is after the change; it may raise InputError."""


class History:
    """The base branch by its first parents: its own commits, without those of the branches merged into it.

    `folders`: the folders that `stood` may be called with. It asks Git once, at the first call.
    """

    def __init__(self, change: Change, folders: Sequence[str]) -> None:
        self._change = change
        self._folders = folders
        self._answers: dict[str, Stood | None] = {}
        self._unproven: dict[str, Stood] = {}
        self._templates: dict[str, Template | None] = {}

    def stood(self, folder: str, renders: Renders) -> Stood | None:
        """The newest commit that made a folder of the base branch exactly what it is after the change, and whose own
        template renders it so.

        None if there is none in the commits that are looked through. The present state of a folder that the change
        leaves alone does not count: it must have been like this before its last change.
        """
        if folder not in self._answers:
            self._answers[folder] = self._proven(folder, renders)
        return self._answers[folder]

    def stands(self, folder: str, renders: Renders) -> Stood | None:
        """The commit that made a folder what it is on the base branch, if the change leaves the folder alone and that
        commit's own template renders it so: only the template has moved since."""
        git = self._change.git
        here = git.tree(self._change.tree, folder)
        if not here or here != git.tree(self._change.base, folder):
            return None
        newest = ("--first-parent", "--max-count=1", "--format=%H %cs")
        made = git.text("log", *newest, self._change.base, "--", folder)
        there = Stood(*made.split(" ")) if made else None
        template = None if there is None else self._template(there.commit)
        try:
            return there if template is not None and renders(template) else None
        except InputError:
            return None

    def never(self, folder: str) -> str:
        """Why `stood` found no commit, in words."""
        if (there := self._unproven.get(folder)) is not None:
            return f"the template of {there}, where the folder was like this, does not render it: it may be unjudged"
        if len(self._commits) < _MOST_CHANGES:
            return "no such folder was found on the base branch"
        last = f"the last {_MOST_CHANGES} changes of the base branch (older ones were not looked at)"
        return f"no such folder was found in {last}"

    def grows(self, folder: str, after: Plan) -> bool:
        """Whether a service takes more accelerators than on the base branch, or is not known to be there."""
        plan = locked_plans(self._change.before, [folder]).get(folder)
        return plan is None or after.replicas.min * after.accelerator_count > plan.replicas * plan.devices

    def removes(self, path: str) -> bool:
        """Whether the base branch has a file that the change's result lacks."""
        return self._change.before.read(path) is not None and self._change.after.read(path) is None

    @cached_property
    def _commits(self) -> list[Stood]:
        """The commits of the base branch that changed one of the folders, newest first."""
        options = ("--first-parent", f"--max-count={_MOST_CHANGES}", "--format=%H %cs")
        listed = self._change.git.text("log", *options, self._change.base, "--", *few_paths(self._folders))
        return [Stood(*line.split(" ")) for line in listed.splitlines()]

    def _proven(self, folder: str, renders: Renders) -> Stood | None:
        for there in islice(self._states(folder), _MOST_TEMPLATES):
            template = self._template(there.commit)
            try:
                if template is not None and renders(template):
                    return there
            except InputError:
                pass
            self._unproven.setdefault(folder, there)
        return None

    def _template(self, commit: str) -> Template | None:
        """The template of a commit; None if it cannot be read."""
        tree = self._change.git.tree(commit, TEMPLATE)
        if tree not in self._templates:
            try:
                self._templates[tree] = load_template(GitSnapshot(self._change.git, commit))
            except InputError:
                self._templates[tree] = None
        return self._templates[tree]

    def _states(self, folder: str) -> Iterator[Stood]:
        """The commits that made the folder what it is after the change, the newest first."""
        git = self._change.git
        wanted = git.tree(self._change.tree, folder)
        if not wanted or "\n" in folder:  # git reads one name a line
            return
        names = "".join(f"{commit.commit}:{folder}\n" for commit in self._commits)
        output = git.run("cat-file", "--batch-check=%(objectname)", data=names.encode(errors="surrogateescape"))
        states = [line == wanted for line in output.stdout.decode(errors="replace").split("\n")]
        # The present state does not count. Commits that changed another folder saw it as well.
        is_present = git.tree(self._change.base, folder) == wanted
        for number, commit in enumerate(self._commits):
            if is_present and states[number]:
                continue
            is_present = False
            if states[number] and not states[number + 1]:
                yield commit
