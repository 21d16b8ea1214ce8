"""Runs the steps of set-up that are still to do, in their order."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from neuroscale.core import delivered, tool_cache
from neuroscale.core.delivered import FOLDER as REPOSITORY
from neuroscale.core.errors import InputError
from neuroscale.core.units import GIB
from neuroscale.tools import prerequisites
from neuroscale.tools.bundle import (
    TOKEN,
    VARIABLE,
    Bundle,
    RefusedError,
    address_of,
    bundle_token,
    pinned_go,
    read_digests,
)
from neuroscale.tools.go import BUILD_CACHES
from neuroscale.tools.locks import locked, unused
from neuroscale.tools.module_zip import ModuleError
from neuroscale.tools.pace import Pace
from neuroscale.tools.running import BROKEN_OFF, WAITED_FOR, SetupError, say
from neuroscale.tools.steps import PURPOSES, WHEEL_PURPOSES, Step, Steps

_LONG = 300.0  # seconds


def main(arguments: Sequence[str] = ()) -> int:
    """Set up the missing parts, as the command line of `scripts/setup.py` asks; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    return install(
        chosen.purpose, chosen.bundle, keep_build_cache=chosen.keep_build_cache, pinned_only=chosen.pinned_go
    )


def purpose_here(wanted: str | None) -> str:
    """The wanted purpose, or else the default one. Raises InputError where a wheel cannot serve it, or nobody knows
    it."""
    in_wheel = delivered.CHECKOUT is None
    offered = WHEEL_PURPOSES if in_wheel else tuple(PURPOSES)
    purpose = offered[0] if wanted is None else wanted
    if purpose in offered:
        return purpose
    fault = f"is {purpose!r}, which needs a checkout of the source" if purpose in PURPOSES else f"is {purpose!r}"
    raise InputError.at("--for", "", fault, f"Choose one of: {', '.join(offered)}.")


def install(purpose: str, bundle_at: str | None, *, keep_build_cache: bool, pinned_only: bool) -> int:
    """Set up the missing parts for a purpose; returns the exit status.

    `bundle_at`: the path or address of a bundle, "" for none, None for that of the variable or of the settings.
    `pinned_only`: Go builds with the pinned version alone.
    """
    cache = tool_cache.cache_folder()
    token = os.environ.pop(TOKEN, "")  # no program that set-up runs sees it
    # If another program ends set-up, set-up must end its children as it does on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    steps: list[Step] = []
    status = 1
    try:
        prerequisites.check(prerequisites.inspect())
        if delivered.CHECKOUT is not None:
            prerequisites.check_untracked(REPOSITORY)
        steps = steps_of(REPOSITORY, cache, purpose, pinned_go=pinned_only)
        if all(step.done() for step in steps):
            return 0
        bundle, had_caches = None, _has_build_caches(cache)
        with contextlib.ExitStack() as opened:
            if any(step.bundled and not step.done() for step in steps):
                bundle = find_bundle(address_of(bundle_at, settings_folder()), bundle_token(token))
                if bundle is not None:
                    opened.callback(bundle.close)
                    steps = steps_of(REPOSITORY, cache, purpose, bundle, pinned_go=pinned_only)
            # The demo goes on to set up the platform while it runs.
            ahead = steps_of(REPOSITORY, cache, "platform", bundle) if purpose == "demo" else []
            check_space([*steps, *ahead], REPOSITORY, cache)
            perform(steps)
            more = any(step.built and not step.done() for step in ahead)
        # One small tool does not end what a larger set-up began.
        if not keep_build_cache and not more and not (purpose == "lint" and had_caches):
            remove_build_caches(cache)
    except (SetupError, ModuleError, InputError, tool_cache.PinError) as error:
        say(f"set-up: {error}")
    except OSError as error:
        say(f"set-up: {error.filename or 'a file'} could not be used: {error.strerror or error}.")
    except KeyboardInterrupt:
        say("set-up: interrupted.")
        status = 130
    else:
        return 0
    if steps:
        say(f"set-up: {kept(steps, cache)} Run the same command again: it goes on from there.")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="setup.py", description="Set up what this repository needs.")
    parser.add_argument(
        "--for",
        choices=PURPOSES,
        default="all",
        dest="purpose",
        help="; ".join(f"{name}: {what}" for name, what in PURPOSES.items()),
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE|URL",
        help=f"take built tools from this bundle (default: ${VARIABLE}, else tool_bundle of platform/settings.yaml; "
        "an empty text: from none). Each is compared with platform/local/tools/digests.json",
    )
    parser.add_argument(
        "--keep-build-cache",
        action="store_true",
        help="keep Go's modules and compiled packages, which are otherwise removed after the last tool",
    )
    parser.add_argument("--pinned-go", action="store_true", help="build with the pinned Go alone, as a bundle needs it")
    return parser


def settings_folder() -> Path:
    """The folder whose settings name a bundle: this checkout, or the current one where a wheel runs: an organisation's
    own repository. The digests of the bundle's content are this package's in any case."""
    return delivered.CHECKOUT or Path.cwd()


def steps_of(
    repository: Path, cache: Path, purpose: str, bundle: Bundle | None = None, *, pinned_go: bool = False
) -> list[Step]:
    """The steps for a purpose."""
    return Steps(repository, cache, bundle, pinned_go=pinned_go).of(purpose)


