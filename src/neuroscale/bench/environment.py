"""Finds this machine's guidellm, which set-up installs in an environment of its own.

Only the standard library may be imported here: set-up asks this module before anything is installed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from neuroscale.core.tool_cache import REPOSITORY, PinError, cache_folder, digest, locked_version, python_version

PACKAGE = "guidellm"
STAMP = "neuroscale-setup.json"
LOCK = Path("requirements/bench.txt")
INSTALL = "python3 scripts/setup.py --for bench"


@dataclass(frozen=True)
class GuidellmEnvironment:
    """A virtual environment with guidellm of that `version`, whether it exists or not."""

    folder: Path
    version: str

    @classmethod
    def find(cls, repository: Path = REPOSITORY) -> GuidellmEnvironment:
        """Its place in the tool cache. Raises PinError if the repository does not pin it."""
        try:
            lock = (repository / LOCK).read_text(encoding="utf-8")
        except OSError as error:
            raise PinError(f"{error.filename} cannot be read ({error.strerror}).") from error
        version = locked_version(lock, PACKAGE)
        if version is None:
            raise PinError(f"{repository / LOCK} does not pin {PACKAGE}.")
        key = digest(python_version(), lock)
        return cls(cache_folder() / "bench" / f"{version}-{key}", version)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether the packages are installed as locked."""
        try:
            stamp = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(stamp, dict) and stamp.get("key") == self.folder.name and self.python.exists()
