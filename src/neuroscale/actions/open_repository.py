"""Opens the platform repository that a caller works in, its forge, and files that the caller names.

What changes nothing may also be asked outside every repository: the delivered catalog and the example organisation's
settings answer it, and the answer says so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale import __version__
from neuroscale.actions.progress import SILENT, Progress
from neuroscale.catalog import PriceList
from neuroscale.catalog.loading import read_prices
from neuroscale.core import delivered
from neuroscale.core.errors import ASKED, InputError, Problem
from neuroscale.core.files import read_bounded
from neuroscale.core.units import MIB
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import decode
from neuroscale.rendering.planning_inputs import PlanningInputs, read_planning_inputs
from neuroscale.repo.example_repository import example_snapshot
from neuroscale.repo.git import Git, GitError
from neuroscale.repo.layout import CATALOG, LOCAL_STATE, find_root, is_outside
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot
from neuroscale.repo.tool_pin import other_tool
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


_EXAMPLES_NAMES = "These are the shipped example's: name your platform repository with --repository for its own."


@dataclass(frozen=True)
class OpenedInputs(PlanningInputs):
    """What commands read that change nothing: the inputs of planning, and the `files` that hold them."""

    files: Snapshot

    @property
    def is_example(self) -> bool:
        """Whether they are the example's that this package ships, since no platform repository was there."""
        return True

    @property
    def settings_note(self) -> str:
        """The sentence that says whose settings answer; "" for a repository's own."""
        if not self.is_example:
            return ""
        oldest = min(prices.oldest for prices in self.catalog.prices.values())
        return (
            f"Settings: the shipped example's, and the catalog of neuroscale {__version__} with prices since {oldest}: "
            "this folder is in no platform repository."
        )

    @property
    def catalog_note(self) -> str:
        """The sentence that says whose catalog answers; "" for a repository's own."""
        if not self.is_example:
            return ""
        return (
            "This folder is in no platform repository: the catalog, with its prices, is the one that neuroscale "
            f"{__version__} brings in {delivered.FOLDER / CATALOG}."
        )

    def read_request(self, path: Path, progress: Progress = SILENT) -> Request:
        """The request in a file. A note tells of each override that the gate refuses.

        Raises InputError if it cannot be read, or has names that the platform does not know.
        """
        with self.named():
            request = read_request(read_file(path), str(path), self.catalog, self.settings)
        today = datetime.now(UTC).date()
        for override in request.overrides:
            fault = fault_of(override.reason, override.expires, today, self.settings.exceptions.longest_days)
            if fault is not None:
                progress.note(
                    f"{path}: the override of {override.field} {fault.message}. The gate refuses it. {fault.fix}"
                )
        return request

    def prices(self, named: str) -> PriceList:
        """A price list by its name in the catalog, or the one in a file in the catalog's form. Raises InputError."""
        if named in self.catalog.prices:
            return self.catalog.prices[named]
        path = Path(named)
        if not path.exists():
            fix = f"{suggest(named, self.catalog.prices)} Or name a file with a list in the catalog's form."
            raise InputError.at(ASKED, "prices", f"{named!r} is neither a price list of the catalog nor a file", fix)
        return read_prices(read_file(path, "Name a file that holds a price list."), named, self.catalog)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Within it, problems of names say where the example's are."""

        def explained(problem: Problem) -> Problem:
            more = _EXAMPLES_NAMES if problem.field in ("team", "environment") else ""
            if CATALOG in problem.fix:
                more = f"That folder lies in {delivered.FOLDER}."
            return replace(problem, fix=f"{problem.fix} {more}".rstrip())

        try:
            yield
        except InputError as error:
            if not self.is_example:
                raise
            raise InputError([explained(problem) for problem in error.problems]) from error


@dataclass(frozen=True)
class Repository(OpenedInputs):
    """A platform repository, read from its work tree, which begins at the folder `root`."""

    root: Path

    @property
    def is_example(self) -> bool:
        return False


def repository_root(named: Path | None) -> Path:
    """The root of the named repository, or of the one around the current folder; a line on standard error says if this
    tool is not the one that it pins. Raises InputError outside one."""
    root = find_root(named or Path.cwd())
    say_other_tool(FolderSnapshot(root))
    return root


def say_other_tool(snapshot: Snapshot) -> None:
    """A line on standard error, once, if this tool is not the one that a repository pins."""
    _say_once(other_tool(snapshot))


@lru_cache
def _say_once(other: str) -> None:
    if other:
        sys.stderr.write(f"neuroscale: {other}.\n")


def open_repository(named: Path | None) -> Repository:
    """The named repository, or the one around the current folder. Raises InputError with every problem in it."""
    files = FolderSnapshot(repository_root(named))
    inputs = read_planning_inputs(files)
    return Repository(inputs.catalog, inputs.settings, inputs.template, files, files.root)


def repository_of(opened: OpenedInputs) -> Repository:
    """The repository itself, for what changes it or reads its services. Raises InputError for the shipped example."""
    return opened if isinstance(opened, Repository) else open_repository(None)


def open_inputs(named: Path | None) -> OpenedInputs:
    """The named repository, the one around the current folder, or outside every one the shipped example.

    Raises InputError as `open_repository` does; a named or a broken repository is never replaced by the example.
    """
    if named is not None or not is_outside(Path.cwd()):
        return open_repository(named)
    files = example_snapshot()
    inputs = read_planning_inputs(files)
    return OpenedInputs(inputs.catalog, inputs.settings, inputs.template, files)


def read_file(path: Path, fix: str = "Name a file that holds a form's answers.") -> str:
    """The text of a file that a user named. Raises InputError if it cannot be read."""
    return decode(read_bounded(path, LARGEST_FILE, fix), str(path))