def find_bundle(address: str, token: str = "") -> Bundle | None:
    """Open the bundle at an address; without one, or if it cannot be used, say so in a line: None."""
    if not address:
        say(f"set-up: no bundle of built tools is named (--bundle, {VARIABLE} or tool_bundle); they are built here.")
        return None
    try:
        return Bundle(address, read_digests(REPOSITORY), pinned_go(REPOSITORY), token)
    except RefusedError as error:
        say(f"set-up: the bundle {address} cannot be used: {error}. The tools are built here.")
        return None


def check_space(steps: Sequence[Step], repository: Path, cache: Path) -> None:
    """Say what the missing steps need of which disk, and how much is free. Raises SetupError if it is too little."""
    todo = list({step.title: step for step in steps if not step.done()}.values())
    own = sum(step.stays for step in todo if not step.shared)
    stays, passes = sum(step.stays for step in todo if step.shared), sum(step.built for step in todo)
    if passes:  # what an earlier run left is used
        left = sum(step.built for step in steps) - Steps(repository, cache).go.caches_size()
        passes = max(0.0, min(passes, left))
    needs = {repository: own, cache: stays + passes}
    for folder, needed, free in prerequisites.by_disk(needs):
        if needed >= 0.05 * GIB:
            later = (
                f"; {passes / GIB:.1f} GiB of it are free again at the end" if folder != repository and passes else ""
            )
            say(f"set-up: {folder} needs {needed / GIB:.1f} GiB of disk, and {free / GIB:.1f} GiB are free{later}.")
            prerequisites.check_space(folder, int(needed))


def kept(steps: Sequence[Step], cache: Path) -> str:
    """What a set-up that ended early leaves for the next run, in a sentence."""
    done = sum(step.done() for step in steps)
    caches = _has_build_caches(cache)
    if not done and not caches:
        return "nothing was done yet."
    also = ", and so are Go's modules and compiled packages" if caches else ""
    return f"{done} of {len(steps)} parts are done and kept{also}."


def remove_build_caches(cache: Path) -> None:
    """Remove what builds alone read, and say so."""
    if not _has_build_caches(cache):
        return
    go = Steps(REPOSITORY, cache).go
    if (size := go.caches_size()) and go.remove_caches():
        say(
            f"set-up: removed Go's modules and compiled packages ({size / GIB:.1f} GiB); --keep-build-cache keeps them."
        )


def _has_build_caches(cache: Path) -> bool:
    return any((cache / name).is_dir() for name in BUILD_CACHES)


class _Beside:
    """Does a step's work in a thread, beside the steps before it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._error: BaseException | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._work, name=step.title).start()

    def _work(self) -> None:
        try:
            do(self._step)
        except (SetupError, ModuleError, tool_cache.PinError, OSError) as error:
            self._error = error
        finally:
            self._ended.set()

    def join(self) -> None:
        """Wait for its end, and raise its error."""
        WAITED_FOR.set()
        try:
            self._ended.wait()  # Ctrl-C in a thread's own join() leaves Python 3.11 believing that it has ended
        finally:
            WAITED_FOR.clear()
        if self._error is not None:
            raise self._error

    def break_off(self) -> None:
        """End the programs that it started, and wait for its end."""
        BROKEN_OFF.set()
        self._ended.wait()
        BROKEN_OFF.clear()


def do(step: Step) -> float | None:
    """Do a step's work. Returns its seconds without the wait for others; None if another set-up did it meanwhile."""
    with locked(step.lock, step.title) if step.lock is not None else contextlib.nullcontext():
        start = time.monotonic()
        if step.place is not None:
            remove_unfinished(step.place)
        if step.lock is not None and step.done():
            return None
        step.work()
        return time.monotonic() - start


def perform(steps: list[Step]) -> None:
    """Do the steps that are not done, in order. Raises SetupError if one does not reach its goal."""
    todo = [step for step in steps if not step.done()]
    if len(todo) < len(steps):
        say(f"set-up: {len(steps) - len(todo)} of {len(steps)} parts are there and stay as they are.")
    pace = Pace()
    if sum(step.seconds for step in todo if not step.beside) >= _LONG:
        say(
            f"set-up: {pace.left(todo, 0.0)} on two quiet cores, without waits for other set-ups. The times below "
            "follow this machine's pace."
        )
    began = time.monotonic()
    beside: dict[str, _Beside] | None = None
    try:
        for number, step in enumerate(todo, start=1):
            start = time.monotonic()
            if step.shared and beside is None:  # the first step after the Python packages
                beside = {one.title: _Beside(one) for one in todo if one.beside}
            running = (beside or {}).get(step.title)
            waits = running is None and _held(step)
            left = f"{pace.left(todo[number - 1 :], start - began)} left"
            say(f"[{number}/{len(todo)}] {step.title}; {f'another set-up is at it, then {left}' if waits else left}")
            if running is not None and beside is not None:
                running.join()
                del beside[step.title]
            elif (took := do(step)) is not None and step.shared:  # the packages follow the network's pace
                pace.add(step.seconds, took)
            if not step.done():
                raise SetupError(f"{step.title} ended well, but its result is not there. This is a defect of set-up.")
            say(f"      done in {time.monotonic() - start:.1f} s")
    finally:
        for running in (beside or {}).values():
            running.break_off()


def _held(step: Step) -> bool:
    """Whether another set-up works on the same part now."""
    if step.lock is None:
        return False
    with unused(step.lock) as free:
        return not free


def remove_unfinished(place: Path) -> None:
    """Remove the half-written files of a killed set-up in a folder: every file is written under such a name first.

    The part's lock is held, so that nobody else is writing there.
    """
    for folder in place.glob(".new-*"):
        shutil.rmtree(folder, ignore_errors=True)
