"""The workflows: what they may do, what they run, and that nothing of a change can steer them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale.repo.layout import GATE_CODE, OWNED_FACTS, PROTECTED, WRITTEN, is_written
from roots import CHECKOUT, ROOT

WORKFLOWS = sorted((CHECKOUT / ".github/workflows").glob("*.yaml"))
ACTIONS = sorted((CHECKOUT / ".github/actions").glob("*/action.yaml"))
GATE = CHECKOUT / ".github/workflows/gate.yaml"
MAY_WRITE = {"locks": {"issues"}, "reconcile": {"issues"}, "release": {"contents", "attestations", "id-token"}}


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
def test_the_linters_of_workflows_find_nothing_here_and_a_planted_mistake(tmp_path: Path) -> None:
    """By `make lint`'s command, in a copy too whose gate lets the change's own text become a script."""
    shutil.copytree(CHECKOUT / ".github", tmp_path / ".github")
    (tmp_path / "scripts").mkdir()
    shutil.copyfile(CHECKOUT / "scripts/lint-workflows", tmp_path / "scripts/lint-workflows")
    assert lint_workflows(CHECKOUT)[0] == 0, lint_workflows(CHECKOUT)[1]
    assert lint_workflows(tmp_path)[0] == 0
    file = tmp_path / ".github/workflows/gate.yaml"
    good = file.read_text()
    file.write_text(good + "      - run: echo ${{ github.event.pull_request.title }}\n")
    status, said = lint_workflows(tmp_path)
    assert status == 1
    assert "template-injection" in said
    file.write_text(good.replace("runs-on", "runs-in", 1))
    status, said = lint_workflows(tmp_path)
    assert status == 1
    assert "runs-in" in said


def lint_workflows(folder: Path) -> tuple[int, str]:
    command = [sys.executable, "scripts/lint-workflows"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


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
        assert job["timeout-minutes"] <= (300 if path.stem in ("nightly", "release") else 60)
        writes = {name for name, right in job["permissions"].items() if right != "read"}
        assert writes <= MAY_WRITE.get(path.stem, set()) or path == GATE
        assert "secrets" not in job.get("env", {})


def test_what_may_write_a_release_runs_nothing_of_the_repository() -> None:
    """A tool is built from other people's modules: none of them has a token with that right."""
    jobs = read(CHECKOUT / ".github/workflows/release.yaml")["jobs"]
    assert jobs["build"]["permissions"] == {"contents": "read"}
    (step,) = jobs["publish"]["steps"]
    assert not re.search(r"scripts/|\.venv|make|python|checkout", step["run"])
    rights = {
        name: {right for right, kind in job["permissions"].items() if kind == "write"} for name, job in jobs.items()
    }
    assert rights == {"build": set(), "attest": {"attestations", "id-token"}, "list": set(), "publish": {"contents"}}
    fetch, sign = jobs["attest"]["steps"]
    assert re.findall(r"git checkout .*", fetch["run"]) == [
        "git checkout --quiet FETCH_HEAD -- .github/actions/github-attest"
    ]
    assert not re.search(r"scripts/|\.venv|make|python", fetch["run"])
    assert sign["uses"] == "./.github/actions/github-attest"
    assert jobs["publish"]["needs"] == ["build", "attest", "list"]
    built = "\n".join(step.get("run", "") for step in jobs["build"]["steps"])
    assert {"--pinned-go", "--bundle", "--licences", "--keep-build-cache"} <= set(built.split())


def test_the_publishers_key_is_in_reach_of_the_script_that_signs_alone() -> None:
    """Whoever has the key releases the next judge of every repository that pins this publisher."""
    jobs = read(CHECKOUT / ".github/workflows/release.yaml")["jobs"]
    with_key = [
        (name, step["run"])
        for name, job in jobs.items()
        for step in job["steps"]
        if "PUBLISHER_KEY" in json.dumps(step.get("env", {}))
    ]
    ((name, run),) = with_key
    assert (name, jobs[name]["environment"]) == ("list", "publisher")
    assert set(jobs[name]["permissions"].values()) == {"read"}
    assert re.findall(r"\.venv/bin/python .*?\.py", run) == [".venv/bin/python -I scripts/release_list.py"]
    fetched = re.findall(r"git checkout --quiet FETCH_HEAD -- \\\n(.*)", jobs[name]["steps"][0]["run"])
    assert [[path for path in line.split() if path.startswith(("scripts/", "src/"))] for line in fetched] == [
        ["scripts/release_list.py"]
    ]
    assert "NEUROSCALE_PUBLISHER_KEY" not in re.sub(r'\[ -z "\$NEUROSCALE_PUBLISHER_KEY" \]', "", run)


def test_what_builds_packages_of_others_has_no_token_that_writes() -> None:
    """`lock.py` may run the build of any package; the job with the token takes its files alone."""
    jobs = read(CHECKOUT / ".github/workflows/locks.yaml")["jobs"]
    for name, job in jobs.items():
        builds = any("lock.py" in step.get("run", "") for step in job["steps"])
        writes = "write" in job["permissions"].values()
        assert (builds, writes) == {"renew": (True, False), "issue": (False, True)}[name]
    uses = [step["uses"] for step in jobs["issue"]["steps"] if "uses" in step]
    assert uses == ["./.github/actions/setup"]


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
    used = {".github/workflows/gate.yaml", "scripts/setup.py", "src/neuroscale/cli/app.py", "requirements/runtime.txt"}
    used |= {path.relative_to(CHECKOUT).as_posix() for path in ACTIONS}
    assert all(any(path.startswith(code) for code in GATE_CODE) for path in used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_step_runs_an_environment_that_set_up_has_refused(path: Path) -> None:
    """Beside its condition, a step with one runs also after set-up has failed, and some hold a token."""
    for step in steps(path):
        runs = ".venv/" in step.get("run", "") or step.get("uses", "").endswith("/keep-reports")
        if runs and "if" in step:
            assert "steps.setup.outcome == 'success'" in step["if"], step["name"]
            (setup,) = (one for one in steps(path) if one.get("id") == "setup")
            assert setup["uses"] == "./.github/actions/setup"


def script(path: Path, name: str) -> str:
    (found,) = (step["run"] for step in steps(path) if step.get("name") == name)
    return str(found)


def run_step(path: Path, name: str, folder: Path, environment: dict[str, str]) -> None:
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script(path, name)]
    subprocess.run(shell, cwd=folder, env={"PATH": os.environ["PATH"], **environment}, check=True, timeout=60)


