"""Connects to a forge by the address of a git remote and a token.

Reads the address of a git remote as a repository on a forge.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from neuroscale.core.addresses import checked_address, is_loopback
from neuroscale.core.errors import InputError
from neuroscale.core.validation import shorten
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.github import PUBLIC_SERVER, GitHubForge
from neuroscale.forge.http import ADDRESS, SECRET, Client, Limits
from neuroscale.forge.interface import RepositoryRef, Token
from neuroscale.forge.rest import Forge

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_SCP = re.compile(r"(?:[^@/:\s]+@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^@/:\[\]\s]+):(?!//)(?P<path>.*)", re.DOTALL)
# Hosts that only speak SSH, with the host of the forge's pages and API.
_WEB_HOSTS = {"ssh.github.com": "github.com"}
_FIX = "Use an address such as https://forge.example.com/owner/name.git or git@forge.example.com:owner/name.git."


def parse_remote(url: str) -> RepositoryRef:
    """The repository that a git remote's URL names: https, http on this machine, ssh, or `git@host:owner/name.git`.

    A user or password in it is dropped. The forge of an SSH address is assumed at https on the same host. Raises
    InputError, which shows neither user nor password, for everything else.
    """
    text = url.strip()
    if "://" not in text:
        match = _SCP.fullmatch(text)
        if match is None:
            raise _refused(text, "is not the address of a repository on a forge")
        return _over_ssh(match["host"], match["path"], text)
    try:
        address = urlsplit(text)
        port = address.port
    except ValueError:
        raise _refused(text, "is not the address of a repository on a forge") from None
    name = address.hostname or ""
    host = f"[{name}]" if ":" in name else name
    if address.scheme in ("ssh", "git+ssh", "ssh+git"):
        return _over_ssh(host, address.path, text)
    if address.scheme not in ("https", "http"):
        raise _refused(text, "is not an https or ssh address")
    if address.query or address.fragment:
        raise _refused(text, "has more parts after the repository's name")
    if address.scheme == "http" and not is_loopback(address.hostname or ""):
        raise _refused(text, "is not encrypted, so the token could be read on the way")
    usual = {"https": 443, "http": 80}[address.scheme]
    authority = _host(host, text) + (f":{port}" if port not in (None, usual) else "")
    *below, owner, name = ["", "", *_parts(address.path, text)]
    prefix = "".join(f"/{part}" for part in below if part)
    return RepositoryRef(f"{address.scheme}://{authority}{prefix}", _name(owner, text), _repository(name, text))


def _over_ssh(host: str, path: str, text: str) -> RepositoryRef:
    parts = _parts(path, text)
    if len(parts) != 2:
        raise _refused(text, "does not name an owner and a repository")
    host = _host(host, text)
    return RepositoryRef(f"https://{_WEB_HOSTS.get(host, host)}", _name(parts[0], text), _repository(parts[1], text))


def _parts(path: str, text: str) -> list[str]:
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if not all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts):
        raise _refused(text, "does not name an owner and a repository")
    return parts


def _name(name: str, text: str) -> str:
    if not name:
        raise _refused(text, "does not name an owner and a repository")
    return name


def _repository(name: str, text: str) -> str:
    return _name("" if (bare := name.removesuffix(".git")) in (".", "..") else bare, text)


def _host(host: str, text: str) -> str:
    host = host.lower()
    if not _HOST.fullmatch(host):
        raise _refused(text, "does not name a host")
    return host


def _refused(text: str, message: str) -> InputError:
    return InputError.at("the git remote", "", f"{_shown(text)} {message}", _FIX)


def _shown(text: str) -> str:
    """The address without parts that may be secret: everything before its last `@`, and its query."""
    rest = text.rsplit("@", 1)[-1].split("?", 1)[0].split("#", 1)[0]
    return shorten(rest, 120)


def connect(
    remote: str, token: Token, *, environment: Mapping[str, str] | None = None, limits: Limits | None = None
) -> Forge:
    """The forge that the git remote's URL `remote` names.

    github.com is GitHub. Inside a workflow of that server, GITHUB_API_URL shows the kind; elsewhere the server is
    asked. Raises InputError for an address that cannot be used, and ForgeError when the server does not answer.
    """
    environment = os.environ if environment is None else environment
    return connect_to(parse_remote(remote), token, environment=environment, limits=limits)


def connect_to(
    repository: RepositoryRef, token: Token, *, environment: Mapping[str, str], limits: Limits | None = None
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
    raise InputError.at(
        "the git remote",
        "",
        f"{repository.server} answers neither as Gitea or Forgejo nor as GitHub Enterprise",
        "Name the remote by the address of the forge's own pages, and check that the token is valid there.",
    )
