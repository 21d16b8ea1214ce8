"""The workflow after a merge, by a real forge and its runner, and a revert's way through the gate."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
import yaml

from after_merge_lab import Seen, check
from cluster_lab import run
from forge_server import ForgeServer
from neuroscale.cli.new import new_service
from neuroscale.cli.replan import replan_service
from neuroscale.forge.interface import PullRequest
from neuroscale.forge.rest import wait_for_status
from neuroscale.forge.revert import PREFIX
from neuroscale.local.forge_accounts import REVERT
from neuroscale.local.forge_setup import ENVIRONMENTS_VARIABLE, KUBECONFIG_SECRET, REVERT_SECRET
from platform_repository import edit
from pull_request_lab import ANSWERS, WITHIN, Project, cloned, committed_repository
from repositories import Repository
from roots import ROOT
from workspace_watch import watched

WORKFLOW = ROOT / ".github/workflows/smoke.yaml"
STATUS = "smoke / smoke (push)"
FOLDER = "manifests/dev/support-chat"
HIDDEN = "this-must-never-be-shown"
# A way into no cluster: what needs one fails at once.
NOWHERE = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [],
        "contexts": [],
        "users": [{"name": "nobody", "user": {"token": HIDDEN}}],
    }
)


def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]["smoke"]
    return found


def test_only_main_runs_it_and_no_newer_run_ends_one() -> None:
    content = yaml.safe_load(WORKFLOW.read_text())
    triggers = content[True]  # YAML 1.1 reads `on` as true
    assert set(triggers) == {"push", "schedule", "workflow_dispatch"}
    assert triggers["push"] == {"branches": ["main"], "paths": ["manifests/**"]}
    assert content["concurrency"] == {"group": "smoke", "cancel-in-progress": False}
    assert "github.ref == 'refs/heads/main'" in job()["if"]
    assert job()["permissions"] == {"contents": "read"}
    assert job()["environment"] == "smoke"


@pytest.mark.parametrize("count", [1, 2, 6])
def test_the_tests_end_themselves_and_write_their_report_before_they_are_ended(tmp_path: Path, count: int) -> None:
    (line,) = (step["run"] for step in job()["steps"] if step["name"] == "Test it")
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "timeout").write_text('#!/bin/sh\necho "$1 ${12}" >> calls\n')  # of the tests, the time that they get
    (tools / "timeout").chmod(0o755)
    served = [f"e{place}" for place in range(count)]
    variables = {"COUNT": str(count), "SERVED": " ".join(served), "CREDENTIAL": "c", "REPORTS": "r", "TOKEN": "t"}
    environment = {"PATH": os.environ["PATH"], "GITHUB_SERVER_URL": "https://forge", **variables}
    subprocess.run(["bash", "-e", "-c", line], cwd=tmp_path, env=environment, check=True, timeout=60)
    calls = [[int(word) for word in call.split()] for call in (tmp_path / "calls").read_text().splitlines()]
    assert len(calls) == count
    for outer, inner in calls:
        assert inner + 60 <= outer <= 1500
        # Both runs of a service that hangs: tries that fail take twice the patience in each, and a minute lies between.
        assert inner >= 2 * 2 * 60 + 60 + 100


def test_each_secret_reaches_one_step_and_the_forges_own_token_never_stands_in_for_one() -> None:
    steps = {step["name"]: json.dumps(step) for step in job()["steps"]}
    for secret in (KUBECONFIG_SECRET, REVERT_SECRET):
        assert sum(f"secrets.{secret}" in text for text in steps.values()) == 1
    (telling,) = (text for text in steps.values() if "after-merge" in text)
    assert "${{ secrets.NEUROSCALE_REVERT_TOKEN }}" in telling
    assert "github.token" not in telling
    # The step that holds a token that can push has no way into the cluster any more.
    names = list(steps)
    assert names.index("Give the way into the cluster back") < next(
        index for index, name in enumerate(names) if "after-merge" in steps[name]
    )
    assert f"vars.{ENVIRONMENTS_VARIABLE}" in job()["if"]


@pytest.fixture
def project(forge_server: ForgeServer, tmp_path: Path) -> Iterator[Project]:
    found = cloned(forge_server, committed_repository(tmp_path), tmp_path / "clone")
    forge_server.local.allow_smoke_tests(found.repository, NOWHERE, ("dev",))
    yield found
    found.clone.git.close()


def smoke_log(project: Project) -> str:
    """What the newest job of the workflow printed."""
    path = f"/repos/{project.repository.slug}/actions"
    jobs = [one for one in project.server.api("GET", f"{path}/jobs")[1]["jobs"] if one["name"] == "smoke"]
    newest = max(jobs, key=lambda one: int(one["id"]))
    answer = httpx.get(
        f"{project.server.url}/api/v1{path}/jobs/{newest['id']}/logs",
        headers={"Authorization": f"Bearer {project.server.admin.secret}"},
        trust_env=False,
        timeout=60,
    )
    return answer.text


def after_merge(project: Project, folder: Path, seen: Seen) -> tuple[int, str]:
    """What the workflow's step does, after tests that ended so."""
    seen.write(folder, project.main())
    environment = {
        "GITHUB_SERVER_URL": project.server.url,
        "GITHUB_REPOSITORY": project.repository.slug,
        "GITHUB_RUN_ID": "1",
        "GITHUB_RUN_NUMBER": "1",
        "GITHUB_RUN_ATTEMPT": "1",
        "NEUROSCALE_FORGE_TOKEN": project.server.local.account(REVERT).token().secret,
    }
    with mock.patch.dict(os.environ, environment):
        said = run("after-merge", folder, "--environment", seen.environment, "--repository", project.clone.root)
    return said.status, said.out + said.err


