"""Chooses the users of the local platform's processes: accounts without rights if root starts them."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

NOBODY = "nobody"
_FIRST_UID, _LAST_UID = 64000, 65533  # 65534 is nobody; larger ones may not exist inside a container


@dataclass(frozen=True)
class User:
    """An account without rights. The system need not know its `name`."""

    name: str
    uid: int
    gid: int


def popen_arguments(user: User | None) -> dict[str, Any]:
    """The arguments of Popen that start a process as this user, and in no other group; None stands for the user that
    this program runs as."""
    return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}


def nobody() -> User:
    """The system's own account without rights."""
    entry = pwd.getpwnam(NOBODY)
    return User(NOBODY, entry.pw_uid, entry.pw_gid)


def unused_uid(taken: Collection[int] = ()) -> int:
    """A uid that no account and no process has, so that its processes can touch nobody's files."""
    running = {process.info["uids"].real for process in psutil.process_iter(["uids"]) if process.info["uids"]}
    known = {entry.pw_uid for entry in pwd.getpwall()} | running | set(taken)
    return next(uid for uid in range(_LAST_UID, _FIRST_UID, -1) if uid not in known)


def may_enter(user: User | None, folder: Path) -> bool:
    """Whether the user can enter the folder. It is tried, because modes alone do not decide it."""
    return tried(user, ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)])


def tried(user: User | None, command: list[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether the command succeeds as that user within 20 seconds."""
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath, **(environment or {})},
            timeout=20,
            **popen_arguments(user),
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
