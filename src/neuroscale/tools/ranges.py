"""Opens a file that lies here or behind HTTP, and reads only those parts of it that are asked for."""

from __future__ import annotations

import io
import ipaddress
import re
import tempfile
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

from neuroscale.tools.running import Progress

_BLOCK = 4 * 2**20  # bytes a request
_WITHIN = 60.0  # seconds without a byte
_TRIES = 3
_PAUSE = 1.0  # seconds
_SCHEMES = ("https://", "http://")
_AUTHORIZATION = "Authorization"


class UnreachableError(Exception):
    """The file cannot be read; the message says why."""


def open_file(address: str, scratch: Path, token: str = "") -> IO[bytes]:
    """The file at a path, or at an http or https address; it can be read from any place.

    `token`: a credential for the address's host, which gets it by https alone (this machine also by http); a host that
    the server redirects to never gets it.

    A server that answers no range requests sends the whole file, which then lies in `scratch` without a name until it
    is closed. Raises UnreachableError.
    """
    try:
        if not address.startswith(_SCHEMES):
            return Path(address).expanduser().open("rb")
        if token and not _is_private(address):
            raise UnreachableError("http would show the token to the network; name an address that begins with https")
        with _request(address, 0, 0, token) as answer:
            size = _total(answer)
            if size is not None:
                return cast("IO[bytes]", io.BufferedReader(_Ranges(address, size, token), _BLOCK))
            scratch.mkdir(parents=True, exist_ok=True)
            whole = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
            progress = Progress("Fetching the whole bundle")
            while chunk := answer.read(_BLOCK):
                whole.write(chunk)
                progress.show(f"{whole.tell() / 2**20:.0f} MiB")
            progress.end()
            return cast("IO[bytes]", whole)
    except (OSError, HTTPException, ValueError) as error:
        raise UnreachableError(_reason(error)) from error


class _Ranges(io.RawIOBase):
    """A file of `size` bytes behind HTTP, of which each read asks for one range."""

    def __init__(self, address: str, size: int, token: str) -> None:
        self._address = address
        self._token = token
        self._size = size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any writable buffer
        wanted = min(len(buffer), self._size - self._place)
        if wanted <= 0:
            return 0
        for left in reversed(range(_TRIES)):
            try:
                content = self._read(wanted)
                break
            except (OSError, HTTPException) as error:
                if not left:
                    raise UnreachableError(_reason(error)) from error
                time.sleep(_PAUSE)
        buffer[:wanted] = content
        self._place += wanted
        return wanted

    def _read(self, wanted: int) -> bytes:
        with _request(self._address, self._place, self._place + wanted - 1, self._token) as answer:
            if _total(answer) != self._size:
                raise OSError(f"{self._address} changed while it was read")
            content = answer.read(wanted)
        if len(content) != wanted:
            raise OSError(f"{self._address} sent {len(content)} bytes in place of {wanted}")
        return bytes(content)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Takes the token along to another address of the same host, and to no other host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        follow = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get(_AUTHORIZATION)
        if follow is not None and token is not None and _host(req.full_url) == _host(newurl):
            follow.add_unredirected_header(_AUTHORIZATION, token)
        return follow


_OPENER = urllib.request.build_opener(_Redirects)


def _request(address: str, first: int, last: int, token: str) -> HTTPResponse:
    # GitHub's address of an asset (/repos/OWNER/NAME/releases/assets/ID) sends the file itself only if it is asked so.
    headers = {"Range": f"bytes={first}-{last}", "Accept": "application/octet-stream"}
    request = urllib.request.Request(address, headers=headers)  # noqa: S310
    if token:
        request.add_unredirected_header(_AUTHORIZATION, f"Bearer {token}")
    return cast("HTTPResponse", _OPENER.open(request, timeout=_WITHIN))


def _host(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port


def _is_private(address: str) -> bool:
    """Whether nobody on the way reads what is sent to an address: it has https, or is one of this machine."""
    parts = urlsplit(address)
    try:
        return parts.scheme == "https" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _total(answer: HTTPResponse) -> int | None:
    """The whole file's size in bytes; None if the answer is the whole file."""
    match = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    return int(match[1]) if answer.status == 206 and match else None


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        private = "; a private file needs the token that CONTRIBUTING.md names" if error.code in (401, 403, 404) else ""
        return f"the server answers {error.code} {error.reason}{private}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
