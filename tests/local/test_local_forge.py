"""The local forge as it is seeded: accounts, tokens, and a main branch that lets only reviewed green changes in."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from forge_server import ForgeServer
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.interface import ForgeError, MergeRefusedError, RepositoryRef, Token
from neuroscale.forge.main_protection import problems
from neuroscale.local.forge_repository import REQUIRED_STATUS
from repositories import Repository
from waiting import wait_for

pytestmark = pytest.mark.tools


@dataclass
class Change:
    """A repository on the forge, a clone of it, and how a developer and an owner work on it."""

    server: ForgeServer
    repository: RepositoryRef
    clone: Repository

    def push(
        self, branch: str, commit: str, token: Token, seen: str | None = None, to: RepositoryRef | None = None
    ) -> None:
        repository = to or self.repository
        Branches(self.clone.git, Access(repository.clone_url, token)).push(repository, branch, commit, seen)

    def open(self, files: dict[str, bytes | str | None]) -> tuple[int, str]:
        """A developer's pull request with these files, from a branch of their fork; its number and head."""
        branch = f"change-{secrets.token_hex(3)}"
        self.clone.run("switch", "--quiet", "--create", branch, "main")
        head = self.clone.commit(files)
        forge = self.server.forge(self.repository, self.server.developer)
        fork = forge.fork().ref
        self.push(branch, head, self.server.developer, to=fork)
        return forge.open_pull("A change", "", fork, branch, "main").number, head

    def judge(self, head: str, state: str = "success") -> None:
        """Set the required status, in place of the gate's workflow."""
        body = {"context": REQUIRED_STATUS, "state": state}
        status, _ = self.server.api("POST", f"/repos/{self.repository.slug}/statuses/{head}", body=body)
        assert status == 201

    def approve(self, number: int, head: str) -> None:
        self.server.forge(self.repository, self.server.owner).approve(number, head)

    def merge(self, number: int, head: str) -> None:
        self.server.forge(self.repository, self.server.owner).merge(number, head)

    def refusal(self, number: int, head: str) -> str:
        with pytest.raises(MergeRefusedError) as refused:
            self.merge(number, head)
        return str(refused.value)


@pytest.fixture
def change(forge_server: ForgeServer, tmp_path: Path) -> Change:
    clone = Repository(tmp_path / "clone")
    clone.commit({"README.md": "one\n", "policies/a/policy.yaml": "kind: Policy\n", "Makefile": "all:\n"})
    return Change(forge_server, forge_server.create_repository(clone.root), clone)


def test_each_account_has_a_token_and_the_developer_may_only_read(forge_server: ForgeServer) -> None:
    repository = forge_server.create_repository()
    logins = [
        forge_server.forge(repository, token).account().login
        for token in (forge_server.admin, forge_server.developer, forge_server.owner)
    ]
    assert logins == ["forge-admin", "developer", "owner"]
    assert forge_server.forge(repository, forge_server.owner).info().may_push
    assert not forge_server.forge(repository, forge_server.developer).info().may_push


def test_an_approved_green_change_is_merged_by_an_owner(change: Change) -> None:
    number, head = change.open({"README.md": "two\n"})
    change.judge(head)
    change.approve(number, head)
    change.merge(number, head)
    assert change.server.forge(change.repository, change.server.owner).pull(number).state == "merged"


@pytest.mark.parametrize("who", ["admin", "developer", "owner"])
def test_nobody_pushes_to_main(change: Change, who: str) -> None:
    seen = change.clone.run("rev-parse", "main")
    commit = change.clone.commit({"README.md": "pushed\n"})
    with pytest.raises(ForgeError):
        change.push("main", commit, getattr(change.server, who), seen)
    status, _ = change.server.api(
        "POST",
        f"/repos/{change.repository.slug}/contents/new.txt",
        getattr(change.server, who),
        {"content": "", "message": "directly", "branch": "main"},
    )
    assert status in (403, 422)
    assert change.server.forge(change.repository, change.server.owner).branch(change.repository, "main") == seen


