"""The settings decide from where images and models may come: two policies, their tests and the gate follow them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.catalog.settings import Settings, check_settings, load_settings
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.gate.checks.changed_policies import evaluate_policy_tests
from neuroscale.gate.checks.platform_files import LOOKS_AT, evaluate_platform
from neuroscale.gate.value_differences import compared, entries_of
from neuroscale.policies.allowed_list import allowed_entries, variants
from neuroscale.policies.policy_set import TRIPWIRES, load_policy_set
from neuroscale.rendering.platform.policy_lists import FOLDERS, render_policy_lists
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from platform_repository import CATALOG
from roots import ROOT

FILE = "platform/settings.yaml"
HERE = load_settings(FolderSnapshot(ROOT))
POLICY = "policies/allowed-registries/policy.yaml"


def settings(**fields: Any) -> Settings:
    value = read_mapping((ROOT / FILE).read_text(), FILE).value
    return parse(Settings, dump({**value, **fields}), FILE)


def policies_for(registries: Sequence[str], storage: Sequence[str]) -> MemorySnapshot:
    """The two policies with their tests and the known-bad objects, rendered from settings with these lists."""
    files = {TRIPWIRES: (ROOT / TRIPWIRES).read_bytes()}
    for folder in FOLDERS.values():
        for path in (ROOT / folder).rglob("*.yaml"):
            files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    rendered = render_policy_lists(MemorySnapshot(files), settings(registries=registries, storage=storage))
    return MemorySnapshot(files | {path: text.encode() for path, text in rendered.items()})


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
@pytest.mark.parametrize(
    ("registries", "storage"),
    [
        (["registry.acme.example"], ["gs://acme-models"]),
        (["localhost:500/team/", "localhost:5000", "docker.io"], ["s3://acme-models/llms"]),
        (["docker.io/acme", "docker.io/library"], ["oci://registry.acme.example:5000/m", "pvc://models"]),
    ],
)
def test_all_tests_of_both_policies_pass_for_any_lists(
    registries: list[str], storage: list[str], tmp_path: Path
) -> None:
    """Kyverno answers, by `kyverno test` and by the gate's own evaluation with the tripwires of every repository."""
    snapshot = policies_for(registries, storage)
    seen = evaluate_policy_tests(
        snapshot,
        load_policy_set(snapshot),
        {"allowed-registries", "allowed-storage"},
        schemas.find(),
        tool_cache.find("kyverno"),
        tmp_path,
        today=date(2026, 11, 21),
    )
    assert [(one.subject, one.message) for one in seen.findings] == []
    # What does not depend on the lists stays: most objects.
    assert seen.evaluated == seen.expected > 150


def test_an_object_is_made_for_each_entry_and_left_out_where_the_list_has_no_value() -> None:
    entries = ["docker.io/acme/", "s3://models/llms/", "s3://other/"]
    assert variants({"a": ["{allowed}x", 1]}, entries) == [("", {"a": ["docker.io/acme/x", 1]})]
    assert [(end, text) for end, text in variants("{each}x", entries)] == [
        ("-1", "docker.io/acme/x"),
        ("-2", "s3://models/llms/x"),
        ("-3", "s3://other/x"),
    ]
    assert variants("{bucket} {folder}x {s3://}y {docker.io/}z", entries) == [
        ("", "models llms/x models/llms/y acme/z")
    ]
    assert variants("{gs://}x", entries) == variants("{not docker.io/acme/server/}x", entries) == []
    assert variants("{not docker.io/}x", entries) == [("", "x")]
    # A longer name is no other entry, and has the form of a port.
    longer = [text for _, text in variants("{longer}", ["a.io:500/", "a.io:5000/", "a.io/b/", "a.io/b0/", "hf://"])]
    assert longer == ["a.io:50000/", "a.io:50000/", "a.io/b00/", "a.io/b00/"]
    # A policy without a list, and a word that nobody knows, stay as they are written.
    assert variants("{allowed}", []) == [("", "{allowed}")]
    assert variants("{alowed}", entries) == [("", "{alowed}")]


def test_this_repositorys_lists_stand_in_both_policies_and_name_no_registry_that_nobody_owns() -> None:
    snapshot = FolderSnapshot(ROOT)
    assert allowed_entries(snapshot, "allowed-registries") == HERE.registries
    assert allowed_entries(snapshot, "allowed-storage") == HERE.storage
    assert not [one for one in (*(HERE.registries or ()), *(HERE.storage or ())) if "neuroscale" in one]


