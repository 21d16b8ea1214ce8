"""Opens the platform repository that a caller works in, its forge, and files that the caller names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.actions.progress import SILENT, Progress
from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded
from neuroscale.core.units import MIB
from neuroscale.core.yaml_io import decode
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.repo.git import Git, GitError
from neuroscale.repo.layout import LOCAL_STATE, find_root
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.request.service_request import Request, fault_of, read_request

if TYPE_CHECKING:
    from neuroscale.forge.interface import Token
    from neuroscale.forge.service_pull_request import Publisher
    from neuroscale.local.forge_setup import LocalForge


def remote_address(git: Git, remote: str) -> str:
    """The address of a git remote, by the remote's name."""
    done = git.run("remote", "get-url", "--", remote, check=False)
    if done.returncode != 0:
        named = git.text("remote").split()
        raise InputError.at(
            "the command line",
            "--remote",
            f"{remote!a} is not a git remote of this clone",
            f"Name one of {', '.join(named)}." if named else "Add one: git remote add origin URL.",
        )
    return done.stdout.decode(errors="replace").strip()


def running_forge(folder: Path) -> LocalForge:
    """The forge of the local platform in a folder. Raises InputError if that does not run."""
    from neuroscale.local.forge_setup import LocalForge
    from neuroscale.local.process import is_running
    from neuroscale.local.state import State

    state = State.read(folder)
    if state is None or not state.instance.ports or not is_running(state):
        message = f"{folder} does not hold a local platform that runs"
        raise InputError.at("the command line", "--local", message, "Start it: neuroscale local up --no-cluster")
    return LocalForge(state)


def local_forge(root: Path) -> tuple[str, Token]:
    """The address of the repository on the forge of this repository's local platform, and its developer's token.

    Raises InputError if the platform does not run.
    """
    from neuroscale.local.forge_accounts import DEVELOPER

    forge = running_forge(root / LOCAL_STATE)
    return forge.platform.clone_url, forge.account(DEVELOPER).token()


def forge_address(root: Path, remote: str, local: Path | None) -> tuple[str, str]:
    """The address of the forge of a clone's `remote`, or of the local platform in the folder `local`; "" and the reason
    where there is none that can be used. Raises InputError if the local platform does not run."""
    from neuroscale.forge.connect import parse_remote

    if local is not None:
        return running_forge(local).platform.clone_url, ""
    try:
        with contextlib.closing(Git(root)) as git:
            address = remote_address(git, remote)
        parse_remote(address)
    except InputError as error:
        return "", " ".join(f"{problem.message}. {problem.fix}" for problem in error.problems)
    except GitError:
        return "", f"{root} is not a clone of git."
    return address, ""


@contextlib.contextmanager
def opened_publisher(
    root: Path,
    remote: str,
    token_file: Path | None,
    progress: Progress,
    *,
    local: bool = False,
    only_looks: bool = False,
) -> Iterator[tuple[Git, Publisher]]:
    """The clone at `root`, and what opens pull requests on the forge of its `remote`, or on the local platform's.
    `only_looks`: nothing is opened, so that the clone is enough where no token is named.

    Raises InputError if `local` stands beside a remote or a token file, and the errors of the forge.
    """
    from neuroscale.forge.branches import Access, Branches
    from neuroscale.forge.connect import connect
    from neuroscale.forge.service_pull_request import Publisher, publisher_to_look
    from neuroscale.forge.token import find_token

    if local and (remote != "origin" or token_file is not None):
        message = "stands beside --remote or --token-file, so two forges are named"
        raise InputError.at("the command line", "--local", message, "Leave --remote and --token-file out.")
    with contextlib.closing(Git(root)) as git:

        def connected() -> Publisher:
            address, token = local_forge(root) if local else ("", find_token(token_file))
            address = address or remote_address(git, remote)
            progress.step(f"Looking at {'the local forge' if local else remote}")
            return Publisher(connect(address, token), Branches(git, Access(address, token)))

        yield git, publisher_to_look(root, connected) if only_looks else connected()


LARGEST_FILE = MIB
"""Bytes of a file of answers or of a plan; neither takes a tenth of it, and a device file never ends."""


@dataclass(frozen=True)
class Repository(PlanningInputs):
    """A platform repository, read from its work tree, which begins at the folder `root`."""

    root: Path

    def read_request(self, path: Path, progress: Progress = SILENT) -> Request:
        """The request in a file. A note tells of each override that the gate refuses.

        Raises InputError if it cannot be read, or has names that the platform does not know.
        """
        request = read_request(read_file(path), str(path), self.catalog, self.settings)
        today = datetime.now(UTC).date()
        for override in request.overrides:
            fault = fault_of(override.reason, override.expires, today, self.settings.exceptions.longest_days)
            if fault is not None:
                progress.note(
                    f"{path}: the override of {override.field} {fault.message}. The gate refuses it. {fault.fix}"
                )
        return request


def open_repository(named: Path | None) -> Repository:
    """The named repository, or the one around the current folder. Raises InputError with every problem in it."""
    root = find_root(named or Path.cwd())
    inputs = read_planning_inputs(FolderSnapshot(root))
    return Repository(inputs.catalog, inputs.settings, inputs.template, root)


def read_file(path: Path) -> str:
    """The text of a file that a user named. Raises InputError if it cannot be read."""
    return decode(read_bounded(path, LARGEST_FILE, "Name a file that holds a form's answers."), str(path))
