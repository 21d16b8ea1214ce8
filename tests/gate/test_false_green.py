"""The page of the ways in which upstream tools say 0: they do, and the gate is red or untrusted in each case."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from neuroscale.cli.gate import run_gate
from neuroscale.cli.options import Reports
from neuroscale.core import schemas, tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump, read_documents
from neuroscale.gate.checks.api_server_dry_run import evaluate_by_server
from neuroscale.gate.checks.changed_policies import evaluate_policy_tests
from neuroscale.gate.checks.schema import evaluate_schemas
from neuroscale.kube.ephemeral import EphemeralServer
from neuroscale.manifests.objects import read_manifests
from neuroscale.policies.policy_set import TRIPWIRES, load_policy_set
from neuroscale.repo.snapshot import MemorySnapshot
from roots import CHECKOUT, ROOT

PAGE = CHECKOUT / "docs/false-green.md"
POLICY = "ownership-labels"
FOLDER = f"policies/{POLICY}"
CASES = f"{FOLDER}/.kyverno-test/kyverno-test.yaml"
_ROW = re.compile(r"^\| ([a-z-]+) \| `([^`]+)` \| ([^|]+) \| ([^|]+) \| `([^`]+)` \|$", re.MULTILINE)
_GATE = re.compile(r"`neuroscale gate ([^`]+)` ends with (\d)(?:: `([^`]+)`)?")


@dataclass(frozen=True)
class Way:
    """A row of the page. `rule` is the finding that the gate's command must show, or empty."""

    name: str
    command: str
    test: str
    gate: tuple[str, ...] = ()
    status: int = 1
    rule: str = ""


def ways() -> list[Way]:
    found = []
    for name, command, _, gate, test in _ROW.findall(PAGE.read_text()):
        said = _GATE.search(gate)
        given = (tuple(said[1].split()), int(said[2]), said[3] or "") if said else ()
        found.append(Way(name, command, test, *given))
    return found


WAYS = ways()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a reader of the page gets."""
    made = tmp_path_factory.mktemp("false-green")
    block = re.search(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    subprocess.run(["bash", "-euc", block[1]], cwd=made, check=True)
    # The default schemas know no custom resources, and neither do these.
    known = schemas.find().folder
    (made / "schemas").mkdir()
    for group in ("v1", "apps", "_definitions.json"):
        if (known / group).exists():
            (made / "schemas" / group).symlink_to(known / group)
    return made


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the gate judges by, with one policy: each other one would cost every run some seconds."""
    made = tmp_path_factory.mktemp("platform")
    for name in ("platform", "templates", FOLDER):
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("local"))
    shutil.copy(ROOT / TRIPWIRES, made / TRIPWIRES)
    return made


