"""Puts the tests' files into memory where the machine has room: a run makes some 100,000, each ten times as dear on a
disk.

Platforms stay on the disk (`ON_DISK`): what set-up built is linked into them, which takes no space there alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

from neuroscale.core.units import GIB

_IN_MEMORY = Path("/dev/shm")
_ROOM = 8 * GIB
"""A run was seen to fill two GiB of it at most."""
_MEMORY = 16 * GIB
"""What must be free besides: a run with its model servers takes nearly half."""
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
