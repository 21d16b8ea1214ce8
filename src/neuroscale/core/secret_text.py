"""Reads secrets of people and programs from files, and keeps them out of texts."""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from neuroscale.core.errors import InputError

MASK = "***"


@dataclass(frozen=True)
class SecretText:
    """A secret that neither `repr` nor `str` shows."""

    secret: str = field(repr=False)

    def __str__(self) -> str:
        return MASK


def read_secret_file(file: Path, what: str, largest: int) -> str:
    """The text of a file that nobody but this user may read, without its last line break; at most `largest` bytes.

    `what` names the secret, such as "the forge's token". A byte that is not ASCII reads as U+FFFD, and a text of one
    character more than `largest` means that the file is longer. Raises InputError, which never holds the content.
    """
    where = str(file)
    try:
        # Open it first and check it then, so that it reads the file that it checked. Not blocking: it may be a pipe.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor has no path
            _check(os.fstat(descriptor), where, what)
            content = stream.read(largest + 2)
    except OSError as error:
        raise InputError.at(
            where, "", f"cannot be read ({error.strerror})", f"Name the file that holds {what}."
        ) from None
    return content.decode("ascii", errors="replace").removesuffix("\n").removesuffix("\r")


def redact(text: str, secret: SecretText | None) -> str:
    """`text` without the secret, even if it is quoted for a URL or encoded with Base64, as in headers."""
    if secret is None:
        return text
    for form in forms_of(secret.secret):
        text = text.replace(form, MASK)
    return text


def _check(status: os.stat_result, where: str, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError.at(where, "", "is not a regular file", f"Write {what} into a file of mode 0600.")
    if status.st_uid != os.geteuid():
        raise InputError.at(
            where, "", "belongs to another user", "Make a copy of your own, of mode 0600, and name that."
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o177:
        raise InputError.at(
            where, "", f"has mode {mode:04o}, so others may use {what}", "Give it mode 0600: chmod 600."
        )


def forms_of(secret: str) -> list[str]:
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
