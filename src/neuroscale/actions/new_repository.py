"""Writes a platform repository of an organisation's own into a folder, with the tool pinned by version and digest."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from neuroscale import __version__
from neuroscale.actions.tool_versions import list_text
from neuroscale.core import delivered
from neuroscale.core.errors import ASKED, InputError
from neuroscale.core.files import write_public
from neuroscale.core.tool_cache import cache_folder, wheels
from neuroscale.rendering.new_repository import NewRepository, delivered_paths, new_files
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import (
    RELEASES,
    ToolPin,
    locked_requirements,
    pin_files,
    read_releases,
    recorded_digest,
    recorded_wheel,
)

_NAME_IT = "Name the wheel that this tool was installed from."


@dataclass(frozen=True)
class Written:
    """The paths of a new repository that were written, the number of those that were there already, and its pin."""

    paths: tuple[str, ...]
    unchanged: int
    pin: ToolPin


def write_repository(
    folder: Path,
    answers: NewRepository,
    wheel: Path | None,
    releases: str | None = None,
    where: str = "the answers",
) -> Written:
    """Write every file of the organisation's repository. `wheel`: the tool's own, whose digest becomes the pin.
    `releases`: the list of its publisher, whom the pin then names (None: the list beside the wheel, if there is one).
    `where`: the file of the answers, for messages.

    Run again with the same answers, it writes nothing. Raises InputError, and writes nothing, if the answers cannot be
    used, if the digest is not known, or if the folder holds another file of the same name.
    """
    pin = pin_of_wheel(wheel, releases or _beside(wheel))
    if releases is None and pin.publisher is not None:
        pin = pin.model_copy(update={"releases": None})  # nobody else has this machine's file
    snapshot = FolderSnapshot(delivered.FOLDER)
    example, start = FolderSnapshot(delivered.EXAMPLE), FolderSnapshot(delivered.START)
    files = new_files(answers, snapshot, example, start, delivered_paths(snapshot), where)
    files |= {path: text.encode() for path, text in pin_files(pin, locked_requirements(snapshot)).items()}
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
            keep_wheel(wheel)
        for path, content in new.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            write_public(folder / path, content.decode())
    except OSError as error:
        where, why = str(error.filename or folder), f"cannot be written: {error.strerror}"
        raise InputError.at(where, "", why, "Allow writing to the folder, and run the command again.") from error
    return Written(tuple(new), len(there), pin)


def keep_wheel(wheel: Path) -> None:
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
            raise InputError.at(ASKED, "wheel", message, _NAME_IT)
        try:
            return hashlib.sha256(wheel.read_bytes()).hexdigest()
        except OSError as error:
            message = f"{wheel} cannot be read: {error.strerror}"
            raise InputError.at(ASKED, "wheel", message, "Name a file that exists.") from error
    if not (digest := recorded_digest()):
        message = "is missing, and the installation recorded no digest of this tool's wheel"
        raise InputError.at(ASKED, "wheel", message, _NAME_IT)
    return digest


def installed_wheel() -> Path:
    """The wheel that this tool was installed from: where it lay then, or the copy in the tool cache.

    Raises InputError if the installation recorded no digest, or if neither file has it.
    """
    digest, place = digest_of_tool(None), recorded_wheel()
    for path in (place, *sorted(wheels(cache_folder()).glob("*.whl"))):
        if path and os.access(path, os.R_OK) and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            return path
    message = f"is missing, and the wheel that this tool was installed from is gone (SHA-256 {digest})"
    raise InputError.at(ASKED, "wheel", message, _NAME_IT)


def pin_of_wheel(wheel: Path | None, releases: str | None) -> ToolPin:
    """The pin of this tool's wheel, signed if its publisher's list of releases is named. Raises InputError."""
    digest = digest_of_tool(wheel)
    if releases is None:
        return ToolPin(version=__version__, sha256=digest)
    listed = read_releases(list_text(releases), releases)
    for entry in listed.releases:
        if (entry.version, entry.sha256) == (__version__, digest):
            address = releases if "://" in releases else str(Path(releases).resolve())
            signed = {"publisher": listed.publisher, "signature": entry.signature, "releases": address}
            try:
                return ToolPin(version=__version__, sha256=digest, **signed)
            except ValidationError as error:
                message = "is no address that a pin can name: it holds a blank, a quote or a name and password"
                raise InputError.at(ASKED, "releases", message, "Name another address.") from error
    message = f"has no release {__version__} with the digest {digest} of this tool's wheel"
    raise InputError.at(releases, "releases", message, "Name the list of the publisher that this wheel comes from.")


def _beside(wheel: Path | None) -> str | None:
    """The list of releases that lies beside a wheel, as a release has it."""
    path = None if wheel is None else wheel.with_name(RELEASES)
    return str(path) if path is not None and path.is_file() else None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
