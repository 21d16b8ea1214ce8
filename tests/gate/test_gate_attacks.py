"""Attacks on the gate: ways in which a change could pass although something is wrong, and none of which may work."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from gate_lab import ISVC, SERVICE, edit, gate, pristine, rules, thin
from gate_lab import repository as repository_with_a_service
from neuroscale.cli.gate import run_gate
from neuroscale.cli.options import Reports
from neuroscale.cli.render import render_request
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.yaml_io import dump, read_document
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.checks.policy import evaluate_policies
from neuroscale.gate.checks.secrets import evaluate_secrets
from neuroscale.gate.evaluation import Evaluation
from neuroscale.gate.judged_files import Text, read_paths
from neuroscale.gate.merged_change import Change, find_change, read_change, texts_of
from neuroscale.manifests.objects import read_manifests
from neuroscale.policies.policy_set import load_policy_set
from neuroscale.repo.git import Git
from neuroscale.repo.layout import GATE_CODE
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from repositories import Repository
from roots import ROOT

pytestmark = pytest.mark.tools


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Attack the tool's own repository, and an organisation's."""
    if "repository" in metafunc.fixturenames:
        metafunc.parametrize("repository_with_a_service", ["pristine", "thin"], indirect=True)


__all__ = ["pristine", "repository_with_a_service", "thin"]  # fixtures
TOKEN = "hf_" + "QzBvTkxRrEwYpLmNsKdJfHgUiOaZxCvBnM"
TODAY = date(2026, 11, 21)
PATHS = [f"manifests/dev/a/{name}" for name in ("request.yaml", "plan.yaml", "inferenceservice.yaml")]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Repository]:
    """A repository with one service folder on main."""
    made = Repository(tmp_path / "small")
    made.commit({**dict.fromkeys(PATHS, "x\n"), "README.md": "hi", ".gitattributes": ""})
    yield made
    made.git.close()


def last(repository: Repository) -> Change:
    return find_change(repository.git, "HEAD~1", "HEAD")


def found_in(change: Change) -> set[tuple[str, str]]:
    return {(item.rule, item.file) for item in evaluate_files(read_change(change), ("dev",))[0].findings}


# What git can hide


def submodule(repository: Repository, path: str) -> None:
    commit = repository.run("rev-parse", "HEAD")
    settings = f'[submodule "z"]\n\tpath = {path}\n\turl = https://git.example/z\n\tignore = all\n'
    repository.write({".gitmodules": settings})
    repository.run("add", ".gitmodules")
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    repository.run("commit", "--quiet", "--message", "submodule")


def test_a_submodule_that_asks_to_be_ignored_is_found(small: Repository) -> None:
    submodule(small, "manifests/dev/z")
    assert ("stray-file", "manifests/dev/z") in found_in(last(small))


def test_a_submodule_inside_a_service_that_asks_to_be_ignored_is_found(small: Repository) -> None:
    submodule(small, "manifests/dev/a/more")
    assert ("unlisted-file", "manifests/dev/a/more") in found_in(last(small))


