"""`neuroscale local`: the platform on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.options import JsonOption, LocalStateOption, RepositoryOption, print_json
from neuroscale.core.errors import ExitStatus, InputError, Problem

if TYPE_CHECKING:
    from neuroscale.local.forge_setup import LocalForge
    from neuroscale.local.start_and_stop import Status

_PARTS = ("cost", "portal", "none")

app = typer.Typer(
    name="local", help="The platform on this machine: forge, runner, cluster and Argo CD.", no_args_is_help=True
)


@app.command("up")
def local_up(
    state: LocalStateOption = None,
    runner_capacity: Annotated[
        int | None, typer.Option("--jobs", help="Jobs that the runner takes at a time. Default: 2.", min=1, max=64)
    ] = None,
    cluster: Annotated[
        bool | None,
        typer.Option(
            "--cluster/--no-cluster",
            help="Whether the platform has a cluster, or only the forge. Default: as at the last start.",
        ),
    ] = None,
    environments: Annotated[
        list[str] | None,
        typer.Option(
            "--environment",
            help="An environment to deploy onto the cluster. Default: the local one and the first other.",
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="What runs beside the cluster: cost (OpenCost), portal (Backstage), or none. Default: as before.",
            metavar="PART",
        ),
    ] = None,
    repository: RepositoryOption = None,
) -> int:
    """Start the missing processes, and return when all are healthy. The forge begins with this repository's HEAD."""
    from neuroscale.local.control_plane import kubeconfig
    from neuroscale.local.forge_accounts import ROLES
    from neuroscale.local.processes import notes
    from neuroscale.local.start_and_stop import Options, up
    from neuroscale.repo.layout import find_root

    parts = _parts(also)
    cost = None if parts is None else "cost" in parts
    portal = None if parts is None else "portal" in parts
    if cost and cluster is False:
        raise InputError.at("the command line", "--with", "cost needs a cluster", "Leave --no-cluster out.")
    root = find_root(repository or Path.cwd())
    of_environments = tuple(environments) if environments else None
    pages = _can_plan(root)
    if portal and not pages:
        message = "portal needs the pages' server, which cannot plan with what the repository holds"
        raise InputError.at("the command line", "--with", message, "Mend the repository first.")
    portal = portal if pages else False
    options = Options(runner_capacity, cluster, of_environments, cost=cost, pages=pages, portal=portal)
    forge = up(_folder(state, repository), root, options, _tell)
    typer.echo(f"The forge: {forge.platform.server}/{forge.platform.slug}")
    for role in ROLES:
        account = forge.account(role)
        typer.echo(f"  {account.login}: token in {account.token_file}, password in {account.password_file}")
    for line in (*_pages_lines(forge), *_forge_lines(forge, root)):
        typer.echo(line)
    if forge.state.instance.cluster:
        label = "The cluster, whose nodes with accelerators are simulated"
        typer.echo(f"{label}: export KUBECONFIG={kubeconfig(forge.state)}")
    for note in notes(forge.state):
        typer.echo(f"Note: {note}")
    return ExitStatus.PASSED


def _can_plan(root: Path) -> bool:
    """Whether the pages can plan with what the repository holds; says why not."""
    from neuroscale.rendering.planning_inputs import read_planning_inputs
    from neuroscale.repo.snapshot import FolderSnapshot

    try:
        read_planning_inputs(FolderSnapshot(root))
    except InputError as error:
        _tell(f"No pages: {error.problems[0]}")
        return False
    return True


def _pages_lines(forge: LocalForge) -> list[str]:
    """Where the pages are, and how to sign in."""
    from neuroscale.local.forge_accounts import DEVELOPER
    from neuroscale.local.pages import Pages
    from neuroscale.local.portal import Portal

    if not forge.state.instance.pages:
        return []
    token = forge.account(DEVELOPER).token_file
    lines = [f"Ask for a service on a page: {Pages(forge.state).url} (sign in with the token in {token})"]
    if forge.state.instance.portal:
        lines.append(f"Ask for a service in Backstage: {Portal(forge.state).url} (enter as a guest)")
    return lines


def _forge_lines(forge: LocalForge, root: Path) -> list[str]:
    """How to ask for a service on the forge, and who may approve and merge it: lines that work as they stand."""
    from neuroscale.cluster.command_lines import own_program
    from neuroscale.local.forge_accounts import ADMIN, DEVELOPER, MAINTAINER
    from neuroscale.repo.git import Git
    from neuroscale.repo.layout import LOCAL_STATE

    address, name = forge.platform.clone_url, "local"
    with contextlib.closing(Git(root)) as git:
        existing = git.run("remote", "get-url", "--", name, check=False)
    held = existing.stdout.decode(errors="replace").strip() if existing.returncode == 0 else ""
    ask = f"{shlex.quote(own_program())} request --interactive"
    lines = ["Ask for a service there, in this repository:"]
    if forge.state.folder == (root / LOCAL_STATE).absolute():
        lines += [f"  {ask} --local", "Or by a git remote:"]
    if held != address:
        lines.append(f"  git remote {'set-url' if held else 'add'} {name} {address}")
    token = shlex.quote(str(forge.account(DEVELOPER).token_file))
    owner, admin = forge.account(MAINTAINER), forge.account(ADMIN)
    return [
        *lines,
        f"  {ask} --remote {name} --token-file {token}",
        f"Approve and merge at {forge.url}/user/login as {owner.login}: nobody approves their own change, and a change "
        f"of the platform's own files is merged by {admin.login} alone.",
    ]


