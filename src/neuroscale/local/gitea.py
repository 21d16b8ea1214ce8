"""Runs the forge: Gitea with SQLite, on the loopback device only."""

from __future__ import annotations

import configparser
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core.files import write_private, write_public
from neuroscale.local.control_plane import control_plane
from neuroscale.local.copied_programs import copied, copied_files, copy_tool
from neuroscale.local.process import Process, answers, run_once
from neuroscale.local.state import PASSABLE, LocalError, State

NAME: Final = "gitea"
_TOKEN = re.compile(r"^[A-Za-z0-9]{40}$", re.MULTILINE)
_SECRETS = {
    "secret_key": "SECRET_KEY",
    "internal_token": "INTERNAL_TOKEN",
    "jwt_secret": "JWT_SECRET",
    "lfs_jwt_secret": "LFS_JWT_SECRET",
}


@dataclass(frozen=True)
class Gitea:
    """The forge of a local platform: its files and its process. Its port must have been chosen."""

    state: State

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.state.instance.ports[NAME]}"

    @property
    def folder(self) -> Path:
        return self.state.run / NAME

    @property
    def settings(self) -> Path:
        """The files that it reads and must not change: app.ini and the secrets."""
        return self.state.run / "gitea-settings"

    def prepare(self) -> None:
        """Write its folders, program and settings. Secrets are made once and kept."""
        copy_tool(self.state, NAME)
        self.state.make_folder(self.folder, self.state.forge_user)
        self.state.make_folder(self.settings, None, PASSABLE)
        write_public(self.settings / "app.ini", self._app_ini())
        if self.state.instance.cluster:
            authority = control_plane(self.state).authority().pair.certificate
            write_public(self._authority, authority)
        for file, kind in _SECRETS.items():
            path = self.settings / file
            if not path.exists():
                text = run_once(
                    [copied(self.state, NAME), "generate", "secret", kind],
                    self._environment(),
                    self.folder,
                    self.state.forge_user,
                )
                write_private(path, text.strip() + "\n", self.state.forge_user)

    def process(self) -> Process:
        """The process for the supervisor."""
        return Process(
            name=NAME,
            argv=(str(copied(self.state, NAME)), "--config", str(self.settings / "app.ini"), "web"),
            environment=self._environment(),
            folder=self.folder,
            user=self.state.forge_user,
            ready=lambda: answers(f"{self.url}/api/healthz"),
            port=self.state.instance.ports[NAME],
            settings=self._app_ini(),
            stops_within=10.0,
        )

    def command(self, *arguments: str) -> str:
        """The output of one of its administration commands. Raises LocalError."""
        argv = [copied(self.state, NAME), "--config", self.settings / "app.ini", *arguments]
        return run_once(argv, self._environment(), self.folder, self.state.forge_user).strip()

    def new_secret(self, *arguments: str) -> str:
        """The token that an administration command prints, perhaps among log lines. Raises LocalError."""
        found: list[str] = _TOKEN.findall(self.command(*arguments))
        if len(found) != 1:
            raise LocalError(f"gitea {' '.join(arguments[:3])} printed {len(found)} tokens where one was expected.")
        return found[0]

    def _environment(self) -> dict[str, str]:
        user = self.state.forge_user
        name = {"USER": user.name, "LOGNAME": user.name} if user else {"USER": os.environ.get("USER", "")}
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
            "GITEA_WORK_DIR": str(self.folder),
            # Each push starts it some times more, for hooks, which take a third less CPU time with rare collections.
            "GOGC": "400",
            # It sends events by TLS only to the cluster's Argo CD.
            **({"SSL_CERT_FILE": str(self._authority)} if self.state.instance.cluster else {}),
            **{key: value for key, value in name.items() if value},
        }

    @property
    def _authority(self) -> Path:
        return self.settings / "authority.crt"

    def _app_ini(self) -> str:
        def secret(file: str) -> str:
            return f"file:{self.settings / file}"

        sections: dict[str, dict[str, object]] = {
            "DEFAULT": {"APP_NAME": "NeuroScale local forge", "RUN_MODE": "prod", "WORK_PATH": self.folder},
            "server": {
                "PROTOCOL": "http",
                "HTTP_ADDR": "127.0.0.1",
                "HTTP_PORT": self.state.instance.ports[NAME],
                "ROOT_URL": f"{self.url}/",
                "LOCAL_ROOT_URL": f"{self.url}/",
                "DOMAIN": "127.0.0.1",
                "STATIC_ROOT_PATH": copied_files(self.state, NAME),
                "APP_DATA_PATH": self.folder / "data",
                "DISABLE_SSH": True,
                "OFFLINE_MODE": True,
                "LFS_START_SERVER": False,
                "LFS_JWT_SECRET_URI": secret("lfs_jwt_secret"),
                "LANDING_PAGE": "explore",
            },
            "database": {
                "DB_TYPE": "sqlite3",
                "PATH": self.folder / "data" / "gitea.db",
                "SQLITE_JOURNAL_MODE": "WAL",
                "SQLITE_TIMEOUT": 20000,
                "DB_RETRIES": 1,
            },
            "security": {
                "INSTALL_LOCK": True,
                "SECRET_KEY_URI": secret("secret_key"),
                "INTERNAL_TOKEN_URI": secret("internal_token"),
                "PASSWORD_HASH_ALGO": "pbkdf2",
                "MIN_PASSWORD_LENGTH": 20,
                "DISABLE_GIT_HOOKS": True,
                "DISABLE_QUERY_AUTH_TOKEN": True,
            },
            "oauth2": {"ENABLED": False, "JWT_SECRET_URI": secret("jwt_secret")},
            "openid": {"ENABLE_OPENID_SIGNIN": False, "ENABLE_OPENID_SIGNUP": False},
            "service": {
                "DISABLE_REGISTRATION": True,
                "REGISTER_MANUAL_CONFIRM": False,
                "ENABLE_NOTIFY_MAIL": False,
                "DEFAULT_KEEP_EMAIL_PRIVATE": True,
                "NO_REPLY_ADDRESS": "users.noreply.localhost",
                "DEFAULT_ALLOW_CREATE_ORGANIZATION": False,
            },
            "mailer": {"ENABLED": False},
            "repository": {
                "ROOT": self.folder / "repositories",
                "DEFAULT_BRANCH": "main",
                "DISABLE_HTTP_GIT": False,
                "DISABLE_MIRRORS": True,
                "DISABLE_MIGRATIONS": True,
            },
            "mirror": {"ENABLED": False},
            "migrations": {"ALLOWED_DOMAINS": "127.0.0.1", "ALLOW_LOCALNETWORKS": False},
            # Gitea sends an event once. On a busy machine Argo CD may take longer to accept it than the default of 5 s.
            "webhook": {"ALLOWED_HOST_LIST": "loopback", "PROXY_URL": "", "DELIVER_TIMEOUT": 60},
            "packages": {"ENABLED": False},
            "federation": {"ENABLED": False},
            "actions": {"ENABLED": True, "DEFAULT_ACTIONS_URL": "self", "WORKFLOW_DIRS": ".github/workflows"},
            "cron": {"ENABLED": True, "RUN_AT_START": False},
            "cron.update_checker": {"ENABLED": False},
            "session": {"PROVIDER": "file", "COOKIE_SECURE": False},
            "indexer": {"ISSUE_INDEXER_TYPE": "db", "REPO_INDEXER_ENABLED": False},
            "log": {"MODE": "console", "LEVEL": "Info", "COLORIZE": False},
            "log.console": {"COLORIZE": False},
            "other": {"SHOW_FOOTER_VERSION": True, "ENABLE_SITEMAP": False},
            "git": {"HOME_PATH": self.folder / "home", "DISABLE_DIFF_HIGHLIGHT": True},
            # Gitea reads the protected files that a change touches from `git diff --name-only`: there a renamed file
            # must show its old name, and a name with other letters than ASCII must not be quoted. Trees that git reads
            # in one way and checks out in another are refused when they are pushed.
            "git.config": {"diff.renames": "false", "core.quotePath": "false", "transfer.fsckObjects": "true"},
        }
        parser = configparser.RawConfigParser()
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        for section, values in sections.items():
            if section != "DEFAULT":
                parser.add_section(section)
            for key, value in values.items():
                parser.set(section, key, str(value).lower() if isinstance(value, bool) else str(value))
        text = io.StringIO()
        parser.write(text)
        # Lines before the first section belong to Gitea's default section.
        return text.getvalue().removeprefix("[DEFAULT]\n")
