"""Runs the programs of set-up, and shows their progress and why they failed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

BROKEN_OFF = threading.Event()
"""Ends the programs that were started beside the step at hand: set when set-up fails or is interrupted."""
HEARTBEAT_SECONDS = 10.0
LOGGED_SECONDS = 60.0
"""Seconds between two lines if the second cannot replace the first: in a file, or in a workflow's log."""
_SHOWN_LINES = 12


class SetupError(Exception):
    """Set-up cannot go on; the message is one sentence for the user, at times with a program's last lines under it."""


def say(text: str) -> None:
    """One line for the user, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(
    command: Sequence[str | Path],
    *,
    doing: str,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    describe: Callable[[str], str] | None = None,
) -> str:
    """Run a program and return its standard output.

    Its standard error goes to `log`. A line says what it is `doing`, for how long, and the result of `describe` for the
    log (without `describe`, the log's last line): renewed every ten seconds in a terminal, and a new line each minute
    elsewhere. A thread beside the main one writes no line. If the program fails, raises SetupError, which names what it
    was `doing`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    output_file = log.with_suffix(".out")
    with log.open("wb") as errors, output_file.open("wb") as output:
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env=dict(env) if env is not None else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise SetupError(f"{doing} failed: {command[0]} could not be started ({error.strerror}).") from error
        try:
            _wait(process, doing, log, describe or last_line)
        except BaseException:
            # The program's whole group, so that no compiler stays behind after Ctrl-C.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    text = output_file.read_text(encoding="utf-8", errors="replace")
    if process.returncode != 0:
        lines = (log.read_text(encoding="utf-8", errors="replace").strip() or text.strip()).splitlines()
        shown = "\n".join(f"    {line}" for line in lines[-_SHOWN_LINES:])
        raise SetupError(
            f"{doing} failed with exit status {process.returncode}; the whole log is {log}. "
            f"Run the same command again to resume.\n{shown}"
        )
    return text


def last_line(log: str) -> str:
    """The last line of a program's output, shortened."""
    lines = log.strip().splitlines()
    return lines[-1].strip()[:100] if lines else "working"


def _wait(process: subprocess.Popen[bytes], doing: str, log: Path, describe: Callable[[str], str]) -> None:
    start = told = time.monotonic()
    terminal = sys.stdout.isatty()
    while threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
            return
        if BROKEN_OFF.is_set():
            raise SetupError(f"{doing} was broken off.")
    while True:
        try:
            process.wait(timeout=HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if terminal or now - told >= LOGGED_SECONDS:
                told = now
                text = log.read_text(encoding="utf-8", errors="replace")
                _renew(f"      {doing}: {now - start:.0f} s, {describe(text)}", terminal=terminal)
        else:
            if terminal:
                _renew("", terminal=True)
            return


def _renew(text: str, *, terminal: bool) -> None:
    """Replace the last line in a terminal, and write a new line elsewhere."""
    if terminal:
        width = shutil.get_terminal_size().columns - 1
        sys.stdout.write(f"\r\x1b[K{text[:width]}")
        sys.stdout.flush()
    else:
        say(text)
