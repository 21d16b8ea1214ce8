"""The first change of a company that gives everything its own names: it is green, or each finding can be mended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from gate_lab import check, gate
from neuroscale.cli.new import new_service
from neuroscale.rendering.example_files import example_files
from neuroscale.rendering.platform.files import render_repository, write
from neuroscale.repo.example_repository import ExampleSnapshot
from neuroscale.repo.layout import BUDGETS, EXAMPLES, MANIFESTS, SETTINGS, TEAMS, TEMPLATE
from neuroscale.repo.snapshot import FolderSnapshot
from repositories import Repository, copy_of_the_example_repository

pytestmark = [pytest.mark.tools, pytest.mark.slow, pytest.mark.usefixtures("kyverno_once")]

FORM = f"{TEMPLATE}/template.yaml"
ENVIRONMENTS = {"local": "laptop", "dev": "staging", "prod": "live"}
TEAM_NAMES = {"team-alpha": "blue", "team-beta": "green", "team-gamma": "red", "platform": "core"}
COST_CENTERS = {"cc-ml-inference": "k-100", "cc-search": "k-200", "cc-support": "k-300", "cc-platform": "k-400"}
NAMES = TEAM_NAMES | COST_CENTERS | {"platform-services": "core-services"}
OF_THE_FORGE = {"owner=example&repo=neuroscale": "owner=acme&repo=models"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """The example organisation's repository on main, and all of it under other names on the branch `renamed`."""
    made = copy_of_the_example_repository(tmp_path / "repository", without=("tests", "docs", "milestones"))
    paths = [entry.path for entry in FolderSnapshot(made.root).entries()]
    made.write({path: None for path in paths if ExampleSnapshot.is_own(path)})
    made.commit({**example_files(paths)}, "platform")
    made.run("switch", "--quiet", "--create", "renamed")
    _rename(made.root)
    made.commit({}, "Our own names")
    monkeypatch.chdir(made.root)
    yield made
    made.git.close()


def _rename(root: Path) -> None:
    edit(root / SETTINGS, {f"\n  {old}:\n": f"\n  {new}:\n" for old, new in ENVIRONMENTS.items()})
    edit(root / SETTINGS, {"[prod]": "[live]", "models.example.com": "llm.acme.test", "example/": "acme/"})
    edit(root / SETTINGS, {"acme/neuroscale": "acme/models"})
    for folder in (TEAMS, BUDGETS):
        for path in (root / folder).glob("*.yaml"):
            path.rename(path.with_stem(NAMES[path.stem]))
        for path in (root / folder).glob("*.yaml"):
            fields(path, NAMES, "name", "owner", "cost_center", "namespace")
    for path in (root / EXAMPLES).glob("*.yaml"):
        fields(path, NAMES | ENVIRONMENTS, "team", "environment")
    lines = {f"            - {old}\n": f"            - {new}\n" for old, new in (NAMES | ENVIRONMENTS).items()}
    edit(root / FORM, {old: new for old, new in (lines | OF_THE_FORGE).items() if old in (root / FORM).read_text()})
    for request in (root / MANIFESTS).glob("*/*/request.yaml"):
        answers = yaml.safe_load(request.read_text())
        answers |= {"team": NAMES[answers["team"]], "environment": ENVIRONMENTS[answers["environment"]]}
        form = {name: value for name, value in answers.items() if name not in ("schema_version", "overrides")}
        (root.parent / "answers.yaml").write_text(yaml.safe_dump(form))
        for path in request.parent.iterdir():
            path.unlink()
        new_service(root.parent / "answers.yaml", root, interactive=False)
    snapshot = FolderSnapshot(root)
    write(root, snapshot, render_repository(snapshot))


def edit(path: Path, texts: Mapping[str, str]) -> None:
    text = path.read_text()
    for old, new in texts.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def fields(path: Path, names: Mapping[str, str], *keys: str) -> None:
    """Replace the values of these fields at the margin."""
    line = re.compile(rf"^({'|'.join(keys)}): (.+)$", re.MULTILINE)
    path.write_text(line.sub(lambda found: f"{found[1]}: {names[found[2]]}", path.read_text()))


def test_a_change_of_every_name_at_once_is_green(repository: Repository) -> None:
    verdict = gate(repository, base="main", head="renamed")
    errors = [one for one in verdict["findings"] if one["severity"] == "error"]
    assert (errors, verdict["exit_status"]) == ([], 0)
    assert check(verdict, "effects")["outcome"] == "passed"
    # Its examples are compared with what they were: another owner, and no second opinion on the accelerator.
    shown = {(one["before"], one["after"]) for one in verdict["effects"]["differences"]}
    assert {("team-beta", "green"), ("cc-support", "k-300")} <= shown
    files = {*repository.run("diff", "--name-only", "--no-renames", "main", "renamed").splitlines()}
    folders = {path.rsplit("/", depth)[0] for path in files for depth in range(1, path.count("/") + 1)}
    skeleton = {one["file"] for one in verdict["findings"] if one["file"].startswith(f"{TEMPLATE}/skeleton/")}
    # A skeleton's file stands for what is rendered from it with the change's names.
    assert {one["file"] for one in verdict["findings"]} <= files | folders | skeleton


def test_what_such_a_change_forgets_is_found_in_its_own_files(repository: Repository) -> None:
    forgotten = f"{EXAMPLES}/llama-3.1-8b-highly-available.yaml"
    repository.run("checkout", "--quiet", "main", "--", forgotten)
    edit(repository.root / FORM, {new: old for old, new in OF_THE_FORGE.items()})
    edit(repository.root / f"{TEAMS}/core.yaml", {"core-services": "platform-services"})
    snapshot = FolderSnapshot(repository.root)
    write(repository.root, snapshot, render_repository(snapshot))
    repository.commit({}, "Forget some")
    verdict = gate(repository, base="main", head="renamed")
    errors = {(one["rule"], one["file"]): one for one in verdict["findings"] if one["severity"] == "error"}
    assert {*errors} == {("not-rendered", forgotten), ("disagreement", FORM)}
    assert "'team-beta' is not a team of the catalog" in errors["not-rendered", forgotten]["message"]
    assert "owner=acme" in errors["disagreement", FORM]["fix"]
