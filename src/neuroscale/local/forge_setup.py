"""Sets the forge up: accounts, tokens, the repository and the protection of its main branch.

Everything here reads first and changes only missing or different parts, so the next start completes a killed one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.waiting import attempts
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.http import Client, segments
from neuroscale.forge.interface import ForgeError, RepositoryRef
from neuroscale.forge.token import VARIABLE
from neuroscale.local.forge_accounts import ADMIN, GATE, LIMITS, LOGINS, MAINTAINER, REVERT, ROLES, Account, Accounts
from neuroscale.local.forge_repository import MAIN, REPOSITORY_SETTINGS, TEAM, protection
from neuroscale.local.gitea import Gitea
from neuroscale.local.state import PRIVATE, LocalError, State
from neuroscale.repo.git import Git

OWNER = "neuroscale"
REPOSITORY = "platform"

REVERT_SECRET, KUBECONFIG_SECRET = "NEUROSCALE_REVERT_TOKEN", "NEUROSCALE_KUBECONFIG"
ENVIRONMENTS_VARIABLE, GATEWAY_VARIABLE = "NEUROSCALE_SMOKE_ENVIRONMENTS", "NEUROSCALE_LOCAL_GATEWAY"
"""The names that the workflow of the smoke tests reads from the forge."""


class LocalForge:
    """The running forge of a local platform, as its administrator."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.gitea = Gitea(state)
        self._accounts = Accounts(state, self.gitea)

    @property
    def url(self) -> str:
        return self.gitea.url

    @property
    def platform(self) -> RepositoryRef:
        return RepositoryRef(self.url, OWNER, REPOSITORY)

    def account(self, role: str) -> Account:
        """The account of one of ROLES; or GATE, which writes the gate's comment; or REVERT, which opens reverts."""
        return self._accounts.account(role)

    def seed(self, checkout: Path | None, tell: Callable[[str], None]) -> None:
        """Make the missing parts. `checkout`: the repository whose HEAD becomes the start of an empty main branch.

        Raises ForgeError, InputError and LocalError.
        """
        client = self._ensure_organization()
        for role in ROLES:
            self._accounts.ensure(self.account(role))
        self._ensure_commenter(client)
        self._ensure_team(client)
        new = self.create_repository(REPOSITORY, checkout)
        tell(f"{new.slug} exists")

    def register_webhooks(self, addresses: Collection[str], secret: str) -> None:
        """Let the forge send every push to the platform's repository to these addresses, and to no others.

        The forge signs its events with the secret, which it never shows again.
        """
        client, path = self._accounts.client(), f"/repos/{segments(OWNER, REPOSITORY)}/hooks"
        there = {hook["config"].get("url", ""): hook["id"] for hook in client.pages(path)}
        for address in addresses:
            config = {"url": address, "content_type": "json", "secret": secret}
            fields = {"active": True, "events": ["push"], "branch_filter": MAIN, "config": config}
            if address in there:
                client.send("PATCH", f"{path}/{segments(there[address])}", idempotent=True, body=fields)
            else:
                client.send("POST", path, idempotent=True, body={"type": "gitea", **fields})
        for address in there.keys() - set(addresses):
            client.send("DELETE", f"{path}/{segments(there[address])}", idempotent=True, accept=(404,))

    def allow_smoke_tests(
        self, repository: RepositoryRef, kubeconfig: str, environments: Collection[str], gateway: str = ""
    ) -> None:
        """Give the repository's workflows the secrets for the smoke tests after a merge: access to the cluster of these
        environments, and the token of an account that may only read, and opens reverts from its fork. `gateway`: the
        way to services' hosts on this machine, for the command in a comment.

        They are secrets of this repository: workflows of other repositories do not get them.
        """
        self._accounts.ensure(self.account(REVERT))
        client, path = self._accounts.client(), f"/repos/{segments(repository.owner, repository.name)}/actions"
        held = {REVERT_SECRET: self.account(REVERT).token().secret, KUBECONFIG_SECRET: kubeconfig}
        for name, secret in held.items():
            client.send("PUT", f"{path}/secrets/{segments(name)}", idempotent=True, body={"data": secret})
        for name, value in {ENVIRONMENTS_VARIABLE: " ".join(environments), GATEWAY_VARIABLE: gateway}.items():
            self._set_variable(client, f"{path}/variables/{segments(name)}", name, value)

    @staticmethod
    def _set_variable(client: Client, path: str, name: str, value: str) -> None:
        there = client.get(path, accept=(404,))
        if not value:
            client.send("DELETE", path, idempotent=True, accept=(404,))
        elif there.status == 404:
            client.send("POST", path, idempotent=True, body={"value": value}, accept=(409,))
        elif there.data.get("data") != value:
            client.send("PUT", path, idempotent=True, body={"name": name, "value": value})

    def runner_token(self) -> str:
        """The registration token of a runner that takes only the jobs of the organisation's repositories.

        In their own repositories, such as forks, people run any workflow: on the machine and as the user of the gate's
        jobs, such a workflow could make these green.
        """
        self._ensure_organization()
        return self.gitea.new_secret("actions", "generate-runner-token", "--scope", OWNER)

    def ensure_account(self, role: str) -> None:
        """Make the account of a role alone, before the forge is seeded. Raises ForgeError and LocalError."""
        self._ensure_organization()
        self._accounts.ensure(self.account(role))

    def _ensure_organization(self) -> Client:
        """The administrator's account and the organisation; returns the administrator's client."""
        for folder in (self.state.tokens, self.state.passwords):
            folder.mkdir(mode=PRIVATE, exist_ok=True)
            folder.chmod(PRIVATE)
        self._accounts.ensure(self.account(ADMIN))
        client = self._accounts.client()
        if client.get(f"/orgs/{segments(OWNER)}", accept=(404,)).status == 404:
            fields = {"username": OWNER, "full_name": "NeuroScale", "visibility": "public"}
            client.send("POST", "/orgs", idempotent=True, body=fields, accept=(422,))
        return client

    def create_repository(self, name: str, checkout: Path | None = None) -> RepositoryRef:
        """Make a public repository with a protected main branch; an existing one is brought to the same state.

        A missing main branch begins with the commit that is checked out in `checkout`.
        """
        client, repository = self._accounts.client(), RepositoryRef(self.url, OWNER, name)
        path = f"/repos/{segments(OWNER, name)}"
        answer = client.get(path, accept=(404,))
        if answer.status == 404:
            fields = {"name": name, "private": False, "default_branch": MAIN, "description": "Served models"}
            client.send("POST", f"/orgs/{segments(OWNER)}/repos", idempotent=True, body=fields, accept=(409,))
            answer = client.get(path)
        _bring(client, path, REPOSITORY_SETTINGS, answer.data)
        if checkout is not None:
            self._push(repository, checkout)
        self.protect(repository)
        return repository

    def protect(self, repository: RepositoryRef) -> None:
        """Protect the main branch by PROTECTION, and remove weaker rules."""
        client, path = (
            self._accounts.client(),
            f"/repos/{segments(repository.owner, repository.name)}/branch_protections",
        )
        rule = client.get(f"{path}/{segments(MAIN)}", accept=(404,))
        if rule.status == 404:
            client.send("POST", path, idempotent=True, body={"rule_name": MAIN, **protection()}, accept=(403, 422))
            rule = client.get(f"{path}/{segments(MAIN)}")
        _bring(client, f"{path}/{segments(MAIN)}", protection(), rule.data)

    def _push(self, repository: RepositoryRef, checkout: Path) -> None:
        git = Git(checkout)
        try:
            branches = Branches(git, Access(repository.clone_url, self.account(ADMIN).token()))
            if branches.tip(repository, MAIN) is not None:
                return
            commit = git.commit("HEAD", "HEAD")
            if git.text("rev-parse", "--is-shallow-repository") == "true":
                raise InputError.at(
                    str(checkout),
                    "",
                    "is a shallow clone, whose history the forge cannot accept",
                    "Fetch the rest of it: git fetch --unshallow.",
                )
            branches.push(repository, MAIN, commit, None)
        finally:
            git.close()
        self._await_notice(repository)

    def _await_notice(self, repository: RepositoryRef) -> None:
        """Wait until the forge no longer treats the repository as empty; it notices a push after some time.

        Until then it does not offer pull requests.
        """
        client, path = self._accounts.client(), f"/repos/{segments(repository.owner, repository.name)}"
        for _ in attempts(LIMITS.deadline, pause=0.1):
            if not client.get(path).data.get("empty"):
                return
        raise LocalError(f"The forge still treats {repository.slug} as empty after a push.")

    def _ensure_commenter(self, client: Client) -> None:
        """Make the account of the gate's comment, and the organisation's secret by which workflows get its token.

        The forge's own workflow tokens all belong to one account: with these, the gate could not distinguish its
        comment from one that a workflow in a fork wrote.
        """
        made = self._accounts.ensure(self.account(GATE))
        path = f"/orgs/{segments(OWNER)}/actions/secrets"
        if made or VARIABLE not in {secret["name"] for secret in client.pages(path)}:
            fields = {"data": self.account(GATE).token().secret}
            client.send("PUT", f"{path}/{segments(VARIABLE)}", idempotent=True, body=fields)

    def _ensure_team(self, client: Client) -> None:
        """Make the team that may approve and merge. It may not change the protection, or merge against it."""
        path = f"/orgs/{segments(OWNER)}/teams"
        fields = {
            "name": TEAM,
            "description": "Review and merge changes of services",
            "permission": "write",
            "includes_all_repositories": True,
            "can_create_org_repo": False,
            "units_map": {f"repo.{unit}": "write" for unit in ("code", "issues", "pulls", "actions")},
        }
        teams = [team for team in client.pages(path) if team["name"] == TEAM]
        if not teams:
            client.send("POST", path, idempotent=True, body=fields, accept=(422,))
            teams = [team for team in client.pages(path) if team["name"] == TEAM]
        if not teams:
            raise ForgeError(f"The forge did not make the team {TEAM}.")
        member = f"/teams/{segments(teams[0]['id'])}/members/{segments(LOGINS[MAINTAINER])}"
        if client.get(member, accept=(404,)).status == 404:
            client.send("PUT", member, idempotent=True)


def _bring(client: Client, path: str, wanted: dict[str, Any], there: Any) -> None:
    """Change the fields that differ, if any."""
    if not isinstance(there, dict) or any(there.get(name) != value for name, value in wanted.items()):
        client.send("PATCH", path, idempotent=True, body=wanted)
