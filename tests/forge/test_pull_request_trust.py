"""What somebody who may only read cannot do to the gate of other people's pull requests, on the real forge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from forge_server import ForgeServer
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.interface import RepositoryRef
from neuroscale.forge.rest import wait_for_status
from neuroscale.forge.sticky_comment import Run, write_comment
from neuroscale.forge.token import VARIABLE
from neuroscale.local.forge_accounts import GATE
from neuroscale.local.forge_repository import REQUIRED_STATUS
from neuroscale.local.forge_setup import OWNER
from repositories import Repository
from roots import ROOT
from waiting import wait_for

pytestmark = pytest.mark.tools

WITHIN = 90.0


def workflow(name: str, on: Any, script: str, environment: dict[str, str] | None = None) -> str:
    """A workflow of one job of the same name. JSON is YAML."""
    step = {"shell": "bash", "env": environment or {}, "run": script}
    job = {"name": name, "runs-on": "ubuntu-latest", "steps": [step]}
    return json.dumps({"name": name, "on": on, "jobs": {name: job}})


def push(server: ForgeServer, clone: Repository, repository: RepositoryRef, branch: str, who: str) -> str:
    """Push what is checked out to a new branch; returns the commit."""
    token = {"developer": server.developer, "owner": server.owner}[who]
    commit = clone.run("rev-parse", "HEAD")
    Branches(clone.git, Access(repository.clone_url, token)).push(repository, branch, commit, None)
    return commit


def runs(server: ForgeServer, repository: RepositoryRef) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.api("GET", f"/repos/{repository.slug}/actions/runs")[1]["workflow_runs"]
    return found


def test_a_status_against_another_branch_never_stands_for_one_against_main(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    """A status belongs to a commit, and nothing is wrong with a change against a branch that holds the same already."""
    # Parsed as strings: YAML 1.1 reads the key `on` as a truth value.
    gate = yaml.load((ROOT / ".github/workflows/gate.yaml").read_text(), yaml.BaseLoader)
    clone = Repository(tmp_path / "clone")
    base = {"BASE": "${{ github.event.pull_request.base.ref }}"}
    clone.commit({".github/workflows/gate.yaml": workflow("gate", gate["on"], 'test "$BASE" != main', base)})
    repository = forge_server.create_repository(clone.root)
    developer = forge_server.forge(repository, forge_server.developer)
    fork = developer.fork().ref
    clone.commit({"bad.txt": "bad"})
    push(forge_server, clone, repository, "other", "owner")
    clone.commit({"good.txt": "good"})
    commit = push(forge_server, clone, fork, "topic", "developer")
    pull = developer.open_pull("Topic", "", fork, "topic", "main")
    assert wait_for_status(developer, commit, REQUIRED_STATUS, WITHIN).state == "failure"
    developer.open_pull("Topic", "", fork, "topic", "other")
    # Events are worked on in order: when this one has its run, the one before would have had its own.
    developer.update_pull(pull.number, "Topic again", "")

    def second_run_is_over() -> bool:
        found = runs(forge_server, repository)
        return len(found) > 1 and all(run["status"] == "completed" for run in found)

    wait_for(second_run_is_over, WITHIN, "the end of a second run")
    # A run ends a moment before the forge writes its status.
    assert wait_for_status(developer, commit, REQUIRED_STATUS, WITHIN).state == "failure"
    assert {run["path"] for run in runs(forge_server, repository)} == {f"gate.yaml@refs/pull/{pull.number}/head"}
    assert {status.state for status in developer.statuses(commit)} == {"failure"}


def test_workflows_of_a_fork_get_no_runner(forge_server: ForgeServer, tmp_path: Path) -> None:
    """They would run on the machine and as the user of the gate's jobs, and could make those green."""
    clone = Repository(tmp_path / "clone")
    clone.commit({".github/workflows/look.yaml": workflow("look", "push", "exit 0")})
    first = forge_server.create_repository(clone.root)
    fork = forge_server.forge(first, forge_server.developer).fork().ref
    path = f"/repos/{fork.slug}"
    assert forge_server.api("PATCH", path, forge_server.developer, {"has_actions": True})[1]["has_actions"]
    push(forge_server, clone, fork, "topic", "developer")
    wait_for(lambda: runs(forge_server, fork), WITHIN, "the fork's run")
    commit = clone.commit({"later.txt": ""})
    push(forge_server, clone, first, "topic", "owner")
    owner = forge_server.forge(first, forge_server.owner)
    assert wait_for_status(owner, commit, "look / look (push)", WITHIN).state == "success"
    assert {run["status"] for run in runs(forge_server, fork)} == {"queued"}


def test_the_gates_comment_has_an_account_of_its_own_that_no_other_workflow_writes_as(
    forge_server: ForgeServer, tmp_path: Path
) -> None:
    """All tokens that the forge gives to jobs are one account's, in whosever repository and on whosever runner."""
    account = forge_server.local.account(GATE)
    assert VARIABLE in [secret["name"] for secret in forge_server.api("GET", f"/orgs/{OWNER}/actions/secrets")[1]]
    clone = Repository(tmp_path / "clone")
    script = """\
        test -n "$TOKEN" -a "$TOKEN" != "$BUILT_IN"
        ask() { curl -sSf -H "Authorization: token $TOKEN" "$GITHUB_API_URL/$1"; }
        ask user | grep -qF neuroscale-gate
        if ask "repos/$GITHUB_REPOSITORY/branch_protections/main"; then exit 1; fi
    """
    tokens = {"TOKEN": f"${{{{ secrets.{VARIABLE} }}}}", "BUILT_IN": "${{ github.token }}"}
    commit = clone.commit({".github/workflows/look.yaml": workflow("look", "push", script, tokens)})
    repository = forge_server.create_repository(clone.root)
    owner = forge_server.forge(repository, forge_server.owner)
    assert wait_for_status(owner, commit, "look / look (push)", WITHIN).state == "success"
    gate = forge_server.forge(repository, account.token())
    assert (gate.account().login, gate.info().may_push) == (account.login, False)
    clone.commit({"change.txt": ""})
    head = push(forge_server, clone, repository, "topic", "owner")
    pull = owner.open_pull("Topic", "", repository, "topic", "main")
    assert write_comment(gate, pull.number, "## Green", Run(1, 1, head)) == "created"
    assert [comment.author for comment in owner.comments(pull.number)] == [account.login]
