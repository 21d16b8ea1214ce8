"""The objects that policies must refuse are made from `good.yaml` and `cases.yaml` alone, and none of them is lost."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dotted, dump, read_documents, read_mapping
from neuroscale.gate.checks.changed_policies import evaluate_policy_tests
from neuroscale.manifests.objects import LARGEST_FILE, Manifest
from neuroscale.policies.allowed_list import allowed_entries, variants
from neuroscale.policies.bad_objects import BAD, EXPECTED_MESSAGE, bad_files, bad_objects, path_of
from neuroscale.policies.policy_set import TRIPWIRES, load_policy_set
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from policies_support import NAMES, documents, fixture_manifests, fixtures
from roots import ROOT

SMALL = "no-legacy-deployment-mode"


@pytest.mark.parametrize("name", NAMES)
def test_each_case_makes_one_object_with_its_name_its_message_and_its_change(name: str) -> None:
    path = f"policies/{name}/cases.yaml"
    text = (ROOT / path).read_text()
    allowed = allowed_entries(FolderSnapshot(ROOT), name)
    cases = [
        (end, base, {**case, "patch": patch})
        for base in read_mapping(text, path).value["bases"]
        for case in base["cases"]
        for end, (_, patch) in variants([base.get("patch", {}), case.get("patch", {})], allowed)
    ]
    objects = fixture_manifests(name, "bad")
    assert [manifest.name for manifest in objects] == [f"{case['name']}{end}" for end, _, case in cases]
    for manifest, (_, base, case) in zip(objects, cases, strict=True):
        assert manifest.file == path
        assert text.splitlines()[(manifest.line("kind") or 0) - 1] == f"  - name: {case['name']}"
        assert manifest.value["metadata"]["annotations"][EXPECTED_MESSAGE] == case["message"]
        for place, part in case["patch"].items():
            message = {EXPECTED_MESSAGE: case["message"]} if place == "metadata.annotations" else None
            assert manifest.at(path_of(place)) == (part | message if message else part), (case["name"], place)
        written = {"metadata.annotations", *base.get("patch", {}), *case["patch"]}
        for place in {*base.get("remove", ()), *case.get("remove", ())} - written:
            # Behind a removed item, another one may follow.
            assert isinstance(path_of(place)[-1], int) or manifest.at(path_of(place)) is None, (case["name"], place)


def test_no_object_is_lost() -> None:
    """This number may sink only with a policy, a kind or a spelling that the policies no longer judge."""
    assert sum(len(fixtures(name, "bad")) for name in NAMES) >= 1501


def test_the_files_for_kyverno_test_hold_the_same_objects() -> None:
    snapshot = FolderSnapshot(ROOT)
    files = bad_files(snapshot, load_policy_set(snapshot).policies)
    filled = [name for name in NAMES if allowed_entries(snapshot, name)]
    assert sorted(files) == sorted(
        f".state/policies/{name}/{which}.yaml" for which, names in (("bad", NAMES), ("good", filled)) for name in names
    )
    for path, text in files.items():
        _, _, name, file = path.split("/")
        assert [document.value for document in read_documents(text, path)] == fixtures(name, file[: -len(".yaml")])


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "good-pod", "namespace": "a"},
    "spec": {"hostPID": False, "containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]},
}


def made(*cases: dict[str, Any], good: dict[str, Any] | None = None, **base: Any) -> list[Manifest]:
    """The objects of these cases of one good object. A case has a name and a message if it says none."""
    named = [{"name": f"bad-{number}", "message": "spec: is bad", **case} for number, case in enumerate(cases)]
    text = dump({"bases": [{"base": "good-pod", **base, "cases": named}]})
    files = {"policies/a/good.yaml": dump(good or POD).encode(), "policies/a/cases.yaml": text.encode()}
    return bad_objects(MemorySnapshot(files), "a")


def test_a_case_changes_its_own_copy_of_what_its_base_shares() -> None:
    first, second, third = made(
        {"patch": {"spec.containers[0].env[0].value": "1", "spec.containers[2]": {"name": "c"}}},
        {"remove": ["spec.containers[0]", "spec.containers[0].image"]},
        {"patch": {'metadata.labels["a/b.c"]': None}},
        patch={"spec.containers[0].env": [{"name": "A", "value": "0"}], "metadata.labels": {"x": "y"}},
        remove=["spec.hostPID"],
    )
    assert first.value["spec"] == {
        "containers": [
            {"name": "a", "image": "a", "env": [{"name": "A", "value": "1"}]},
            {"name": "b", "image": "b"},
            {"name": "c"},
        ]
    }
    assert second.value["spec"] == {"containers": [{"name": "b"}]}
    assert third.value["spec"]["containers"][0]["env"] == [{"name": "A", "value": "0"}]
    assert third.value["metadata"] == {
        "name": "bad-2",
        "namespace": "a",
        "labels": {"x": "y", "a/b.c": None},
        "annotations": {EXPECTED_MESSAGE: "spec: is bad"},
    }


@pytest.mark.parametrize(
    "path", [("spec", "containers", 0, "image"), ("a", 0, 1), ("metadata", "labels", 'x.y/z "]', "b"), ("x.y", "z")]
)
def test_a_path_is_read_as_messages_write_it(path: tuple[str | int, ...]) -> None:
    assert path_of(dotted(path)) == path


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"remove": ["spec.hostPid"]}, "has no place spec.hostPid"),
        ({"remove": ["spec.containers[2]"]}, "has no place spec.containers[2]"),
        ({"remove": ["spec.containers.image"]}, "has no place spec.containers.image"),
        ({"patch": {"spec.pod.hostPID": True}}, "has no place spec.pod.hostPID"),
        ({"patch": {"spec.containers[3]": {}}}, "has no place spec.containers[3]"),
        ({"patch": {"spec[0]": {}}}, "has no place spec[0]"),
        ({"patch": {"spec.hostPID.a": True}}, "has no place spec.hostPID.a"),
        ({"patch": {"spec..hostPID": True}}, "is not a path such as spec.containers[0].image"),
        ({"patch": {"metadata.annotations": "a"}}, 'has no place metadata.annotations["neuroscale.dev/'),
        ({"patch": {"metadata": "a"}}, "has no place metadata.name"),
        ({"patch": {"kind": None}}, "is missing or not text, so this is not a Kubernetes object"),
        ({"name": "Bad"}, "'Bad' is not a Kubernetes name"),
        ({"name": "good-pod"}, "is the name of another object here or in good.yaml"),
        ({"name": "bad-0"}, "is the name of another object here or in good.yaml"),
        ({"patches": {}}, "patches"),
        ({"message": None}, "message"),
    ],
)
def test_a_case_that_makes_no_object_is_named_with_its_line(case: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        made({}, case)
    (problem,) = caught.value.problems
    assert words in str(problem)
    assert problem.where == "policies/a/cases.yaml"
    assert problem.field.startswith("bases[0].cases[1]")
    assert problem.line is not None


def test_a_base_is_a_good_object() -> None:
    with pytest.raises(InputError, match=r"'bad-0' is not an object of good\.yaml.* Valid: good-pod"):
        made({}, {}, base="bad-0")


def test_many_cases_of_a_large_object_do_not_fill_the_memory() -> None:
    large = {**POD, "spec": {"text": "x" * (LARGEST_FILE // 5)}}
    with pytest.raises(InputError, match=f"more than {LARGEST_FILE} bytes"):
        made(*({} for _ in range(2000)), good=large)


@pytest.mark.tools
@pytest.mark.usefixtures("kyverno_once")
def test_the_gate_reads_no_file_of_whole_objects(tmp_path: Path) -> None:
    """Somebody may commit one that is out of date, or says less than the cases."""
    files = {TRIPWIRES: (ROOT / TRIPWIRES).read_bytes()}
    for path in (ROOT / "policies" / SMALL).rglob("*.yaml"):
        files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    good, bad = documents(ROOT / "policies" / SMALL / "good.yaml"), fixtures(SMALL, "bad")
    harmless = [{**good[0], "metadata": {**good[0]["metadata"], "name": value["metadata"]["name"]}} for value in bad]
    text = "---\n".join(map(dump, harmless)).encode()
    files |= dict.fromkeys((f"policies/{SMALL}/bad.yaml", BAD.format(SMALL)), text)
    snapshot = MemorySnapshot(files)
    evaluation = evaluate_policy_tests(
        snapshot,
        load_policy_set(snapshot),
        {SMALL},
        schemas.find(),
        tool_cache.find("kyverno"),
        tmp_path,
        today=date(2026, 11, 21),
    )
    assert evaluation.findings == ()
    assert evaluation.evaluated == evaluation.expected == len(good) + len(bad)
