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

from neuroscale.tools.activity import Activity

BROKEN_OFF = threading.Event()
"""Ends the programs that were started beside the step at hand: set when set-up fails or is interrupted."""
WAITED_FOR = threading.Event()
"""Lets the threads beside the main one say how they go on: set while it does nothing but wait for them."""
HEARTBEAT_SECONDS = 10.0
LOGGED_SECONDS = 60.0
"""Seconds between two lines if the second cannot replace the first: in a file, or in a workflow's log."""
STUCK_SECONDS = 600.0
"""A program that does nothing at all for so long is ended. No other time ends one."""
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
    log (without `describe`, the log's last line): renewed every ten seconds in a terminal; elsewhere a new line each
    minute, if that result is another one. A thread beside the main one writes none before the main one waits for it.
    Raises SetupError, which names what it was `doing`, if the program fails, or does nothing at all for STUCK_SECONDS.
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
            _wait(process, Activity(process.pid, (log, output_file)), doing, log, describe or last_line)
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
        raise SetupError(f"{doing} failed with exit status {process.returncode}; the whole log is {log}.\n{shown}")
    return text


def last_line(log: str) -> str:
    """The last line of a program's output, shortened."""
    lines = log.strip().splitlines()
    return lines[-1].strip()[:100] if lines else "working"


class Progress:
    """The line that says how a long piece of work goes on: renewed in a terminal, a new one now and then elsewhere."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._start = self._told = time.monotonic()
        self._text = ""
        self._terminal = sys.stdout.isatty()
        self._beside = threading.current_thread() is not threading.main_thread()

    def show(self, text: str) -> None:
        """Say `text`, unless it is too early for another line, or the text is the last line's."""
        now = time.monotonic()
        if self._beside and not WAITED_FOR.is_set():
            return
        line = f"      {self._doing}: {now - self._start:.0f} s, {text}"
        if self._terminal:
            _renew(line)
        elif now - self._told >= LOGGED_SECONDS and text != self._text:
            self._told, self._text = now, text
            say(line)

    def end(self) -> None:
        """Remove the line from the terminal."""
        if self._terminal and (WAITED_FOR.is_set() or not self._beside):
            _renew("")


def _wait(
    process: subprocess.Popen[bytes], activity: Activity, doing: str, log: Path, describe: Callable[[str], str]
) -> None:
    progress = Progress(doing)
    beside = threading.current_thread() is not threading.main_thread()
    looked = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=min(0.5, HEARTBEAT_SECONDS) if beside else HEARTBEAT_SECONDS)
            progress.end()
            return
        if beside and BROKEN_OFF.is_set():
            raise SetupError(f"{doing} was broken off.")
        if beside and time.monotonic() - looked < HEARTBEAT_SECONDS:
            continue
        looked = time.monotonic()
        if activity.idle_seconds() >= STUCK_SECONDS:
            progress.end()
            raise SetupError(
                f"{doing} is stuck and was ended: for {STUCK_SECONDS / 60:.0f} minutes it printed nothing, used no "
                f"processor time, and read and wrote nothing. The whole log is {log}."
            )
        progress.show(describe(log.read_text(encoding="utf-8", errors="replace")))


def _renew(text: str) -> None:
    """Replace the last line in a terminal."""
    width = shutil.get_terminal_size().columns - 1
    sys.stdout.write(f"\r\x1b[K{text[:width]}")
    sys.stdout.flush()