def test_without_the_gates_status_or_with_a_red_one_nothing_is_merged(change: Change) -> None:
    number, head = change.open({"README.md": "two\n"})
    change.approve(number, head)
    assert "status checks" in change.refusal(number, head)
    for state in ("pending", "failure", "error", "warning"):
        change.judge(head, state)
        assert "status checks" in change.refusal(number, head), state


def test_a_status_of_another_name_does_not_count(change: Change) -> None:
    number, head = change.open({"README.md": "two\n"})
    change.approve(number, head)
    for context in ("gate", "gate / gate (pull_request)", "gate / gate (push)"):
        body = {"context": context, "state": "success"}
        assert change.server.api("POST", f"/repos/{change.repository.slug}/statuses/{head}", body=body)[0] == 201
    assert "status checks" in change.refusal(number, head)


def test_without_an_owners_approval_nothing_is_merged(change: Change) -> None:
    number, head = change.open({"README.md": "two\n"})
    change.judge(head)
    assert "approvals" in change.refusal(number, head)
    # Somebody else's approval is no official one.
    body = {"event": "APPROVED", "commit_id": head}
    change.server.api("POST", f"/repos/{change.repository.slug}/pulls/{number}/reviews", body=body)
    assert "approvals" in change.refusal(number, head)


def test_a_new_commit_takes_the_approval_away(change: Change) -> None:
    number, head = change.open({"README.md": "two\n"})
    change.approve(number, head)
    branch = change.clone.run("branch", "--show-current")
    later = change.clone.commit({"README.md": "three\n"})
    forge = change.server.forge(change.repository, change.server.developer)
    change.push(branch, later, change.server.developer, head, forge.fork().ref)
    wait_for(lambda: forge.pull(number).head_sha == later)
    reviews = f"/repos/{change.repository.slug}/pulls/{number}/reviews"
    # The forge does it shortly after the push; until then the new commit has no green status either.
    wait_for(lambda: all(review["dismissed"] or review["stale"] for review in change.server.api("GET", reviews)[1]))
    change.judge(later)
    assert "approvals" in change.refusal(number, later)


def test_a_branch_that_is_behind_main_is_not_merged(change: Change) -> None:
    behind, behind_head = change.open({"other.txt": "1\n"})
    first, first_head = change.open({"README.md": "two\n"})
    for number, head in ((behind, behind_head), (first, first_head)):
        change.judge(head)
        change.approve(number, head)
    change.merge(first, first_head)
    assert "behind" in change.refusal(behind, behind_head)


PROTECTED_CHANGES: dict[str, dict[str, bytes | str | None]] = {
    "changed": {"policies/a/policy.yaml": "kind: Other\n"},
    "removed": {"policies/a/policy.yaml": None},
    "renamed away": {"policies/a/policy.yaml": None, "kept/policy.yaml": "kind: Policy\n"},
    "exception": {"policies/exceptions/new.yaml": "kind: PolicyException\n"},
    "umlaut": {"policies/ümlaut.yaml": "kind: Policy\n"},
    "quotation mark": {'policies/quoted".yaml': "kind: Policy\n"},
    "workflow": {".github/workflows/other.yaml": "on: push\n"},
    "capitals": {"SRC/x.py": ""},
    "environment": {".venv/bin/python": "#!/bin/sh\n"},
    "link's place": {".state": "x"},
    "compiled": {"docs/a.b/__pycache__/x.pyc": ""},
    "metadata": {"docs/x.egg-info/entry_points.txt": ""},
    "template": {"templates/llm-inference-service/skeleton/networkpolicy.yaml": "spec: {}\n"},
    "settings": {"platform/settings.yaml": "schema_version: 1\n"},
    "runtime": {"platform/catalog/runtimes/neuroscale-vllm.yaml": "args: []\n"},
    "single file": {"Makefile": "other:\n"},
}


