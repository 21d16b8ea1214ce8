"""A server that answers by GitHub's published OpenAPI description: not GitHub, but GitHub's recorded shapes.

It refuses paths, query names and body fields that the description does not have, builds every answer from
the described type, and keeps its state in memory. `violations` lists requests outside of the description.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from github_shapes import Operation, Reference, ShapeError, build, check, operation

API = "/api/v3"


@dataclass
class Repository:
    owner: str
    name: str
    branches: dict[str, str]
    pushers: set[str]
    readers: set[str] | None = None  # None: everybody
    parent: Repository | None = None
    looks_until_ready: int = 0  # a fork's branches are copied in GitHub's own time
    required: set[str] = field(default_factory=set)
    approvals: int = 0
    merge_methods: list[str] | None = None  # that a ruleset allows; None: the ruleset does not say
    rebases: bool | None = None  # whether the settings allow it; None: they are not shown

    @property
    def slug(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass
class Pull:
    number: int
    author: str
    title: str
    body: str
    head: Repository
    head_branch: str
    base_branch: str
    merged: bool = False
    merge_commit: str | None = None
    looks_until_mergeable: int = 1
    reviews: list[dict[str, Any]] = field(default_factory=list)

    @property
    def head_sha(self) -> str:
        return self.head.branches[self.head_branch]


@dataclass(eq=False)
class _RefusalError(Exception):
    status: int
    message: str
    errors: tuple[str, ...] = ()


@dataclass
class _Asked:
    login: str
    parts: list[str]  # the variable parts of the path behind /repos
    query: Mapping[str, str]
    body: Mapping[str, Any]
    path: str


class GitHubServer:
    """The server's memory, and what tests put into it."""

    def __init__(self, logins: Mapping[str, str]) -> None:
        self.logins = dict(logins)  # by token
        self.apps: set[str] = set()  # tokens of apps, which have no account to ask for
        self.repositories: dict[str, Repository] = {}
        self.pulls: dict[str, list[Pull]] = {}
        self.comments: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.issues: dict[str, list[dict[str, Any]]] = {}
        self.reported: dict[str, list[dict[str, Any]]] = {}
        self.checks: dict[str, list[dict[str, Any]]] = {}
        self.violations: list[str] = []
        self.lock = threading.RLock()
        self.url = ""
        self._count = 0

    def next(self) -> int:
        self._count += 1
        return self._count

    def time(self) -> str:
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.next())).strftime("%Y-%m-%dT%H:%M:%SZ")

    def commit(self, slug: str, branch: str) -> str:
        """A new commit on a branch, which is made if it is missing."""
        with self.lock:
            sha = hashlib.sha1(f"{slug}{branch}{self.next()}".encode()).hexdigest()
            self.repositories[slug].branches[branch] = sha
            return sha

    def add(self, owner: str, name: str, pushers: set[str]) -> Repository:
        repository = Repository(owner, name, {}, pushers)
        self.repositories[repository.slug] = repository
        self.pulls[repository.slug] = []
        self.commit(repository.slug, "main")
        return repository

    def answer(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and the value of the body (None: no body)."""
        address = urlsplit(target)
        if not address.path.startswith(API):
            return 404, {}, {"message": "Not Found"}
        path = address.path.removeprefix(API)
        try:
            found = operation(method, path)
            query, body = self._checked(found, method, path, address.query, content)
        except ShapeError as error:
            self.violations.append(f"{method} {path}: {error}")
            return 400, {}, {"message": f"not in the description: {error}"}
        secret = headers.get("authorization", "").removeprefix("Bearer ")
        with self.lock:
            if secret not in self.logins:
                return 401, {}, self._error(found, 401, "Bad credentials")
            if secret in self.apps and found.name == "users/get-authenticated":
                return 403, {}, self._error(found, 403, "Resource not accessible by integration")
            asked = _Asked(
                self.logins[secret], [unquote(part) for part in path.split("/")[2:]], query, body, address.path
            )
            try:
                status, values, more = _HANDLERS[found.name](self, asked)
            except _RefusalError as refusal:
                return refusal.status, {}, self._error(found, refusal.status, refusal.message, refusal.errors)
            kind = found.answers[status]
            if kind is None:
                return status, more, None
            value = build(kind, values)
            check(kind, value, f"{found.name} {status}")
            if found.name == "repos/get-branch-rules":
                _add_merge_methods(self, asked, value)
            return status, more, value

    def _checked(
        self, found: Operation, method: str, path: str, query: str, content: bytes
    ) -> tuple[dict[str, str], dict[str, Any]]:
        names = {name: values[-1] for name, values in parse_qs(query).items()}
        if unknown := names.keys() - found.query:
            raise ShapeError(f"a query with {sorted(unknown)}")
        body = json.loads(content) if content else None
        if body is not None:
            if found.body is None:
                raise ShapeError("a body")
            check(found.body, body, "the body")
        return names, body or {}

    def _error(self, found: Operation, status: int, message: str, errors: tuple[str, ...] = ()) -> Any:
        values: dict[str, Any] = {"message": message}
        if status == 422:
            entries = [{"resource": "PullRequest", "code": "custom", "message": text} for text in errors]
            return build(Reference("schemas", "validation-error"), {**values, "errors": entries})
        return build(found.answers.get(status) or Reference("schemas", "basic-error"), values)


def _repository(server: GitHubServer, asked: _Asked) -> Repository:
    slug = "/".join(asked.parts[:2])
    for known, repository in server.repositories.items():
        if known.lower() == slug.lower() and (repository.readers is None or asked.login in repository.readers):
            return repository
    raise _RefusalError(404, "Not Found")


def _pull(server: GitHubServer, asked: _Asked) -> Pull:
    for pull in server.pulls[_repository(server, asked).slug]:
        if str(pull.number) == asked.parts[3]:
            return pull
    raise _RefusalError(404, "Not Found")


def _paged(asked: _Asked, entries: list[Any]) -> tuple[list[Any], dict[str, str]]:
    size, page = int(asked.query.get("per_page", "30")), int(asked.query.get("page", "1"))
    here = entries[(page - 1) * size : page * size]
    if page * size >= len(entries):
        return here, {}
    query = "&".join(f"{name}={value}" for name, value in {**asked.query, "page": page + 1}.items())
    # As GitHub does: by its own name and the repository's number, whatever the client called it.
    return here, {"Link": f'<https://github.example.com/repositories/1?{query}>; rel="next"'}


def _repository_values(repository: Repository, login: str, whole: bool = True) -> dict[str, Any]:
    push = login in repository.pushers
    values: dict[str, Any] = {
        "name": repository.name,
        "full_name": repository.slug,
        "owner": {"login": repository.owner},
        "default_branch": "main",
        "permissions": {"admin": False, "push": push, "pull": True},
        "fork": repository.parent is not None,
    }
    if repository.rebases is not None:
        values["allow_rebase_merge"] = repository.rebases
    if whole and repository.parent is not None:
        values["parent"] = _repository_values(repository.parent, login, False)
    return values


def _pull_values(server: GitHubServer, slug: str, pull: Pull, login: str, whole: bool = True) -> dict[str, Any]:
    values: dict[str, Any] = {
        "number": pull.number,
        "html_url": f"{server.url}/{slug}/pull/{pull.number}",
        "title": pull.title,
        "body": pull.body,
        "state": "closed" if pull.merged else "open",
        "merged_at": "2026-01-01T00:00:00Z" if pull.merged else None,
        "merge_commit_sha": pull.merge_commit,
        "user": {"login": pull.author},
        "head": {
            "label": f"{pull.head.owner}:{pull.head_branch}",
            "ref": pull.head_branch,
            "sha": pull.head_sha,
            "repo": _branch_repository(pull.head),
        },
        "base": {"ref": pull.base_branch, "repo": _branch_repository(server.repositories[slug])},
    }
    if whole:
        pull.looks_until_mergeable -= 1
        values |= {"merged": pull.merged, "mergeable": True if pull.looks_until_mergeable < 0 else None}
    return values


def _branch_repository(repository: Repository) -> dict[str, Any]:
    return {
        "name": repository.name,
        "full_name": repository.slug,
        "owner": {"login": repository.owner},
        "default_branch": "main",
    }


_Handled = tuple[int, Any, dict[str, str]]


def _get_user(server: GitHubServer, asked: _Asked) -> _Handled:
    return 200, {"login": asked.login, "id": 42, "name": None, "email": None}, {}


def _meta(server: GitHubServer, asked: _Asked) -> _Handled:
    return 200, {}, {"X-GitHub-Enterprise-Version": "3.14.0"}


def _get_repository(server: GitHubServer, asked: _Asked) -> _Handled:
    return 200, _repository_values(_repository(server, asked), asked.login), {}


def _create_fork(server: GitHubServer, asked: _Asked) -> _Handled:
    parent = _repository(server, asked)
    mine = [one for one in server.repositories.values() if one.parent is parent and one.owner == asked.login]
    if not mine:
        taken = f"{asked.login}/{parent.name}" in server.repositories
        name = f"{parent.name}-1" if taken else parent.name
        fork = Repository(asked.login, name, dict(parent.branches), {asked.login}, None, parent, 2)
        server.repositories[fork.slug] = fork
        server.pulls[fork.slug] = []
        mine = [fork]
    return 202, _repository_values(mine[0], asked.login), {}


def _get_ref(server: GitHubServer, asked: _Asked) -> _Handled:
    repository = _repository(server, asked)
    repository.looks_until_ready -= 1
    sha = repository.branches.get(asked.parts[4].removeprefix("heads/"))
    if sha is None or repository.looks_until_ready >= 0:
        raise _RefusalError(404, "Not Found")
    return 200, {"ref": f"refs/{asked.parts[4]}", "object": {"type": "commit", "sha": sha}}, {}


def _list_branches(server: GitHubServer, asked: _Asked) -> _Handled:
    branches = _repository(server, asked).branches.items()
    found = [{"name": name, "commit": {"sha": sha}, "protected": False} for name, sha in branches]
    here, more = _paged(asked, found)
    return 200, here, more


def _list_pulls(server: GitHubServer, asked: _Asked) -> _Handled:
    repository = _repository(server, asked)
    found = [
        _pull_values(server, repository.slug, pull, asked.login, False)
        for pull in server.pulls[repository.slug]
        if asked.query.get("state", "open") in ("all", "closed" if pull.merged else "open")
        and asked.query.get("head") in (None, f"{pull.head.owner}:{pull.head_branch}")
        and asked.query.get("base") in (None, pull.base_branch)
    ]
    here, more = _paged(asked, found)
    return 200, here, more


def _list_pulls_of_commit(server: GitHubServer, asked: _Asked) -> _Handled:
    """The pull requests that brought the commit, and open ones whose branch holds it."""
    repository, sha = _repository(server, asked), asked.parts[3]
    found = [
        _pull_values(server, repository.slug, pull, asked.login, False)
        for pull in server.pulls[repository.slug]
        if sha in (pull.merge_commit, pull.head_sha)
    ]
    here, more = _paged(asked, found)
    return 200, here, more


def _create_pull(server: GitHubServer, asked: _Asked) -> _Handled:
    repository = _repository(server, asked)
    owner, _, branch = asked.body["head"].rpartition(":")
    heads = [
        one
        for one in server.repositories.values()
        if one.owner == (owner or repository.owner) and (one is repository or one.parent is repository)
    ]
    if not heads or branch not in heads[0].branches:
        raise _RefusalError(422, "Validation Failed", ("head is invalid",))
    head, base = heads[0], asked.body["base"]
    for pull in server.pulls[repository.slug]:
        if (pull.head, pull.head_branch, pull.base_branch, pull.merged) == (head, branch, base, False):
            text = f"A pull request already exists for {head.owner}:{branch}."
            raise _RefusalError(422, "Validation Failed", (text,))
    if head.branches[branch] == repository.branches.get(base):
        raise _RefusalError(422, "Validation Failed", (f"No commits between {base} and {branch}",))
    pull = Pull(server.next(), asked.login, asked.body.get("title", ""), asked.body.get("body", ""), head, branch, base)
    server.pulls[repository.slug].append(pull)
    return 201, _pull_values(server, repository.slug, pull, asked.login), {}


def _get_pull(server: GitHubServer, asked: _Asked) -> _Handled:
    return 200, _pull_values(server, "/".join(asked.parts[:2]), _pull(server, asked), asked.login), {}


def _update_pull(server: GitHubServer, asked: _Asked) -> _Handled:
    pull = _pull(server, asked)
    pull.title, pull.body = asked.body.get("title", pull.title), asked.body.get("body", pull.body)
    return 200, _pull_values(server, "/".join(asked.parts[:2]), pull, asked.login), {}


def _list_reviews(server: GitHubServer, asked: _Asked) -> _Handled:
    here, more = _paged(asked, _pull(server, asked).reviews)
    return 200, here, more


def _create_review(server: GitHubServer, asked: _Asked) -> _Handled:
    pull = _pull(server, asked)
    if pull.author == asked.login:
        raise _RefusalError(422, "Unprocessable Entity", ("Can not approve your own pull request",))
    review = {
        "id": server.next(),
        "user": {"login": asked.login},
        "state": {"APPROVE": "APPROVED", "COMMENT": "COMMENTED"}[asked.body["event"]],
        "commit_id": asked.body["commit_id"],
    }
    pull.reviews.append(review)
    return 200, review, {}


def _merge(server: GitHubServer, asked: _Asked) -> _Handled:
    pull, repository = _pull(server, asked), _repository(server, asked)
    if asked.login not in repository.pushers:
        raise _RefusalError(403, "Must have write access to merge")
    if pull.merged or pull.looks_until_mergeable >= 0:
        raise _RefusalError(405, "Pull Request is not mergeable")
    if asked.body.get("sha") != pull.head_sha:
        raise _RefusalError(409, "Head branch was modified. Review and try the merge again.")
    green = {entry["context"] for entry in server.reported.get(pull.head_sha, []) if entry["state"] == "success"}
    if missing := repository.required - green:
        raise _RefusalError(405, f'Required status check "{min(missing)}" is expected.')
    if sum(review["commit_id"] == pull.head_sha for review in pull.reviews) < repository.approvals:
        raise _RefusalError(405, "At least 1 approving review is required by reviewers with write access.")
    if asked.body.get("merge_method") != "squash":
        raise _RefusalError(405, "Merge commits are not allowed on this repository.")
    pull.merged, pull.merge_commit = True, server.commit(repository.slug, pull.base_branch)
    return 200, {"sha": pull.merge_commit, "merged": True, "message": "merged"}, {}


def _list_comments(server: GitHubServer, asked: _Asked) -> _Handled:
    key = ("/".join(asked.parts[:2]), int(asked.parts[3]))
    here, more = _paged(asked, server.comments.get(key, []))
    return 200, here, more


def _create_comment(server: GitHubServer, asked: _Asked) -> _Handled:
    comment = {"id": server.next(), "user": {"login": asked.login}, "body": asked.body["body"]}
    server.comments.setdefault(("/".join(asked.parts[:2]), int(asked.parts[3])), []).append(comment)
    return 201, comment, {}


def _update_comment(server: GitHubServer, asked: _Asked) -> _Handled:
    for comments in server.comments.values():
        for comment in comments:
            if str(comment["id"]) == asked.parts[4]:
                comment["body"] = asked.body["body"]
                return 200, comment, {}
    raise _RefusalError(404, "Not Found")


def _delete_comment(server: GitHubServer, asked: _Asked) -> _Handled:
    for comments in server.comments.values():
        for comment in comments:
            if str(comment["id"]) == asked.parts[4]:
                comments.remove(comment)
                return 204, None, {}
    raise _RefusalError(404, "Not Found")


def _list_issues(server: GitHubServer, asked: _Asked) -> _Handled:
    issues = server.issues.get("/".join(asked.parts[:2]), [])
    here, more = _paged(asked, [one for one in reversed(issues) if one["state"] == asked.query.get("state", "open")])
    return 200, here, more


def _create_issue(server: GitHubServer, asked: _Asked) -> _Handled:
    slug = "/".join(asked.parts[:2])
    number = server.next()
    page = f"https://github.com/{slug}/issues/{number}"
    issue = {**asked.body, "number": number, "html_url": page, "state": "open", "user": {"login": asked.login}}
    server.issues.setdefault(slug, []).append(issue)
    return 201, issue, {}


def _update_issue(server: GitHubServer, asked: _Asked) -> _Handled:
    for issue in server.issues.get("/".join(asked.parts[:2]), []):
        if str(issue["number"]) == asked.parts[3]:
            issue.update(asked.body)
            return 200, issue, {}
    raise _RefusalError(404, "Not Found")


def _list_statuses(server: GitHubServer, asked: _Asked) -> _Handled:
    here, more = _paged(asked, list(reversed(server.reported.get(asked.parts[3], []))))
    return 200, here, more


def _list_checks(server: GitHubServer, asked: _Asked) -> _Handled:
    checks = server.checks.get(asked.parts[3], [])
    here, more = _paged(asked, checks)
    return 200, {"total_count": len(checks), "check_runs": here}, more


def _branch_rules(server: GitHubServer, asked: _Asked) -> _Handled:
    repository = _repository(server, asked)
    if not repository.required:
        return 200, [], {}
    checks = [{"context": context} for context in sorted(repository.required)]
    review = {
        "dismiss_stale_reviews_on_push": True,
        "require_code_owner_review": True,
        "require_last_push_approval": True,
        "required_approving_review_count": repository.approvals,
        "required_review_thread_resolution": False,
    }
    status = {"strict_required_status_checks_policy": True, "required_status_checks": checks}
    rules = [
        {"type": "deletion"},
        {"type": "pull_request", "parameters": review},
        {"type": "required_status_checks", "parameters": status},
    ]
    return 200, rules, {}


def _add_merge_methods(server: GitHubServer, asked: _Asked, rules: list[dict[str, Any]]) -> None:
    """A field of GitHub's newer descriptions."""
    if (methods := _repository(server, asked).merge_methods) is not None:
        for rule in rules:
            if rule["type"] == "pull_request":
                rule["parameters"]["allowed_merge_methods"] = methods


_HANDLERS: Mapping[str, Callable[[GitHubServer, _Asked], _Handled]] = {
    "users/get-authenticated": _get_user,
    "meta/get": _meta,
    "repos/get": _get_repository,
    "repos/create-fork": _create_fork,
    "git/get-ref": _get_ref,
    "repos/get-branch-rules": _branch_rules,
    "repos/list-branches": _list_branches,
    "pulls/list": _list_pulls,
    "repos/list-pull-requests-associated-with-commit": _list_pulls_of_commit,
    "pulls/create": _create_pull,
    "pulls/get": _get_pull,
    "pulls/update": _update_pull,
    "pulls/list-reviews": _list_reviews,
    "pulls/create-review": _create_review,
    "pulls/merge": _merge,
    "issues/list-for-repo": _list_issues,
    "issues/create": _create_issue,
    "issues/update": _update_issue,
    "issues/list-comments": _list_comments,
    "issues/create-comment": _create_comment,
    "issues/update-comment": _update_comment,
    "issues/delete-comment": _delete_comment,
    "repos/list-commit-statuses-for-ref": _list_statuses,
    "checks/list-for-ref": _list_checks,
}


@contextmanager
def running_github(logins: Mapping[str, str]) -> Iterator[GitHubServer]:
    """The server on a free port of this machine. `logins` by token. Its `url` is what GitHub's pages would be at."""
    memory = GitHubServer(logins)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more, value = memory.answer(self.command, self.path, headers, content)
            body = b"" if value is None else json.dumps(value).encode()
            self.send_response_only(status)
            for name, text in {"Content-Type": "application/json", **more}.items():
                self.send_header(name, text)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - names of the base class

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    memory.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
