"""Runs git: with arguments as lists, NUL-separated output, and without the user's configuration.

Fetches what others have merged into a clone's origin meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from neuroscale.core.errors import InputError, NeuroscaleError, Problem
from neuroscale.core.money_and_time import duration
from neuroscale.core.units import MIB

# The results of a merge and a comparison must not depend on anybody's configuration.
_SETTINGS = (
    "advice.graftFileDeprecated=false",
    "core.quotePath=false",
    "core.attributesFile=/dev/null",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "diff.ignoreSubmodules=none",
    "diff.orderFile=/dev/null",
    "diff.renames=true",
    "log.showSignature=false",
    "merge.default=text",
    "merge.directoryRenames=conflict",
    # Git compares so many removed files with as many new ones at most: a million pairs take some seconds. Beyond that,
    # a file that one side renamed and the other altered is a conflict.
    "merge.renameLimit=1000",
    "merge.renames=true",
)
LARGEST_OBJECT = 16 * MIB
"""The size of the largest file that is read, in bytes."""
_SIZES = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
_OBJECT = re.compile(r"[0-9a-f]{40,64}")


class GitError(NeuroscaleError):
    """Git ended with an error; the message holds its output."""


class GitTimeoutError(GitError):
    """Git did not end in time; it and the processes that it started were stopped."""


class TooLargeError(InputError):
    """A file has `size` bytes, which is too large to be read."""

    def __init__(self, problem: Problem, size: int) -> None:
        super().__init__(problem)
        self.size = size


class Git:
    """A git repository by its work tree (or git directory)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._batch: subprocess.Popen[bytes] | None = None

    def run(
        self,
        *arguments: str,
        check: bool = True,
        data: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = 600,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one git command for at most `timeout` seconds.

        `environment` holds variables for this command alone; secrets belong there and never into `arguments`. Raises
        GitError if it fails and `check` is set, or if git is missing, and GitTimeoutError.
        """
        command = self._command(*arguments)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment() | dict(environment or {}),
            )
        except FileNotFoundError as error:
            raise GitError("git is not installed. Install git 2.38 or newer.") from error
        with process:
            try:
                output, errors = process.communicate(data, timeout)
            except subprocess.TimeoutExpired:
                _stop(process)
                raise GitTimeoutError(f"git {arguments[0]} did not end within {duration(timeout)}.") from None
            except BaseException:
                _stop(process)
                raise
        done = subprocess.CompletedProcess(command, process.returncode, output, errors)
        if check and done.returncode != 0:
            text = done.stderr.decode(errors="replace").strip()
            raise GitError(f"git {arguments[0]} failed with exit status {done.returncode}: {text}")
        return done

    def text(self, *arguments: str) -> str:
        """The output of a command, without surrounding white space."""
        return self.run(*arguments).stdout.decode(errors="surrogateescape").strip()

    def records(self, *arguments: str) -> list[str]:
        """The output of a command that separates its records by NUL."""
        text = self.run(*arguments).stdout.decode(errors="surrogateescape")
        return [record for record in text.split("\0") if record]

    def commit(self, revision: str, field: str) -> str:
        """The full id of the commit that `revision` names. Raises InputError with `field` if it names none."""
        done = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False)
        if done.returncode != 0:
            raise InputError.at(
                "the command line",
                field,
                f"{revision!r} is not a commit",
                "Name a commit, branch or tag; fetch it first if it is remote.",
            )
        return done.stdout.decode().strip()

    def knows(self, commit: str) -> bool:
        """Whether the repository has that commit; False for an empty name."""
        return bool(commit) and self.run("cat-file", "-e", f"{commit}^{{commit}}", check=False).returncode == 0

    def tree(self, commit: str, folder: str) -> str:
        """The id of a folder's tree at a commit; "" if the commit has no such folder."""
        done = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}:{folder}", check=False)
        text = done.stdout.decode().strip()
        return text if done.returncode == 0 and _OBJECT.fullmatch(text) else ""

    def size_of(self, name: str) -> tuple[str, int] | None:
        """The kind of an object, and its size in bytes, by id or `TREE:PATH`; None if the repository lacks it."""
        if _by_lines(name):
            done = self.run("cat-file", "-s", name, check=False)
            return ("blob", int(done.stdout)) if done.returncode == 0 else None
        with self._lock:  # several checks read at once through the one process
            header = self._ask("info", name)
        return None if header is None else (header[0], header[1])

    def read_object(self, name: str, kind: str = "blob", path: str = "") -> bytes | None:
        """The content of an object, by id or `TREE:PATH`; None if the repository has no such object of that kind.

        `path`: the file's, for messages about an id. Raises TooLargeError for an object of more than LARGEST_OBJECT
        bytes, before it is read.
        """
        known = self.size_of(name)
        if known is None or known[0] != kind:
            return None
        check_size(path or name.partition(":")[2] or name, known[1])
        if _by_lines(name):
            return self._show(name, kind)
        with self._lock:
            header = self._ask("contents", name)
            stdout = _pipe(self._batch_process().stdout)
            if header is None or header[0] != kind:
                raise GitError(f"git cat-file gave two kinds for {name}")
            data = stdout.read(header[1])
            if len(data) != header[1] or stdout.read(1) != b"\n":
                raise GitError("git cat-file ended early")
            return data

    def read_blobs(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The contents of blobs by their ids, in few processes for any number of them.

        An id that the repository lacks, that names no blob or one of more than LARGEST_OBJECT bytes is left out.
        """
        if not ids:
            return {}
        names = "".join(f"{one}\n" for one in ids).encode()
        sizes = self.run("cat-file", "--buffer", _SIZES, data=names).stdout
        rows = [line.split(" ") for line in sizes.decode().splitlines()]
        small = [row[0] for row in rows if row[1:2] == ["blob"] and int(row[2]) <= LARGEST_OBJECT]
        found: dict[str, bytes] = {}
        with tempfile.TemporaryFile() as given:
            given.write("".join(f"{one}\n" for one in small).encode())
            given.seek(0)
            # Read as a stream: `communicate` would ask the system about every few KiB.
            with subprocess.Popen(
                self._command("cat-file", "--buffer", "--batch"),
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                bufsize=MIB,
            ) as process:
                stdout = _pipe(process.stdout)
                for one in small:
                    size = int(stdout.readline().rpartition(b" ")[2] or -1)
                    data = stdout.read(max(size, 0))
                    if len(data) != size or stdout.read(1) != b"\n":
                        process.kill()
                        raise GitError("git cat-file ended early")
                    found[one] = data
        return found

    def _ask(self, command: str, name: str) -> tuple[str, int] | None:
        """The first line of an answer of the helper process: kind and size, or None for a missing object."""
        batch = self._batch_process()
        stdin, stdout = _pipe(batch.stdin), _pipe(batch.stdout)
        stdin.write(f"{command} {name}\n".encode(errors="surrogateescape"))
        stdin.flush()
        header = stdout.readline().rstrip(b"\n")
        if not header:
            raise GitError("git cat-file ended early")
        if header.endswith((b" missing", b" ambiguous")) or header.count(b" ") < 2:
            return None
        _, kind, size = header.rsplit(b" ", 2)
        return kind.decode(), int(size)

    def _show(self, name: str, kind: str) -> bytes | None:
        done = self.run("cat-file", kind, name, check=False)
        return done.stdout if done.returncode == 0 else None

    def close(self) -> None:
        """End the helper process, if one was started."""
        if self._batch is not None:
            _pipe(self._batch.stdin).close()
            self._batch.wait(timeout=10)
            _pipe(self._batch.stdout).close()
            self._batch = None

    def _batch_process(self) -> subprocess.Popen[bytes]:
        if self._batch is None:
            self._batch = subprocess.Popen(
                self._command("cat-file", "--batch-command"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        return self._batch

    def _command(self, *arguments: str) -> list[str]:
        return [
            "git",
            "-C",
            str(self.root),
            *(part for setting in _SETTINGS for part in ("-c", setting)),
            "--no-replace-objects",
            "--literal-pathspecs",
            *arguments,
        ]


def _by_lines(name: str) -> bool:
    """Whether the helper process would change a name: it reads lines, and drops a carriage return."""
    return "\n" in name or name.endswith("\r")


def check_size(path: str, size: int) -> None:
    """Raises TooLargeError if a file of this size is too large to be read."""
    if size > LARGEST_OBJECT:
        told = f"has {size} bytes, and files of more than {LARGEST_OBJECT} are not read"
        raise TooLargeError(Problem(path, "", told, "Keep large files elsewhere, or write them in parts."), size)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End git and the transports that it started, which would keep its pipes open."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _environment() -> dict[str, str]:
    """The caller's environment without the variables that point git at another repository or object store.

    The caller's settings for trusted certificates and ssh stay. Grafts and replacements would show another history than
    the one that is merged.
    """
    keep = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or (key.startswith(("GIT_SSL", "GIT_SSH")) and key != "GIT_SSL_NO_VERIFY")
    }
    return keep | {"GIT_TERMINAL_PROMPT": "0", "GIT_GRAFT_FILE": os.devnull, "LC_ALL": "C"}


_SECONDS = 60.0


def fetch_origin(git: Git, source: str = "origin") -> None:
    """Fetch the newest commits of the origin, or of another remote or address, if that is possible without a password
    prompt."""
    with contextlib.suppress(GitError):
        git.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", source),
            check=False,
            # The variables with which the caller lets git log in; nothing else here needs them.
            environment={key: value for key, value in os.environ.items() if key.startswith("GIT_CONFIG_")},
            timeout=_SECONDS,
        )
