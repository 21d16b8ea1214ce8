"""The secrets check: real tokens are found wherever they hide, and a gitleaks that lies is not believed."""

from __future__ import annotations

import base64
import bz2
import functools
import gzip
import io
import lzma
import tarfile
import textwrap
import zipfile
import zlib
from pathlib import Path

import pytest

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks.secrets import evaluate_secrets
from neuroscale.gate.evaluation import Evaluation
from neuroscale.gate.judged_files import LARGEST_TEXT, Text
from roots import ROOT

pytestmark = pytest.mark.tools

TOKEN = "hf_" + "QzBvTkxRrEwYpLmNsKdJfHgUiOaZxCvBnM"


def search(folder: Path, *texts: Text, gitleaks: Path | None = None) -> Evaluation:
    return evaluate_secrets(texts, gitleaks or tool_cache.find("gitleaks"), folder)[0]


def archive(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", f"env:\n- name: HF_TOKEN\n  value: {TOKEN}\n".encode()),
        ("a.yaml", f"# {TOKEN} gitleaks:allow\n".encode()),
        ("package-lock.json", f'"token": "{TOKEN}"'.encode()),
        ("go.sum", f"token {TOKEN}\n".encode()),
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0" + TOKEN.encode() + b"\0\xff"),
        ("a.txt", f"token: {TOKEN}\n".encode("utf-16")),
        ("a.txt", "é ".encode("latin-1") + TOKEN.encode() + b"\n"),
        ("a.tar.gz", archive(f"token: {TOKEN}\n".encode())),
        ("a.gz", gzip.compress(f"token: {TOKEN}\n".encode(), mtime=0)),
    ],
)
def test_a_token_is_found_in_any_kind_of_file_and_not_repeated(tmp_path: Path, name: str, content: bytes) -> None:
    findings = search(tmp_path, Text("clean.txt", b"hello\n"), Text(name, content)).findings
    assert {finding.file for finding in findings} == {name}
    assert all(TOKEN not in finding.model_dump_json() for finding in findings)


def test_clean_texts_pass_and_the_tripwires_are_caught(tmp_path: Path) -> None:
    clean = b"env:\n- name: HF_TOKEN\n  valueFrom: {secretKeyRef: {name: hugging-face, key: token}}\n"
    seen = search(tmp_path, Text("a.yaml", clean))
    assert (seen.findings, seen.evaluated, seen.tripwires, seen.caught) == ((), 1, 3, 3)


def test_the_digests_of_the_tools_are_no_secrets(tmp_path: Path) -> None:
    """Otherwise a change of a tool's version could never pass."""
    path = ROOT / "platform/local/tools/digests.json"
    assert search(tmp_path, Text(path.name, path.read_bytes())).findings == ()


def test_the_same_content_under_two_names_is_found_under_both(tmp_path: Path) -> None:
    content = f"token: {TOKEN}\n".encode()
    found = search(tmp_path, Text("a", content, lambda: "commit 1"), Text("b", content, lambda: "commit 2")).findings
    assert [(finding.file, finding.message.rpartition("(")[2]) for finding in found] == [
        ("a", "in commit 1)"),
        ("b", "in commit 2)"),
    ]