@pytest.mark.parametrize("setting", ["repository", "user"])
def test_no_configuration_changes_what_a_change_is(
    small: Repository, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "ran"
    settings = {
        "alias.diff-tree": "!true",
        "alias.ls-tree": "!true",
        "core.attributesFile": str(tmp_path / "attributes"),
        "core.fsmonitor": f"touch {trap}",
        "core.hooksPath": str(tmp_path),
        "core.quotePath": "true",
        "diff.external": f"touch {trap}",
        "diff.ignoreSubmodules": "all",
        "diff.orderFile": str(tmp_path / "nowhere"),
        "diff.trap.textconv": f"touch {trap};",
        "log.showSignature": "true",
        "gpg.program": f"touch {trap};",
        "merge.default": "trap",
        "merge.directoryRenames": "true",
        "merge.renames": "false",
        "merge.trap.driver": f"touch {trap}; true",
    }
    (tmp_path / "attributes").write_text("* merge=trap diff=trap\n")
    small.run("switch", "--quiet", "--create", "feature")
    small.run("mv", "manifests/dev/a", "manifests/dev/é")
    small.commit({})
    submodule(small, "manifests/dev/z")
    small.run("switch", "--quiet", "main")
    small.commit({PATHS[0]: "edited on main\n"})
    expected = find_change(small.git, "main", "feature")
    if setting == "user":
        monkeypatch.setenv("HOME", str(tmp_path))
    for key, value in settings.items():
        where = ["--file", str(tmp_path / ".gitconfig")] if setting == "user" else []
        small.run("config", *where, key, value)
    change = find_change(small.git, "main", "feature")
    assert (change.tree, sorted(change.paths)) == (expected.tree, sorted(expected.paths))
    assert found_in(change) == found_in(expected)
    assert {text.name for text in texts_of(change)} == {text.name for text in texts_of(expected)}
    assert not trap.exists()


@pytest.mark.parametrize("how", ["graft", "replacement"])
def test_a_rewritten_view_of_the_history_hides_no_commit(small: Repository, how: str) -> None:
    base = small.run("rev-parse", "HEAD")
    small.commit({"notes.txt": f"token: {TOKEN}\n"})
    head = small.commit({"notes.txt": None})
    if how == "graft":
        (small.root / ".git/info").mkdir(exist_ok=True)
        (small.root / ".git/info/grafts").write_text(f"{head} {base}\n")
    else:
        small.run("replace", "--graft", head, base)
    assert any(TOKEN.encode() in text.content for text in texts_of(find_change(small.git, base, head)))


def test_a_replaced_object_is_not_what_is_judged(small: Repository) -> None:
    before = small.run("rev-parse", f"HEAD:{PATHS[0]}")
    small.commit({PATHS[0]: "bad\n"})
    small.run("replace", small.run("rev-parse", f"HEAD:{PATHS[0]}"), before)
    assert last(small).after.read(PATHS[0]) == b"bad\n"


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_PARAMETERS", "GIT_EXTERNAL_DIFF"])
def test_a_git_variable_of_the_caller_changes_nothing(
    small: Repository, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.commit({"manifests/dev/a/extra.yaml": "x"})
    monkeypatch.setenv(variable, str(tmp_path))
    assert ("unlisted-file", "manifests/dev/a/extra.yaml") in found_in(last(small))


@pytest.mark.parametrize("name", ["\nx.txt", "a\nb.txt", "a\x0c1234 x.txt", "a\u2028b.txt", "a\rb.txt", " a ", '"a"'])
def test_a_file_with_an_odd_name_is_searched_for_secrets(small: Repository, name: str) -> None:
    small.commit({name: f"token: {TOKEN}\n"})
    assert any(TOKEN.encode() in text.content for text in texts_of(last(small)))


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_a_name_that_ends_in_a_line_end_is_not_taken_for_another(small: Repository, end: str) -> None:
    small.commit({f"README.md{end}": "another"})
    assert last(small).after.read(f"README.md{end}") == b"another"
    assert last(small).after.read("README.md") == b"hi"


def test_a_secret_in_the_name_of_a_file_is_searched_for(small: Repository) -> None:
    small.commit({f"notes/{TOKEN}.txt": "x"})
    small.commit({f"notes/{TOKEN}.txt": None})
    change = find_change(small.git, "HEAD~2", "HEAD")
    assert any(TOKEN.encode() in text.content for text in texts_of(change))


def test_a_secret_that_only_a_merge_brings_is_searched_for(small: Repository) -> None:
    base = small.run("rev-parse", "HEAD")
    small.run("switch", "--quiet", "--create", "side")
    small.commit({"side.txt": "1"})
    small.run("switch", "--quiet", "main")
    small.commit({"main.txt": "1"})
    small.run("merge", "--quiet", "--no-commit", "--no-ff", "side")
    small.commit({"evil.txt": TOKEN}, "merge")
    small.commit({"evil.txt": None})
    assert any(text.name == "evil.txt" for text in texts_of(find_change(small.git, base, "HEAD")))


def test_more_stray_files_than_a_command_line_holds_are_each_found(small: Repository) -> None:
    names = [f"manifests/{number:04}-{'x' * 200}" for number in range(12_000)]
    for name in names:
        (small.root / name).touch()
    small.commit({})
    assert {file for _, file in found_in(last(small))} >= set(names)


@pytest.mark.parametrize("head", ["octopus", "tag", "criss-cross"])
def test_merges_and_tags_are_read_as_what_they_bring(small: Repository, head: str) -> None:
    extra = "manifests/dev/a/extra.yaml"
    base = "main"
    small.run("switch", "--quiet", "--create", "one")
    small.commit({"one.txt": "1"})
    small.run("switch", "--quiet", "--create", "two", "main")
    small.commit({extra: "x"})
    if head == "octopus":
        small.run("switch", "--quiet", "--create", "octopus", "main")
        small.run("merge", "--quiet", "--no-ff", "--message", "octopus", "one", "two")
    elif head == "tag":
        small.run("tag", "--annotate", "tag", "--message", "tag", "two")
    else:
        small.run("merge", "--quiet", "--message", "two takes one", "one")
        small.run("switch", "--quiet", "one")
        small.run("rm", "--quiet", "one.txt")
        small.run("commit", "--quiet", "--message", "more")
        base, head = "one", "two"
    assert ("unlisted-file", extra) in found_in(find_change(small.git, base, head))


def test_histories_without_a_common_commit_are_unusable(small: Repository) -> None:
    small.run("checkout", "--quiet", "--orphan", "other")
    small.commit({"x": "x"})
    with pytest.raises(InputError, match="cannot be merged"):
        find_change(small.git, "main", "other")


def test_a_head_behind_its_base_brings_nothing(small: Repository) -> None:
    small.commit({"manifests/dev/a/extra.yaml": "x"})
    change = find_change(small.git, "main", "main~1")
    assert (change.paths, read_change(change).services) == ((), ())


def test_a_folder_inside_a_git_repository_is_unusable(small: Repository) -> None:
    small.commit({"inner/manifests/dev/a/extra.yaml": "x"})
    with pytest.raises(InputError, match="only the folder inner/"):
        find_change(Git(small.root / "inner"), "HEAD~1", "HEAD")


def test_a_sparse_work_tree_hides_nothing(small: Repository) -> None:
    small.commit({"manifests/dev/a/extra.yaml": "x", "platform/settings.yaml": "x"})
    small.run("sparse-checkout", "set", "platform")
    assert not (small.root / "manifests").exists()
    assert ("unlisted-file", "manifests/dev/a/extra.yaml") in found_in(last(small))


# What a change can do to its own judge


@pytest.mark.parametrize(
    "path", ["src/sitecustomize.py", "src/yaml.py", "src/neuroscale/rendering/service_folder.py", *GATE_CODE]
)
def test_whatever_python_would_load_with_the_gate_is_its_code(small: Repository, path: str) -> None:
    small.commit({path if not path.endswith("/") else f"{path}x": "x"})
    change = last(small)
    assert change.touches(*GATE_CODE)
    assert [service.path.service for service in read_change(change).services] == ["a"]


def platform_policies() -> dict[str, bytes]:
    root = FolderSnapshot(ROOT)
    return {entry.path: root.read(entry.path) or b"" for entry in root.entries("policies")}


@pytest.mark.parametrize("place", ["policies/extra.yaml", "policies/extra", "policies/non-root.yaml"])
def test_a_policy_that_lies_where_none_is_read_is_untrusted(place: str) -> None:
    files = platform_policies()
    files[place] = files["policies/non-root/policy.yaml"]
    with pytest.raises(UntrustedError, match="is not the folder of a policy"):
        load_policy_set(MemorySnapshot(files))


def test_a_link_in_place_of_a_policy_is_untrusted() -> None:
    files = {path: data for path, data in platform_policies().items() if not path.startswith("policies/non-root/")}
    with pytest.raises(UntrustedError, match="is not the folder of a policy"):
        load_policy_set(MemorySnapshot(files, {"policies/non-root": "symlink"}))


def test_a_policy_that_is_off_at_admission_is_untrusted() -> None:
    files = platform_policies()
    path = "policies/non-root/policy.yaml"
    off = b"  failurePolicy: Fail\n  evaluation: {admission: {enabled: false}}\n"
    files[path] = files[path].replace(b"  failurePolicy: Fail\n", off)
    with pytest.raises(UntrustedError, match="evaluation"):
        load_policy_set(MemorySnapshot(files))


# Secrets


def test_no_disguise_hides_a_token_from_the_search(tmp_path: Path) -> None:
    line = f"token: {TOKEN}\n"
    disguises = {
        "program": f"MZ\n{line}",
        "document": f"%PDF-1.4\n{line}",
        "archive": f"{'x' * 257}ustar\n{line}",
        "picture": f"{' ' * 128}DICM\n{line}",
        "disc": f"{' ' * 32769}CD001\n{line}",
        "long lines": f"{'x ' * 62_490}\n{line}{'y ' * 62_490}",
        "one line": f"{'x ' * 15_000} token: {TOKEN} {'y ' * 30_000}",
        "last": "x\n" * 200_000 + line,
    }
    texts = [Text(name, text.encode()) for name, text in disguises.items()]
    found = {
        item.file: item.line for item in evaluate_secrets(texts, tool_cache.find("gitleaks"), tmp_path)[0].findings
    }
    assert found == {
        "program": 2,
        "document": 2,
        "archive": 2,
        "picture": 2,
        "disc": 2,
        "long lines": 2,
        "one line": 1,
        "last": 200_001,
    }


# Files that read differently


@pytest.mark.parametrize(
    "text",
    [
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "generation": %s}}' % ("9" * 17),
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "generation": -%s}}' % ("9" * 5000),
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "generation": 1e999}}',
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}\n{"kind": "Pod"}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_json_that_readers_take_differently_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_manifests(text.encode(), "a.json")