def test_a_protected_file_is_changed_only_by_an_administrators_hand(change: Change) -> None:
    number = 0
    for name, files in PROTECTED_CHANGES.items():
        number, head = change.open(files)
        change.judge(head)
        change.approve(number, head)
        assert "protected files" in change.refusal(number, head), name
    path = f"/repos/{change.repository.slug}/pulls/{number}/merge"
    body = {"do": "squash", "head_commit_id": head, "force_merge": True}
    assert change.server.api("POST", path, change.server.owner, body)[0] == 405
    assert change.server.api("POST", path, change.server.admin, body)[0] == 200


def test_a_tree_that_git_reads_in_one_way_and_checks_out_in_another_is_not_accepted(change: Change) -> None:
    first, second = (change.clone.run("rev-parse", f"HEAD:{path}") for path in ("README.md", "Makefile"))
    commit = change.clone.commit_tree(("100644", b"README.md", first), ("100644", b"README.md", second))
    fork = change.server.forge(change.repository, change.server.developer).fork().ref
    with pytest.raises(ForgeError, match=r"duplicateEntries|fsck|unpack"):
        change.push("twice", commit, change.server.developer, to=fork)


def test_neither_the_developer_nor_the_owner_can_change_the_protection(change: Change) -> None:
    path = f"/repos/{change.repository.slug}/branch_protections/main"
    for token in (change.server.developer, change.server.owner):
        assert change.server.api("PATCH", path, token, {"enable_status_check": False})[0] in (403, 404)
        assert change.server.api("DELETE", path, token)[0] in (403, 404)


def test_the_developer_can_neither_set_a_status_nor_push_a_branch_nor_merge(change: Change) -> None:
    number, head = change.open({"README.md": "two\n"})
    change.judge(head, "pending")
    change.approve(number, head)
    body = {"context": REQUIRED_STATUS, "state": "success"}
    developer = change.server.developer
    assert change.server.api("POST", f"/repos/{change.repository.slug}/statuses/{head}", developer, body)[0] == 403
    with pytest.raises(ForgeError):
        change.push("own-branch", head, developer)
    change.judge(head)
    with pytest.raises(ForgeError):
        change.server.forge(change.repository, developer).merge(number, head)


def test_a_token_may_do_no_more_than_its_scopes(change: Change) -> None:
    for token in (change.server.developer, change.server.owner):
        assert change.server.api("GET", "/admin/users", token)[0] == 403
        assert change.server.api("POST", "/user/keys", token, {"title": "key", "key": "ssh-ed25519 AAAA"})[0] == 403
    assert change.server.api("POST", "/orgs", change.server.developer, {"username": "mine"})[0] == 403


def test_a_repository_that_is_made_again_keeps_its_main_and_regains_its_protection(change: Change) -> None:
    path = f"/repos/{change.repository.slug}/branch_protections/main"
    before = change.server.api("GET", path)[1]
    change.server.api("PATCH", path, body={"required_approvals": 0, "status_check_contexts": ["other"]})
    change.server.api("PATCH", f"/repos/{change.repository.slug}", body={"allow_rebase": True})
    administrator = change.server.forge(change.repository, change.server.admin)
    assert "rebasing (allow_rebase)" in problems(administrator, "main")[-1]
    main = change.clone.run("rev-parse", "main")
    change.clone.commit({"README.md": "later\n"})
    change.server.create_repository(change.clone.root, change.repository.name)
    after = change.server.api("GET", path)[1]
    assert {**after, "updated_at": ""} == {**before, "updated_at": ""}
    assert problems(administrator, "main") == []
    assert change.server.forge(change.repository, change.server.owner).branch(change.repository, "main") == main


def test_a_shallow_clone_is_refused_with_what_to_do(forge_server: ForgeServer, tmp_path: Path) -> None:
    whole = Repository(tmp_path / "whole")
    whole.commit({"a": "1"})
    whole.commit({"a": "2"})
    whole.run("clone", "--quiet", "--depth=1", f"file://{quote(str(whole.root))}", str(tmp_path / "shallow"))
    with pytest.raises(Exception, match="git fetch --unshallow"):
        forge_server.create_repository(tmp_path / "shallow")
