"""Commands in a repository that pins another version say so in one line, and go on."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from neuroscale import __version__
from neuroscale.actions import open_repository
from neuroscale.actions.open_repository import repository_root
from neuroscale.gate.runner import gate_paths
from neuroscale.repo.layout import PIN, SETTINGS
from neuroscale.repo.tool_pin import ToolPin, pin_text
from repositories import copy_folder
from roots import ROOT


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    open_repository._say_once.cache_clear()
    (tmp_path / "platform").mkdir()
    (tmp_path / SETTINGS).write_bytes((ROOT / SETTINGS).read_bytes())
    (tmp_path / PIN).write_text(pin_text(ToolPin(version="99.0.0", sha256="ab" * 32)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_said_once_on_standard_error(pinned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [repository_root(None), repository_root(pinned)] == [pinned, pinned]
    printed = capfd.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert f"This is neuroscale {__version__}, and {PIN} pins 99.0.0." in line


def test_the_pinned_version_says_nothing(pinned: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (pinned / PIN).write_text(pin_text(ToolPin(version=__version__, sha256="ab" * 32)))
    repository_root(None)
    assert capfd.readouterr().err == ""


@pytest.mark.tools
def test_a_verdict_notes_it(pinned: Path, kyverno_once: None) -> None:
    for name in ("policies", "platform/catalog"):
        copy_folder(ROOT / name, pinned / name)
    (pinned / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {}\n")
    verdict = gate_paths([pinned / "a.yaml"], pinned, date(2026, 11, 30))
    assert any("pins 99.0.0" in note for note in verdict.notes), verdict.notes