HIDDEN = "apiVersion: v1\nkind: Pod\nmetadata: {name: hidden}\n"


@pytest.mark.parametrize(
    "between",
    [
        "--- # a remark\n",
        "---\t \r\n",
        "---\n# nothing\n---\n",
    ],
)
def test_no_way_to_part_documents_hides_one(between: str) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{between}{HIDDEN}"
    assert [manifest.kind for manifest in read_manifests(text.encode(), "a.yaml")] == ["ConfigMap", "Pod"]


@pytest.mark.parametrize(
    "between",
    [
        "...\n",
        "...\n%YAML 1.1\n---\n",
        "...\n%TAG ! tag:example.org,2000:\n---\n",
        "# \u2028---\u2028",
        "# \x85---\x85",
        "# \r---\r",
        # Kubernetes' readers end a document at each of these lines, whatever it is to a YAML parser.
        "---#x:\n ",
        "---x: ",
        "--- {}\n",
        "--- |\n ",
        "spec: '\n---#'\n",
    ],
)
def test_what_parts_documents_for_some_readers_only_is_refused(between: str) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{between}{HIDDEN}"
    with pytest.raises(InputError, match="YAML parsers"):
        read_manifests(text.encode(), "a.yaml")


def test_dashes_and_signs_inside_text_are_plain_text() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  a: |\n    ---x\n    ...\n    %YAML\n"
    assert [manifest.value["data"]["a"] for manifest in read_manifests(text.encode(), "a.yaml")] == [
        "---x\n...\n%YAML\n"
    ]


