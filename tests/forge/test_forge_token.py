"""Where a token comes from, and that no text shows it."""

from __future__ import annotations

import base64
import os
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.core.errors import InputError
from neuroscale.core.secret_text import redact
from neuroscale.forge.interface import Token
from neuroscale.forge.token import FILE_VARIABLE, VARIABLE, find_token, read_token

SECRET = "s3cr3t-0123456789abcdef-0123456789"
TOKENS = st.text("".join(chr(code) for code in range(0x21, 0x7F)), min_size=16, max_size=60)


def token_file(folder: Path, content: str, mode: int = 0o600) -> Path:
    file = folder / "token"
    file.write_text(content)
    file.chmod(mode)
    return file


def test_a_token_comes_from_the_named_file_then_the_variable_then_the_variables_file(tmp_path: Path) -> None:
    file = token_file(tmp_path, f"{SECRET}-file\n")
    everything = {VARIABLE: f"{SECRET}-variable", FILE_VARIABLE: str(file)}
    assert find_token(file, everything).secret == f"{SECRET}-file"
    assert find_token(None, everything).secret == f"{SECRET}-variable"
    assert find_token(None, {VARIABLE: "", FILE_VARIABLE: str(file)}).secret == f"{SECRET}-file"


def test_no_token_at_all_says_where_to_put_one() -> None:
    with pytest.raises(InputError, match=r"is missing.*mode 0600"):
        find_token(None, {})


def test_mode_0400_is_as_good_as_0600(tmp_path: Path) -> None:
    assert read_token(token_file(tmp_path, f"{SECRET}\r\n", 0o400)).secret == SECRET


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o644, 0o601, 0o700])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InputError, match=f"mode {mode:04o}") as raised:
        read_token(token_file(tmp_path, SECRET, mode))
    assert SECRET not in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    file = token_file(tmp_path, SECRET)
    os.chown(file, 65534, 65534)
    with pytest.raises(InputError, match="belongs to another user"):
        read_token(file)


def test_folders_pipes_devices_and_missing_files_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (tmp_path, pipe, Path("/dev/zero"), tmp_path / "missing"):
        with pytest.raises(InputError):
            read_token(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "too-short",
        f"{SECRET}\n\n",
        f" {SECRET}",
        f"{SECRET}\t",
        f"{SECRET}\x1b[0m",
        f"a{SECRET}\n{SECRET}",
        f"{SECRET}\0",
        "x" * 5000,
        "é" * 40,
    ],
)
def test_what_is_no_token_is_refused_without_being_shown(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError) as raised:
        read_token(token_file(tmp_path, content))
    assert SECRET not in str(raised.value)


def test_neither_repr_nor_str_shows_a_token() -> None:
    assert SECRET not in f"{Token(SECRET)} {Token(SECRET)!r}"


@given(TOKENS, st.text(max_size=20), st.text(string.ascii_letters, max_size=9), st.text(max_size=20))
def test_no_form_of_a_token_stays_in_a_text(secret: str, before: str, user: str, after: str) -> None:
    encoded = base64.b64encode(f"{user}:{secret}".encode()).decode()
    text = f"{before}{secret}{after} {quote(secret, safe='')} Basic {encoded}"
    cleaned = redact(text, Token(secret))
    assert secret not in cleaned
    assert quote(secret, safe="") not in cleaned
    start = -(-(len(user) + 1) * 4 // 3)
    assert encoded[start : (len(user) + 1 + len(secret)) * 4 // 3] not in cleaned
    assert redact(f"{before}{after}", None) == f"{before}{after}"
