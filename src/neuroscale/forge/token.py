"""Where a token comes from, and how it is kept out of texts."""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from neuroscale.errors import InputError, Problem
from neuroscale.forge.model import Token

VARIABLE = "NEUROSCALE_FORGE_TOKEN"
FILE_VARIABLE = "NEUROSCALE_FORGE_TOKEN_FILE"
MASK = "***"

_SHORTEST = 16
_LARGEST = 4096
_ALLOWED = re.compile(r"[\x21-\x7e]+")


def find_token(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Token:
    """The token out of `file`, else $NEUROSCALE_FORGE_TOKEN, else the file that $NEUROSCALE_FORGE_TOKEN_FILE names.

    Raises InputError, which never holds what was read.
    """
    environment = os.environ if environment is None else environment
    if file is not None:
        return read_token(file)
    if secret := environment.get(VARIABLE):
        return _token(secret, f"${VARIABLE}")
    if path := environment.get(FILE_VARIABLE):
        return read_token(Path(path))
    raise InputError(
        Problem(
            "the forge's token",
            "",
            "is missing",
            f"Write it into a file of mode 0600 and name that with --token-file or ${FILE_VARIABLE}, "
            f"or set ${VARIABLE}.",
        )
    )


def read_token(file: Path) -> Token:
    """The token in a file that nobody but this user may read. Raises InputError."""
    where = str(file)
    try:
        # Opened first and looked at then, so that what is read is what was looked at. Not blocking: it may be a pipe.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor has no path
            _check(os.fstat(descriptor), where)
            content = stream.read(_LARGEST + 2)
    except OSError as error:
        raise InputError(
            Problem(where, "", f"cannot be read ({error.strerror})", "Name the file that holds the forge's token.")
        ) from None
    return _token(content.decode("ascii", errors="replace").removesuffix("\n").removesuffix("\r"), where)


def check_secret(secret: str, where: str) -> None:
    """Raises InputError, which does not show it, unless `secret` can be one token in one header."""
    if not secret:
        raise InputError(Problem(where, "", "holds no token", "Write the forge's token there."))
    if len(secret) > _LARGEST or not _ALLOWED.fullmatch(secret):
        raise InputError(
            Problem(
                where,
                "",
                "holds something else than one token (a line break, a space, a control character, or far too much)",
                "Write the token alone there; one line break at its end is allowed in a file.",
            )
        )
    if len(secret) < _SHORTEST:
        raise InputError(
            Problem(
                where,
                "",
                f"holds fewer than {_SHORTEST} characters, which is no token of a forge",
                "Write the whole token there.",
            )
        )


def redact(text: str, token: Token | None) -> str:
    """`text` without the token, also where it is quoted for a URL or encoded with Base64, as headers hold it."""
    if token is None:
        return text
    for form in _forms(token.secret):
        text = text.replace(form, MASK)
    return text


def _check(status: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError(Problem(where, "", "is not a regular file", "Write the token into a file of mode 0600."))
    if status.st_uid != os.geteuid():
        raise InputError(
            Problem(where, "", "belongs to another user", "Make a copy of your own, of mode 0600, and name that.")
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o177:
        raise InputError(
            Problem(where, "", f"has mode {mode:04o}, so others may use the token", "Give it mode 0600: chmod 600.")
        )


def _token(secret: str, where: str) -> Token:
    check_secret(secret, where)
    return Token(secret)


def _forms(secret: str) -> list[str]:
    """The secret as it may appear in a text, longest first."""
    raw = secret.encode()
    forms = {secret, quote(secret), quote(secret, safe="")}
    for before in range(3):  # Base64 of `user:secret` depends on how long the user's name is
        start = -(-before * 4 // 3)
        whole = (before + len(raw)) * 4 // 3
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        standard = encoded[start:whole]
        forms |= {standard, standard.translate(str.maketrans("+/", "-_"))}
    return sorted(filter(None, forms), key=len, reverse=True)
