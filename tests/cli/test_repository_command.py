"""`neuroscale repository init`: it asks or reads, writes whole or not at all, and changes nothing the second time."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from neuroscale import __version__
from neuroscale.actions.new_repository import digest_of_tool, installed_wheel, write_repository
from neuroscale.cli import repository
from neuroscale.core.errors import InputError
from neuroscale.core.tool_cache import wheels
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.rendering.new_repository import read_new_repository
from neuroscale.repo.layout import PIN, REQUIREMENTS
from wheel_lab import ACME

ANSWERS = read_new_repository(dump(ACME), "answers.yaml")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / f"neuroscale-{__version__}-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_pins_the_tool_and_keeps_its_wheel_for_the_jobs_of_this_machine(tmp_path: Path, wheel: Path) -> None:
    written = write_repository(tmp_path / "acme", ANSWERS, wheel)
    assert set(written.paths) == set(files(tmp_path / "acme"))
    digest = hashlib.sha256(b"a wheel").hexdigest()
    assert read_mapping((tmp_path / "acme" / PIN).read_text(), PIN).value == {
        "tool": {"version": __version__, "sha256": digest}
    }
    requirements = (tmp_path / "acme" / REQUIREMENTS).read_text()
    assert requirements.endswith(f"neuroscale=={__version__} \\\n    --hash=sha256:{digest}\n")
    assert all("--hash=" in part for part in requirements.split("\\\n")[1:] if "==" not in part)
    assert [path.read_bytes() for path in (tmp_path / "cache").rglob("*.whl")] == [b"a wheel"]


def test_a_second_time_it_writes_nothing_and_never_over_another_file(tmp_path: Path, wheel: Path) -> None:
    write_repository(tmp_path / "acme", ANSWERS, wheel)
    before = files(tmp_path / "acme")
    again = write_repository(tmp_path / "acme", ANSWERS, wheel)
    assert (again.paths, again.unchanged) == ((), len(before))
    (tmp_path / "acme/platform/settings.yaml").write_text("mine: true\n")
    (tmp_path / "acme/README.md").unlink()
    with pytest.raises(InputError, match=r"settings\.yaml: is there already with another content"):
        write_repository(tmp_path / "acme", ANSWERS, wheel)
    assert not (tmp_path / "acme/README.md").exists()


@pytest.mark.parametrize("name", ["neuroscale-9.9.9-py3-none-any.whl", "other-0.2.0-py3-none-any.whl", "x.zip"])
def test_another_wheel_is_no_pin(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"--wheel: .* is not the wheel of neuroscale"):
        digest_of_tool(tmp_path / name)


def installed(monkeypatch: pytest.MonkeyPatch, wheel: Path, **archive: object) -> None:
    """The tool was installed from the wheel, and the installer recorded it so."""
    text = json.dumps({"url": wheel.as_uri(), "archive_info": archive})
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))


def test_the_installed_wheel_is_the_file_of_the_recorded_digest_wherever_it_lies(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a folder").mkdir()
    wheel = wheel.rename(tmp_path / "a folder" / wheel.name)
    installed(monkeypatch, wheel, hashes={"sha256": hashlib.sha256(b"a wheel").hexdigest()})
    assert installed_wheel() == wheel
    write_repository(tmp_path / "acme", ANSWERS, wheel)
    wheel.write_bytes(b"another build")
    assert installed_wheel().parent == wheels(tmp_path / "cache")
    installed_wheel().unlink()
    with pytest.raises(InputError, match=r"--wheel: is missing, and the wheel .* is gone"):
        installed_wheel()
    installed(monkeypatch, wheel)
    with pytest.raises(InputError, match=r"--wheel: is missing, and the installation recorded no digest"):
        installed_wheel()


def test_at_a_terminal_it_asks_for_what_it_needs(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [
        *("Acme", "https://git.acme.test/ml/models", "models.acme.test", "@acme/ml"),
        *("here", "local", "staging", "gke", "", "n", "nvidia-l4", "google-cloud", "gs://acme-models", ""),
        *("search", "cc-1001", "search@acme.test", "5000", ""),
    ]
    monkeypatch.setattr(repository, "_is_terminal", lambda: True)
    done = CliRunner().invoke(
        repository.app, ["init", str(tmp_path / "acme"), "--wheel", str(wheel)], input="\n".join([*said, ""])
    )
    assert done.exit_code == 0, done.output
    assert "files written" in done.output
    assert (tmp_path / "acme/platform/argocd/staging/root.yaml").is_file()
    assert (tmp_path / "acme/platform/catalog/budgets/cc-1001.yaml").is_file()


def test_where_nobody_can_be_asked_it_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(repository.app, ["init", str(tmp_path / "acme")])
    assert isinstance(done.exception, InputError)
    assert "--answers: is missing, and nobody can be asked" in str(done.exception)
    assert not (tmp_path / "acme").exists()