def test_a_list_in_a_list_is_taken_apart() -> None:
    text = '{"apiVersion":"v1","kind":"List","items":[' * 90 + json.dumps(read_document(HIDDEN, "").value) + "]}" * 90
    assert [manifest.name for manifest in read_manifests(text.encode(), "a.json")] == ["hidden"]


def test_items_outside_a_list_are_refused() -> None:
    """Argo CD takes every object with `items` for a list, and applies them in its place."""
    value = {**read_document(HIDDEN, "").value, "kind": "ConfigMap", "items": [read_document(HIDDEN, "").value]}
    with pytest.raises(InputError, match="items"):
        read_manifests(dump(value).encode(), "a.yaml")


def test_a_folder_around_the_repository_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "repository/manifests/dev/a").mkdir(parents=True)
    (tmp_path / "bad.yaml").write_text(HIDDEN)
    with pytest.raises(InputError, match="holds a whole platform repository"):
        read_paths([tmp_path], tmp_path / "repository")


def test_a_folder_that_cannot_be_read_is_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs/closed").mkdir(parents=True)
    (tmp_path / "theirs/good.yaml").write_text(HIDDEN)

    def walk(start: Path, onerror: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
        yield str(start), ["closed"], ["good.yaml"]
        onerror(PermissionError(13, "Permission denied", "closed"))

    monkeypatch.setattr("neuroscale.repo.snapshot.os.walk", walk)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read_paths([tmp_path / "theirs"], tmp_path)


# The whole gate


OF_THE_TOOLS_CODE = (
    "test_attributes_cannot_leave_a_part_out_of_the_gate_that_judges",
    "test_code_that_cannot_be_unpacked_is_untrusted_and_the_base_still_judges",
    "test_where_a_token_is_in_reach_no_code_of_the_change_runs",
)
"""They attack the tool's code in the tree. An organisation's own repository has none: test_pin_attacks adds some."""


@pytest.fixture(autouse=True)
def _only_where_the_tool_is(request: pytest.FixtureRequest) -> None:
    if "thin" in request.node.name and request.node.originalname in OF_THE_TOOLS_CODE:
        pytest.skip("the attacked code is not in an organisation's own repository")


@pytest.fixture
def repository(repository_with_a_service: Repository) -> Repository:
    return repository_with_a_service


def test_a_bad_object_is_judged_wherever_it_says_it_lives(tmp_path: Path) -> None:
    """Namespaces and labels that somebody might take for a switch, in every kind that carries pods."""
    container = {"name": "a", "image": "docker.io/evil/a:latest", "securityContext": {"privileged": True}}
    pod = {"hostNetwork": True, "containers": [container]}
    label = {"kyverno.io/exclude": "true", "policies.kyverno.io/skip": "true", "admission.kyverno.io/ignore": "true"}

    def made(api_version: str, kind: str, namespace: str, spec: object) -> dict[str, object]:
        metadata = {"name": "bad", "namespace": namespace, "labels": label, "annotations": label}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    template = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}, "selector": {"matchLabels": {"a": "b"}}}
    job = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
    values = [
        made("v1", "Pod", "kube-system", pod),
        made("v1", "ReplicationController", "kyverno", {**template, "selector": {"a": "b"}}),
        made("apps/v1", "Deployment", "argocd", template),
        made("apps/v1", "ReplicaSet", "kube-public", template),
        made("apps/v1", "DaemonSet", "kube-system", template),
        made("apps/v1", "StatefulSet", "kserve", {**template, "serviceName": "a"}),
        made("batch/v1", "Job", "kube-node-lease", job),
        made("batch/v1", "CronJob", "default", {"schedule": "* * * * *", "jobTemplate": {"spec": job}}),
        made("serving.kserve.io/v1beta1", "InferenceService", "kube-system", {"predictor": pod}),
        made("serving.kserve.io/v1alpha1", "LLMInferenceService", "kube-system", {"template": pod}),
        made("serving.kserve.io/v1alpha2", "LLMInferenceService", "kserve", {"worker": pod}),
    ]
    given = read_manifests("---\n".join(dump(value) for value in values).encode(), "a.yaml")
    used = load_policy_set(FolderSnapshot(ROOT))
    names = {"no-host-access", "no-privilege-escalation", "no-mutable-image-tags", "allowed-registries", "non-root"}
    few = type(used)(tuple(item for item in used.policies if item.name in names), used.tripwires)
    kyverno = tool_cache.find("kyverno")
    seen = evaluate_policies(few, given, schemas.find(), kyverno, tmp_path, today=TODAY)
    assert {(finding.rule, finding.line) for finding in seen.findings} == {
        (name, manifest.line("kind")) for name in names for manifest in given
    }


