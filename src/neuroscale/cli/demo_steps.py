"""Holds the parts that all steps of the demo share: a clone to work in, the commands, and the results."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from neuroscale.core.errors import ExitStatus, UntrustedError

EXAMPLES = "templates/examples"
_DEVELOPERS_CLONE = "developer"
ENVIRONMENT, SERVICE = "dev", "support-chat"
FOLDER = f"manifests/{ENVIRONMENT}/{SERVICE}"
MANIFEST = f"{FOLDER}/inferenceservice.yaml"
EXAMPLE = f"{EXAMPLES}/gemma-4-26b-a4b-qat.yaml"
DENSE_EXAMPLE = f"{EXAMPLES}/gemma-4-31b-qat-on-one-l4.yaml"
OTHER_SERVICE, OTHER_TEAM = "deep-analysis", "team-beta"
"""A dense model of another team, on the same kind of accelerator."""


@dataclass(frozen=True)
class Live:
    """The service with a real model."""

    environment: str
    service: str
    example: str

    @property
    def path(self) -> str:
        return f"{self.environment}/{self.service}"


LIVE = Live("local", "tiny-chat", f"{EXAMPLES}/tiny-moe-on-this-machine.yaml")


@dataclass(frozen=True)
class Result:
    """One line of the summary."""

    title: str
    told: str


class Demo:
    """A scratch clone that began at the commit `start`, and the output of the commands in it."""

    def __init__(self, root: Path, console: Console, start: str) -> None:
        self.root = root
        self.console = console
        self.start = start
        self.results: list[Result] = []
        self.refusal = ""
        """The gate's message about the image tag that moves."""

    @property
    def developers_clone(self) -> Path:
        """The developer's clone of the forge's repository, beside the demo's own."""
        return self.root.parent / _DEVELOPERS_CLONE

    def follow_main(self) -> None:
        """Bring the developer's clone to main as it is now."""
        for command in (("fetch", "--quiet", "origin", "main"), ("switch", "--quiet", "--detach", "origin/main")):
            subprocess.run(["git", "-C", str(self.developers_clone), *command], check=True, capture_output=True)

    def heading(self, title: str) -> None:
        self.console.print()
        self.console.print(Rule(title, align="left"))

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=Demo", "-c", "user.email=demo@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(self.root), *identity, *arguments], check=True, capture_output=True)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def neuroscale(self, *arguments: str, expect: ExitStatus, folder: Path | None = None) -> None:
        """Run a command as a user would. Raises UntrustedError if it does not end as it must."""
        with self._started(arguments, folder, None) as process:
            pass
        self._ended(process.returncode, expect)

    def answered(self, *arguments: str, folder: Path) -> float:
        """Run a command that prints an answer. Returns the time of its first output, in seconds since 1970. Raises
        UntrustedError.
        """
        first = None
        with self._started(arguments, folder, subprocess.PIPE) as process:
            if process.stdout is None:
                raise AssertionError("its output is a pipe")
            while part := os.read(process.stdout.fileno(), 65536):
                first = first or time.time()
                self.console.file.write(part.decode(errors="replace"))
                self.console.file.flush()
        self._ended(process.returncode, ExitStatus.PASSED)
        if first is None:
            raise UntrustedError("the demo expected an answer.")
        return first

    def _started(self, arguments: Sequence[str], folder: Path | None, stdout: int | None) -> subprocess.Popen[bytes]:
        self.console.print(f"$ neuroscale {shlex.join(arguments)}", style="bold", markup=False, soft_wrap=True)
        self.console.file.flush()
        settings = {**os.environ, "COLUMNS": str(self.console.width)}
        command = [sys.executable, "-P", "-m", "neuroscale", *arguments]
        return subprocess.Popen(command, cwd=folder or self.root, env=settings, stdout=stdout)

    def _ended(self, status: int, expect: ExitStatus) -> None:
        self.console.print(f"exit status {status}", style="dim")
        if status != expect:
            raise UntrustedError(f"the demo expected exit status {expect.value} and got {status}.")


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be in a file exactly once."""
    text = path.read_text()
    if text.count(old) != 1:
        raise UntrustedError(f"the demo expected {old!r} once in {path.name}.")
    path.write_text(text.replace(old, new))
