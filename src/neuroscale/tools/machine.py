"""Records what set-up made on this machine: with stamps, and with seals that nobody else can write.

A stamp names the content of a folder. Anybody can write a stamp and commit it to a checkout: so a stamp in a checkout
is sealed with a key that only this machine has, outside of every checkout.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path


def key_file() -> Path:
    """The file of the machine's key."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "neuroscale" / "machine-key"


def write_stamp(path: Path, key: str) -> None:
    """Record that the content that `key` names is complete."""
    _write(path, {"key": key})


def write_seal(path: Path, key: str) -> None:
    """Record that the content that `key` names is complete and was made here; make the machine's key if missing."""
    _write(path, {"key": key, "made": _seal(_machine_key() or _make_machine_key(), path, key)})


def read_seal(path: Path) -> str | None:
    """The key in a seal, or None if this machine did not seal this path."""
    machine = _machine_key()
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if machine is None or not isinstance(value, dict):
        return None
    key, made = str(value.get("key", "")), str(value.get("made", ""))
    return key if hmac.compare_digest(made.encode(), _seal(machine, path, key).encode()) else None


def _seal(machine: bytes, path: Path, key: str) -> str:
    return hmac.new(machine, f"{path.absolute()}\0{key}".encode(), hashlib.sha256).hexdigest()


def _machine_key() -> bytes | None:
    """The key, or None if its file is missing or other users can read or write it."""
    try:
        with os.fdopen(os.open(key_file(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno())
            text = file.read(1000)
    except OSError:
        return None
    private = stat.S_ISREG(mode.st_mode) and not mode.st_mode & 0o077 and mode.st_uid == os.geteuid()
    return text if private and re.fullmatch(rb"[0-9a-f]{64}", text) else None


def _make_machine_key() -> bytes:
    """Make the key; it appears whole. A key that others could read is replaced, and its seals become invalid."""
    path = key_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = secrets.token_hex(32).encode()
    descriptor, half = tempfile.mkstemp(dir=path.parent, prefix=".machine-key.")  # of mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    Path(half).replace(path)
    return text


def _write(path: Path, value: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
    temporary.rename(path)
