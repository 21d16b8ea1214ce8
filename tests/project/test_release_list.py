"""A publisher's list of releases: the script signs it, and a new repository takes its publisher from it."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neuroscale import __version__
from neuroscale.actions.new_repository import write_repository
from neuroscale.cli import repository
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dump
from neuroscale.rendering.new_repository import read_new_repository
from neuroscale.repo.layout import PIN
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import ReleaseList, pin_problems, read_pin, read_releases
from roots import CHECKOUT
from wheel_lab import ACME

VARIABLE = "NEUROSCALE_PUBLISHER_KEY"
ANSWERS = read_new_repository(dump(ACME), "answers.yaml")
CHANGELOG = "# Changelog\n\n## 9.0.0\n- More.\n\n## {version}\n\n### Added\n- This.\n\n## 0.1.0\n- That.\n"


def script(*words: str | Path, key: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(CHECKOUT / "scripts/release_list.py"), *map(str, words)]
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE}
    variables |= {VARIABLE: key} if key else {}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=variables)


def wheel(folder: Path, version: str = __version__, content: bytes = b"a wheel") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"neuroscale-{version}-py3-none-any.whl"
    path.write_bytes(content)
    return path


def released(folder: Path, path: Path, former: str = "none.json") -> ReleaseList:
    output = path.with_name("releases.json")
    (folder / "CHANGELOG.md").write_text(CHANGELOG.format(version=__version__))
    words = ("--wheel", path, "--changelog", folder / "CHANGELOG.md", "--former", folder / former, "--output", output)
    done = script("--key", folder / "key", *words)
    assert done.returncode == 0, done.stderr
    return read_releases(output.read_text(), str(output))


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new key's publisher; the key lies in the file `key`."""
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    done = script("--new-key", tmp_path / "key")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_key_is_its_owners_alone_and_never_written_over(tmp_path: Path, publisher: str) -> None:
    assert publisher.startswith("ed25519:")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    before = (tmp_path / "key").read_text()
    assert script("--new-key", tmp_path / "key").returncode == 2
    assert (tmp_path / "key").read_text() == before
    assert before.strip() not in publisher


def test_each_release_joins_the_list_with_its_part_of_the_changelog(tmp_path: Path, publisher: str) -> None:
    first = released(tmp_path, wheel(tmp_path / "a", "0.1.0"))
    both = released(tmp_path, wheel(tmp_path / "b"), former="a/releases.json")
    assert {first.publisher, both.publisher} == {publisher}
    assert [(entry.version, entry.changes) for entry in both.releases] == [
        ("0.1.0", "- That."),
        (__version__, "### Added\n- This."),
    ]
    again = released(tmp_path, wheel(tmp_path / "b"), former="b/releases.json")
    assert again == both


@pytest.mark.parametrize("case", ["another digest", "another publisher", "no key", "a broken key", "another file"])
def test_what_it_cannot_sign_rightly_it_does_not_sign(tmp_path: Path, publisher: str, case: str) -> None:
    released(tmp_path, wheel(tmp_path / "a"))
    path = wheel(tmp_path / "b", content=b"other" if case == "another digest" else b"a wheel")
    if case == "another file":
        path = path.rename(path.with_name("other-1.0-py3-none-any.whl"))
    if case == "another publisher":
        (tmp_path / "key").unlink()
        script("--new-key", tmp_path / "key")
    key = ("--key", tmp_path / "key") if case not in ("no key", "a broken key") else ()
    output = tmp_path / "out.json"
    words = ("--wheel", path, "--former", tmp_path / "a/releases.json", "--output", output)
    done = script(*key, *words, key="c2hvcnQ=" if case == "a broken key" else "")
    assert done.returncode == 2
    assert done.stderr.startswith("release_list: ")
    assert not output.exists()


def test_the_key_may_come_from_the_environment(tmp_path: Path, publisher: str) -> None:
    path, output = wheel(tmp_path / "a"), tmp_path / "out.json"
    done = script("--wheel", path, "--output", output, key=(tmp_path / "key").read_text())
    assert done.returncode == 0, done.stderr
    assert read_releases(output.read_text(), "out.json").publisher == publisher


def test_a_new_repository_names_the_publisher_of_its_wheel(tmp_path: Path, publisher: str) -> None:
    path = wheel(tmp_path / "a")
    released(tmp_path, path)
    made = write_repository(tmp_path / "acme", ANSWERS, path)
    pin = read_pin(FolderSnapshot(tmp_path / "acme"))
    assert pin == made.pin
    assert pin is not None
    assert (pin.publisher, pin.is_signed, pin.sha256) == (publisher, True, hashlib.sha256(b"a wheel").hexdigest())
    assert pin_problems(FolderSnapshot(tmp_path / "acme")) == []
    # The file beside the wheel lies on this machine alone.
    assert str(tmp_path) not in (tmp_path / "acme" / PIN).read_text()
    assert write_repository(tmp_path / "acme", ANSWERS, path).paths == ()


def test_a_list_without_the_wheel_makes_no_repository(tmp_path: Path, publisher: str) -> None:
    released(tmp_path, wheel(tmp_path / "a"))
    other = wheel(tmp_path / "b", content=b"other")
    with pytest.raises(InputError, match="has no release"):
        write_repository(tmp_path / "acme", ANSWERS, other, str(tmp_path / "a/releases.json"))
    assert not (tmp_path / "acme").exists()


def test_without_a_list_the_command_says_what_that_means(tmp_path: Path, publisher: str) -> None:
    (tmp_path / "answers.yaml").write_text(dump(ACME))
    words = ["init", str(tmp_path / "acme"), "--answers", str(tmp_path / "answers.yaml")]
    done = CliRunner().invoke(repository.app, [*words, "--wheel", str(wheel(tmp_path / "a"))])
    assert done.exit_code == 0, done.output
    assert "The pin names no publisher" in done.output
