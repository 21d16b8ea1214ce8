"""The GitHub adapter against GitHub's published OpenAPI description: what it asks for, and what it reads.

`test_forge_adapters` and `test_forge_faults` drive it against a server that refuses whatever is not described.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from forge_lab import GitHubLab, forge_of
from github_server import GitHubServer, running_github
from github_shapes import Many, ShapeError, Type, build, check, fields_of, operation
from neuroscale.forge import github
from neuroscale.forge.interface import CommitStatus, ForgeError, RepositoryRef, Token
from neuroscale.forge.rest_shapes import CommentShape, IssueShape, PullShape, RepositoryShape, ReviewShape

# Every request of the adapter with what it reads of the answer; `within` is the field that holds a list.
REPOSITORY = "/repos/o/r"
READ: list[tuple[str, str, int, type[BaseModel] | None, str]] = [
    ("GET", "/user", 200, github._User, ""),
    ("GET", REPOSITORY, 200, RepositoryShape, ""),
    ("POST", f"{REPOSITORY}/forks", 202, RepositoryShape, ""),
    ("GET", f"{REPOSITORY}/git/ref/heads%2Fmain", 200, github._GitRef, ""),
    ("GET", f"{REPOSITORY}/pulls", 200, PullShape, ""),
    ("POST", f"{REPOSITORY}/pulls", 201, PullShape, ""),
    ("GET", f"{REPOSITORY}/commits/abc/pulls", 200, PullShape, ""),
    ("GET", f"{REPOSITORY}/pulls/1", 200, PullShape, ""),
    ("PATCH", f"{REPOSITORY}/pulls/1", 200, PullShape, ""),
    ("GET", f"{REPOSITORY}/pulls/1/reviews", 200, ReviewShape, ""),
    ("POST", f"{REPOSITORY}/pulls/1/reviews", 200, None, ""),
    ("PUT", f"{REPOSITORY}/pulls/1/merge", 200, None, ""),
    ("GET", f"{REPOSITORY}/issues", 200, IssueShape, ""),
    ("POST", f"{REPOSITORY}/issues", 201, IssueShape, ""),
    ("PATCH", f"{REPOSITORY}/issues/1", 200, IssueShape, ""),
    ("GET", f"{REPOSITORY}/issues/1/comments", 200, CommentShape, ""),
    ("POST", f"{REPOSITORY}/issues/1/comments", 201, CommentShape, ""),
    ("PATCH", f"{REPOSITORY}/issues/comments/1", 200, CommentShape, ""),
    ("DELETE", f"{REPOSITORY}/issues/comments/1", 204, None, ""),
    ("GET", f"{REPOSITORY}/commits/abc/statuses", 200, github._Status, ""),
    ("GET", f"{REPOSITORY}/commits/abc/check-runs", 200, github._CheckRun, "check_runs"),
]
# Read of Gitea's answers only, and where a list of pull requests is shorter than one.
ELSEWHERE = {"ReviewShape.dismissed", "ReviewShape.stale", "PullShape.mergeable", "RepositoryShape.parent"}


@pytest.mark.parametrize(
    ("method", "path", "status", "shape", "within"), READ, ids=[f"{row[0]} {row[1]}" for row in READ]
)
def test_every_field_that_is_read_is_in_the_description(
    method: str, path: str, status: int, shape: type[BaseModel] | None, within: str
) -> None:
    answers = operation(method, path).answers
    assert status in answers
    if shape is not None:
        kind = answers[status]
        assert kind is not None
        kind = fields_of(kind)[0][within] if within else kind
        compare(shape, kind.item if isinstance(kind, Many) else kind)


def compare(shape: type[BaseModel], kind: Type) -> None:
    """Each field that the model needs is always in the answer; those that it can do without may be missing."""
    named, optional = fields_of(kind)
    for name, info in shape.model_fields.items():
        if name not in named:
            assert f"{shape.__name__}.{name}" in ELSEWHERE, name
            assert not info.is_required()
            continue
        if info.is_required():
            assert name not in optional, name
        inner = [one for one in (info.annotation, *get_args(info.annotation)) if is_model(one)]
        if inner:
            compare(inner[0], named[name])


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with running_github({}) as running:
        yield running


@pytest.fixture
def lab(server: GitHubServer) -> GitHubLab:
    tokens = {"owner": Token(secrets.token_hex(20)), "developer": Token(secrets.token_hex(20))}
    server.logins.update({token.secret: login for login, token in tokens.items()})
    return GitHubLab(server, {"owner": tokens["owner"], "developer": tokens["developer"]})


def test_the_server_of_recorded_shapes_refuses_what_is_not_described(server: GitHubServer) -> None:
    """Otherwise the tests that run against it would show nothing."""
    headers: Mapping[str, str] = {}
    for method, target, body in [
        ("GET", "/api/v3/repos/o/r/branches_and_more", b""),
        ("POST", "/api/v3/user", b""),
        ("GET", "/api/v3/repos/o/r/pulls?heads=o:main", b""),
        ("POST", "/api/v3/repos/o/r/pulls", b'{"head": "main"}'),
        ("POST", "/api/v3/repos/o/r/pulls", b'{"head": "a", "base": "b", "do": "squash"}'),
        ("PUT", "/api/v3/repos/o/r/pulls/1/merge", b'{"merge_method": "octopus"}'),
        ("GET", "/api/v3/repos/o/r/pulls/1", b'{"unexpected": 1}'),
    ]:
        assert server.answer(method, target, headers, body)[0] == 400, target
    assert len(server.violations) == 7


def test_an_answer_that_is_not_described_is_noticed() -> None:
    kind = operation("GET", "/repos/o/r/issues/1/comments").answers[200]
    assert isinstance(kind, Many)
    comment = build(kind.item, {"id": 1, "body": "text"})
    check(kind, [comment], "comments")
    without = {name: value for name, value in comment.items() if name != "id"}
    for wrong in ({**comment, "invented": 1}, {**comment, "id": "1"}, without):
        with pytest.raises(ShapeError):
            check(kind, [wrong], "comments")
    with pytest.raises(ShapeError):
        build(kind.item, {"invented": 1})


def test_a_check_run_counts_beside_statuses_and_only_success_is_success(lab: GitHubLab) -> None:
    repository = lab.repository()
    sha = lab.commit("owner", repository, "work")
    conclusions = ["success", "failure", "neutral", "skipped", "cancelled", "timed_out", "action_required", None]
    for conclusion in conclusions:
        lab.server.checks.setdefault(sha, []).append(check_run(lab, f"run-{conclusion}", conclusion))
    lab.report(repository, sha, "old-way", "success")
    found = {status.context: status.state for status in forge_of(lab, "owner", repository).statuses(sha)}
    assert found.pop("old-way") == "success"
    assert found.pop("run-success") == "success"
    assert found.pop("run-None") == "pending"
    assert set(found.values()) == {"failure"}
    assert len(found) == 6


def test_the_newest_of_a_name_counts_across_check_runs_and_statuses(lab: GitHubLab) -> None:
    repository = lab.repository()
    sha = lab.commit("owner", repository, "work")
    forge = forge_of(lab, "owner", repository)

    def gate() -> CommitStatus:
        (status,) = forge.statuses(sha)
        return status

    lab.server.checks[sha] = [check_run(lab, "gate", "success")]
    assert gate().state == "success"
    lab.report(repository, sha, "gate", "failure")
    assert gate().state == "failure"
    lab.server.checks[sha].append(check_run(lab, "gate", "success"))
    assert gate().state == "success"
    lab.server.checks[sha].append({**check_run(lab, "gate", None), "started_at": None})
    assert gate().state == "pending"


def check_run(lab: GitHubLab, name: str, conclusion: str | None) -> dict[str, Any]:
    return {
        "id": lab.server.next(),
        "name": name,
        "status": "completed" if conclusion else "in_progress",
        "conclusion": conclusion,
        "started_at": lab.server.time(),
        "html_url": f"{lab.url}/somewhere",
    }


def test_a_workflows_token_belongs_to_the_bot_and_nobody_elses_is_guessed(lab: GitHubLab) -> None:
    """GitHub answers 403 to a token of an app that asks whose it is."""
    repository = RepositoryRef(lab.url, "neuroscale", "platform")
    token = lab.token("owner")
    lab.server.apps.add(token.secret)
    bot = github.GitHubForge(repository, token, workflow=True).account()
    assert bot.login == "github-actions[bot]"
    assert bot.email.endswith("+github-actions[bot]@users.noreply.github.com")
    with pytest.raises(ForgeError, match=r"does not name the token's account.*Resource not accessible"):
        github.GitHubForge(repository, token).account()