def test_a_change_that_hides_the_settings_is_not_judged_by_the_programs_own_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Repository(tmp_path / "elsewhere")
    made.commit({"README.md": "hi"})
    monkeypatch.chdir(made.root)
    assert run_gate([], "HEAD", "HEAD", None, Reports()) == 2


def test_settings_that_a_change_removes_are_found_although_they_are_still_on_disk(repository: Repository) -> None:
    text = (repository.root / "platform/settings.yaml").read_text()
    base = repository.run("rev-parse", "HEAD")
    repository.commit({"platform/settings.yaml": None})
    repository.write({"platform/settings.yaml": text})
    verdict = gate(repository, base=base)
    assert verdict["exit_status"] == 1
    assert "catalog/invalid" in rules(verdict)


def test_a_removed_policy_is_named_and_still_judges_the_change(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(  # the policies' own tests take long
        "neuroscale.gate.checks.changed_policies.evaluate_policy_tests",
        lambda *_, **__: Evaluation((), 1, 1, "cases", 1, 1),
    )
    repository.run("rm", "--quiet", "-r", "policies/no-mutable-image-tags")
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    verdict = gate(repository)
    assert "policy/no-mutable-image-tags" in rules(verdict)
    assert "change/removed-policy" in rules(verdict, "notice")


def test_attributes_cannot_leave_a_part_out_of_the_gate_that_judges(repository: Repository) -> None:
    attributes = "src/neuroscale/gate/checks/policy.py export-ignore\n"
    (repository.root / ".git/info").mkdir(exist_ok=True)
    (repository.root / ".git/info/attributes").write_text(attributes)
    edit(repository, "src/neuroscale/gate/checks/drift.py", lambda text: f"{text}\n# A remark.\n")
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    assert "policy/no-mutable-image-tags" in rules(verdict)


def test_another_services_lock_is_found(repository: Repository) -> None:
    other = "manifests/dev/other"
    for path in (repository.root / SERVICE).iterdir():
        text = path.read_text() if path.name == "plan.yaml" else path.read_text().replace("support-chat", "other")
        repository.write({f"{other}/{path.name}": text})
    repository.commit({})
    assert {"drift/wrong-folder", "drift/outdated-plan"} <= rules(gate(repository))


def test_names_that_no_report_can_hold_break_no_report(repository: Repository) -> None:
    for name in (b"a\xff.yaml", b"\x1b[31mred.yaml", b"a\x01.yaml", b"a\n::error::b.yaml", b"<script>.yaml"):
        Path((repository.root / SERVICE).as_posix(), name.decode(errors="surrogateescape")).write_bytes(b"x")
    repository.commit({})
    verdict = gate(repository)
    assert verdict["exit_status"] == 1
    assert len([item for item in verdict["findings"] if item["rule"] == "unlisted-file"]) == 5


def test_the_same_change_gives_the_same_verdict_and_leaves_the_work_tree_alone(repository: Repository) -> None:
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    verdicts = [gate(repository) for _ in range(2)]
    for verdict in verdicts:
        for item in verdict["checks"]:
            item["seconds"] = 0
    assert verdicts[0] == verdicts[1]
    assert repository.run("status", "--porcelain") == ""


@pytest.mark.parametrize("report", ["nowhere/verdict.json", "."])
@pytest.mark.parametrize(("tools_there", "expected"), [(True, 2), (False, 3)])
def test_a_report_that_cannot_be_written_lowers_no_exit_status(
    repository: Repository,
    report: str,
    tools_there: bool,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not tools_there:
        monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "empty"))
    shutil.rmtree(repository.root / "manifests")
    repository.commit({})
    given = Reports(json=repository.root / report)
    assert run_gate([], "main", "HEAD", repository.root, given) == expected


