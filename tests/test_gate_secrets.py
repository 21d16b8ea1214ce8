"""The secrets gate: real tokens are found wherever they hide, and a gitleaks that lies is not believed."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from neuroscale import tools
from neuroscale.errors import UntrustedError
from neuroscale.gates.check import Evaluation
from neuroscale.gates.secrets import Text, evaluate_secrets

pytestmark = pytest.mark.tools

TOKEN = "hf_" + "QzBvTkxRrEwYpLmNsKdJfHgUiOaZxCvBnM"


def search(folder: Path, *texts: Text, gitleaks: Path | None = None) -> Evaluation:
    return evaluate_secrets(texts, gitleaks or tools.find("gitleaks"), folder)


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
