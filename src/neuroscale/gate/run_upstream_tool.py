"""Runs an upstream tool, and notices every way in which it can end without an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from neuroscale.core import delivered
from neuroscale.core.errors import UntrustedError
from neuroscale.core.money_and_time import duration

_SHOWN = 2000  # characters of a failing tool's output that a message quotes


@dataclass(frozen=True)
class ToolRun:
    """How a tool ended: its exit status (never negative) and its output as text."""

    exit_status: int
    output: str
    errors: str


def run_tool(
    command: Sequence[str | Path],
    *,
    folder: Path,
    timeout: float,
    statuses: frozenset[int],
    environment: Mapping[str, str] | None = None,
) -> ToolRun:
    """Run `command` in `folder` for at most `timeout` seconds.

    Raises UntrustedError if the tool cannot be started, is killed, takes too long, or ends with a status that is not
    one of `statuses`: then its output is not an answer.
    """
    name = Path(command[0]).name
    # The tool sees no setting of the caller's: a variable or a file in HOME could change what it checks.
    settings = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "LC_ALL": "C.UTF-8", **(environment or {})}
    # Output goes to files: a full pipe would block the tool, and a process that it left behind would keep a pipe open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=folder,
                env=settings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            command = delivered.install_command("gate")
            raise UntrustedError(f"{name} could not be started: {error.strerror}. Run `{command}`.") from error
        try:
            status = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise UntrustedError(f"{name} did not end within {duration(timeout)} and was stopped.") from error
        finally:
            _end(process)
        run = ToolRun(status, _text(output), _text(errors))
    if run.exit_status not in statuses:
        ending = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        quoted = (run.errors or run.output).strip()[-_SHOWN:]
        raise UntrustedError(f"{name} {ending}, which is not an answer. It printed: {quoted or 'nothing'}")
    return run


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the tool and the processes that it started: they have a session of their own, so nothing else is hit."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
