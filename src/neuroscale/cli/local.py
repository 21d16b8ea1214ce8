"""`neuroscale local`: the platform on this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer

from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.repo.layout import find_root

if TYPE_CHECKING:
    from neuroscale.local.start_and_stop import Options

STATE = ".state/local"


def local_up(state: Path | None, repository: Path | None, options: Options) -> int:
    """Start it and say where it is. Raises NeuroscaleError where it does not run."""
    from neuroscale.local.control_plane import kubeconfig
    from neuroscale.local.forge_accounts import ROLES
    from neuroscale.local.stack import notes
    from neuroscale.local.start_and_stop import up

    root = find_root(repository or Path.cwd())
    forge = up(_folder(state, repository), root, options, _tell)
    typer.echo(f"The forge: {forge.platform.server}/{forge.platform.slug}")
    for role in ROLES:
        account = forge.account(role)
        typer.echo(f"  {account.login}: token in {account.token_file}, password in {account.password_file}")
    if forge.state.instance.cluster:
        told = "The cluster, whose nodes with accelerators are simulated"
        typer.echo(f"{told}: export KUBECONFIG={kubeconfig(forge.state)}")
    for note in notes(forge.state):
        typer.echo(f"Note: {note}")
    return ExitStatus.PASSED


def local_kubeconfig(state: Path | None, repository: Path | None) -> int:
    """Print where the administrator's kubeconfig lies. Raises InputError where there is no cluster."""
    from neuroscale.local.control_plane import kubeconfig
    from neuroscale.local.state import State

    folder = _folder(state, repository)
    found = State.read(folder)
    path = kubeconfig(found) if found is not None and found.instance.cluster else None
    if path is None or not path.exists():
        problem = Problem(str(folder), "", "holds no cluster", "Start one: neuroscale local up --cluster")
        raise InputError(problem)
    typer.echo(path)
    return ExitStatus.PASSED


def local_down(state: Path | None, repository: Path | None, *, delete: bool) -> int:
    """End everything that was started, and nothing else."""
    from neuroscale.local.start_and_stop import down

    down(_folder(state, repository), _tell, delete=delete)
    return ExitStatus.PASSED


def local_status(state: Path | None, repository: Path | None, *, as_json: bool) -> int:
    """Show how it is; returns 1 where something is ill or does not run."""
    from neuroscale.local.platform_status import Status, look
    from neuroscale.local.state import State

    folder = _folder(state, repository)
    found = State.read(folder)
    status = look(found) if found is not None else Status(str(folder), "", False, (), ())
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(status), indent=2))
    elif not status.processes:
        typer.echo(f"There is no local platform in {folder}. Start one: neuroscale local up")
    else:
        _print(status)
    return ExitStatus.PASSED if status.healthy else ExitStatus.FINDINGS


def local_logs(name: str, state: Path | None, repository: Path | None, *, lines: int, follow: bool) -> int:
    """Print the last lines of one log or of all, and what comes after them when following."""
    from neuroscale.local.platform_status import last_lines
    from neuroscale.local.state import State

    folder = _folder(state, repository)
    found = State.read(folder)
    logs = {path.stem: path for path in sorted(found.logs.glob("*.log"))} if found else {}
    if not logs or (name and name not in logs):
        known = f"Name one of {', '.join(logs)}." if logs else "Start it: neuroscale local up."
        raise InputError(Problem("the command line", "NAME", f"there is no log {name} in {folder}", known))
    chosen = {name: logs[name]} if name else {key: path for key, path in logs.items() if not key.endswith(".old")}
    ends = {key: path.stat().st_size for key, path in chosen.items()}
    for key, path in chosen.items():
        for line in last_lines(path, lines):
            _print_line(key, line, prefixed=not name)
    if follow:
        _follow(chosen, ends, prefixed=not name)
    return ExitStatus.PASSED


def _follow(logs: dict[str, Path], ends: dict[str, int], *, prefixed: bool) -> None:
    """Print what is added to the logs, until interrupted."""
    files: dict[str, IO[bytes]] = {}
    try:
        for name, path in logs.items():
            files[name] = path.open("rb")
            files[name].seek(ends[name])
        while True:
            for name, file in files.items():
                if os.fstat(file.fileno()).st_size < file.tell():
                    file.seek(0)  # it was shortened
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


def _print(status: object) -> None:
    from rich.console import Console
    from rich.table import Table

    from neuroscale.core.printable import terminal
    from neuroscale.local.platform_status import Status

    assert isinstance(status, Status)
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
    return (state if state is not None else find_root(repository or Path.cwd()) / STATE).absolute()


def _tell(text: str) -> None:
    typer.echo(text)
