"""Runs the demo's steps one after the other, and keeps how far they came: the next run goes on there."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neuroscale.cluster.command_lines import own_program
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError
from neuroscale.core.files import write_private
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import one_line
from neuroscale.demo.steps import PLATFORM, START, Demo, Log, Result
from neuroscale.local.start_and_stop import down
from neuroscale.local.state import State, read_json

_RECORD, _LOG, _REPOSITORY = "progress.json", "demo.log", "platform"


@dataclass(frozen=True)
class Step:
    """One step. `work` can be repeated after it failed or was killed."""

    title: str
    work: Callable[[Demo], None]


class StepFailedError(NeuroscaleError):
    """A step failed; the message names it, the line of the log, and the command that goes on from there."""

    def __init__(self, message: str, exit_status: ExitStatus) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def run_steps(
    steps: Sequence[Step],
    tool: str,
    state: Path,
    *,
    keep: bool,
    again: str,
    prepare: Callable[[Demo], None],
) -> None:
    """Run the steps, from the first that did not end well in an earlier run of the same `tool`, and sum up.

    `tool`: the digest of its wheel. `state`: the folder of forge and cluster; what is kept lies beside it. `again`: the
    command that runs the demo. `prepare` makes the repository and its main branch before the first step. Raises
    StepFailedError; then forge and cluster go on. After an interruption they are ended, and their files stay.
    """
    start = time.monotonic()
    folder = state.absolute().with_name(f"{state.name}-progress")
    with _own(folder):
        demo, done = _opened(folder, tool, state, prepare, keep=keep)
        if done:
            demo.say(f"The demo goes on at step {done + 1} of {len(steps)}. Remove {folder} first to begin at 1.")
        for number, step in enumerate(steps, start=1):
            if number <= done:
                continue
            demo.heading(f"{number}. {step.title}")
            demo.log.begin()
            results = list(demo.results)
            try:
                step.work(demo)
            except BaseException as error:
                demo.results = results
                _keep(folder, demo, done, tool)
                place = f"step {number} of {len(steps)} ({step.title})"
                if isinstance(error, Exception):
                    raise _failed(demo, place, again, error) from error
                if PLATFORM in demo.facts:
                    down(state, demo.say)
                demo.say(f"Interrupted at {place}. Go on there: {again}")
                raise
            done = number
            _keep(folder, demo, done, tool)
        demo.heading("What was shown")
        for result in demo.results:
            demo.say(f"  {result.title}: {result.told}")
        took = time.monotonic() - start
        demo.say(
            f"  {duration(took)}. The demo ran in a repository and a platform of its own, and changed nothing else."
        )
        shutil.rmtree(folder)


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Keep other demos from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            fix = "Wait for its end, or name another folder with --state."
            raise InputError.at(str(folder), "", "is in use by another demo", fix) from error
        yield


def _opened(folder: Path, tool: str, state: Path, prepare: Callable[[Demo], None], *, keep: bool) -> tuple[Demo, int]:
    """The demo as an earlier run left it, and the number of its steps that are done; else a new one."""
    record: dict[str, Any] = dict(read_json(folder / _RECORD))
    if record.get("tool") != tool or (PLATFORM in record["facts"] and State.read(state) is None):
        for entry in folder.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        record = {}
    log = Log(sys.stdout, folder / _LOG)
    demo = Demo(folder / _REPOSITORY, log, state, keep=keep or record.get("keep") is True)
    if not record:
        prepare(demo)
        demo.git("branch", "--force", START)
        return demo, 0
    demo.facts = record["facts"]
    demo.results = [Result(**result) for result in record["results"]]
    return demo, record["done"]


def _keep(folder: Path, demo: Demo, done: int, tool: str) -> None:
    results = [asdict(result) for result in demo.results]
    record = {"tool": tool, "done": done, "keep": demo.keep, "facts": demo.facts, "results": results}
    write_private(folder / _RECORD, json.dumps(record))


def _failed(demo: Demo, place: str, again: str, error: Exception) -> StepFailedError:
    reason = str(error)
    if isinstance(error, subprocess.CalledProcessError):
        output = (error.stderr or error.stdout or b"").decode(errors="replace")
        reason = f"{shlex.join(map(str, error.cmd))} ended with {error.returncode}: {one_line(output, 400)}"
    elif not isinstance(error, NeuroscaleError):
        reason = f"a defect: {type(error).__name__}: {error}"
    lines = [f"the demo failed at {place}: {reason}", f"  {demo.log.place()}"]
    if PLATFORM in demo.facts:
        end = f"{shlex.quote(own_program())} local down --delete --state {shlex.quote(str(demo.state))}"
        lines.append(
            f"  Forge and cluster go on; their logs are in {demo.state / 'logs'}. To end and remove them: {end}"
        )
    status = error.exit_status if isinstance(error, NeuroscaleError) else ExitStatus.UNTRUSTED
    return StepFailedError("\n".join([*lines, f"Go on at this step: {again}"]), status)
