"""A copy of this repository with a service on a branch, and the whole gate over it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from neuroscale import __version__
from neuroscale.cli.gate import run_gate
from neuroscale.cli.new import new_service
from neuroscale.cli.options import Reports
from neuroscale.repo.layout import FileClass, file_class
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import ToolPin, locked_requirements, pin_files
from repositories import Repository, copy_folder, copy_of_the_example_repository
from roots import CHECKOUT, ROOT

SERVICE = "manifests/dev/support-chat"
ISVC = f"{SERVICE}/inferenceservice.yaml"
EXAMPLE = ROOT / "templates/examples/gemma-4-26b-a4b-qat.yaml"


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository's files without its tests as one commit on main, and a service on the branch `added`."""
    made = copy_of_the_example_repository(tmp_path_factory.mktemp("platform") / "repository", without=("tests",))
    return _with_a_service(made, {})


@pytest.fixture(scope="session")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pristine`, for an organisation's own repository: it holds nothing of the tool, and pins the one that runs."""
    made = copy_of_the_example_repository(tmp_path_factory.mktemp("thin") / "repository")
    for name in [path.relative_to(made.root).as_posix() for path in made.root.rglob("*") if path.is_file()]:
        if not name.startswith(".git/") and file_class(name) is FileClass.TOOL:
            (made.root / name).unlink()
    locked = locked_requirements(FolderSnapshot(CHECKOUT))
    return _with_a_service(made, dict(pin_files(ToolPin(version=__version__, sha256="ab" * 32), locked)))


def _with_a_service(made: Repository, files: dict[str, bytes | str | None]) -> Path:
    made.commit(files, "platform")
    made.run("switch", "--quiet", "--create", "added")
    new_service(EXAMPLE, made.root, interactive=False)
    made.commit({}, "Add support-chat")
    made.pack()
    made.git.close()
    return made.root


@pytest.fixture
def repository(
    request: pytest.FixtureRequest, kyverno_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Repository]:
    """A copy of `pristine`, or of the fixture that a parameter names."""
    copy_folder(request.getfixturevalue(getattr(request, "param", "pristine")), tmp_path / "repository")
    made = Repository(tmp_path / "repository")
    monkeypatch.chdir(made.root)
    yield made
    made.git.close()


def gate(
    repository: Repository,
    *paths: str,
    base: str = "main",
    head: str = "HEAD",
    only_read_head: bool = False,
    server: bool = False,
) -> dict[str, Any]:
    """Run the gate as the command does; returns its verdict after comparing every report with the exit status."""
    files = Reports(*(repository.root.parent / f"verdict.{kind}" for kind in ("json", "junit", "md")))
    assert files.json is not None
    assert files.junit is not None
    assert files.markdown is not None
    given = [repository.root / path for path in paths]
    revisions = ("", "") if paths else (base, head)
    status = run_gate(given, *revisions, repository.root, files, only_read_head=only_read_head, server=server)
    verdict: dict[str, Any] = json.loads(files.json.read_text())
    assert verdict["exit_status"] == status
    _verdicts().validate(verdict)
    suites = ElementTree.parse(files.junit).getroot()
    red = int(suites.get("failures", "0")) + int(suites.get("errors", "0"))
    assert (red > 0) == (status != 0)
    assert files.markdown.read_text().startswith("<!-- neuroscale-gate")
    return verdict


@cache
def _verdicts() -> Validator:
    """The published form of verdicts, itself checked once."""
    schema = json.loads((CHECKOUT / "src/neuroscale/report/verdict.schema.json").read_text())
    found = validator_for(schema)
    found.check_schema(schema)
    return found(schema)


def rules(verdict: dict[str, Any], severity: str = "error") -> set[str]:
    return {f"{item['gate']}/{item['rule']}" for item in verdict["findings"] if item["severity"] == severity}


def check(verdict: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [item for item in verdict["checks"] if item["name"] == name]
    return dict(found)


def edit(repository: Repository, path: str, change: Callable[[str], str]) -> None:
    text = (repository.root / path).read_text()
    assert change(text) != text, "the edit changes nothing"
    repository.commit({path: change(text)}, f"Edit {path}")
