"""Makes a repository that pins the tool out of a fork that holds the tool's own code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import neuroscale
from neuroscale.actions.new_repository import keep_wheel, pin_of_wheel
from neuroscale.actions.progress import Progress
from neuroscale.actions.repository_upgrade import Manner, Upgraded, carried_out
from neuroscale.actions.service_change import ForgeChoice
from neuroscale.actions.tool_versions import tool_version
from neuroscale.core.errors import InputError
from neuroscale.forge.file_changes import FilesChange
from neuroscale.rendering.repository_adoption import Known, holds_tool, plan_adoption
from neuroscale.rendering.repository_upgrade import RepositoryUpgrade
from neuroscale.repo.git import Git
from neuroscale.repo.layout import OWN_CODE
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, Snapshot
from neuroscale.repo.three_way_merge import merge_contents
from neuroscale.repo.tool_pin import ToolPin
from neuroscale.report import repository_upgrade_view as view
from neuroscale.tools.pinned_tool import package_of

BRANCH = "neuroscale/adopt"


@dataclass(frozen=True)
class Adoption(Manner):
    """What a user asks for. `wheel`: this tool's own (None: as it was installed). `releases`: its publisher's list
    (None: the pin names no publisher). `against`: the commit of the tool that the fork's files are compared with (None:
    this version's tag, or else the wheel)."""

    wheel: Path | None = None
    releases: str | None = None
    against: str | None = None


def adopt_repository(choice: ForgeChoice, wanted: Adoption, progress: Progress) -> Upgraded | None:
    """Plan the adoption, and write it or open its pull request; None where the fork holds no tool any more.

    Raises InputError, ForgeError and ForgeUnavailableError.
    """
    pin = pin_of_wheel(wanted.wheel, wanted.releases)
    if wanted.wheel is not None:
        keep_wheel(wanted.wheel)

    def plan(git: Git, repository: Snapshot) -> RepositoryUpgrade | None:
        if not holds_tool(repository):
            return None
        if wanted.writes and Path(neuroscale.__file__).resolve().is_relative_to(choice.root.resolve()):
            fix = "Install the tool's wheel in an environment elsewhere, and run its command."
            raise InputError.at("this program", "", "lies in the repository, and would remove itself", fix)
        merge = partial(merge_contents, git, names=("this repository", f"neuroscale {pin.version}"))
        known = _known(git, pin, wanted.against)
        return plan_adoption(repository, tool_version(pin.version, pin.sha256), pin, known, merge)

    return carried_out(choice, wanted, BRANCH, plan, _described, progress)


def _described(done: Upgraded) -> FilesChange[Upgraded]:
    sentences = (
        *view.summary(done.upgrade),
        "The organisation's own files, and its edits of delivered files, stay as they are.",
        "README.md stays, too: it may still tell of the tool's own folders, which go.",
    )
    title = f"Pin neuroscale {done.upgrade.new} in place of the tool's own code"
    parts = view.parts(done.upgrade, (), done.services)
    return FilesChange(done.upgrade.files, title, sentences, done, "a repository that pins the tool", parts)


def _known(git: Git, pin: ToolPin, against: str | None) -> Known:
    """The tool's files: those of the named commit, of the version's tag where the clone has it, or of the wheel."""
    tag = f"refs/tags/v{pin.version}"
    if against is None and git.run("rev-parse", "--verify", "--quiet", tag, check=False).returncode == 0:
        against = tag
    if against is not None:
        tree = GitSnapshot(git, git.commit(against, "--against"))
        files = {entry.path for entry in tree.entries()}
        return lambda path: tree.read(path) if path in files else None
    package = FolderSnapshot(package_of(pin.version, pin.sha256))

    def of_wheel(path: str) -> bytes | None:
        is_code = path.startswith(f"{OWN_CODE}/")
        return package.read(path.removeprefix(f"{OWN_CODE}/") if is_code else f"delivered/{path}")

    return of_wheel
