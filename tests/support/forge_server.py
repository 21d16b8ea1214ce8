"""A real forge with its runner for tests: what `neuroscale local up` starts, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.http import Client
from neuroscale.forge.interface import RepositoryRef, Token
from neuroscale.local.forge_accounts import ADMIN, DEVELOPER, MAINTAINER
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.start_and_stop import Options, down, up


@dataclass(frozen=True)
class ForgeServer:
    """The running forge. Repositories belong to the organisation `neuroscale`; its `platform` is empty."""

    local: LocalForge

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return self.local.url

    @property
    def folder(self) -> Path:
        """The state folder, for `neuroscale local --state`."""
        return self.local.state.folder

    @property
    def admin(self) -> Token:
        """The administrator, who may do everything."""
        return self.local.account(ADMIN).token()

    @property
    def developer(self) -> Token:
        """The account `developer`, who may only read the organisation's repositories."""
        return self.local.account(DEVELOPER).token()

    @property
    def owner(self) -> Token:
        """The account `owner`, who may approve, merge, and push to branches that are not protected."""
        return self.local.account(MAINTAINER).token()

    def token_file(self, role: str) -> Path:
        """The file of mode 0600 with the token of `admin`, `developer` or `owner`."""
        return self.local.account(role).token_file

    def client(self, token: Token) -> Client:
        """Gitea's own API."""
        return Client(f"{self.url}/api/v1", token)

    def forge(self, repository: RepositoryRef, token: Token) -> GiteaForge:
        """The repository as that token's account sees it."""
        return GiteaForge(repository, token)

    def create_repository(self, checkout: Path | None = None, name: str = "") -> RepositoryRef:
        """A new public repository with the protection of the real one; its main begins with `checkout`'s HEAD.

        Without a name it gets one that no other test has.
        """
        return self.local.create_repository(name or f"test-{secrets.token_hex(4)}", checkout)

    def api(self, method: str, path: str, token: Token | None = None, body: Any = None) -> tuple[int, Any]:
        """The status and the value of any answer; as the administrator if no token is given."""
        answer = self.client(token or self.admin).send(
            method, path, idempotent=True, body=body, accept=(*range(400, 429), *range(430, 500))
        )
        return answer.status, answer.data


@contextlib.contextmanager
def running_forge() -> Iterator[ForgeServer]:
    """Start a forge and its runner, and leave nothing behind. A failing start raises with the processes' last lines."""
    # Not pytest's own temporary folder, which the forge's user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="neuroscale-forge-"))
    try:
        # Stands for a user's secret: a test checks that jobs do not see it.
        with mock.patch.dict(os.environ, {"FORBIDDEN_FOR_JOBS": "secret"}):
            local = up(folder, None, Options(cluster=False), print)
        yield ForgeServer(local)
    finally:
        down(folder, print, delete=True)
        shutil.rmtree(folder, ignore_errors=True)