def test_the_page_names_each_way_once_and_tests_that_there_are() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(WAYS) == len({way.name for way in WAYS}) > 40
    for way in WAYS:
        file, _, name = way.test.partition("::")
        tree = ast.parse((CHECKOUT / "tests" / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, way.test


@pytest.mark.tools
def test_the_commands_say_0(folder: Path) -> None:
    path = os.pathsep.join(str(tool_cache.find(name).parent) for name in ("kyverno", "kubeconform"))
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    environment["SCHEMAS"] = f"schemas/{schemas.LAYOUT}"

    def run(way: Way) -> str:
        done = subprocess.run(
            ["bash", "-c", way.command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        return f"{way.name} ends with {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else ""

    with ThreadPoolExecutor(max_workers=2) as pool:
        assert [said for said in pool.map(run, WAYS) if said] == []


@pytest.mark.tools
def test_the_policy_and_the_schemas_of_the_page_refuse_what_they_should(folder: Path) -> None:
    """Without this, a command could say 0 because nothing is wrong."""
    kyverno = [str(tool_cache.find("kyverno")), "apply", "owner.yaml", "--resource", "stray.yaml"]
    assert subprocess.run(kyverno, cwd=folder, capture_output=True, check=False).returncode == 1
    kubeconform = [str(tool_cache.find("kubeconform")), "-strict", "-schema-location", f"schemas/{schemas.LAYOUT}"]
    for name, status in (("stray.yaml", 0), ("twice.yaml", 1), ("kind.yaml", 1)):
        done = subprocess.run([*kubeconform, name], cwd=folder, capture_output=True, check=False)
        assert done.returncode == status, done.stdout


BY_COMMAND = {way.gate: way for way in WAYS if way.gate and "--server" not in way.gate}


@pytest.mark.tools
@pytest.mark.parametrize("way", BY_COMMAND.values(), ids=lambda way: way.name)
def test_the_gate_refuses_what_the_command_passed(
    folder: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    monkeypatch.chdir(folder)
    report = tmp_path / "verdict.json"
    status = run_gate([Path(name) for name in way.gate], "", "", repository, Reports(report, None, None))
    assert status == way.status
    verdict = json.loads(report.read_text())
    found = {f"{one['gate']}/{one['rule']}" for one in verdict["findings"] if one["severity"] == "error"}
    assert found >= {way.rule} - {""}


@pytest.mark.tools
def test_the_api_server_refuses_what_the_schemas_do_not_know(folder: Path) -> None:
    asked = [way for way in WAYS if "--server" in way.gate]
    given = [one for way in asked for one in read_manifests((folder / way.gate[1]).read_bytes(), way.gate[1])]
    with EphemeralServer() as server:
        seen = evaluate_by_server(given, schemas.find(), server, "v1")
    assert {(finding.file, f"{finding.gate}/{finding.rule}") for finding in seen.findings} == {
        (way.gate[1], way.rule) for way in asked
    }


@pytest.mark.tools
@pytest.mark.parametrize("file", ["together/notes.yaml", "tested/kyverno-test.yaml", "pair/other.yaml"])
def test_a_file_beside_a_policy_does_not_switch_it_off(
    folder: Path, repository: Path, tmp_path: Path, file: str
) -> None:
    copy = tmp_path / "repository"
    shutil.copytree(repository, copy)
    shutil.copy(folder / file, copy / FOLDER)
    report = tmp_path / "verdict.json"
    assert run_gate([folder / "stray.yaml"], "", "", copy, Reports(report, None, None)) == 1
    assert f'"{POLICY}"' in report.read_text()


@pytest.mark.tools
def test_a_misspelt_policy_beside_another_is_untrusted(folder: Path, repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    shutil.copytree(repository, copy)
    text = (copy / FOLDER / "policy.yaml").read_text()
    other = copy / "policies/other/policy.yaml"
    other.parent.mkdir()
    other.write_text(text.replace(f"name: {POLICY}", "name: other").replace("- expression:", "- expresion:"))
    report = tmp_path / "verdict.json"
    assert run_gate([folder / "stray.yaml"], "", "", copy, Reports(report, None, None)) == 3
    assert "did not evaluate the policy other" in report.read_text()


@pytest.mark.tools
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("broken", "could not judge InferenceService demo/chat"),
        ("open", "tripwire of serving.kserve.io/v1beta1 InferenceService: it answered 'statusValid'"),
    ],
)
def test_a_schema_that_judges_nothing_is_untrusted(folder: Path, tmp_path: Path, schema: str, words: str) -> None:
    (kind,) = (one for one in schemas.find().kinds if one[1] == "InferenceService")
    known = schemas.find()
    copy = tmp_path / "schemas"
    copy.mkdir()
    for path in known.folder.iterdir():
        (copy / path.name).symlink_to(path)
    group = copy / kind[0].partition("/")[0]
    group.unlink()
    shutil.copytree(known.folder / group.name, group)
    shutil.copy(folder / schema / "inferenceservice.json", group / known.kinds[kind].schema.name)
    given = read_manifests((folder / "inferenceservice.yaml").read_bytes(), "inferenceservice.yaml")
    with pytest.raises(UntrustedError, match=words):
        evaluate_schemas(given, schemas.load(copy), tool_cache.find("kubeconform"), tmp_path / "run")


Case = dict[str, Any]


def _without_results(case: Case) -> Case:
    return {key: value for key, value in case.items() if key != "results"}


def _first(**fields: Any) -> Callable[[Case], Case]:
    return lambda case: {**case, "results": [{**case["results"][0], **fields}, *case["results"][1:]]}


def _only_bad(case: Case, name: str) -> Case:
    bad = next(one for one in case["results"] if one["result"] == "fail")
    return {**case, "resources": case["resources"][1:], "results": [{**bad, "resources": [name]}]}


def _but_for_the_tripwire(text: str) -> str:
    """The policy with one validation alone, which refuses the tripwire and nothing else."""
    head, _, _ = text.partition("  validations:\n")
    words = re.search(r"neuroscale.dev/tripwire-message: >-\n\s+(.+)\n", text)
    assert words
    return (
        f"{head}  validations:\n    - expression: \"!object.metadata.name.startsWith('neuroscale-tripwire')\"\n"
        f'      message: "{words[1]}"\n'
    )


# Each: a change of the policy's text, a change of its cases (None: removed), and words of the finding.
PROVES_NOTHING: dict[str, tuple[Callable[[str], str], Callable[[Case], Case] | None, str]] = {
    "no-match": (lambda text: text.replace("resources: [deployments, ", "resources: ["), lambda case: case, "Excluded"),
    "no-name": (str, lambda case: _only_bad(case, "another"), "is not among the test's results"),
    "no-kind": (_but_for_the_tripwire, _first(kind="Deployment"), "is not refused"),
    "no-file": (str, lambda case: {**case, "resources": ["../good.yaml", "../another.yaml"]}, "ends with"),
    "no-results": (str, _without_results, "is not among the test's results"),
    "no-test-case": (str, lambda case: {**case, "results": []}, "is not among the test's results"),
    "no-tests": (str, None, "is missing"),
}


@pytest.mark.tools
@pytest.mark.parametrize("way", PROVES_NOTHING)
def test_a_test_that_proves_nothing_is_a_finding(repository: Path, tmp_path: Path, way: str) -> None:
    change, cases, words = PROVES_NOTHING[way]
    files = {
        path.relative_to(repository).as_posix(): path.read_bytes() for path in (repository / "policies").rglob("*.yaml")
    }
    policy = f"{FOLDER}/policy.yaml"
    files[policy] = change(files[policy].decode()).encode()
    (case,) = (one.value for one in read_documents(files[CASES].decode(), CASES))
    if cases is None:
        del files[CASES]
    else:
        files[CASES] = dump(cases(case)).encode()
    snapshot = MemorySnapshot(files)
    seen = evaluate_policy_tests(
        snapshot,
        load_policy_set(snapshot),
        {POLICY},
        schemas.find(),
        tool_cache.find("kyverno"),
        tmp_path,
        today=date(2026, 11, 21),
    )
    assert words in " / ".join(finding.message for finding in seen.findings)


def test_every_way_of_a_test_that_proves_nothing_is_arranged() -> None:
    ours = f"gate/test_false_green.py::{test_a_test_that_proves_nothing_is_a_finding.__name__}"
    assert {way.name for way in WAYS if way.test == ours} == set(PROVES_NOTHING)