LIES = {
    "says nothing": ("exit 0", "exit status 0"),
    "finds nothing but says so": ('echo "[]" > "$report"; exit 9', "did not find its known-bad text"),
    "writes no report": ("exit 9", "cannot be read"),
    "writes half a report": ("echo '[{' > \"$report\"; exit 9", "cannot be read"),
    "crashes": ("exit 2", "exit status 2"),
    "fails": ("exit 1", "exit status 1"),
    "is killed": ("kill -9 $$", "signal 9"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_gitleaks_that_lies_is_not_believed(tmp_path: Path, lie: str) -> None:
    text, word = LIES[lie]
    path = tmp_path / "gitleaks"
    find_report = 'while [ $# -gt 0 ]; do [ "$1" = --report-path ] && report="$2"; shift; done'
    path.write_text(f"#!/bin/sh\n{find_report}\n{text}\n")
    path.chmod(0o755)
    with pytest.raises(UntrustedError, match=word):
        search(tmp_path / "run", Text("a", b"a"), gitleaks=path)


def escaped(text: str) -> str:
    return "".join(f"\\x{ord(letter):02x}" for letter in text)


def packed(content: bytes, times: int = 1) -> str:
    for _ in range(times):
        content = gzip.compress(content, mtime=0)
    return base64.b64encode(content).decode()


def zipped(content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.txt", content)
    return made.getvalue()


LINE = f"token: {TOKEN}\n".encode()
ENCODED = base64.b64encode(LINE).decode()
WRAPPED = "\n".join(textwrap.wrap(packed(b"# words " * 3 + LINE), 10))
HIDDEN: dict[str, tuple[str, bytes, int]] = {
    "escapes": ("a.yaml", f'a: 1\nenv:\n  token: "{escaped(TOKEN)}"\n'.encode(), 3),
    "escapes of JSON": ("a.json", f'{{"a":\n"\\u0068{TOKEN[1:]}"}}'.encode(), 2),
    "escapes where YAML cannot be parsed": ("a.yaml", f'{{{{ if }}}}\na: "{escaped(TOKEN)}"\n'.encode(), 2),
    "escapes of a program": ("a.py", f'x = 1\na = "{escaped(TOKEN)}"\n'.encode(), 2),
    "folded": ("a.yaml", f'a: 1\nb: "{TOKEN[:20]}\\\n    {TOKEN[20:]}"\n'.encode(), 2),
    "folded in a program": ("a.sh", f"x\ny={TOKEN[:20]}\\\n{TOKEN[20:]}\n".encode(), 2),
    "a value known by its field": (
        "a.yaml",
        f'a: 1\napi_key: "{escaped("q7Jx0pLm2Zt9Kc4Vb8Ns1Wd6")}"\n'.encode(),
        2,
    ),
    "gzip in Base64": ("a.yaml", f"a: 1\nb: {packed(LINE)}\n".encode(), 2),
    "gzip in Base64 of Base64": ("a.yaml", b"a: 1\nb: " + base64.b64encode(packed(LINE).encode()), 2),
    "gzip of gzip in Base64": ("a.yaml", f"a: 1\nb: {packed(LINE, 2)}\n".encode(), 2),
    "zlib in Base64": ("a.txt", b"a\nb " + base64.b64encode(zlib.compress(LINE)), 2),
    "bzip2 in Base64": ("a.txt", b"a\nb " + base64.urlsafe_b64encode(bz2.compress(LINE)), 2),
    "xz in Base64": ("a.txt", b"a\nb " + base64.b64encode(lzma.compress(LINE)), 2),
    "gzip in Base64 on lines": (
        "a.txt",
        b"abcdefghijklmnopqrstuvwx\n" + base64.encodebytes(gzip.compress(bytes(range(256)) + LINE)),
        2,
    ),
    "gzip in Base64 on short lines": ("a.yaml", f"a: 1\nb: |\n{textwrap.indent(WRAPPED, '  ')}\n".encode(), 2),
    "Base64 on lines": ("a.yaml", f"a: 1\nb: |\n  {ENCODED[:30]}\n  {ENCODED[30:]}\n".encode(), 2),
    "gzip in Base64 in a zip": ("a.zip", zipped(f"b: {packed(LINE)}\n".encode()), 1),
}


def test_a_token_is_found_in_what_a_file_means(tmp_path: Path) -> None:
    texts = [Text(f"{how}/{name}", content) for how, (name, content, _) in HIDDEN.items()]
    assert not any(TOKEN.encode() in text.content for text in texts)
    found = {(finding.file.partition("/")[0], finding.line) for finding in search(tmp_path, *texts).findings}
    assert found == {(how, line) for how, (_, _, line) in HIDDEN.items()}


UNREAD: dict[str, tuple[bytes, str]] = {
    "large": (b"a" * (LARGEST_TEXT + 1), f"has {LARGEST_TEXT + 1} bytes"),
    "a bomb": (gzip.compress(bytes(LARGEST_TEXT + 1)), "unpacks to more"),
    "a bomb in Base64": (b"a: " + packed(bytes(LARGEST_TEXT + 1)).encode(), "unpacks to more"),
    "a bomb of zlib": (b"a: " + base64.b64encode(zlib.compress(bytes(LARGEST_TEXT + 1))), "unpacks to more"),
    "archives in archives": (
        functools.reduce(lambda one, _: gzip.compress(one), range(5), LINE),
        "archives in archives",
    ),
    "another archive": (b"\x28\xb5\x2f\xfd....", "Zstandard"),
    "a damaged archive": (gzip.compress(LINE)[:-12], "cannot be opened"),
}


def test_what_is_not_searched_does_not_pass(tmp_path: Path) -> None:
    findings = search(tmp_path, *(Text(how, content) for how, (content, _) in UNREAD.items())).findings
    told = {finding.file: finding.message for finding in findings}
    assert {finding.rule for finding in findings} == {"not-searched"}
    assert [how for how, (_, word) in UNREAD.items() if word not in told.get(how, "")] == []


def test_ordinary_text_is_no_archive(tmp_path: Path) -> None:
    contents = [
        b"aGVsbG8gd29ybGQsIGhlbGxv\n" * 20,
        b"H4sIAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
        b"eJwords-that-look-like-something\n",
        b'a: "C:\\\\x41\\\\users"\nb: |\n  words\n  and words\n',
        b"UEsDBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ]
    assert search(tmp_path, *(Text(f"{index}.yaml", one) for index, one in enumerate(contents))).findings == ()


def test_more_than_one_run_searches_is_told(tmp_path: Path) -> None:
    texts = [Text(f"{index}", str(index).encode() * (2 * 1024 * 1024)) for index in range(1, 6)]
    (finding,) = search(tmp_path, *texts).findings
    assert (finding.rule, finding.file) == ("not-searched", "5")
