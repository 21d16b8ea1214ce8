"""Makes the forge's accounts with their rights, and a valid password and token each, which are stored only in files."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from neuroscale.core.files import write_private
from neuroscale.forge.http import AnswerError, Client, Limits, segments
from neuroscale.forge.interface import Token
from neuroscale.forge.token import read_token
from neuroscale.local.gitea import Gitea
from neuroscale.local.state import LocalError, State

ADMIN, DEVELOPER, MAINTAINER, GATE, REVERT = "admin", "developer", "owner", "gate", "revert"
# Gitea reserves the name `admin`.
LOGINS = {
    ADMIN: "forge-admin",
    DEVELOPER: "developer",
    MAINTAINER: "owner",
    GATE: "neuroscale-gate",
    REVERT: "neuroscale-revert",
}
_FULL_NAMES = {
    ADMIN: "Forge Admin",
    DEVELOPER: "Dana Developer",
    MAINTAINER: "Olu Owner",
    GATE: "NeuroScale Gate",
    REVERT: "NeuroScale Revert",
}
_SCOPES = {
    ADMIN: "write:admin,write:issue,write:organization,write:repository,write:user",
    DEVELOPER: "write:issue,write:repository,read:user",
    MAINTAINER: "write:issue,write:repository,read:user",
    GATE: "write:issue,read:repository,read:user",
    REVERT: "write:issue,write:repository,read:user",
}
ROLES = (ADMIN, DEVELOPER, MAINTAINER)
"""The accounts for people."""
LIMITS = Limits(deadline=60.0)


@dataclass(frozen=True)
class Account:
    """An account of the forge: its login, and the files of its token and password."""

    role: str
    login: str
    token_file: Path
    password_file: Path

    def token(self) -> Token:
        """The account's token. Raises InputError if the file is missing."""
        return read_token(self.token_file)


class Accounts:
    """The accounts of a local platform's forge."""

    def __init__(self, state: State, gitea: Gitea) -> None:
        self._state = state
        self._gitea = gitea

    def account(self, role: str) -> Account:
        """The account of one of ROLES; or GATE, which writes the gate's comment; or REVERT, which opens reverts."""
        return Account(role, LOGINS[role], self._state.tokens / role, self._state.passwords / role)

    def client(self) -> Client:
        """The forge's interface, as its administrator."""
        return Client(f"{self._gitea.url}/api/v1", self.account(ADMIN).token(), limits=LIMITS)

    def ensure(self, account: Account) -> bool:
        """Make the account with a valid password and token, which are stored only in the files.

        Returns whether anything was missing.
        """
        if self._works(account):
            return False
        if account.role == ADMIN:
            self._ensure_admin(account)
        else:
            client, path = self.client(), f"/admin/users/{segments(account.login)}"
            if client.get(f"/users/{segments(account.login)}", accept=(404,)).status == 404:
                fields = {
                    "username": account.login,
                    "full_name": _FULL_NAMES[account.role],
                    "email": _email(account),
                    "password": self._new_password(account),
                    "must_change_password": False,
                }
                client.send("POST", "/admin/users", idempotent=True, body=fields, accept=(422,))
            else:
                self._set_password(client, path, account)
        if account.role != ADMIN:
            self._new_token(account)
        if not self._works(account):
            raise LocalError(f"The forge does not accept the token of {account.login} that it has just made.")
        return True

    def _ensure_admin(self, account: Account) -> None:
        """Make the administrator by Gitea's own command with a random password that is thrown away: it takes one only
        by argument."""
        with contextlib.suppress(LocalError):  # it exists already; if not, the next command fails
            self._gitea.command(
                *("admin", "user", "create", "--admin", "--username", account.login, "--email", _email(account)),
                *("--fullname", _FULL_NAMES[account.role], "--random-password", "--random-password-length", "40"),
                "--must-change-password=false",
            )
        self._new_token(account)
        self._set_password(self.client(), f"/admin/users/{segments(account.login)}", account)

    def _works(self, account: Account) -> bool:
        """Whether this forge accepts its token, and its password was set."""
        if not account.token_file.exists() or not account.password_file.exists():
            return False
        client = Client(f"{self._gitea.url}/api/v1", account.token(), limits=LIMITS)
        try:
            user = client.get("/user").data
        except AnswerError:
            return False
        return isinstance(user, dict) and user.get("login") == account.login

    def _new_token(self, account: Account) -> None:
        token = self._gitea.new_secret(
            *("admin", "user", "generate-access-token", "--username", account.login, "--raw"),
            *("--token-name", f"neuroscale-{secrets.token_hex(4)}", "--scopes", _SCOPES[account.role]),
        )
        write_private(account.token_file, token + "\n")

    def _new_password(self, account: Account) -> str:
        password = secrets.token_urlsafe(30)
        write_private(account.password_file, password + "\n")
        return password

    def _set_password(self, client: Client, path: str, account: Account) -> None:
        fields = {
            "source_id": 0,
            "login_name": account.login,
            "password": self._new_password(account),
            "must_change_password": False,
        }
        client.send("PATCH", path, idempotent=True, body=fields)


def _email(account: Account) -> str:
    return f"{account.login}@localhost.localdomain"
