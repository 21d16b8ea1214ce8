"""Services whose names collide in what KServe makes of them are found, also where only one of them is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.checks import files
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.judged_files import GateInput, read_paths
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.verdict import Finding
from repositories import Repository

FILE = "inferenceservice.yaml"


def service(name: str, namespace: str = "team-alpha", **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "serving.kserve.io/v1beta1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"predictor": {}, **spec},
        }
    )


def collisions(given: GateInput) -> list[Finding]:
    return [one for one in evaluate_files(given, None)[0].findings if one.rule == "name-collision"]


def of_folder(folder: Path, *texts: str) -> list[Finding]:
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.json").write_text(text)
    return collisions(read_paths([folder], folder.parent))


CHAT = "support-chat"


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (service(CHAT), service(f"{CHAT}-predictor"), f"{CHAT}-predictor"),
        (service(f"{CHAT}-predictor"), service(CHAT), f"{CHAT}-predictor"),
        (service(CHAT, transformer={}), service(f"{CHAT}-transformer"), f"{CHAT}-transformer"),
        (service(CHAT, explainer={}), service(f"{CHAT}-explainer"), f"{CHAT}-explainer"),
        (service(CHAT, predictor={"name": "v2"}), service(f"{CHAT}-v2"), f"{CHAT}-v2-predictor"),
        (service(CHAT, canary=[{"predictor": {"name": "v2"}}]), service(f"{CHAT}-v2"), f"{CHAT}-v2-predictor"),
        (
            service(CHAT, predictor={"workerSpec": {}}),
            service(f"{CHAT}-predictor-worker"),
            f"{CHAT}-predictor-worker",
        ),
    ],
)
def test_two_services_of_which_the_same_object_is_made_are_one_finding_that_names_both_files(
    tmp_path: Path, one: str, other: str, name: str
) -> None:
    (finding,) = of_folder(tmp_path / "theirs", one, other)
    assert {finding.file, *finding.message.split()} >= {str(tmp_path / "theirs/1.json"), f"{tmp_path}/theirs/0.json:"}
    assert f"makes {name} for" in finding.message
    assert finding.line


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (service(CHAT), service(f"{CHAT}-predictor", "team-beta")),
        (service(CHAT), service(f"{CHAT}-transformer")),
        (service(CHAT, transformer=None), service(f"{CHAT}-transformer")),
        (service(CHAT), service(f"{CHAT}-2")),
        (service(CHAT), service(f"{CHAT}-predictors")),
        (service(CHAT, predictor=[], canary="no"), service("other")),
        (service(CHAT), service(f"{CHAT}-predictor").replace("serving.kserve.io", "example.com")),
    ],
    ids=["namespace", "no transformer", "null transformer", "number", "longer", "unreadable", "other group"],
)
def test_services_of_which_different_objects_are_made_pass(tmp_path: Path, one: str, other: str) -> None:
    assert of_folder(tmp_path / "theirs", one, other) == []


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("dev/support-chat-predictor", [f"manifests/dev/{CHAT}/{FILE}"]),
        ("prod/support-chat-predictor", []),
        ("dev/other", []),
    ],
)
def test_a_changed_service_is_compared_with_those_that_stay_as_they_are(
    tmp_path: Path, place: str, found: list[str]
) -> None:
    made = Repository(tmp_path / "repository")
    try:
        made.commit({f"manifests/dev/{CHAT}/{FILE}": service(CHAT), "manifests/dev/broken-x/plan.yaml": "x"})
        added = f"manifests/{place}/{FILE}"
        made.commit({added: service(place.partition("/")[2]), f"manifests/dev/{CHAT}-predictor/README.md": "x"})
        given = read_change(find_change(made.git, "HEAD~1", "HEAD"))
        seen = collisions(given)
        assert [one.file for one in seen] == [added] * len(found)
        assert all(file in one.message for file, one in zip(found, seen, strict=True))
        assert len(collisions(read_paths([made.root / added], made.root))) == len(found)
    finally:
        made.git.close()


def test_a_service_that_takes_the_place_of_one_that_the_change_removes_passes(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository")
    try:
        made.commit({f"manifests/dev/{CHAT}/{FILE}": service(CHAT)})
        new = f"{CHAT}-predictor"
        made.commit({f"manifests/dev/{CHAT}/{FILE}": None, f"manifests/dev/{new}/{FILE}": service(new)})
        assert collisions(read_change(find_change(made.git, "HEAD~1", "HEAD"))) == []
    finally:
        made.git.close()


def test_a_service_does_not_get_the_name_of_an_object_of_the_platforms_own(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository")
    closed = "kind: NetworkPolicy\napiVersion: networking.k8s.io/v1\nmetadata: {name: default-deny, namespace: %s}\n"
    file = "manifests/dev/default-deny/networkpolicy.yaml"
    try:
        tenancy = {f"platform/tenancy/{team}/network.yaml": closed % team for team in ("team-alpha", "team-beta")}
        made.commit({**tenancy, "platform/tenancy/team-beta/broken.yaml": "default-deny: ["})
        made.commit({file: closed % "team-alpha"})
        (found,) = collisions(read_change(find_change(made.git, "HEAD~1", "HEAD")))
        assert (found.file, "platform/tenancy/team-alpha/network.yaml" in found.message) == (file, True)
        made.commit({file: closed % "team-gamma"})
        assert collisions(read_change(find_change(made.git, "HEAD~1", "HEAD"))) == []
    finally:
        made.git.close()


def test_a_gate_that_finds_no_collision_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "_collisions", lambda *_: [])
    with pytest.raises(UntrustedError, match="name-collision"):
        of_folder(tmp_path / "theirs", service(CHAT))
