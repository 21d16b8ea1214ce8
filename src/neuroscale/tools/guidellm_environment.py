"""Finds this machine's guidellm, which set-up installs in an environment of its own.

Only the standard library may be imported here: set-up asks this module before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuroscale.core import delivered
from neuroscale.core.tool_cache import cache_folder, digest, is_installed, pinned, python_version

PACKAGE = "guidellm"
LOCK = Path("requirements/bench.txt")
INSTALL = delivered.install_command("bench", "python3 scripts/setup.py --for bench")


@dataclass(frozen=True)
class GuidellmEnvironment:
    """A virtual environment with guidellm of that `version`, whether it exists or not."""

    folder: Path
    version: str

    @classmethod
    def find(cls, repository: Path = delivered.FOLDER) -> GuidellmEnvironment:
        """Its place in the tool cache. Raises PinError if the repository does not pin it."""
        lock, version = pinned(repository / LOCK, PACKAGE)
        key = digest(python_version(), lock)
        return cls(cache_folder() / "bench" / f"{version}-{key}", version)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether the packages are installed as locked."""
        return is_installed(self.folder)
