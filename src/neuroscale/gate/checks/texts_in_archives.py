"""Reads the texts that a file holds beside its plain text: values behind escapes, archives, and compressed Base64."""

from __future__ import annotations

import base64
import binascii
import bz2
import contextlib
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import IO

import yaml
from yaml.events import ScalarEvent

_DEEPEST = 3  # archives in one another
_MOST_PARTS = 10_000  # files of one archive, and pieces of compressed Base64
_CHUNK = 65536
_VALUES_IN = (".yaml", ".yml", ".json")
_OPENED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04")
_CLOSED = {b"\x28\xb5\x2f\xfd": "Zstandard", b"7z\xbc\xaf\x27\x1c": "7-Zip"}
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_PACKED = (b"\x1f\x8b\x08", *_OPENED[1:], *_CLOSED, *_ZLIB)
_DAMAGED = (
    *(OSError, EOFError, ValueError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
_RUN = re.compile(rb"[A-Za-z0-9+/_-]{16,}")
_MORE_LINES = re.compile(rb"(?:[ \t]*\r?\n[ \t]*[A-Za-z0-9+/_-]+)*")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(/)|\r?\n[ \t]*\\?)")
_NESTED = f"holds archives in archives, of which {_DEEPEST} are opened"
_DAMAGE = "is an archive that cannot be opened in full"


@dataclass(frozen=True)
class Hidden:
    """A further text. `origins`: pairs of a line of it and the line of the file that it comes from, 1-based."""

    content: bytes
    origins: tuple[tuple[int, int], ...]


def line_of_origin(origins: tuple[tuple[int, int], ...], number: int) -> int:
    """The line of a file that line `number` of a text comes from, by its `origins`."""
    return origins[max(bisect_right(origins, (number, 1 << 60)) - 1, 0)][1]


@dataclass
class Inside:
    """The further texts of a file, and why others could not be read."""

    texts: list[Hidden] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def look_inside(name: str, content: bytes, text: bytes, most: int) -> Inside:
    """The further texts of a file. `text`: its content as text; `most`: bytes that these may have together."""
    reader = _Reader(most)
    with contextlib.suppress(_FullError):
        reader.values(name, text)
        reader.archive(content, 1, 0)
        reader.base64(text, ((1, 0),), 0)
    return Inside(reader.texts, list(dict.fromkeys(reader.unread)))


class _FullError(Exception):
    """There is no room for more."""


class _Reader:
    def __init__(self, most: int) -> None:
        self.texts: list[Hidden] = []
        self.unread: list[str] = []
        self._most = most
        self._room = most
        self._effort = 4 * most  # bytes of Base64 that are tried
        self._parts = _MOST_PARTS

    def values(self, name: str, text: bytes) -> None:
        """Gather values of YAML and JSON that differ from the file's text, or lines with escapes of any other file."""
        written = text.decode("utf-8", "replace")
        lines = _Lines()
        if not (name.lower().endswith(_VALUES_IN) and _read_values(written, lines)):
            _read_escapes(written, lines)
        if lines.parts:
            value = lines.text()
            self._take(len(value.content))
            self.texts.append(value)
            self.base64(value.content, value.origins, 0)

    def archive(self, data: bytes, line: int, depth: int) -> bool:
        """Gather the files of an archive; returns whether it could be opened."""
        closed = next((kind for magic, kind in _CLOSED.items() if data.startswith(magic)), None)
        if closed:
            self.unread.append(f"is an archive of {closed}, which is not opened")
            return False
        if not data.startswith(_OPENED):
            return False
        if depth >= _DEEPEST:
            self.unread.append(_NESTED)
            return False
        try:
            if data.startswith(b"PK"):
                self._zip(data, line, depth)
            else:
                self._unpacked(_stream(data), line, depth)
        except _DAMAGED:
            self.unread.append(_DAMAGE)
            return False
        return True

    def base64(self, data: bytes, origins: tuple[tuple[int, int], ...], depth: int) -> None:
        """Gather compressed texts in Base64, on one line or several. Without an origin, the line in `data` counts."""
        at, counted, line = 0, 0, 1
        while (found := _RUN.search(data, at)) is not None:
            at = found.end()
            if not _is_packed(found[0]):
                continue
            line += data.count(b"\n", counted, found.start())
            counted = found.start()
            self._count_part()
            if depth > _DEEPEST:
                self.unread.append(_NESTED)
                raise _FullError
            more = _MORE_LINES.match(data, at)
            end = more.end() if more else at
            self._effort -= end - found.start()
            if self._effort < 0:
                self.unread.append("holds too much text that looks like compressed Base64")
                raise _FullError
            packed = _decoded(data[found.start() : end])
            if not packed.startswith(_PACKED):  # Base64 of Base64
                packed = _decoded(packed)
            if self._decompressed(packed, line_of_origin(origins, line) or line, depth):
                at = end

    def _decompressed(self, packed: bytes, line: int, depth: int) -> bool:
        """Gather it; returns whether it is what its first bytes announce: ordinary text can begin alike."""
        before = len(self.texts)
        if packed.startswith(_ZLIB):
            try:
                data = zlib.decompressobj().decompress(packed, self._room + 1)
            except zlib.error:
                return False
            self._add(data, line, depth)
        elif packed.startswith(tuple(_CLOSED)):
            self.archive(packed, line, depth)
            return False
        else:
            told = len(self.unread)
            self.archive(packed, line, depth)
            self.unread[told:] = [one for one in self.unread[told:] if one != _DAMAGE]
        return len(self.texts) > before

    def _zip(self, data: bytes, line: int, depth: int) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                self._count_part()
                with archive.open(entry) as stream:
                    self._unpacked(stream, line, depth)

    def _unpacked(self, stream: IO[bytes] | io.BufferedIOBase, line: int, depth: int) -> None:
        """Read a stream as far as possible: the readable part of a damaged one counts too."""
        data = bytearray()
        try:
            while len(data) <= self._room and (chunk := stream.read(_CHUNK)):
                data += chunk
        finally:
            self._add(bytes(data), line, depth)

    def _add(self, data: bytes, line: int, depth: int) -> None:
        if not data:
            return
        self._take(len(data))
        self.texts.append(Hidden(data, ((1, line),)))
        self.archive(data, line, depth + 1)
        if data[257:262] == b"ustar":
            self._tar(data, line, depth + 1)
        else:
            self.base64(data, ((1, line),), depth + 1)

    def _tar(self, data: bytes, line: int, depth: int) -> None:
        """Gather archives within a tar; its other files are plain text in it."""
        with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for entry in archive:
                self._count_part()
                if entry.isfile() and (stream := archive.extractfile(entry)) is not None:
                    packed = stream.read(self._room)
                    self.archive(packed, line, depth)

    def _count_part(self) -> None:
        self._parts -= 1
        if self._parts < 0:
            self.unread.append(f"holds more than {_MOST_PARTS} packed parts")
            raise _FullError

    def _take(self, size: int) -> None:
        if size > self._room:
            self.unread.append(f"unpacks to more than {self._most} bytes")
            raise _FullError
        self._room -= size


class _Lines:
    """Values one below the other, and the lines that they come from."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._origins: list[tuple[int, int]] = []
        self._next = 1

    def add(self, value: str, line: int) -> None:
        """Add a value of a line of the file."""
        self.parts.append(value)
        self._origins.append((self._next, line))
        self._next += value.count("\n") + 1

    def text(self) -> Hidden:
        """All values as one text."""
        return Hidden("\n".join(self.parts).encode("utf-8", "replace"), tuple(self._origins))


def _read_values(written: str, lines: _Lines) -> bool:
    """Gather the values that differ from the file's text; False if it cannot be parsed."""
    before = ""
    found: list[tuple[str, int]] = []
    try:
        for event in yaml.parse(written, Loader=yaml.CSafeLoader):
            if not isinstance(event, ScalarEvent) or event.start_mark is None or event.end_mark is None:
                continue
            value = event.value
            several = event.end_mark.line > event.start_mark.line
            escaped = event.style == '"' and "\\" in written[event.start_mark.index : event.end_mark.index]
            if several and _BASE64.fullmatch(joined := "".join(value.split())):
                value, escaped = joined, True
            if escaped or (several and event.style == '"'):
                # Some rules know a secret by the name of its field.
                found.append((f'{before}: "{value}"', event.start_mark.line + 1))
            before = value if len(value) <= 100 and "\n" not in value else ""
    except (yaml.YAMLError, ValueError):
        return False
    for text, line in found:
        lines.add(text, line)
    return True


def _read_escapes(written: str, lines: _Lines) -> None:
    """Gather the lines with escapes, each joined with its continuation lines."""
    joined: list[str] = []
    for number, line in enumerate(written.split("\n"), 1):
        joined.append(line)
        if line.rstrip("\r").endswith("\\"):
            continue
        if len(joined) > 1 or _ESCAPE.search(line):
            lines.add(_ESCAPE.sub(_unescape, "\n".join(joined)), number - len(joined) + 1)
        joined.clear()
    if joined:
        lines.add(_ESCAPE.sub(_unescape, "\n".join(joined)), 1)


def _unescape(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return found[4] or ""
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF and not 0xD800 <= number < 0xE000 else "?"


def _is_packed(run: bytes) -> bool:
    """Whether a run of Base64 begins like something compressed, or like Base64 of it."""
    head = _decoded(run[:16])
    return head.startswith(_PACKED) or _decoded(head).startswith(_PACKED)


def _decoded(run: bytes) -> bytes:
    """The bytes of a Base64 text of either alphabet, as far as it can be decoded; b"" if it is not Base64."""
    kept = b"".join(run.split()).translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    kept = kept[: len(kept) - (len(kept) % 4 == 1)]
    try:
        return base64.b64decode(kept + b"=" * (-len(kept) % 4), validate=True)
    except binascii.Error:
        return b""


def _stream(data: bytes) -> io.BufferedIOBase:
    source = io.BytesIO(data)
    if data.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=source)
    return bz2.BZ2File(source) if data.startswith(b"BZh") else lzma.LZMAFile(source)
