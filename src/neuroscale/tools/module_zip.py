"""Reads the zip of a Go module, if its content is the one that go.sum pins.

Set-up reads it before anything is installed: only the standard library may be imported here.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from neuroscale.core.tool_cache import Module


class ModuleError(Exception):
    """A module's zip cannot be read, or is not the pinned one; the message says which."""


def module_checksum(archive: zipfile.ZipFile) -> str:
    """The `h1:` checksum of a Go module's zip, as go.sum holds it.

    Source: golang.org/x/mod/sumdb/dirhash, Hash1: SHA-256 over one `<SHA-256 of the file>  <name>` line a file.
    """
    total = hashlib.sha256()
    for name in sorted(archive.namelist()):
        total.update(f"{hashlib.sha256(archive.read(name)).hexdigest()}  {name}\n".encode())
    return f"h1:{base64.b64encode(total.digest()).decode()}"


def open_module(module: Module, path: Path) -> zipfile.ZipFile:
    """The module's zip, after a check of its content. Raises ModuleError if it has not the pinned checksum."""
    try:
        archive = zipfile.ZipFile(path)
        checksum = module_checksum(archive)
    except (OSError, zipfile.BadZipFile) as error:
        raise ModuleError(f"The module {module} cannot be read from {path}: {error}") from error
    if checksum != module.checksum:
        raise ModuleError(f"The content of {module} is {checksum}; go.sum pins {module.checksum}. Nothing was used.")
    return archive


def extract(archive: zipfile.ZipFile, module: Module, folders: tuple[str, ...], into: Path) -> None:
    """Unpack some top folders of a module ("": all of it) into `into`, without the prefix that its zip gives every
    name."""
    for folder in folders:
        prefix = f"{module}/{folder}/" if folder else f"{module}/"
        for entry in archive.infolist():
            if entry.filename.startswith(prefix) and not entry.is_dir():
                target = into / folder / entry.filename.removeprefix(prefix)
                if not target.resolve().is_relative_to(into.resolve()):
                    raise ModuleError(f"The module {module} holds a path that leaves its folder: {entry.filename}")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(entry))
        if not (into / folder).is_dir():
            raise ModuleError(f"The module {module} holds no folder {folder}.")
