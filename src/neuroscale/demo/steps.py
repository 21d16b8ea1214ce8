"""Holds the parts that all steps of the demo share: a repository to work in, the commands, and the results."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console
from rich.rule import Rule

from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.printable import one_line

EXAMPLES = "templates/examples"
_DEVELOPERS_CLONE = "developer"
ENVIRONMENT, SERVICE = "dev", "support-chat"
FOLDER = f"manifests/{ENVIRONMENT}/{SERVICE}"
MANIFEST = f"{FOLDER}/inferenceservice.yaml"
EXAMPLE = f"{EXAMPLES}/gemma-4-26b-a4b-qat.yaml"
DENSE_EXAMPLE = f"{EXAMPLES}/gemma-4-31b-qat-on-one-l4.yaml"
OTHER_SERVICE, OTHER_TEAM = "deep-analysis", "team-beta"
"""A dense model of another team, on the same kind of accelerator."""
START = "start"
"""The branch of the demo's repository from which the others begin."""
PLATFORM = "platform"
"""The fact that forge and cluster were started."""
_STATUS = "exit status"
_FAILURE = re.compile(r"\b(?:fail|error|refus|cannot)|\bnot (?:ready|synced|found)", re.IGNORECASE)
_TERMINALS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")  # a terminal's commands


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


class Log:
    """The demo's output, which goes to a terminal or a file, and as plain text into a log.

    Everything else of it is as that of `output`.
    """

    def __init__(self, output: IO[str], path: Path) -> None:
        self.path = path
        self._output = output
        self._rest = ""
        self._count = len(path.read_bytes().splitlines()) if path.exists() else 0
        self._lines: list[tuple[int, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)

    def write(self, text: str) -> int:
        *lines, self._rest = _TERMINALS.sub("", self._rest + text).split("\n")
        with self.path.open("a", encoding="utf-8") as file:
            for line in lines:
                self._count += 1
                self._lines.append((self._count, line.rpartition("\r")[2].strip()))
                file.write(f"{self._lines[-1][1]}\n")
        return self._output.write(text)

    def begin(self) -> None:
        """Forget the lines before those of the next step or command."""
        self._lines.clear()

    def place(self) -> str:
        """The line that tells most about a failure since `begin`, with its place: the last one that speaks of a
        failure, else the last one."""
        lines = [line for line in self._lines if line[1] and not line[1].startswith(_STATUS)]
        last = (lines or [(self._count, "")])[-1]
        number, text = next((line for line in reversed(lines) if _FAILURE.search(line[1])), last)
        return f"{self.path}:{number}: {one_line(text, 300)}"


class Demo:
    """A repository that the demo made, and the output of the commands in it.

    `state`: the folder of forge and cluster, which `keep` leaves running. `facts`: what a step leaves for later ones,
    also for those of another run, as values of JSON.
    """

    def __init__(self, root: Path, log: Log, state: Path, *, keep: bool = False) -> None:
        self.root = root
        self.log = log
        self.console = Console(highlight=False, file=cast("IO[str]", log))
        self.state = state
        self.keep = keep
        self.results: list[Result] = []
        self.facts: dict[str, Any] = {}

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

    def fresh_branch(self, name: str, start: str) -> None:
        """Make the branch anew; what an earlier attempt left is removed."""
        self.git("clean", "--quiet", "--force", "-d")
        self.git("switch", "--quiet", "--discard-changes", "--force-create", name, start)

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def neuroscale(self, *arguments: str, expect: ExitStatus, folder: Path | None = None) -> None:
        """Run a command as a user would. Raises UntrustedError if it does not end as it must."""
        self._run(arguments, folder, expect)

    def answered(self, *arguments: str, folder: Path) -> float:
        """Run a command that prints an answer. Returns the time of its first output, in seconds since 1970. Raises
        UntrustedError.
        """
        first = self._run(arguments, folder, ExitStatus.PASSED)
        if first is None:
            raise UntrustedError("the demo expected an answer.")
        return first

    def _run(self, arguments: Sequence[str], folder: Path | None, expect: ExitStatus) -> float | None:
        """The time of its first output, in seconds since 1970."""
        self.log.begin()
        self.console.print(f"$ neuroscale {shlex.join(arguments)}", style="bold", markup=False, soft_wrap=True)
        settings = {**os.environ, "COLUMNS": str(self.console.width), "PYTHONUNBUFFERED": "1"}
        if self.console.is_terminal:
            settings["FORCE_COLOR"] = "1"
        command = [sys.executable, "-P", "-m", "neuroscale", *arguments]
        decoder, first = codecs.getincrementaldecoder("utf-8")("replace"), None
        reading, writing = os.pipe()
        with (
            subprocess.Popen(command, cwd=folder or self.root, env=settings, stdout=writing, stderr=writing) as process,
            os.fdopen(reading, "rb", buffering=0) as output,
        ):
            os.close(writing)
            while part := output.read(65536):
                first = first or time.time()
                self.log.write(decoder.decode(part))
                self.log.flush()
        self.console.print(f"{_STATUS} {process.returncode}", style="dim")
        if process.returncode != expect:
            raise UntrustedError(f"the demo expected exit status {expect.value} and got {process.returncode}.")
        return first


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be in a file exactly once."""
    text = path.read_text()
    if text.count(old) != 1:
        raise UntrustedError(f"the demo expected {old!r} once in {path.name}.")
    path.write_text(text.replace(old, new))