def test_the_kubeconfig_lies_outside_the_checkout_and_its_reports_and_is_removed(tmp_path: Path) -> None:
    checkout, temporary, told = tmp_path / "checkout", tmp_path / "tmp", tmp_path / "environment"
    for folder in (checkout / ".state/smoke", temporary):
        folder.mkdir(parents=True)
    (checkout / ".state/smoke-credential").symlink_to("smoke")  # what somebody committed
    smoke = CHECKOUT / ".github/workflows/smoke.yaml"
    given = {"TMPDIR": str(temporary), "GITHUB_ENV": str(told), "KUBECONFIG_TEXT": "secret"}
    run_step(smoke, "Take the way into the cluster", checkout, given)
    name, _, credential = told.read_text().strip().partition("=")
    (kubeconfig,) = Path(credential).iterdir()
    assert (name, kubeconfig.name, kubeconfig.read_text()) == ("CREDENTIAL", "kubeconfig", "secret\n")
    assert (kubeconfig.stat().st_mode & 0o777, kubeconfig.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert kubeconfig.is_relative_to(temporary)
    assert list((checkout / ".state/smoke").iterdir()) == []
    run_step(smoke, "Give the way into the cluster back", checkout, {"CREDENTIAL": credential})
    assert list(temporary.iterdir()) == []
    run_step(smoke, "Give the way into the cluster back", checkout, {})  # where it was never taken


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_workflow_writes_into_the_checkout_is_where_nothing_is_tracked(path: Path) -> None:
    """As far as it can be read: folders that are made, targets of redirections and reports, folders that are kept."""
    content = read(path)
    places = {step["with"]["folder"] for step in steps(path) if "folder" in step.get("with", {})}
    places |= {job["env"].get("REPORTS", "") for job in content.get("jobs", {}).values() if "env" in job}
    for step in steps(path):
        written = r"(?:mkdir -p|>>?|--json|--junit|--markdown) +\"?([^\s\"\\&;>]+)"
        places |= {place for place in re.findall(written, step.get("run", "")) if not place.startswith("-")}
    if path.stem in ("gate", "smoke"):
        assert {f".state/{path.stem}"} <= places
    elsewhere = ("", "$GITHUB_ENV", "$credential/kubeconfig", "${{ inputs.folder }}")
    for place in places - set(elsewhere):
        assert place.startswith("$REPORTS/") or is_written(place.split("/")[0]), place


OWNERS = "@example/platform-owners"


def test_on_github_what_judges_needs_its_owners_approval() -> None:
    rows = [
        line.split() for line in (ROOT / ".github/CODEOWNERS").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    owned = {path for path, owner in rows if owner == OWNERS}
    assert {f"/{path}" for path in PROTECTED} <= owned
    # Facts that change every week have owners of their own, whom the last matching row names.
    facts = {path: owner for path, owner in rows if path.removeprefix("/") in OWNED_FACTS}
    assert set(facts) == {f"/{path}" for path in OWNED_FACTS}
    assert OWNERS not in facts.values()
    assert min(map([path for path, _ in rows].index, facts)) > [path for path, _ in rows].index("/platform/")
    assert set(WRITTEN) <= owned  # without a slash: in every folder, and a file or a link as well
    assert rows[0][0] == "*"  # the last match counts, so the rest must follow


def rules_of_github() -> dict[str, dict[str, Any]]:
    ruleset = json.loads((CHECKOUT / "platform/forge/github-ruleset.json").read_text())
    return {rule["type"]: rule.get("parameters", {}) for rule in ruleset["rules"]}


def test_the_ruleset_asks_for_the_gates_own_check_on_an_up_to_date_branch() -> None:
    rules = rules_of_github()
    checks = rules["required_status_checks"]
    assert checks["strict_required_status_checks_policy"] is True
    (check,) = checks["required_status_checks"]
    assert check["context"] == read(GATE)["jobs"]["gate"]["name"]
    assert rules["pull_request"]["require_code_owner_review"] is True
    # A merge by rebasing would bring commits that the gate never judged by themselves.
    assert rules["pull_request"]["allowed_merge_methods"] == ["merge", "squash"]
    assert {"deletion", "non_fast_forward"} <= set(rules)


def test_the_ruleset_has_the_fields_of_githubs_published_api_description() -> None:
    described = (CHECKOUT / "tests/node/node_modules/@octokit/openapi-types/types.d.ts").read_text()
    for name, parameters in rules_of_github().items():
        schema = re.search(
            rf'^    "repository-rule-{name.replace("_", "-")}": \{{$.*?^    \}};$', described, re.M | re.S
        )
        assert schema, name
        # GitHub's newer description has one more; the packages of the tests have an older one.
        newer = {"allowed_merge_methods"} if name == "pull_request" else set()
        assert set(re.findall(r"^        (\w+)\??:", schema[0], re.M)) | newer == set(parameters)