def _parts(also: list[str] | None) -> frozenset[str] | None:
    """The parts that are asked for; None where nothing is said."""
    from neuroscale.core.validation import suggest

    if also is None:
        return None
    for name in also:
        if name not in _PARTS:
            problem = Problem("the command line", "--with", f"{name!r} is not a part", suggest(name, _PARTS))
            raise InputError(problem)
    if "none" in also and len(also) > 1:
        raise InputError.at("the command line", "--with", "none cannot be combined with a part", "Give one of them.")
    return frozenset(also) - {"none"}


@app.command("kubeconfig")
def local_kubeconfig(state: LocalStateOption = None, repository: RepositoryOption = None) -> int:
    """Print the path of the administrator's kubeconfig: kubectl --kubeconfig "$(neuroscale local kubeconfig)"."""
    from neuroscale.local.control_plane import kubeconfig
    from neuroscale.local.state import State

    folder = _folder(state, repository)
    platform = State.read(folder)
    path = kubeconfig(platform) if platform is not None and platform.instance.cluster else None
    if path is None or not path.exists():
        problem = Problem(str(folder), "", "does not hold a cluster", "Start one: neuroscale local up --cluster")
        raise InputError(problem)
    typer.echo(path)
    return ExitStatus.PASSED


@app.command("down")
def local_down(
    state: LocalStateOption = None,
    delete: Annotated[bool, typer.Option("--delete", help="Also remove its folder with all its files.")] = False,
    repository: RepositoryOption = None,
) -> int:
    """End all processes of the platform, also after a crash."""
    from neuroscale.local.start_and_stop import down

    down(_folder(state, repository), _tell, delete=delete)
    return ExitStatus.PASSED


@app.command("status")
def local_status(
    state: LocalStateOption = None, as_json: JsonOption = False, repository: RepositoryOption = None
) -> int:
    """Show each process. Exit status 1: a process is not healthy or does not run."""
    from neuroscale.local.start_and_stop import Status, look
    from neuroscale.local.state import State

    folder = _folder(state, repository)
    platform = State.read(folder)
    status = look(platform) if platform is not None else Status(str(folder), "", False, (), ())
    if as_json:
        print_json(dataclasses.asdict(status))
    elif not status.processes:
        typer.echo(f"{folder} does not hold a local platform. Start one: neuroscale local up")
    else:
        _print(status)
    return ExitStatus.PASSED if status.healthy else ExitStatus.FINDINGS


@app.command("logs")
def local_logs(
    name: Annotated[str, typer.Argument(help="A process. Default: all of them.")] = "",
    lines: Annotated[int, typer.Option("--lines", help="The number of lines of each log.", min=0)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    state: LocalStateOption = None,
    repository: RepositoryOption = None,
) -> int:
    """Print the logs of the processes."""
    from neuroscale.local.start_and_stop import last_lines
    from neuroscale.local.state import State

    folder = _folder(state, repository)
    platform = State.read(folder)
    logs = {path.stem: path for path in sorted(platform.logs.glob("*.log"))} if platform else {}
    if not logs or (name and name not in logs):
        known = f"Name one of {', '.join(logs)}." if logs else "Start it: neuroscale local up."
        raise InputError.at("the command line", "NAME", f"{folder} has no log of {name}", known)
    chosen = {name: logs[name]} if name else {key: path for key, path in logs.items() if not key.endswith(".old")}
    ends = {key: path.stat().st_size for key, path in chosen.items()}
    for key, path in chosen.items():
        for line in last_lines(path, lines):
            _print_line(key, line, prefixed=not name)
    if follow:
        _follow(chosen, ends, prefixed=not name)
    return ExitStatus.PASSED


def _follow(logs: dict[str, Path], ends: dict[str, int], *, prefixed: bool) -> None:
    """Print new lines of the logs, until interrupted."""
    files: dict[str, IO[bytes]] = {}
    try:
        for name, path in logs.items():
            files[name] = path.open("rb")
            files[name].seek(ends[name])
        while True:
            for name, file in files.items():
                if os.fstat(file.fileno()).st_size < file.tell():
                    file.seek(0)  # the log was shortened
                while line := file.readline():
                    if not line.endswith(b"\n"):
                        file.seek(-len(line), os.SEEK_CUR)
                        break
                    _print_line(name, line.decode(errors="replace").rstrip("\n"), prefixed=prefixed)
            sys.stdout.flush()
            time.sleep(0.2)
    finally:
        for file in files.values():
            file.close()


def _print_line(name: str, line: str, *, prefixed: bool) -> None:
    from neuroscale.core.printable import terminal

    typer.echo(terminal(f"{name} | {line}" if prefixed else line, 4000))


def _print(status: Status) -> None:
    from rich.console import Console
    from rich.table import Table

    from neuroscale.core.printable import terminal

    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for title in ("name", "pid", "port", "MiB", "restarts", "health"):
        table.add_column(title, justify="right" if title in ("pid", "port", "MiB", "restarts") else "left")
    for row in status.processes:
        numbers = (row.pid, row.port, None if row.memory_mib is None else round(row.memory_mib), row.restarts)
        table.add_row(row.name, *("-" if number is None else str(number) for number in numbers), row.health)
    console.print(table)
    for row in status.processes:
        if row.health != "healthy":
            console.print(f"{row.name}: {terminal(row.detail or row.health)}", markup=False)
            for line in row.log:
                console.print(f"  | {terminal(line)}", markup=False)
    console.print(f"The forge: {status.url or 'never started'}", markup=False)
    for note in status.notes:
        console.print(f"Note: {note}", markup=False)


def _folder(state: Path | None, repository: Path | None) -> Path:
    from neuroscale.repo.layout import LOCAL_STATE, find_root

    return (state if state is not None else find_root(repository or Path.cwd()) / LOCAL_STATE).absolute()


def _tell(text: str) -> None:
    typer.echo(text)