def the_revert(project: Project) -> PullRequest:
    """The one that is open."""
    client = project.server.client(project.server.admin)
    listed = client.pages(f"/repos/{project.repository.slug}/pulls", {"state": "open"})
    (number,) = (one["number"] for one in listed if one["head"]["ref"].startswith(PREFIX))
    revert = project.owner.pull(number)
    assert revert.author == "neuroscale-revert"
    return revert


def merge(project: Project, pull: PullRequest) -> str:
    """Merge what the gate passes; main afterwards."""
    assert project.status(pull) == "success"
    project.owner.approve(pull.number, pull.head_sha)
    project.owner.merge(pull.number, pull.head_sha)
    return project.main()


@pytest.mark.tools
@pytest.mark.slow
def test_a_merge_is_tested_and_what_fails_goes_back_through_the_gate(project: Project, tmp_path: Path) -> None:
    before = project.main()
    request = project.request()
    with watched(project.server.local.state) as written:
        merged = merge(project, request)
        # No cluster can be reached: red, and nothing is taken back for it.
        assert wait_for_status(project.owner, merged, STATUS, WITHIN).state == "failure"
    assert written.beside(project.files(merged)) == set()
    assert {".state", ".venv"} <= written.allowed
    log = smoke_log(project)
    assert "left no report that can be read" in log
    assert HIDDEN not in log

    failing = Seen([check("support-chat", "chat", "failed", "answers 500", "look at its log")])
    project.clone.run("switch", "--quiet", "--force-create", "main", "origin/main")
    status, text = after_merge(project, tmp_path / "run", failing)
    assert status == 1, text
    after = merge(project, the_revert(project))
    assert project.clone.run("rev-parse", f"{after}^{{tree}}") == project.clone.run("rev-parse", f"{before}^{{tree}}")

    # Nothing is served any more, and the workflow says so.
    assert wait_for_status(project.owner, after, STATUS, WITHIN).state == "success"
    assert "nothing was tested" in smoke_log(project)


@pytest.mark.tools
@pytest.mark.slow
def test_what_fails_goes_back_through_the_gate_also_to_a_plan_from_before_the_prices_changed(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    source = Repository(committed_repository(tmp_path))
    new_service(ANSWERS, source.root, interactive=False)
    planned = source.commit({}, "Add support-chat")
    edit(source.root, "platform/catalog/prices/google-cloud.yaml", '"0.72"', '"0.82"')
    source.commit({}, "Raise a price")
    source.git.close()
    project = cloned(forge_server, source.root, tmp_path / "clone")
    try:
        forge_server.local.allow_smoke_tests(project.repository, NOWHERE, ("dev",))
        edit(project.clone.root, f"{FOLDER}/request.yaml", "concurrent_users: 4", "concurrent_users: 6")
        replan_service(FOLDER, project.clone.root)
        merge(project, project.open("six", {}))

        project.clone.run("switch", "--quiet", "--force-create", "main", "origin/main")
        failing = Seen([check("support-chat", "chat", "failed", "answers 500", "look at its log")])
        status, text = after_merge(project, tmp_path / "run", failing)
        assert status == 1, text
        revert = the_revert(project)
        after = merge(project, revert)
        (comment,) = project.comments(revert)
        assert f"commit {planned[:12]}" in comment
        tree = project.clone.git.tree
        assert tree(after, FOLDER) == tree(planned, FOLDER) != ""
    finally:
        project.clone.git.close()
