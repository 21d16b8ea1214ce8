"""Connects to a forge by the address of a git remote and a token."""

from __future__ import annotations

import os
from collections.abc import Mapping

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.web_address import checked_address
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.github import PUBLIC_SERVER, GitHubForge
from neuroscale.forge.http import ADDRESS, SECRET, Client, Limits
from neuroscale.forge.interface import Forge, RepositoryRef, Token
from neuroscale.forge.remote import parse_remote


def connect(
    remote: str,
    token: Token,
    *,
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Forge:
    """The forge that the git remote's URL `remote` names.

    github.com is GitHub. Inside a workflow of that server, GITHUB_API_URL shows the kind; elsewhere the server is
    asked. Raises InputError for an address that cannot be used, and ForgeError when the server does not answer.
    """
    environment = os.environ if environment is None else environment
    return connect_to(parse_remote(remote), token, environment=environment, limits=limits)


def connect_to(
    repository: RepositoryRef,
    token: Token,
    *,
    environment: Mapping[str, str],
    limits: Limits | None = None,
) -> Forge:
    """As `connect`, for a repository whose server is known."""
    api = environment.get("GITHUB_API_URL", "").rstrip("/")
    workflow = (
        environment.get("GITHUB_ACTIONS") == "true"
        and bool(api)
        and environment.get("GITHUB_SERVER_URL", "").rstrip("/").lower() == repository.server.lower()
    )
    if repository.server == PUBLIC_SERVER:
        return GitHubForge(repository, token, limits, workflow=workflow)
    if workflow:
        if api.endswith("/api/v1"):
            return GiteaForge(repository, token, limits)
        return GitHubForge(repository, token, limits, api=checked_address(api, ADDRESS, SECRET), workflow=workflow)
    client = Client(repository.server, token, limits=limits)
    # Some installations refuse a request without a session; that answer shows the kind as well.
    version = client.get("/api/v1/version", accept=(401, 403, 404, 406))
    if isinstance(version.data, Mapping) and isinstance(version.data.get("version"), str):
        return GiteaForge(repository, token, limits)
    meta = client.get("/api/v3/meta", accept=(401, 403, 404, 406))
    if "x-github-enterprise-version" in meta.headers or "x-github-request-id" in meta.headers:
        return GitHubForge(repository, token, limits)
    raise InputError(
        Problem(
            "the git remote",
            "",
            f"{repository.server} answers neither as Gitea or Forgejo nor as GitHub Enterprise",
            "Name the remote by the address of the forge's own pages, and check that the token is valid there.",
        )
    )