def test_settings_of_before_leave_the_policies_as_they_are() -> None:
    value = read_mapping((ROOT / FILE).read_text(), FILE).value
    before = {key: part for key, part in value.items() if key not in ("registries", "storage")}
    old = parse(Settings, dump({**before, "registry": "registry.example.com"}), FILE)
    assert render_policy_lists(FolderSnapshot(ROOT), old) == {}


def test_a_policy_without_the_marks_is_named_with_what_to_write() -> None:
    files = {POLICY: (ROOT / POLICY).read_text().replace("-- end settings: registries --", "--").encode()}
    with pytest.raises(InputError, match="Write `# -- settings: registries --` before the variable allowed") as caught:
        render_policy_lists(MemorySnapshot(files), HERE)
    assert caught.value.problems[0].where == POLICY


@pytest.mark.parametrize(
    ("field", "entries", "words"),
    [
        ("registries", ["vllm"], "an organisation of Docker Hub such as docker.io/vllm"),
        ("registries", ["docker.io/vllm', 'evil.example"], "does not begin with a registry"),
        ("registries", ["registry.invalid"], "is reserved for objects that policies must refuse"),
        ("registries", ["docker.io/vllm", "docker.io"], "docker.io/vllm/ lies in docker.io/, which the list allows"),
        ("registries", [], "registries"),
        ("storage", ["https://models.example"], "is not the beginning of a model's address"),
        ("storage", ["gs://a/../b"], "is not the beginning of a model's address"),
        ("storage", ["gs://a", "gs://a/"], "which the list allows as well"),
    ],
)
def test_an_entry_that_would_allow_something_else_is_refused_with_what_to_write(
    field: str, entries: list[str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        settings(**{field: entries})
    assert words in str(caught.value)


def test_a_store_of_an_environment_that_the_list_lacks_is_named() -> None:
    check_settings(settings(storage=["hf://", "gs://neuroscale-models"]), CATALOG)
    with pytest.raises(InputError, match="gs://neuroscale-models is in no place that storage allows") as caught:
        check_settings(settings(storage=["gs://neuroscale"]), CATALOG)
    assert {one.field for one in caught.value.problems} == {
        f"environments.{name}.models.store" for name in ("dev", "prod")
    }


@pytest.mark.parametrize("field", ["registries", "storage"])
def test_the_platform_check_refuses_settings_and_policy_that_differ_in_either_direction(field: str) -> None:
    """Neither a list in the settings that is not rendered, nor one in the policy that the settings lack, passes."""
    files = {
        entry.path: ROOT / entry.path
        for entry in FolderSnapshot(ROOT).entries(".github", "platform", "policies", "templates")
        if entry.kind == "file"
    }
    whole = {path: file.read_bytes() for path, file in files.items()}
    policy = f"{FOLDERS[field]}/policy.yaml"
    for path, old, new in (
        (FILE, f"{field}:\n", f"{field}:\n  - {'evil.example' if field == 'registries' else 'oci://evil.example'}\n"),
        (policy, "        [\n", "        [\n          'evil.example/',\n"),
        (policy, "        [\n", "        ['evil.example/'] + [\n"),
    ):
        text = whole[path].decode()
        assert old in text
        seen = evaluate_platform(MemorySnapshot({**whole, path: text.replace(old, new, 1).encode()}))
        assert policy in {one.file for one in seen.findings}
    assert evaluate_platform(MemorySnapshot(whole)).findings == ()
    assert FOLDERS[field] in LOOKS_AT


def test_a_wider_list_is_a_notice_for_the_settings_and_for_the_policy() -> None:
    wider = settings(registries=[*(HERE.registries or ()), "evil.example"])
    changed = render_policy_lists(FolderSnapshot(ROOT), wider)[POLICY]
    for path, before, after, notice in (
        (FILE, (ROOT / FILE).read_text(), dump(wider.model_dump(mode="json")), "weaker-rule"),
        (POLICY, (ROOT / POLICY).read_text(), changed, "changed-policy"),
    ):
        sides = [entries_of(MemorySnapshot({path: text.encode()}), [path])[0] for text in (before, after)]
        assert [value.row.notice for value in compared(*sides) if value.row is not None] == [notice], path