@pytest.mark.parametrize("limit", ["-n 16", "-f 20", "-v 700000"])
def test_too_little_of_the_machine_is_untrusted(repository: Repository, limit: str) -> None:
    """Open files, file size, memory. Machines differ in how much a run needs: one that comes through says the same."""
    program = shlex.join([sys.executable, "-P", "-m", "neuroscale"])
    command = f"ulimit {limit}; exec {program} gate --base main --head HEAD --json -"
    edit(repository, ISVC, lambda text: text.replace("runAsNonRoot: true", "runAsNonRoot: false"))
    done = subprocess.run(["bash", "-c", command], cwd=repository.root, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    if done.returncode != 3:
        assert done.returncode == 1
        told, unlimited = json.loads(done.stdout), gate(repository)
        assert rules(told) == rules(unlimited)


def test_a_lock_of_an_invented_catalog_does_not_excuse_what_it_says(repository: Repository) -> None:
    def forge(text: str) -> str:
        text = re.sub(r"catalog_digest: .*", f'catalog_digest: "sha256:{"0" * 64}"', text)
        return text.replace("max_concurrency: ", "max_concurrency: 9", 1)

    edit(repository, f"{SERVICE}/plan.yaml", forge)
    render_request(repository.root / SERVICE / "request.yaml", None, repository.root)
    repository.commit({})
    assert "drift/edited-plan" in rules(gate(repository))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("manifests/prod/** working-tree-encoding=UTF-16LE-BOM", True),
        ("manifests/** text filter=lfs", True),
        ("*.yaml ident", True),
        ("* text=auto eol=lf", False),
        ("*.png filter=lfs diff=lfs", False),
        ("# * filter=lfs", False),
    ],
)
def test_attributes_that_change_manifests_in_a_checkout_are_found(small: Repository, line: str, found: bool) -> None:
    small.commit({".gitattributes": f"{line}\n"})
    assert (("attributes", ".gitattributes") in found_in(last(small))) == found


