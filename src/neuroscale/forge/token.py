"""Reads the token for a forge from a file or the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.secret_text import read_secret_file
from neuroscale.forge.interface import Token

VARIABLE = "NEUROSCALE_FORGE_TOKEN"
FILE_VARIABLE = "NEUROSCALE_FORGE_TOKEN_FILE"


class NoTokenError(InputError):
    """Nobody named a token."""


_SHORTEST = 16
_LARGEST = 4096
_ALLOWED = re.compile(r"[\x21-\x7e]+")


def find_token(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Token:
    """The token out of `file`, else $NEUROSCALE_FORGE_TOKEN, else the file that $NEUROSCALE_FORGE_TOKEN_FILE names.

    Raises InputError, whose message never holds the content, and NoTokenError without any of them.
    """
    environment = os.environ if environment is None else environment
    if file is not None:
        return read_token(file)
    if secret := environment.get(VARIABLE):
        return _token(secret, f"${VARIABLE}")
    if path := environment.get(FILE_VARIABLE):
        return read_token(Path(path))
    fix = f"Write it into a file of mode 0600 and name that with --token-file or ${FILE_VARIABLE}, or set ${VARIABLE}."
    raise NoTokenError(Problem("the forge's token", "", "is missing", fix))


def read_token(file: Path) -> Token:
    """The token in a file that only this user may read. Raises InputError."""
    return _token(read_secret_file(file, "the forge's token", _LARGEST), str(file))


def check_secret(secret: str, where: str) -> None:
    """Raises InputError unless `secret` can be one token in one header. The message does not show it."""
    if not secret:
        raise InputError.at(where, "", "does not hold a token", "Write the forge's token there.")
    if len(secret) > _LARGEST or not _ALLOWED.fullmatch(secret):
        raise InputError.at(
            where,
            "",
            "does not hold exactly one token (it has a line break, a space, a control character, or is far too long)",
            "Write the token alone there; one line break at its end is allowed in a file.",
        )
    if len(secret) < _SHORTEST:
        raise InputError.at(
            where,
            "",
            f"holds fewer than {_SHORTEST} characters, too few for a token of a forge",
            "Write the whole token there.",
        )


def _token(secret: str, where: str) -> Token:
    check_secret(secret, where)
    return Token(secret)
