"""Git repositories for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from neuroscale.git import Git


class Repository:
    """A git repository in a folder, with an author of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.run("init", "--quiet", "--initial-branch=main")
        self.git = Git(root)

    def run(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), "-c", "user.name=Test", "-c", "user.email=test@example.org"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
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

    def commit(self, files: dict[str, bytes | str | None], message: str = "change") -> str:
        """Write files and commit everything; returns the commit."""
        self.write(files)
        self.run("add", "--all", "--force")
        self.run("commit", "--quiet", "--allow-empty", "--message", message)
        return self.run("rev-parse", "HEAD")
