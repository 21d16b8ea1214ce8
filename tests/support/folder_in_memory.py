"""Puts the tests' files into memory where the machine has room: a run makes some 100,000, and each takes ten times as
long on a disk.

Whole platforms stay on the disk (`ON_DISK`), where their programs are links that take no space: vLLM alone has six GiB.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

from neuroscale.core.units import GIB

_IN_MEMORY = Path("/dev/shm")
_ROOM = 8 * GIB
"""A run with four forges fills five GiB."""
_MEMORY = 18 * GIB
"""All that must be free: the programs of a run take nine GiB besides."""
_DISK = "NEUROSCALE_TEST_DISK"

ON_DISK = os.environ.get(_DISK) or tempfile.gettempdir()
"""The folder for what takes much space."""


def use_memory() -> None:
    """Let this process and all that it starts make their temporary files in memory.

    On the disk they stay where somebody named a folder (`TMPDIR`) or there is too little memory.
    """
    if "TMPDIR" in os.environ or not _has_room():
        return
    os.environ[_DISK] = ON_DISK
    os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)


def _has_room() -> bool:
    try:
        found = os.statvfs(_IN_MEMORY)
    except OSError:
        return False
    mounted = any(
        one.mountpoint == str(_IN_MEMORY) and one.fstype == "tmpfs" for one in psutil.disk_partitions(all=True)
    )
    runs = not found.f_flag & os.ST_NOEXEC and os.access(_IN_MEMORY, os.W_OK | os.X_OK)
    room = found.f_bavail * found.f_frsize
    return mounted and runs and room >= _ROOM and psutil.virtual_memory().available >= _MEMORY
