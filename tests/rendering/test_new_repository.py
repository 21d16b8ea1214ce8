"""A new organisation's repository: for the example's answers it is the example's, for others nothing of it is left."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.rendering.new_repository import new_files, read_new_repository
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.platform.files import differences, render_repository
from neuroscale.repo.layout import BUDGETS, CATALOG_INFO, MANIFESTS, TEAMS, FileClass, file_class
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot

EXAMPLE, DELIVERED = FolderSnapshot(delivered.EXAMPLE), FolderSnapshot(delivered.FOLDER)
START = FolderSnapshot(delivered.START)


def value(path: str) -> Any:
    return read_mapping((delivered.EXAMPLE / path).read_text(), path).value


def tracked() -> list[str]:
    command = ["git", "-C", str(delivered.FOLDER), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return listed.rstrip("\0").split("\0")


def answers_of_example() -> dict[str, Any]:
    """The answers that the example organisation would have given."""
    settings = value("platform/settings.yaml")
    environments = {
        name: {
            "cluster": each["cluster"],
            "production": name in settings["production"]["environments"],
            **{field: each[field] for field in ("accelerators", "price_lists")},
            **{field: each["models"][field] for field in ("hub", "store")},
            **({"domain": each["domain"]} if "domain" in each else {}),
        }
        for name, each in settings["environments"].items()
    }
    teams = [value(entry.path) for entry in EXAMPLE.entries(TEAMS)]
    budgets = [value(entry.path) for entry in EXAMPLE.entries(BUDGETS)]
    return {
        "schema_version": 1,
        "repository": settings["repository"]["url"],
        **{name: settings[name] for name in ("organization", "domain", "owners", "certificates")},
        "environments": environments,
        "teams": {team.pop("name"): team for team in teams},
        "budgets": {budget.pop("cost_center"): budget for budget in budgets},
    }


ACME: dict[str, Any] = {
    "schema_version": 1,
    "organization": 'Acme: "Models" & Söhne',
    "repository": "https://git.acme.test/ml/models",
    "domain": "models.acme.test",
    "owners": ["@acme/ml"],
    "environments": {
        "here": {"cluster": "local", "accelerators": ["cpu"], "hub": False, "store": "file:///mnt/models"},
        "staging": {"cluster": "gke", "accelerators": ["nvidia-l4"], "price_lists": ["google-cloud"]},
        "live": {
            "cluster": "eks",
            "production": True,
            "accelerators": ["nvidia-l4", "nvidia-h100-80gb"],
            "price_lists": ["aws-us-east-1"],
            "store": "s3://acme-models",
            "more": {"max_replicas": 5},
        },
    },
    "teams": {"search": {"cost_center": "cc-1001", "contact": "search@acme.test"}},
    "budgets": {"cc-1001": {"monthly_usd": "12000", "owner": "search"}},
}


def made(answers: dict[str, Any]) -> dict[str, bytes]:
    return new_files(read_new_repository(dump(answers), "answers.yaml"), DELIVERED, EXAMPLE, START, tracked())


def test_for_the_examples_answers_every_file_is_the_examples_byte_by_byte() -> None:
    files = made(answers_of_example())
    own_words = {"README.md", ".gitignore"}
    example = FolderSnapshot(delivered.EXAMPLE)
    for path, content in files.items():
        if path not in own_words and file_class(path) is FileClass.OWN:
            assert content == example.read(path), path
    if (delivered.FOLDER / "platform/settings.yaml").read_bytes() == files["platform/settings.yaml"]:
        differing = [path for path in files if path not in own_words and DELIVERED.read(path) != files[path]]
        assert differing == []
        left_out = {path for path in tracked() if file_class(path) is not FileClass.TOOL} - set(files)
        assert {path for path in left_out if not path.startswith(f"{MANIFESTS}/")} == set()


def test_for_others_the_repository_is_theirs_rendered_and_free_of_the_examples_names() -> None:
    files = made(ACME)
    snapshot = MemorySnapshot(files)
    assert differences(snapshot, render_repository(snapshot)) == []
    inputs = read_planning_inputs(snapshot)
    assert list(inputs.settings.environments) == ["here", "staging", "live"]
    assert inputs.settings.organization == ACME["organization"]
    assert inputs.settings.production.environments == ("live",)
    assert inputs.settings.environments["live"].max_replicas == 5
    # The example's development has a domain of its own.
    assert {inputs.settings.domain_of(name) for name in inputs.settings.environments} == {ACME["domain"]}
    assert set(inputs.catalog.teams) == {"search"}
    names = re.compile(
        rb"models\.example\.com|team-(alpha|beta|gamma)|cc-ml-inference|@example/|Example Organisation|example-project"
    )
    theirs = {path: content for path, content in files.items() if file_class(path) is not FileClass.MERGED}
    theirs = {path: content for path, content in theirs.items() if not path.startswith("policies/")}
    assert [path for path, content in theirs.items() if names.search(content)] == []
    assert {path.split("/")[2] for path in files if path.startswith("platform/argocd/") and path.count("/") > 2} == {
        "here",
        "staging",
        "live",
    }
    assert any(path.startswith("templates/examples/") for path in files)
    assert 250 < len(files) < 400


def test_no_file_of_the_tool_is_among_them_and_the_catalog_of_services_is_as_here() -> None:
    files = made(ACME)
    assert [path for path in files if file_class(path) in (FileClass.TOOL, None)] == []
    assert files[CATALOG_INFO] == (delivered.FOLDER / CATALOG_INFO).read_bytes()


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        ({"organisation": "Acme"}, "organisation", "is not a field"),
        ({"budgets": {"cc-9": {"monthly_usd": "1", "owner": "search"}}}, "answers.yaml", "no team's cost centre"),
        ({"environments": {"x": {"cluster": "gke", "accelerators": ["nvidia-l5"]}}}, "accelerators", "nvidia-l4"),
        (
            {"environments": {"x": {"cluster": "gke", "accelerators": ["nvidia-l4"], "price_lists": ["y"]}}},
            "price",
            "y",
        ),
        ({"environments": {"A b": {"cluster": "gke", "accelerators": ["nvidia-l4"]}}}, "environments", "A b"),
        ({"teams": {}}, "teams", "at least 1"),
    ],
)
def test_answers_that_cannot_be_used_are_named_with_what_would_do(
    change: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        made({**ACME, **change})
    assert place in str(caught.value)
    assert words in str(caught.value)
