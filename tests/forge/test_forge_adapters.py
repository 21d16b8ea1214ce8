"""What each kind of forge does for its client: a real Gitea, and a server of GitHub's recorded shapes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fault_proxy import FaultProxy
from forge_lab import IMPATIENT, KINDS, QUICK, GiteaLab, Lab, forge_of, lab_for
from forge_server import ForgeServer
from github_server import running_github
from neuroscale.core.errors import InputError
from neuroscale.forge.connect import connect
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.github import PUBLIC_API, GitHubForge
from neuroscale.forge.interface import (
    ForgeError,
    ForgeUnavailableError,
    MergeRefusedError,
    Protection,
    RepositoryRef,
    Token,
)
from neuroscale.forge.main_protection import REQUIRED_CHECK, problems
from neuroscale.forge.rest import Forge

BRANCH = "neuroscale/dev/support-chat"


@pytest.fixture(params=KINDS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    yield from lab_for(request)


@pytest.fixture
def repository(lab: Lab) -> RepositoryRef:
    return lab.repository()


@pytest.fixture
def owner(lab: Lab, repository: RepositoryRef) -> Forge:
    return forge_of(lab, "owner", repository)


@pytest.fixture
def developer(lab: Lab, repository: RepositoryRef) -> Forge:
    return forge_of(lab, "developer", repository)


def test_an_account_always_has_a_name_and_an_address_to_commit_with(owner: Forge) -> None:
    account = owner.account()
    assert account.login == "owner"
    assert account.name
    assert account.email


def test_who_may_push_is_told_apart_from_who_may_only_read(
    owner: Forge, developer: Forge, repository: RepositoryRef
) -> None:
    assert owner.info().may_push
    assert not developer.info().may_push
    assert developer.info().default_branch == "main"
    assert developer.info().ref == repository


def test_who_may_read_is_told_apart_from_who_may_not(lab: Lab, owner: Forge, developer: Forge) -> None:
    assert (owner.may_read(), developer.may_read()) == (True, True)
    closed = lab.closed()
    assert (forge_of(lab, "owner", closed).may_read(), forge_of(lab, "developer", closed).may_read()) == (True, False)


def test_a_repository_goes_by_its_real_name_however_it_was_written(lab: Lab, repository: RepositoryRef) -> None:
    loud = RepositoryRef(repository.server, repository.owner.upper(), repository.name.upper())
    assert forge_of(lab, "owner", loud).info().ref == repository


def test_a_repository_that_is_not_there_is_named(lab: Lab, repository: RepositoryRef) -> None:
    with pytest.raises(ForgeError, match=r"nothing-here.*404.*check the name"):
        forge_of(lab, "owner", RepositoryRef(repository.server, repository.owner, "nothing-here")).info()


def test_a_wrong_token_is_told_without_being_shown(repository: RepositoryRef) -> None:
    wrong = Token("wrong-" + secrets.token_hex(20))
    adapters: list[Forge] = [GiteaForge(repository, wrong, QUICK), GitHubForge(repository, wrong, QUICK)]
    for forge in adapters:
        with pytest.raises(ForgeError) as raised:
            forge.account()
        assert wrong.secret not in str(raised.value)


def test_a_branch_is_its_commit_or_nothing(lab: Lab, owner: Forge, repository: RepositoryRef) -> None:
    sha = lab.commit("owner", repository, BRANCH)
    assert owner.branch(repository, BRANCH) == sha
    assert owner.branch(repository, "neuroscale/dev") is None
    assert owner.branch(repository, "neuroscale/dev/support") is None


def test_asking_twice_for_a_pull_request_leaves_one(lab: Lab, owner: Forge, repository: RepositoryRef) -> None:
    sha = lab.commit("owner", repository, BRANCH)
    assert owner.find_pull(repository.owner, BRANCH, "main") is None
    first = owner.open_pull("Serve it", "Because", repository, BRANCH, "main")
    again = owner.open_pull("Another title", "Another text", repository, BRANCH, "main")
    assert again == first == owner.find_pull(repository.owner, BRANCH, "main") == owner.pull(first.number)
    assert (first.title, first.body, first.state, first.author) == ("Serve it", "Because", "open", "owner")
    assert (first.head_owner, first.head_branch, first.head_sha) == (repository.owner, BRANCH, sha)
    assert first.base_branch == "main"
    assert first.url.endswith(f"/{first.number}")
    assert lab.pulls(repository) == 1


def test_pull_requests_of_other_branches_bases_and_owners_are_not_taken_for_it(
    lab: Lab, owner: Forge, repository: RepositoryRef
) -> None:
    lab.commit("owner", repository, "next")
    lab.commit("owner", repository, BRANCH)
    lab.commit("owner", repository, f"{BRANCH}-2")
    other = owner.open_pull("Other", "", repository, f"{BRANCH}-2", "main")
    elsewhere = owner.open_pull("Elsewhere", "", repository, BRANCH, "next")
    assert owner.find_pull(repository.owner, BRANCH, "main") is None
    assert owner.find_pull("developer", BRANCH, "next") is None
    wanted = owner.open_pull("Wanted", "", repository, BRANCH, "main")
    assert len({other.number, elsewhere.number, wanted.number}) == 3


def test_a_pull_request_for_a_branch_that_is_not_there_says_so(lab: Lab, repository: RepositoryRef) -> None:
    forge = forge_of(lab, "owner", repository, limits=IMPATIENT)
    with pytest.raises(ForgeError, match="no branch missing"):
        forge.open_pull("Serve it", "", repository, "missing", "main")


def test_a_branch_that_is_listed_late_gets_its_pull_request(lab: Lab, repository: RepositoryRef) -> None:
    forge = forge_of(lab, "owner", repository)
    timer = threading.Timer(1.0, lambda: lab.commit("owner", repository, BRANCH))
    timer.start()
    try:
        assert forge.open_pull("Serve it", "", repository, BRANCH, "main").number
    finally:
        timer.join()


def test_title_and_text_are_renewed_in_place_and_left_alone_when_they_are_right(
    lab: Lab, repository: RepositoryRef
) -> None:
    with FaultProxy(lab.url) as proxy:
        forge = forge_of(lab, "owner", repository, proxy.url)
        lab.commit("owner", repository, BRANCH)
        number = forge.open_pull("Serve it", "Because", repository, BRANCH, "main").number
        changed = forge.update_pull(number, "Serve it well", "Line one\nline two \U0001f600\n")
        assert changed.title == "Serve it well"
        assert forge.update_pull(number, "Serve it well", "Line one\nline two \U0001f600\n").number == number
        assert len(proxy.made("PATCH", "/pulls/")) == 1
        assert lab.pulls(repository) == 1


def test_who_may_only_read_opens_a_pull_request_from_a_fork(
    lab: Lab, developer: Forge, owner: Forge, repository: RepositoryRef
) -> None:
    fork = developer.fork()
    assert fork == developer.fork()
    assert fork.may_push
    assert fork.ref.owner == "developer"
    assert lab.forks(repository) == 1
    sha = lab.commit("developer", fork.ref, BRANCH)
    pull = developer.open_pull("Serve it", "", fork.ref, BRANCH, "main")
    assert (pull.author, pull.head_owner, pull.head_sha) == ("developer", "developer", sha)
    assert owner.find_pull("developer", BRANCH, "main") == pull
    assert owner.find_pull(repository.owner, BRANCH, "main") is None


def test_a_fork_gets_another_name_where_its_own_is_taken(lab: Lab, developer: Forge, repository: RepositoryRef) -> None:
    lab.own("developer", repository.name)
    fork = developer.fork()
    assert fork.ref.owner == "developer"
    assert fork.ref.name != repository.name
    assert developer.fork() == fork
    lab.commit("developer", fork.ref, BRANCH)
    pull = developer.open_pull("Serve it", "", fork.ref, BRANCH, "main")
    assert pull == developer.open_pull("Serve it", "", fork.ref, BRANCH, "main")
    assert pull.head_owner == "developer"


def test_whose_the_repository_is_cannot_fork_it(lab: Lab, developer: Forge) -> None:
    own = developer.fork().ref
    with pytest.raises(ForgeError, match="belongs to developer"):
        forge_of(lab, "developer", own).fork()


def test_comments_are_listed_oldest_first_changed_and_removed(
    lab: Lab, owner: Forge, developer: Forge, repository: RepositoryRef
) -> None:
    lab.commit("owner", repository, BRANCH)
    number = owner.open_pull("Serve it", "", repository, BRANCH, "main").number
    assert owner.comments(number) == []
    first = owner.create_comment(number, "one")
    second = developer.create_comment(number, "two")
    assert [(comment.author, comment.body) for comment in owner.comments(number)] == [
        ("owner", "one"),
        ("developer", "two"),
    ]
    assert owner.update_comment(first.id, "changed").body == "changed"
    developer.delete_comment(second.id)
    developer.delete_comment(second.id)
    assert lab.comments(repository, number) == ["changed"]


def test_every_comment_is_found_however_many_there_are(lab: Lab, owner: Forge, repository: RepositoryRef) -> None:
    lab.commit("owner", repository, BRANCH)
    number = owner.open_pull("Serve it", "", repository, BRANCH, "main").number
    for count in range(105):
        owner.create_comment(number, str(count))
    assert [comment.body for comment in owner.comments(number)] == [str(count) for count in range(105)]


def test_the_newest_status_of_each_name_counts_and_only_success_is_success(
    lab: Lab, owner: Forge, repository: RepositoryRef
) -> None:
    sha = lab.commit("owner", repository, BRANCH)
    assert owner.statuses(sha) == []
    for context, state in [("gate", "success"), ("gate", "pending"), ("lint", "failure"), ("lint", "success")]:
        lab.report(repository, sha, context, state)
    lab.report(repository, sha, "broken", "error")
    found = {status.context: status for status in owner.statuses(sha)}
    assert {name: status.state for name, status in found.items()} == {
        "gate": "pending",
        "lint": "success",
        "broken": "failure",
    }
    assert found["gate"].url == f"{repository.server}/somewhere"


def test_every_status_is_found_however_many_there_are(lab: Lab, owner: Forge, repository: RepositoryRef) -> None:
    sha = lab.commit("owner", repository, BRANCH)
    lab.report(repository, sha, "first", "success")
    for _ in range(105):
        lab.report(repository, sha, "gate", "success")
    assert [status.context for status in owner.statuses(sha)] == ["first", "gate"]


def test_a_branch_says_how_it_is_protected(lab: Lab, repository: RepositoryRef) -> None:
    administrator = forge_of(lab, "administrator", repository)
    assert administrator.protection("main") is None
    assert "Nothing protects main" in problems(administrator, "main")[0]
    lab.require(repository, "lint")
    found = administrator.protection("main")
    assert found is not None
    assert replace(found, rebases=()) == Protection(("lint",), 1, direct_pushes=False)
    told = problems(administrator, "main")
    assert told[0] == f"main does not require the check {REQUIRED_CHECK[administrator.kind]!r}. It requires: lint."
    # Both forges merge by rebasing unless somebody switches it off.
    assert ["by rebasing" in one for one in told[1:]] == [True]


def test_a_rule_that_lets_changes_pass_is_named() -> None:
    class Fixed:
        kind = "github"

        def protection(self, branch: str) -> Protection:
            return Protection(("gate",), 0, direct_pushes=True, rebases=("rebase",))

    forge: Any = Fixed()
    assert problems(forge, "main") == [
        "main takes pushes without a pull request.",
        "main requires no approval.",
        "main takes merges by rebasing (rebase), so that commits reach it which the gate never judged by themselves. "
        "Allow merge commits and squash alone.",
    ]


def test_a_green_approved_pull_request_is_merged_once(
    lab: Lab, owner: Forge, developer: Forge, repository: RepositoryRef
) -> None:
    lab.require(repository, "gate")
    fork = developer.fork()
    sha = lab.commit("developer", fork.ref, BRANCH)
    number = developer.open_pull("Serve it", "", fork.ref, BRANCH, "main").number
    assert owner.approved_by(number) == ()
    with pytest.raises(MergeRefusedError, match=r"(?i)required status"):
        owner.merge(number, sha)
    lab.report(repository, sha, "gate", "success")
    with pytest.raises(MergeRefusedError, match=r"(?i)approv"):
        owner.merge(number, sha)
    owner.approve(number, sha)
    owner.approve(number, sha)
    assert lab.approvals(repository, number) == 1
    assert owner.approved_by(number) == (owner.account().login,)
    before = owner.branch(repository, "main")
    owner.merge(number, sha)
    merged = owner.branch(repository, "main")
    owner.merge(number, sha)
    assert before != merged == owner.branch(repository, "main")
    assert owner.pull(number).state == "merged"
    assert owner.find_pull("developer", BRANCH, "main") is None


def test_the_pull_request_that_brought_a_commit_is_found_and_no_other(
    lab: Lab, owner: Forge, developer: Forge, repository: RepositoryRef
) -> None:
    fork = developer.fork().ref
    before = owner.branch(repository, "main")
    assert before is not None
    sha = lab.commit("developer", fork, BRANCH)
    pull = developer.open_pull("Serve it", "", fork, BRANCH, "main")
    assert owner.merged_pull(before, "main") is None
    owner.merge(pull.number, sha)
    merged = owner.branch(repository, "main")
    assert merged is not None
    found = owner.merged_pull(merged, "main")
    assert found is not None
    assert (found.number, found.state, found.head_branch) == (pull.number, "merged", BRANCH)
    assert owner.merged_pull(merged, "next") is None
    lab.commit("owner", repository, "next")
    assert owner.open_pull("Another", "", repository, "next", "main").number != pull.number
    assert owner.merged_pull(merged, "main") == found


def test_the_last_pull_request_of_a_branch_is_found_when_it_is_merged_too(
    lab: Lab, owner: Forge, developer: Forge, repository: RepositoryRef
) -> None:
    fork = developer.fork().ref
    assert owner.last_pull(fork, BRANCH, "main") is None
    sha = lab.commit("developer", fork, BRANCH)
    assert owner.last_pull(fork, BRANCH, "main") is None
    pull = developer.open_pull("Serve it", "", fork, BRANCH, "main")
    assert owner.last_pull(fork, BRANCH, "main") == pull
    assert owner.last_pull(fork, f"{BRANCH}-2", "main") is None
    assert owner.last_pull(repository, BRANCH, "main") is None
    owner.merge(pull.number, sha)
    found = owner.last_pull(fork, BRANCH, "main")
    assert found is not None
    assert (found.number, found.state) == (pull.number, "merged")


def test_a_head_that_moved_is_neither_approved_nor_merged(
    lab: Lab, owner: Forge, developer: Forge, repository: RepositoryRef
) -> None:
    fork = developer.fork()
    judged = lab.commit("developer", fork.ref, BRANCH)
    number = developer.open_pull("Serve it", "", fork.ref, BRANCH, "main").number
    lab.commit("developer", fork.ref, BRANCH)
    with pytest.raises(ForgeError, match="another head"):
        owner.approve(number, judged)
    with pytest.raises(MergeRefusedError, match="another head"):
        owner.merge(number, judged)
    assert owner.pull(number).state == "open"


def test_nobody_approves_their_own_pull_request(lab: Lab, owner: Forge, repository: RepositoryRef) -> None:
    sha = lab.commit("owner", repository, BRANCH)
    number = owner.open_pull("Serve it", "", repository, BRANCH, "main").number
    with pytest.raises(ForgeError, match=r"(?i)approve your own"):
        owner.approve(number, sha)


def test_who_may_only_read_cannot_merge(lab: Lab, owner: Forge, developer: Forge, repository: RepositoryRef) -> None:
    sha = lab.commit("owner", repository, BRANCH)
    number = owner.open_pull("Serve it", "", repository, BRANCH, "main").number
    with pytest.raises(ForgeError, match=r"(?i)not allowed|write access"):
        developer.merge(number, sha)
    assert owner.pull(number).state == "open"


def test_the_kind_of_a_forge_is_asked_of_its_server(lab: Lab, repository: RepositoryRef) -> None:
    forge = connect(repository.clone_url, lab.token("owner"), environment={}, limits=QUICK)
    assert forge.kind == ("gitea" if isinstance(lab, GiteaLab) else "github")
    assert forge.repository == repository
    assert forge.account().login == "owner"


def test_a_server_that_is_down_is_reported_in_a_bounded_time(lab: Lab, repository: RepositoryRef) -> None:
    token = lab.token("owner")
    with pytest.raises(ForgeUnavailableError, match=r"no connection .*attempts.*run the command again") as raised:
        connect("http://127.0.0.1:9/neuroscale/platform.git", token, environment={}, limits=QUICK)
    assert token.secret not in str(raised.value)


@pytest.mark.tools
def test_a_merged_pull_request_keeps_its_branchs_name_when_the_branch_is_gone(forge_server: ForgeServer) -> None:
    lab = GiteaLab(forge_server)
    repository = lab.repository()
    owner = forge_of(lab, "owner", repository)
    sha = lab.commit("owner", repository, BRANCH)
    pull = owner.open_pull("Serve it", "", repository, BRANCH, "main")
    owner.merge(pull.number, sha)
    path = f"/repos/{repository.slug}/branches/{BRANCH.replace('/', '%2F')}"
    assert forge_server.api("DELETE", path)[0] == 204
    assert owner.pull(pull.number).head_branch == BRANCH
    found = owner.last_pull(repository, BRANCH, "main")
    assert found is not None
    assert found.number == pull.number


@pytest.mark.tools
def test_of_two_pull_requests_that_were_opened_at_once_the_oldest_stays(
    forge_server: ForgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = GiteaLab(forge_server)
    repository = lab.repository()
    owner = forge_of(lab, "owner", repository)
    lab.commit("owner", repository, BRANCH)
    first = owner.open_pull("Serve it", "Because", repository, BRANCH, "main")
    path = f"/repos/{repository.slug}/pulls/{first.number}"
    forge_server.api("PATCH", path, body={"state": "closed"})
    second = owner.open_pull("Serve it", "Because", repository, BRANCH, "main")
    # Gitea opens it again beside the second, as two programs at the same moment leave them.
    assert forge_server.api("PATCH", path, body={"state": "open"})[0] == 201
    assert first.number != second.number
    assert owner.open_pull("Serve it", "Because", repository, BRANCH, "main").number == first.number
    closed = owner.pull(second.number)
    assert closed.state == "closed"
    assert closed.body.startswith(f"Closed: #{first.number} was opened from the same branch at the same time.")
    assert owner.pull(first.number) == first
    # Listed twice, because it changed between two pages.
    assert isinstance(owner, Forge)
    listed = owner._find_pulls
    monkeypatch.setattr(owner, "_find_pulls", lambda *asked: [*listed(*asked), *listed(*asked)])
    assert owner.open_pull("Serve it", "Because", repository, BRANCH, "main").state == "open"
    assert owner.pull(first.number) == first


def test_a_conflict_with_main_is_refused_in_words(forge_server: ForgeServer) -> None:
    """Gitea answers as it does while it is still working it out, so that only time tells."""
    lab = GiteaLab(forge_server)
    repository = lab.repository()
    owner = forge_of(lab, "owner", repository, limits=IMPATIENT)
    for branch, text in ((BRANCH, "aGVyZQ=="), ("main", "dGhlcmU=")):
        body = {"content": text, "message": "Change", "branch": "main", "new_branch": branch}
        assert forge_server.api("POST", f"/repos/{repository.slug}/contents/same.txt", body=body)[0] == 201
    sha = owner.branch(repository, BRANCH)
    assert sha
    number = owner.open_pull("Serve it", "", repository, BRANCH, "main").number
    with pytest.raises(MergeRefusedError, match="does not merge"):
        owner.merge(number, sha)


def test_github_com_is_github_without_being_asked() -> None:
    forge = connect("git@github.com:octo/models.git", Token("x" * 40), environment={})
    assert isinstance(forge, GitHubForge)
    assert repr(forge) == "GitHubForge(https://github.com/octo/models)"
    assert PUBLIC_API == "https://api.github.com"


def test_a_workflow_tells_the_kind_of_its_own_server_only() -> None:
    token = Token("x" * 40)
    gitea = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://forge.example.com",
        "GITHUB_API_URL": "https://forge.example.com/api/v1",
    }
    assert connect("https://forge.example.com/o/r", token, environment=gitea).kind == "gitea"
    enterprise = gitea | {"GITHUB_API_URL": "https://forge.example.com/api/v3"}
    assert connect("https://forge.example.com/o/r", token, environment=enterprise).kind == "github"
    assert connect("https://github.com/o/r", token, environment=gitea).kind == "github"
    with pytest.raises(ForgeUnavailableError):
        connect("http://127.0.0.1:9/o/r", token, environment=gitea, limits=QUICK)


def test_a_server_that_is_no_forge_is_named() -> None:
    with (
        running_github({}) as server,
        FaultProxy(f"{server.url}/elsewhere") as proxy,
        pytest.raises(InputError, match="neither as Gitea"),
    ):
        connect(f"{proxy.url}/o/r", Token("x" * 40), environment={}, limits=QUICK)
