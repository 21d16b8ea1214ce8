"""Writes a platform repository of an organisation's own into a folder, with the tool pinned by version and digest."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from neuroscale import __version__
from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.core.files import write_public
from neuroscale.core.tool_cache import cache_folder, wheels
from neuroscale.rendering.new_repository import NewRepository, new_files
from neuroscale.repo.layout import is_written
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import ToolPin, pin_files

_DELIVERED = (".github", "docs/runbooks", "manifests", "platform", "policies", "templates")


@dataclass(frozen=True)
class Written:
    """The paths of a new repository that were written, and the number of those that were there already."""

    paths: tuple[str, ...]
    unchanged: int


def write_repository(folder: Path, answers: NewRepository, wheel: Path | None) -> Written:
    """Write every file of the organisation's repository. `wheel`: the tool's own, whose digest becomes the pin.

    Run again with the same answers, it writes nothing. Raises InputError, and writes nothing, if the answers cannot be
    used, if the digest is not known, or if the folder holds another file of the same name.
    """
    snapshot = FolderSnapshot(delivered.FOLDER)
    paths = [entry.path for entry in snapshot.entries(*_DELIVERED) if not any(map(is_written, entry.path.split("/")))]
    files = new_files(answers, snapshot, FolderSnapshot(delivered.EXAMPLE), paths) | _pinned(digest_of_tool(wheel))
    there = {path: content for path in files if (content := _content(folder / path)) is not None}
    if others := sorted(path for path, content in there.items() if content != files[path]):
        raise InputError.at(
            str(folder / others[0]),
            "",
            f"is there already with another content, and so are {len(others) - 1} more files",
            "Name a new folder, or change a repository that exists by its own commands: nothing was written.",
        )
    new = {path: content for path, content in files.items() if path not in there}
    try:
        if wheel is not None:
            _keep(wheel)
        for path, content in new.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write_public(folder / path, content.decode())
    except OSError as error:
        where, why = str(error.filename or folder), f"cannot be written: {error.strerror}"
        raise InputError.at(where, "", why, "Allow writing to the folder, and run the command again.") from error
    return Written(tuple(new), len(there))


def _keep(wheel: Path) -> None:
    """Copy the wheel into the tool cache: the jobs of a forge on this machine install it from there."""
    kept = wheels(cache_folder()) / wheel.name
    content = wheel.read_bytes()
    if _content(kept) != content:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_name(f".new-{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(kept)


def digest_of_tool(wheel: Path | None) -> str:
    """The SHA-256 of this tool's wheel, in hexadecimal: of the file, or as the installation recorded it.

    Raises InputError if neither is known, or if the file is not this version's wheel.
    """
    if wheel is not None:
        if not re.fullmatch(rf"neuroscale-{re.escape(__version__)}-[\w.]+-[\w.]+-[\w.]+\.whl", wheel.name):
            message = f"{wheel.name!a} is not the wheel of neuroscale {__version__}, which writes this repository"
            raise InputError.at(
                "the command line", "--wheel", message, "Name the wheel that this tool was installed from."
            )
        try:
            return hashlib.sha256(wheel.read_bytes()).hexdigest()
        except OSError as error:
            message = f"{wheel} cannot be read: {error.strerror}"
            raise InputError.at("the command line", "--wheel", message, "Name a file that exists.") from error
    try:
        recorded = json.loads(metadata.distribution("neuroscale").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        recorded = {}
    archive = recorded.get("archive_info") or {}
    digest: str = (archive.get("hashes") or {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if not digest:
        message = "is missing, and the installation recorded no digest of this tool's wheel"
        raise InputError.at("the command line", "--wheel", message, "Name the wheel that this tool was installed from.")
    return digest


def _pinned(digest: str) -> dict[str, bytes]:
    locked = (delivered.FOLDER / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    return {
        path: text.encode() for path, text in pin_files(ToolPin(version=__version__, sha256=digest), locked).items()
    }


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
