"""Starts a program that can write to its own volumes alone, as a container with a read-only root file system.

A program of its own, `python -I read_only_root.py JSON PROGRAM ARGUMENT...`, with nothing but the standard library. In
a mount namespace of its own it makes every file system of the machine read-only, except `/proc`, `/sys` and `/dev`
(with `/dev/shm`, which every container may write to), gives up root's rights and becomes the program. The JSON object:

    temporary   the folder that the program sees at /tmp; null: the machine's own, read-only
    writable    folders that it may write to, at their own places
    needed      folders that it must still see if they lie below /tmp
    uid, gid    of the user that it becomes; null: the same as this program's

It needs the rights of root. Where it fails, it writes a sentence to its standard error and ends with 128.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

TEMPORARY = "/tmp"  # noqa: S108 - the place in a container, not a file of this program
_KERNELS_OWN = ("/proc", "/sys", "/dev")
_NEW_MOUNTS = 0x20000  # of unshare(2)
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18  # of mount(2)
_OPTIONS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
"""The options of a mount that changing it must repeat, by their names in /proc/self/mountinfo."""
_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
_FAILED = 128


def problem() -> str:
    """Why this machine cannot start programs so, in a sentence; "" if it can. It is tried."""
    nothing: dict[str, Any] = {"temporary": None, "writable": [], "needed": [], "uid": None, "gid": None}
    try:
        done = subprocess.run(
            [sys.executable, "-I", __file__, json.dumps(nothing), "/bin/true"],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{error}."
    return "" if done.returncode == 0 else done.stderr.strip()[-300:] or "It cannot start programs so."


def main(asked: dict[str, Any], argv: list[str]) -> None:
    """Become the program. Raises OSError."""
    folder = os.getcwd()  # noqa: PTH109 - the text is enough
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    _done(libc.unshare(_NEW_MOUNTS), "a mount namespace of its own")
    _mount(libc, None, "/", _RECURSIVE | _PRIVATE)
    writable = {os.path.realpath(one) for one in asked["writable"]}
    for one in sorted(writable):
        _mount(libc, one, one, _BIND)
    if asked["temporary"] is not None:
        _cover(libc, asked["temporary"], [*asked["needed"], argv[0], os.path.realpath(argv[0]), folder])
        writable.add(TEMPORARY)
    for point, options in _mounts():
        if point in writable or any(point == one or point.startswith(f"{one}/") for one in _KERNELS_OWN):
            continue
        try:
            _mount(libc, None, point, _REMOUNT | _BIND | _READ_ONLY | options)
        except OSError as error:
            # Another mount covers it, so that no path leads to it.
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        raise OSError(errno.EPERM, "the root file system is still writable")
    if asked["uid"] is not None:
        os.setgroups([])
        os.setgid(asked["gid"])
        os.setuid(asked["uid"])
    # Becoming another user has switched it off.
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    os.chdir(folder)
    os.execv(argv[0], argv)  # noqa: S606 - the program that the node planned


def _cover(libc: ctypes.CDLL, folder: str, needed: list[str]) -> None:
    """Mount the folder at /tmp, and what the program must see of the machine's /tmp at its own place again."""
    seen = {one.split("/")[2] for one in needed if one.startswith(f"{TEMPORARY}/")}
    with contextlib.ExitStack() as opened:
        kept = {}
        for name in sorted(seen):
            kept[name] = os.open(f"{TEMPORARY}/{name}", os.O_PATH | os.O_DIRECTORY)
            opened.callback(os.close, kept[name])
        _mount(libc, os.path.realpath(folder), TEMPORARY, _BIND)
        for name, descriptor in kept.items():
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{TEMPORARY}/{name}", 0o755)  # noqa: PTH102
            _mount(libc, f"/proc/self/fd/{descriptor}", f"{TEMPORARY}/{name}", _BIND | _RECURSIVE)


def _mounts() -> Iterator[tuple[str, int]]:
    """Each place where a file system is mounted, with the options that changing it must repeat."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        lines = file.readlines()
    for line in lines:
        _, _, _, _, point, options, *_ = line.split(" ")
        known = sum(_OPTIONS.get(one, 0) for one in options.split(","))
        yield re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point), known


def _mount(libc: ctypes.CDLL, source: str | None, target: str, flags: int) -> None:
    told = f"mounting {target}"
    _done(libc.mount(source and os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None), told)


def _done(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]), sys.argv[2:])
    except OSError as fault:
        sys.stderr.write(f"No read-only root file system: {fault.strerror}.\n")
    sys.exit(_FAILED)
