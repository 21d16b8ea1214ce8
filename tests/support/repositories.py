"""Git repositories for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from neuroscale.repo.git import Git
from neuroscale.repo.layout import ServicePath
from roots import ROOT, files_of


class Repository:
    """A git repository in a folder, with an author of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        # Without git's sample hooks, and below without its housekeeping: both cost more than the rest.
        self.run("init", "--quiet", "--initial-branch=main", "--template=")
        self.git = Git(root)

    def run(self, *arguments: str, at: str = "") -> str:
        """`at`: the time of a commit; "": now."""
        settings = ("user.name=Test", "user.email=test@example.org", "maintenance.auto=false")
        command = ["git", "-C", str(self.root), *(part for one in settings for part in ("-c", one))]
        times = {"GIT_COMMITTER_DATE": at, "GIT_AUTHOR_DATE": at} if at else {}
        environment = os.environ | times
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip()

    def write(self, files: dict[str, bytes | str | None]) -> None:
        """Write files; None removes one."""
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: dict[str, bytes | str | None], message: str = "change", at: str = "") -> str:
        """Write files and commit everything; returns the commit."""
        self.write(files)
        self.run("add", "--all", "--force")
        self.run("commit", "--quiet", "--allow-empty", "--message", message, at=at)
        return self.run("rev-parse", "HEAD")

    def pack(self) -> None:
        """Put all objects into one file: a copy of the repository then costs half."""
        self.run("repack", "-a", "-d", "--quiet")

    def commit_tree(self, *entries: tuple[str, bytes, str]) -> str:
        """Commit a root tree of raw entries (mode, name, object), in their order, also entries that git would not
        write.
        """
        data = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(one) for mode, name, one in entries)
        command = ["git", "-C", str(self.root), "hash-object", "-w", "-t", "tree", "--literally", "--stdin"]
        tree = subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().strip()
        commit = self.run("commit-tree", tree, "-p", "HEAD", "-m", "raw")
        self.run("update-ref", "HEAD", commit)
        return commit


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder of many files, in half the time that `shutil.copytree` takes."""
    subprocess.run(["cp", "-R", "--no-target-directory", source, target], check=True)


def copy_of_the_example_repository(root: Path, without: tuple[str, ...] = ()) -> Repository:
    """The files of the example organisation's repository with their modes, also uncommitted ones, without a commit.

    Services are left out: a test adds the services that it needs. `without`: folders that are left out, too.
    """
    made = Repository(root)
    for name in files_of(ROOT):
        if ServicePath.of(name) is None and name.partition("/")[0] not in without:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    return made
