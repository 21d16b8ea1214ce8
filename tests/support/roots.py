"""Names the two folders that tests read: the example organisation's repository, and this checkout.

Tests must hold whatever an organisation enters into its own files: names of environments, teams and cost centres,
budgets, answers, services. They read `ROOT`. Tests of the checkout itself (its documents, workflows, set-up, code, and
whether its own files belong together) read `CHECKOUT`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from neuroscale.rendering.example_files import example_files
from neuroscale.repo.example_repository import example_snapshot

CHECKOUT = Path(__file__).resolve().parents[2]
"""The checkout whose tests run."""


def files_of(root: Path) -> list[str]:
    """The paths of a repository's files, also of those that git neither tracks nor ignores."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return sorted({path for path in listed.split("\0") if path and (root / path).is_file()})


def example_repository(checkout: Path) -> Path:
    """The folder of the example organisation's whole repository: a clone with all files committed.

    The checkout itself, where its own files are the example's. Otherwise a folder below its `.state`, named after its
    content, with the checkout's files and the example's own among them: it is written once, and whole.
    """
    example, paths = example_snapshot(), files_of(checkout)
    wanted = {entry.path: example.read(entry.path) for entry in example.example.entries()}
    pages = {path for path in paths if example.is_own(path) and path.endswith("/README.md")}
    own = {path: (checkout / path).read_bytes() for path in paths if example.is_own(path) and path not in pages}
    if own == {path: content for path, content in wanted.items() if path not in pages}:
        return checkout
    files = {path: (checkout / path).read_bytes() for path in pages} | example_files(paths)
    runs = {path for path in files if os.access(checkout / path, os.X_OK)}
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path}\0{path in runs}\0{len(content)}\0".encode() + content)
    folder = checkout / ".state" / "example-repository" / digest.hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as scratch:
            made = Path(scratch) / "repository"
            for path, content in files.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(content)
                (made / path).chmod(0o755 if path in runs else 0o644)
            _git(made, "init", "--quiet", "--initial-branch=main", "--template=")
            _git(made, "add", "--all", "--force")
            _git(made, "commit", "--quiet", "--message", "The example organisation's repository")
            with contextlib.suppress(OSError):  # another worker was faster
                made.rename(folder)
    return folder


def _git(root: Path, *arguments: str) -> str:
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "maintenance.auto=false")
    command = ["git", "-C", str(root), *author, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


ROOT = example_repository(CHECKOUT)
"""The example organisation's repository. The code that runs comes from the checkout in any case."""