def test_code_that_cannot_be_unpacked_is_untrusted_and_the_base_still_judges(repository: Repository) -> None:
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    repository.run("mv", "src", "code")
    (repository.root / "src").symlink_to("/etc")
    repository.commit({})
    verdict = gate(repository)
    assert verdict["exit_status"] == 3
    assert "policy/no-mutable-image-tags" in rules(verdict)


def test_where_a_token_is_in_reach_no_code_of_the_change_runs(repository: Repository, tmp_path: Path) -> None:
    witness = tmp_path / "it-ran"
    code = f"import pathlib, os\npathlib.Path({str(witness)!r}).touch()\nos._exit(0)\n"
    edit(repository, "src/neuroscale/__main__.py", lambda _: code)
    edit(repository, "src/neuroscale/__init__.py", lambda _: code)
    edit(repository, ISVC, lambda text: text.replace("v0.32.0", "latest"))
    verdict = gate(repository, only_read_head=True)
    assert not witness.exists()
    assert verdict["exit_status"] == 1
    assert "policy/no-mutable-image-tags" in rules(verdict)
    assert any("no code of a change runs here" in entry for entry in verdict["not_checked"])
    assert gate(repository)["exit_status"] == 3
    assert witness.exists()


def test_a_secret_that_any_check_quotes_is_in_no_report(repository: Repository) -> None:
    token = "hf_" + "QzBvTkxRrEwYpLmNsKdJfHgUiOaZxCvBnM"
    edit(
        repository,
        ISVC,
        lambda text: text.replace("--max-num-seqs", f'--hf-token={token}"\n        - "--max-num-seqs', 1),
    )
    verdict = gate(repository)
    assert {"secrets/huggingface-access-token", "drift/edited"} <= rules(verdict)
    quoted = [finding["message"] for finding in verdict["findings"] if "***" in finding["message"]]
    assert quoted
    written = [path.read_text() for path in repository.root.parent.glob("verdict.*")]
    assert len(written) == 3
    assert not [text for text in written if token[:10] in text]


def test_a_commit_of_the_hub_that_a_request_names_by_itself_is_a_notice(repository: Repository) -> None:
    edit(repository, f"{SERVICE}/request.yaml", lambda text: f"{text}model_revision: {'ab' * 20}\n")
    verdict = gate(repository)
    assert "change/own-revision" in rules(verdict, "notice")
    (found,) = [one for one in verdict["findings"] if one["rule"] == "own-revision"]
    assert "ab" * 20 in found["message"]
