"""Finds or builds the tool's wheel for the demo, and builds the tools for its later parts while the first ones run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroscale.actions.new_repository import installed_wheel
from neuroscale.core import delivered
from neuroscale.core.errors import UntrustedError
from neuroscale.core.printable import one_line
from neuroscale.core.tool_cache import cache_folder

_TELL_EVERY = 20.0
_AGAIN = delivered.install_command("platform")


class SetUp:
    """A set-up that runs during the demo, with a log of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def wait(self, tell: Callable[[str], None]) -> None:
        """Wait until it has ended, with a line about progress where it changed. Raises UntrustedError if set-up failed.

        There is no longest time: set-up itself ends a step that does nothing at all.
        """
        told_at, line = time.monotonic(), ""
        while self._process.poll() is None:
            now = time.monotonic()
            if now - told_at >= _TELL_EVERY and self._last() != line:
                told_at, line = now, self._last()
                tell(f"  set-up goes on: {line}")
            time.sleep(0.1)
        if self._process.returncode != 0:
            raise UntrustedError(f"Set-up failed: {self._last()} See {self._log}, then run `{_AGAIN}`.")

    def _last(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return one_line(lines[-1].strip(), 200) if lines else "it has begun"


@contextmanager
def set_up_beside() -> Iterator[SetUp]:
    """Set up the missing parts of the platform while the caller works; it is ended with the block."""
    checkout = delivered.CHECKOUT
    folder = cache_folder() / "logs" if checkout is None else checkout / ".state" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "demo-setup.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "neuroscale", "tools", "install", "--for", "platform"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield SetUp(process, log)
    finally:
        if process.poll() is None:
            process.terminate()  # set-up ends its own children
            process.wait(60)


@contextmanager
def wheel_of_tool(named: Path | None) -> Iterator[Path]:
    """The wheel of the code that runs: the named one, a checkout's, built now, or the one that was installed.

    Raises InputError if nobody knows it, UntrustedError if it cannot be built.
    """
    checkout = delivered.CHECKOUT
    if named is not None or checkout is None:
        yield named or installed_wheel()
        return
    with tempfile.TemporaryDirectory(prefix="neuroscale-wheel-") as folder:
        command = [sys.executable, "-I", "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = one_line((done.stderr.strip().splitlines() or ["it says nothing"])[-1], 200)
            advice = f"Run `make -C {shlex.quote(str(checkout))} demo`, which installs what builds it."
            raise UntrustedError(f"The wheel of this checkout was not built: {why}. {advice}")
        (wheel,) = Path(folder).glob("*.whl")
        yield wheel
