"""Inputs of Helm, Kustomize and Jsonnet are named once a folder, and neither judged as they stand nor counted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import GateInput, read_paths
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.runner import gate_paths
from policies_support import ROOT
from repositories import Repository

TEMPLATES = Path(__file__).parent / "cases" / "helm" / "templates"
GUARDED, CALLS = ((TEMPLATES / name).read_text() for name in ("guarded.yaml", "service.yaml"))
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: demo}\ndata: {a: b}\n"
OTHER = MAP.replace("name: a,", "name: b,")
LARGE_PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 3}\n"
ALIAS = "a: &x 1\nb: *x\n"


def read(folder: Path, files: Mapping[str, str], *paths: str) -> GateInput:
    for name, content in files.items():
        (folder / "theirs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "theirs" / name).write_text(content)
    return read_paths([folder / "theirs" / path for path in paths or ("",)], folder / "platform")


def inputs(folder: Path, files: Mapping[str, str], *paths: str) -> dict[tuple[str, str], list[str]]:
    """The files that each renderer reads, by the renderer and the folder that it renders."""
    theirs = (folder / "theirs").as_posix()

    def short(name: str) -> str:
        return name.removeprefix(theirs).removeprefix("/")

    given = read(folder, files, *paths)
    return {(one.renderer, short(one.folder)): sorted(map(short, one.names)) for one in given.unrendered}


KUSTOMIZE = {
    "base/kustomization.yaml": "resources: [deployment.yaml]\n",
    "base/deployment.yaml": MAP,
    "overlays/prod/kustomization.yaml": "resources: [../../base]\npatches: [{path: patch.yaml}]\n",
    "overlays/prod/patch.yaml": MAP,
    "plain/other.yaml": OTHER,
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            KUSTOMIZE,
            {
                ("Kustomize", "base"): ["base/deployment.yaml", "base/kustomization.yaml"],
                ("Kustomize", "overlays/prod"): ["overlays/prod/kustomization.yaml", "overlays/prod/patch.yaml"],
            },
        ),
        (
            {
                "Kustomization": "configMapGenerator: [{name: a, files: [b=c.yaml]}]\n",
                "c.yaml": "x: 1\n",
                "d.yaml": MAP,
            },
            {("Kustomize", ""): ["Kustomization", "c.yaml"]},
        ),
        # One that cannot be read names nothing that the gate knows: all files beside it may be its own.
        (
            {"kustomization.yml": ALIAS, "d.yaml": MAP, "e/f.yaml": OTHER},
            {("Kustomize", ""): ["d.yaml", "kustomization.yml"]},
        ),
        (
            {
                "chat/Chart.yaml": "apiVersion: v2\nname: chat\n",
                "chat/values.yaml": "a: 1\n",
                "chat/values-prod.yaml": "a: 1\n",
                "chat/values.schema.json": "{}",
                "chat/files/e.yaml": MAP,
                "chat/templates/a.yaml": CALLS,
                "chat/templates/b.yaml": MAP,
                "chat/charts/redis/Chart.yaml": "name: redis\n",
                "chat/charts/redis/templates/c.yaml": MAP,
                "chat/deploy/d.yaml": MAP,
            },
            {
                ("Helm", "chat"): [
                    *("chat/Chart.yaml", "chat/files/e.yaml", "chat/templates/a.yaml", "chat/templates/b.yaml"),
                    *("chat/values-prod.yaml", "chat/values.schema.json", "chat/values.yaml"),
                ],
                ("Helm", "chat/charts/redis"): ["chat/charts/redis/Chart.yaml", "chat/charts/redis/templates/c.yaml"],
            },
        ),
        (
            {"chat/templates/a.yaml": CALLS, "chat/templates/b.yaml": GUARDED, "c.yaml": MAP},
            {("Helm", "chat"): ["chat/templates/a.yaml", "chat/templates/b.yaml"]},
        ),
        ({"a.jsonnet": "{}", "b.libsonnet": "{}", "c.yaml": MAP}, {("Jsonnet", ""): ["a.jsonnet", "b.libsonnet"]}),
        # What a parser can read may be deployed as it stands, and is judged.
        ({"a.yaml": MAP.replace("a: b", 'a: "{{ b }}"')}, {}),
        ({"a.yaml": f"# {{{{ b }}}}\n{MAP}x: [\n"}, {}),
        ({"a.yaml": f"{MAP}x: &y '{{{{ b }}}}'\nz: *y\n"}, {}),
        ({"values.yaml": MAP}, {}),
    ],
)
def test_the_inputs_of_a_renderer_are_known(
    tmp_path: Path, files: Mapping[str, str], expected: Mapping[tuple[str, str], list[str]]
) -> None:
    assert inputs(tmp_path, files) == expected


def test_a_file_that_is_named_alone_is_an_input_too(tmp_path: Path) -> None:
    chart = {"chat/Chart.yaml": "name: chat\n", "chat/templates/a.yaml": MAP.replace("name: a,", 'name: "{{ a }}",')}
    assert inputs(tmp_path, {**chart, **KUSTOMIZE}, "chat/templates/a.yaml", "overlays/prod/patch.yaml") == {
        ("Helm", "chat"): ["chat/templates/a.yaml"],
        ("Kustomize", "overlays/prod"): ["overlays/prod/patch.yaml"],
    }
    assert inputs(tmp_path, {}, "chat/templates") == {("Helm", "chat"): ["chat/templates/a.yaml"]}


def test_base_and_overlay_are_no_duplicates_and_patches_are_not_judged(tmp_path: Path) -> None:
    evaluation, manifests = evaluate_files(read(tmp_path, KUSTOMIZE), None)
    assert evaluation.findings == ()
    assert [one.name for one in manifests] == ["b"]


@pytest.mark.parametrize("strict", [True, False])
def test_a_folder_of_nothing_but_inputs_is_never_green(tmp_path: Path, strict: bool) -> None:
    given = read(tmp_path, {name: text for name, text in KUSTOMIZE.items() if "plain" not in name})
    findings = evaluate_files(given, None, strict=strict)[0].findings
    assert [finding.rule for finding in findings] == ["not-rendered", "not-rendered"]
    assert all("kustomize build" in finding.fix for finding in findings)


def test_inputs_are_findings_with_strict(tmp_path: Path) -> None:
    found = evaluate_files(read(tmp_path, KUSTOMIZE), None, strict=True)[0].findings
    assert [finding.rule for finding in found] == ["not-rendered", "not-rendered"]


@pytest.mark.tools
def test_the_verdict_names_each_folder_once_and_counts_no_input_as_passed(tmp_path: Path) -> None:
    read(tmp_path, KUSTOMIZE)
    verdict = gate_paths([tmp_path / "theirs"], ROOT, date(2026, 11, 28))
    assert verdict.headline == "Passed: 1 file checked, and 4 files to be rendered first"
    (told,) = (line for line in verdict.not_checked if "Kustomize" in line)
    assert told.count("overlays/prod") == 1
    assert "kustomize build" in told
    secrets = next(check for check in verdict.checks if check.name == "secrets")
    assert secrets.evaluated == 5


@pytest.mark.parametrize(
    ("files", "rules"),
    [
        ({"manifests/dev/kustomization.yaml": "resources: [x.yaml]\n", "manifests/dev/x.yaml": MAP}, {"stray-file"}),
        ({"manifests/kustomization.yaml": "resources: []\n"}, {"stray-file"}),
        ({"manifests/dev/Chart.yaml": "name: x\n", "manifests/dev/values.yaml": "a: 1\n"}, {"stray-file"}),
        ({"manifests/dev/chat/kustomization.yaml": "patches: []\n"}, {"unlisted-file"}),
        (
            {"manifests/dev/chat/Chart.yaml": "name: x\n", "manifests/dev/chat/templates/a.yaml": CALLS},
            {"unlisted-file"},
        ),
        ({"manifests/dev/chat/a.jsonnet": "{}"}, {"unlisted-file"}),
        ({"manifests/dev/chat/inferenceservice.yaml": CALLS}, {"unreadable"}),
    ],
)
def test_below_manifests_each_input_is_still_a_finding(tmp_path: Path, files: dict[str, str], rules: set[str]) -> None:
    """Argo CD would render the folder with it, and nothing would judge the result."""
    repository = Repository(tmp_path / "repo")
    repository.commit({"README.md": "x\n"})
    base = repository.run("rev-parse", "HEAD")
    repository.commit({**files})
    with closing(repository.git):
        given = read_change(find_change(repository.git, base, "HEAD"))
        assert (given.inputs, given.unrendered) == ((), ())
        found = evaluate_files(given, None)[0].findings
    assert {(finding.rule, finding.file) for finding in found if finding.rule != "missing-file"} == {
        (rule, file) for rule in rules for file in files
    }
    plain = evaluate_files(read_paths([repository.root / "manifests"], repository.root), None)[0].findings
    assert {finding.rule for finding in plain} - {"missing-file"} == rules
