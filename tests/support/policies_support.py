"""The repository's policies, and Kyverno's own answers about objects, for the tests of the policies."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from neuroscale.core import tool_cache
from neuroscale.core.yaml_io import flow, read_documents, read_mapping
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.bad_objects import bad_objects, good_objects
from neuroscale.repo.snapshot import FolderSnapshot
from roots import ROOT

POLICIES = ROOT / "policies"
NAMES = sorted(path.parent.name for path in POLICIES.glob("*/policy.yaml"))

# (policy, kind, name) -> (result, message)
Answers = dict[tuple[str, str, str], tuple[str, str]]


def policy(name: str) -> dict[str, Any]:
    """A policy as a value."""
    path = POLICIES / name / "policy.yaml"
    value: dict[str, Any] = read_mapping(path.read_text(), str(path)).value
    return value


def judges(name: str, plural: str) -> bool:
    """Whether a policy judges the kind of this plural name."""
    rules = policy(name)["spec"]["matchConstraints"]["resourceRules"]
    return any(plural in rule["resources"] for rule in rules)


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects of a YAML file."""
    return [document.value for document in read_documents(path.read_text(), str(path))]


def fixture_manifests(name: str, which: str) -> list[Manifest]:
    """The `good` or the `bad` objects of a policy, each with its place."""
    return {"good": good_objects, "bad": bad_objects}[which](FolderSnapshot(ROOT), name)


def fixtures(name: str, which: str) -> list[dict[str, Any]]:
    """The `good` or the `bad` objects of a policy."""
    return [manifest.value for manifest in fixture_manifests(name, which)]


def judge(names: Iterable[str], objects: list[dict[str, Any]], folder: Path) -> Answers:
    """The answer of each policy about each object, from one Kyverno process and its report."""
    folder.mkdir(parents=True, exist_ok=True)
    resources = folder / "resources.yaml"
    resources.write_text("".join(f"---\n{flow(value)}\n" for value in objects))
    run = subprocess.run(
        [
            str(tool_cache.find("kyverno")),
            "apply",
            *(str(POLICIES / name / "policy.yaml") for name in names),
            *("--resource", str(resources), "--policy-report", "--output-format", "json"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "GOGC": "400"},  # Kyverno compiles for every object: rarer collection is a third faster
    )
    assert "{" in run.stdout, run.stdout + run.stderr
    answers: Answers = {}
    for result in json.loads(run.stdout[run.stdout.index("{") :])["results"]:
        (resource,) = result["resources"]
        key = (result["policy"], resource["kind"], resource["name"])
        assert key not in answers, f"two answers for {key}"
        answers[key] = (result["result"], result["message"])
    return answers
