"""The workflows: what they may do, what they run, and that nothing of a change can steer them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale import tools
from neuroscale.repository import GATE_CODE, PROTECTED

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
ACTIONS = sorted((ROOT / ".github/actions").glob("*/action.yaml"))
GATE = ROOT / ".github/workflows/gate.yaml"


def read(path: Path) -> dict[Any, Any]:
    value = yaml.safe_load(path.read_text())
    assert isinstance(value, dict)
    return value


def steps(path: Path) -> list[dict[str, Any]]:
    content = read(path)
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


@pytest.mark.tools
def test_the_linter_of_workflows_finds_nothing() -> None:
    command = [str(tools.find("actionlint")), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_uses_no_remote_action(path: Path) -> None:
    assert [step["uses"] for step in steps(path) if not step.get("uses", "./").startswith("./")] == []


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_remote_actions_are_pinned_and_reached_on_github_only(path: Path) -> None:
    for step in steps(path):
        uses = step.get("uses", "")
        if uses and not uses.startswith("./"):
            assert path.parent.name.startswith("github-")
            assert re.fullmatch(r"actions/[a-z-]+(/[a-z-]+)?@[0-9a-f]{40}", uses)
        if uses.startswith("./.github/actions/github-"):
            assert step["if"] == "${{ github.server_url == 'https://github.com' }}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_only_what_it_needs_and_an_end(path: Path) -> None:
    content = read(path)
    assert content["permissions"] == {}
    assert content["concurrency"]["group"]
    for job in content["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert set(job["permissions"].values()) <= {"read"} or path == GATE
        assert "secrets" not in job.get("env", {})


def test_the_required_check_never_skips_and_does_one_job() -> None:
    """A skipped check counts as passed: neither the workflow nor its job may have a way around its run."""
    content = read(GATE)
    triggers = content[True]  # YAML 1.1 reads `on` as true
    types = ["opened", "reopened", "synchronize", "edited"]
    assert triggers == {"pull_request_target": {"branches": ["main"], "types": types}}
    assert list(content["jobs"]) == ["gate"]
    job = content["jobs"]["gate"]
    assert (content["name"], job["name"]) == ("gate", "gate")
    assert not {"if", "continue-on-error", "strategy", "needs", "uses"} & set(job)
    assert job["permissions"] == {"contents": "read", "pull-requests": "write"}
    for step in job["steps"]:
        assert "continue-on-error" not in step
    judge = next(step for step in job["steps"] if "neuroscale gate" in step.get("run", ""))
    assert "if" not in judge
    assert {"--only-read-head", "--server"} <= set(judge["run"].split())
    assert "||" not in judge["run"]


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_value_of_an_event_is_pasted_into_a_script(path: Path) -> None:
    for step in steps(path):
        assert "${{" not in step.get("run", "")


def test_the_head_is_fetched_and_never_checked_out() -> None:
    scripts = "\n".join(step.get("run", "") for step in steps(GATE))
    assert re.findall(r"git checkout .*", scripts) == ["git checkout --quiet --detach refs/gate/base"]
    assert re.findall(r"refs/gate/head\b.*", scripts)


def test_what_the_required_check_runs_is_gate_code() -> None:
    """A pull request that changes it is judged by the base's version and merged by an owner only."""
    used = {".github/workflows/gate.yaml", "scripts/setup.py", "src/neuroscale/cli.py", "requirements/runtime.txt"}
    used |= {path.relative_to(ROOT).as_posix() for path in ACTIONS}
    assert all(any(path.startswith(code) for code in GATE_CODE) for path in used)


OWNERS = "@example/platform-owners"


def test_on_github_what_judges_needs_its_owners_approval() -> None:
    rows = [
        line.split() for line in (ROOT / ".github/CODEOWNERS").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    owned = {path.removeprefix("/") for path, owner in rows if owner == OWNERS}
    assert set(PROTECTED) <= owned
    assert rows[0][0] == "*"  # the last match counts, so the rest must follow


def rules_of_github() -> dict[str, dict[str, Any]]:
    ruleset = json.loads((ROOT / "platform/forge/github-ruleset.json").read_text())
    return {rule["type"]: rule.get("parameters", {}) for rule in ruleset["rules"]}


def test_the_ruleset_asks_for_the_gates_own_check_on_an_up_to_date_branch() -> None:
    rules = rules_of_github()
    checks = rules["required_status_checks"]
    assert checks["strict_required_status_checks_policy"] is True
    (check,) = checks["required_status_checks"]
    assert check["context"] == read(GATE)["jobs"]["gate"]["name"]
    assert rules["pull_request"]["require_code_owner_review"] is True
    assert {"deletion", "non_fast_forward"} <= set(rules)


def test_the_ruleset_has_the_fields_of_githubs_published_api_description() -> None:
    described = (ROOT / "tests/node/node_modules/@octokit/openapi-types/types.d.ts").read_text()
    for name, parameters in rules_of_github().items():
        schema = re.search(
            rf'^    "repository-rule-{name.replace("_", "-")}": \{{$.*?^    \}};$', described, re.M | re.S
        )
        assert schema, name
        assert set(re.findall(r"^        (\w+)\??:", schema[0], re.M)) == set(parameters)
