"""The files check: a service folder holds its plain files, and nothing that reads differently to Argo CD."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroscale.core.errors import InputError
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import GateInput, ServiceFolder, read_paths
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import read_manifests
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import Kind, MemorySnapshot

SERVICE = ServicePath("dev", "chat")


def manifest(kind: str, name: str = "chat", namespace: str = "team-alpha") -> bytes:
    return f"apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: {namespace}\n".encode()


GOOD = {
    "manifests/dev/chat/request.yaml": b"schema_version: 1\n",
    "manifests/dev/chat/plan.yaml": b"schema_version: 1\n",
    "manifests/dev/chat/inferenceservice.yaml": manifest("InferenceService"),
    "manifests/dev/chat/networkpolicy.yaml": manifest("NetworkPolicy"),
    "manifests/dev/chat/poddisruptionbudget.yaml": manifest("PodDisruptionBudget"),
}
ISVC = "manifests/dev/chat/inferenceservice.yaml"


def findings(files: dict[str, bytes], kinds: dict[str, Kind] | None = None) -> tuple[Finding, ...]:
    snapshot = MemorySnapshot(files, kinds)
    given = GateInput(snapshot, (ServiceFolder(SERVICE, "checked", tuple(snapshot.entries())),))
    evaluation, _ = evaluate_files(given, ("dev", "prod"))
    assert evaluation.evaluated == evaluation.expected == len(snapshot.entries())
    return evaluation.findings


def test_a_folder_with_its_plain_files_passes_with_and_without_the_one_for_the_catalog() -> None:
    assert findings(GOOD) == ()
    assert findings({**GOOD, "manifests/dev/chat/catalog-info.yaml": b"kind: Component\n"}) == ()


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("kustomization.yaml", b"resources: []\n", "unlisted-file"),
        ("Chart.yaml", b"name: x\n", "unlisted-file"),
        (".argocd-source.yaml", b"", "unlisted-file"),
        ("extra.json", b"{}", "unlisted-file"),
        ("more/inferenceservice.yaml", manifest("InferenceService"), "unlisted-file"),
        ("inferenceservice.YAML", manifest("InferenceService"), "unlisted-file"),
        ("inferenceservice.yaml", manifest("Secret"), "wrong-kind"),
        ("inferenceservice.yaml", manifest("InferenceService") + b"---\n" + manifest("Secret"), "one-object"),
        ("inferenceservice.yaml", b"apiVersion: v1\nkind: List\nitems: []\n", "one-object"),
        ("inferenceservice.yaml", b"", "one-object"),
        ("inferenceservice.yaml", manifest("InferenceService", name="other"), "wrong-name"),
        ("inferenceservice.yaml", manifest("InferenceService", namespace="kube-system"), "wrong-namespace"),
        ("inferenceservice.yaml", manifest("InferenceService") + b"kind: Pod\n", "unreadable"),
        ("inferenceservice.yaml", manifest("InferenceService") + b"a: &x 1\n", "unreadable"),
        ("inferenceservice.yaml", manifest("InferenceService") + b"a: yes\n", "unreadable"),
        ("inferenceservice.yaml", b"\xef\xbb\xbf" + manifest("InferenceService"), "unreadable"),
        ("inferenceservice.yaml", manifest("InferenceService").decode().encode("utf-16"), "unreadable"),
        ("inferenceservice.yaml", b"\x7fELF\0\0", "unreadable"),
        ("inferenceservice.yaml", manifest("InferenceService") + b"# +argocd:skip-file-rendering\n", "unreadable"),
        ("inferenceservice.yaml", b"a" * (1024 * 1024 + 1), "unreadable"),
        ("inferenceservice.yaml", manifest("InferenceService", name="neuroscale-tripwire-x"), "reserved-name"),
        ("inferenceservice.yaml", b"apiVersion: v1\nkind: X\nmetadata: {generateName: a}\n", "unreadable"),
        ("inferenceservice.yaml", manifest("InferenceService", name='"A b"'), "unreadable"),
    ],
)
def test_anything_else_in_a_service_folder_is_found(name: str, content: bytes, rule: str) -> None:
    found = findings({**GOOD, f"manifests/dev/chat/{name}": content})
    assert rule in {finding.rule for finding in found}
    assert all(finding.file and finding.message and finding.fix for finding in found)


@pytest.mark.parametrize("kind", ["symlink", "submodule", "executable", "other"])
def test_only_regular_files_are_accepted(kind: Kind) -> None:
    assert [finding.rule for finding in findings(GOOD, {ISVC: kind})] == ["not-a-plain-file"]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_each_missing_file_is_found(name: str) -> None:
    found = findings({path: content for path, content in GOOD.items() if path != name})
    assert [(finding.rule, finding.file) for finding in found] == [("missing-file", name)]


def test_a_missing_request_is_restored_since_nothing_can_be_rendered_without_it() -> None:
    (finding,) = findings({path: content for path, content in GOOD.items() if not path.endswith("request.yaml")})
    assert finding.fix.startswith("Restore request.yaml first")


def test_an_environment_that_the_settings_do_not_name_is_found() -> None:
    snapshot = MemorySnapshot(GOOD)
    given = GateInput(snapshot, (ServiceFolder(SERVICE, "checked", tuple(snapshot.entries())),))
    found = evaluate_files(given, ("prod",))[0].findings
    assert [finding.rule for finding in found] == ["unknown-environment"]


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def look(*paths: Path, root: Path) -> tuple[GateInput, tuple[Finding, ...]]:
    given = read_paths(list(paths), root)
    return given, evaluate_files(given, None)[0].findings


def test_a_path_below_manifests_is_a_service_and_any_other_a_plain_folder(tmp_path: Path) -> None:
    write(tmp_path / "repo", GOOD)
    write(tmp_path / "theirs", {"app/deployment.yaml": manifest("Deployment"), "README.md": b"hi"})
    inside, found = look(tmp_path / "repo/manifests/dev", root=tmp_path / "repo")
    assert [service.path for service in inside.services] == [SERVICE]
    assert found == ()
    outside, found = look(tmp_path / "theirs", root=tmp_path / "repo")
    assert [file.entry.path for file in outside.plain] == ["app/deployment.yaml"]
    assert [Path(name).name for name in outside.ignored] == ["README.md"]
    assert found == ()


def test_one_file_of_a_service_stands_for_the_whole_service(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    given, _ = look(tmp_path / "manifests/dev/chat/networkpolicy.yaml", root=tmp_path)
    assert len(given.services[0].entries) == len(GOOD)


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("a.yaml", b"hello: world", "unreadable"),
        ("a.json", b'{"a": 1, "a": 2}', "unreadable"),
        ("a.json", b'{"a": NaN}', "unreadable"),
        ("a.json", b'{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "x": "\\ud83d"}', "unreadable"),
        ("a.yaml", b"# nothing\n", "empty"),
    ],
)
def test_a_plain_folder_with_something_that_is_no_manifest_is_found(
    tmp_path: Path, name: str, content: bytes, rule: str
) -> None:
    write(tmp_path / "theirs", {"good.yaml": manifest("Deployment"), name: content})
    _, found = look(tmp_path / "theirs", root=tmp_path)
    assert [finding.rule for finding in found] == [rule]


def test_symlinks_in_a_plain_folder_are_found_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path, {"theirs/good.yaml": manifest("Deployment"), "secret/secret.yaml": manifest("Secret")})
    (tmp_path / "theirs/link.yaml").symlink_to(tmp_path / "secret/secret.yaml")
    (tmp_path / "theirs/folder").symlink_to(tmp_path / "secret")
    given, found = look(tmp_path / "theirs", root=tmp_path)
    assert sorted(finding.rule for finding in found) == ["not-a-plain-file", "not-a-plain-file"]
    assert {file.entry.path for file in given.plain} == {"good.yaml", "link.yaml", "folder"}


def test_the_same_object_twice_is_found(tmp_path: Path) -> None:
    write(tmp_path, {"theirs/a.yaml": manifest("Deployment"), "theirs/b.yaml": manifest("Deployment")})
    _, found = look(tmp_path / "theirs", root=tmp_path)
    assert [finding.rule for finding in found] == ["duplicate-object"]


def test_the_items_of_a_list_are_objects_of_their_own(tmp_path: Path) -> None:
    text = b"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n"
    write(tmp_path, {"theirs/a.yaml": text})
    given = read_paths([tmp_path / "theirs"], tmp_path)
    _, manifests = evaluate_files(given, None)
    assert [(item.kind, item.line("metadata")) for item in manifests] == [("Pod", 6)]


@pytest.mark.parametrize(("value", "rules"), [(b"b-", ["unreadable"]), (b"5", ["unreadable"]), (b'""', []), (b"", [])])
def test_an_object_with_two_names_is_a_finding_of_its_own(tmp_path: Path, value: bytes, rules: list[str]) -> None:
    """kubeconform calls such an object by its generated name, so that its answer is for no object of the run."""
    twice = manifest("ConfigMap") + b"  generateName: " + value + b"\n"
    write(tmp_path / "theirs", {"a.yaml": twice, "b.yaml": manifest("Deployment"), "c.yaml": manifest("Deployment")})
    given = read_paths([tmp_path / "theirs"], tmp_path)
    evaluation, manifests = evaluate_files(given, None)
    assert [finding.rule for finding in evaluation.findings] == [*rules, "duplicate-object"]
    assert [one.kind for one in manifests] == [*([] if rules else ["ConfigMap"]), "Deployment", "Deployment"]
    if rules:
        assert (evaluation.findings[0].line, "generateName" in evaluation.findings[0].message) == (6, True)


@pytest.mark.parametrize(
    ("metadata", "field", "fix"),
    [
        (b"{generateName: a-}", "metadata.generateName", "Remove metadata.generateName. Give the object a fixed name"),
        (b"{}", "metadata.name", "Give the object a fixed name"),
        (b"{name: 7}", "metadata.name", 'Quote it: "7".'),
        (b"{name: a, namespace: 7}", "metadata.namespace", 'Quote it: "7".'),
        (b"{name: A}", "metadata.name", "Use lower-case letters"),
    ],
)
def test_an_object_without_a_usable_name_is_told_what_to_write(metadata: bytes, field: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        read_manifests(b"apiVersion: batch/v1\nkind: Job\nmetadata: " + metadata + b"\n", "job.yaml")
    (problem,) = caught.value.problems
    assert (problem.field, problem.line, problem.fix.startswith(fix)) == (field, 3, True), problem


@pytest.mark.parametrize("files", [{}, {"README.md": b"hi"}])
def test_a_path_without_manifests_is_unusable(tmp_path: Path, files: dict[str, bytes]) -> None:
    (tmp_path / "theirs").mkdir()
    write(tmp_path / "theirs", files)
    with pytest.raises(InputError, match="holds no manifests"):
        read_paths([tmp_path / "theirs"], tmp_path)


def test_a_path_that_is_not_there_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_paths([tmp_path / "nowhere"], tmp_path)
