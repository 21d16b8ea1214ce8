"""Forges for testing clients: a real Gitea, and a server of GitHub's recorded shapes, behind one interface."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args

import pytest

from forge_server import ForgeServer
from github_server import GitHubServer, running_github
from neuroscale.forge.connect import connect_to
from neuroscale.forge.http import Limits, segments
from neuroscale.forge.interface import RepositoryRef, Token
from neuroscale.forge.rest import Forge

Person = Literal["owner", "developer", "administrator"]

# Short pauses, so that a test of a broken forge ends soon; a busy machine has its time to answer.
QUICK = Limits(deadline=30.0, attempts=4, connect=5.0, silence=15.0, first_pause=0.05, longest_pause=0.2)
IMPATIENT = replace(QUICK, patience=2.0)


class Lab(Protocol):
    """A forge, and changes that tests make without the client. `owner` may push to its repositories, `developer` may
    not.
    """

    @property
    def url(self) -> str: ...

    def token(self, who: Person) -> Token: ...

    def repository(self) -> RepositoryRef:
        """A new repository with a branch main."""

    def commit(self, who: Person, repository: RepositoryRef, branch: str) -> str:
        """A new commit on a branch; a missing branch begins at main."""

    def closed(self) -> RepositoryRef:
        """A new repository with a branch main that only the owner may read."""

    def own(self, who: Person, name: str) -> None:
        """A repository of that person that is not a fork."""

    def require(self, repository: RepositoryRef, context: str) -> None:
        """Protect main by a required status and one approval."""

    def report(self, repository: RepositoryRef, sha: str, context: str, state: str) -> None:
        """Set a commit's status."""

    def pulls(self, repository: RepositoryRef) -> int:
        """How many pull requests there are, of any state."""

    def comments(self, repository: RepositoryRef, number: int) -> list[str]:
        """The texts of a pull request's comments, oldest first."""

    def forks(self, repository: RepositoryRef) -> int: ...

    def approvals(self, repository: RepositoryRef, number: int) -> int: ...


def forge_of(
    lab: Lab, who: Person, repository: RepositoryRef, server: str | None = None, limits: Limits = QUICK
) -> Forge:
    """The repository as that person sees it, through `server` (a proxy) if given."""
    seen = RepositoryRef(server or lab.url, repository.owner, repository.name)
    return connect_to(seen, lab.token(who), environment={}, limits=limits)


@dataclass(frozen=True)
class GiteaLab:
    """The shared local forge."""

    server: ForgeServer

    @property
    def url(self) -> str:
        return self.server.url

    def token(self, who: Person) -> Token:
        tokens = {"owner": self.server.owner, "developer": self.server.developer, "administrator": self.server.admin}
        return tokens[who]

    def repository(self) -> RepositoryRef:
        name = f"client-{secrets.token_hex(4)}"
        self._done("POST", "/orgs/neuroscale/repos", {"name": name, "auto_init": True, "default_branch": "main"})
        self._done("PUT", f"/repos/neuroscale/{name}/collaborators/owner", {"permission": "write"})
        return RepositoryRef(self.url, "neuroscale", name)

    def commit(self, who: Person, repository: RepositoryRef, branch: str) -> str:
        status, _ = self.server.api("GET", f"/repos/{repository.slug}/branches/{segments(branch)}", self.token(who))
        content = base64.b64encode(secrets.token_bytes(12)).decode()
        body = {"content": content, "message": "Change", "branch": branch}
        if status == 404:
            body |= {"branch": "main", "new_branch": branch}
        path = f"/repos/{repository.slug}/contents/{secrets.token_hex(4)}.txt"
        status, data = self.server.api("POST", path, self.token(who), body)
        assert status == 201, data
        sha: str = data["commit"]["sha"]
        return sha

    def closed(self) -> RepositoryRef:
        name = f"closed-{secrets.token_hex(4)}"
        self._done("POST", "/admin/users/owner/repos", {"name": name, "auto_init": True, "private": True})
        return RepositoryRef(self.url, "owner", name)

    def own(self, who: Person, name: str) -> None:
        self._done("POST", f"/admin/users/{who}/repos", {"name": name})

    def require(self, repository: RepositoryRef, context: str) -> None:
        rule = {"rule_name": "main", "enable_status_check": True, "status_check_contexts": [context]}
        self._done("POST", f"/repos/{repository.slug}/branch_protections", {**rule, "required_approvals": 1})

    def report(self, repository: RepositoryRef, sha: str, context: str, state: str) -> None:
        body = {"context": context, "state": state, "target_url": "/somewhere"}
        self._done("POST", f"/repos/{repository.slug}/statuses/{sha}", body)

    def pulls(self, repository: RepositoryRef) -> int:
        return len(self._listed(f"/repos/{repository.slug}/pulls", {"state": "all"}))

    def comments(self, repository: RepositoryRef, number: int) -> list[str]:
        return [str(entry["body"]) for entry in self._listed(f"/repos/{repository.slug}/issues/{number}/comments")]

    def forks(self, repository: RepositoryRef) -> int:
        return len(self._listed(f"/repos/{repository.slug}/forks"))

    def approvals(self, repository: RepositoryRef, number: int) -> int:
        return len(self._listed(f"/repos/{repository.slug}/pulls/{number}/reviews"))

    def _done(self, method: str, path: str, body: Mapping[str, object]) -> None:
        status, data = self.server.api(method, path, body=body)
        assert status < 300, data

    def _listed(self, path: str, query: Mapping[str, str] | None = None) -> list[dict[str, object]]:
        return list(self.server.client(self.server.admin).pages(path, query))


