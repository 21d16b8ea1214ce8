"""Folders that Helm, Kustomize or Jsonnet renders are findings: what lies there is not what a cluster gets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import read_paths
from neuroscale.gate.merged_change import find_change, read_change
from repositories import Repository

TEMPLATES = Path(__file__).parent / "cases" / "helm" / "templates"
GUARDED, CALLS = ((TEMPLATES / name).read_text() for name in ("guarded.yaml", "service.yaml"))
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: demo}\ndata: {a: b}\n"
OTHER = MAP.replace("name: a,", "name: b,")
QUOTED = MAP.replace("a: b", 'a: "{{ b }}"')
KUSTOMIZE = {
    "base/kustomization.yaml": "resources: [deployment.yaml]\n",
    "base/deployment.yaml": MAP,
    "overlays/prod/kustomization.yaml": "resources: [../../base]\npatches: [{path: patch.yaml}]\n",
    "overlays/prod/patch.yaml": OTHER,
}
CHART = {
    "chat/Chart.yaml": "apiVersion: v2\nname: chat\n",
    "chat/values.yaml": "a: 1\n",
    "chat/templates/a.yaml": CALLS,
    "chat/templates/b.yaml": QUOTED,
    "chat/deploy/d.yaml": OTHER,
}
NAMED_CHART = {"not-rendered": {"chat/Chart.yaml"}}


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        (KUSTOMIZE, "", {"not-rendered": {"base/kustomization.yaml", "overlays/prod/kustomization.yaml"}}),
        (KUSTOMIZE, "overlays/prod/patch.yaml", {"not-rendered": {"overlays/prod/kustomization.yaml"}}),
        ({"Kustomization": "a: &x 1\nb: *x\n", "d.yaml": MAP}, "", {"not-rendered": {"Kustomization"}}),
        ({"kustomization.yml": MAP}, "", {"not-rendered": {"kustomization.yml"}}),
        (CHART, "", {**NAMED_CHART, "unreadable": {"chat/values.yaml", "chat/templates/a.yaml"}}),
        (CHART, "chat/templates/b.yaml", NAMED_CHART),
        (CHART, "chat/templates", {**NAMED_CHART, "unreadable": {"chat/templates/a.yaml"}}),
        (CHART, "chat/deploy", {}),
        (
            {"t/a.yaml": CALLS, "t/b.yaml": GUARDED, "c.yaml": MAP},
            "",
            {"unreadable": {"t/a.yaml", "t/b.yaml"}},
        ),
        ({"a.jsonnet": "{}", "b.libsonnet": "{}", "c.yaml": MAP}, "", {"not-rendered": {"a.jsonnet", "b.libsonnet"}}),
        ({"a.jsonnet": "{}"}, "a.jsonnet", {"not-rendered": {"a.jsonnet"}}),
        # What a parser can read may be deployed as it stands, and is judged.
        ({"a.yaml": QUOTED}, "", {}),
        ({"a.yaml": f"# {{{{ b }}}}\n{MAP}x: [\n"}, "", {"unreadable": {"a.yaml"}}),
        ({"values.yaml": MAP, "myChart.yaml": OTHER}, "", {}),
    ],
)
def test_a_folder_that_another_tool_renders_is_never_green(
    tmp_path: Path, files: Mapping[str, str], path: str, expected: Mapping[str, set[str]]
) -> None:
    theirs = tmp_path / "theirs"
    for name, content in files.items():
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text(content)
    findings = evaluate_files(read_paths([theirs / path], tmp_path / "platform"), None)[0].findings
    by_rule: dict[str, set[str]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule, set()).add(Path(finding.file).relative_to(theirs).as_posix())
    assert by_rule == expected
    assert all("kustomize build" in finding.fix for finding in findings if finding.rule == "not-rendered")


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
        found = evaluate_files(read_change(find_change(repository.git, base, "HEAD")), None)[0].findings
    assert {(finding.rule, finding.file) for finding in found if finding.rule != "missing-file"} == {
        (rule, file) for rule in rules for file in files
    }
    plain = evaluate_files(read_paths([repository.root / "manifests"], repository.root), None)[0].findings
    assert {finding.rule for finding in plain} - {"missing-file"} == rules