@dataclass(frozen=True)
class GitHubLab:
    """The server of recorded shapes. `tokens` are those that it knows."""

    server: GitHubServer
    tokens: dict[Person, Token]

    @property
    def url(self) -> str:
        return self.server.url

    def token(self, who: Person) -> Token:
        return self.tokens[who]

    def repository(self) -> RepositoryRef:
        made = self.server.add("neuroscale", f"client-{secrets.token_hex(4)}", {"owner"})
        return RepositoryRef(self.url, made.owner, made.name)

    def commit(self, who: Person, repository: RepositoryRef, branch: str) -> str:
        return self.server.commit(repository.slug, branch)

    def closed(self) -> RepositoryRef:
        made = self.server.add("owner", f"closed-{secrets.token_hex(4)}", {"owner"})
        made.readers = {"owner"}
        return RepositoryRef(self.url, made.owner, made.name)

    def own(self, who: Person, name: str) -> None:
        self.server.add(who, name, {who})

    def require(self, repository: RepositoryRef, context: str) -> None:
        known = self.server.repositories[repository.slug]
        known.required, known.approvals = {context}, 1

    def report(self, repository: RepositoryRef, sha: str, context: str, state: str) -> None:
        entry = {
            "id": self.server.next(),
            "context": context,
            "state": state,
            "description": None,
            "target_url": f"{self.url}/somewhere",
            "updated_at": self.server.time(),
        }
        self.server.reported.setdefault(sha, []).append(entry)

    def pulls(self, repository: RepositoryRef) -> int:
        return len(self.server.pulls[repository.slug])

    def comments(self, repository: RepositoryRef, number: int) -> list[str]:
        return [str(entry["body"]) for entry in self.server.comments.get((repository.slug, number), [])]

    def forks(self, repository: RepositoryRef) -> int:
        parents = (one.parent for one in self.server.repositories.values())
        return sum(parent is not None and parent.slug == repository.slug for parent in parents)

    def approvals(self, repository: RepositoryRef, number: int) -> int:
        return sum(len(pull.reviews) for pull in self.server.pulls[repository.slug] if pull.number == number)


KINDS = [pytest.param("gitea", marks=pytest.mark.tools, id="gitea"), pytest.param("github", id="github-shapes")]


def lab_for(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab that a fixture with the parameters `KINDS` is asked for."""
    if request.param == "gitea":
        yield GiteaLab(request.getfixturevalue("forge_server"))
        return
    with running_github_lab() as lab:
        yield lab


@contextlib.contextmanager
def running_github_lab() -> Iterator[GitHubLab]:
    """Start the server of recorded shapes.

    Fails at its end if the client sent a request that GitHub's description does not have.
    """
    tokens: dict[Person, Token] = {who: Token(secrets.token_hex(20)) for who in get_args(Person)}
    with running_github({token.secret: login for login, token in tokens.items()}) as server:
        yield GitHubLab(server, tokens)
        assert server.violations == []
