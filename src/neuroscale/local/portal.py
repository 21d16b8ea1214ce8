"""Runs Backstage on this machine, with this platform's forge behind it: its guest is the forge's developer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core import delivered
from neuroscale.core.files import write_private
from neuroscale.core.tool_cache import node_folder
from neuroscale.core.yaml_io import dump
from neuroscale.local import gitea
from neuroscale.local.forge_accounts import DEVELOPER, LOGINS
from neuroscale.local.forge_setup import OWNER
from neuroscale.local.forge_setup import REPOSITORY as FORGE_REPOSITORY
from neuroscale.local.gitea import Gitea
from neuroscale.local.pages import NAME as PAGES
from neuroscale.local.pages import Pages, portal_token
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PRIVATE, LocalError, State
from neuroscale.repo.layout import TEMPLATE

NAME: Final = "portal"
PORTS = (NAME,)
FOLDER: Final = delivered.FOLDER / "platform" / "portal"
SET_UP: Final = "python3 scripts/setup.py --for portal"
_READY_WITHIN = 300.0  # seconds: the first start copies the pages into its database


@dataclass(frozen=True)
class Portal:
    """The Backstage of a local platform. The ports must have been chosen."""

    state: State

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.state.instance.ports[NAME]}"

    def prepare(self) -> None:
        """Write its token and its own configuration. Raises LocalError where set-up has not installed it."""
        if _node() is None or not (FOLDER / "app" / "dist" / "index.html").exists():
            where = "" if delivered.CHECKOUT else " in a checkout of neuroscale's source, and run the platform there"
            raise LocalError(f"Backstage is not installed (1.2 GB). Install it{where}: {SET_UP}")
        self.state.make_folder(self._folder, None)
        token = portal_token(self.state)
        token.parent.mkdir(mode=PRIVATE, exist_ok=True)
        if not token.exists():
            write_private(token, secrets.token_urlsafe(32) + "\n")
        own = {"token": {"$file": str(token)}, "refreshSeconds": 5, "pagesUrl": Pages(self.state).url.rstrip("/")}
        write_private(self._config, dump({"neuroscale": own}))

    def process(self) -> Process:
        """The process for the supervisor. It runs as the person who started the platform."""
        port, forge = self.state.instance.ports[NAME], Gitea(self.state).url
        template = f"{forge}/{OWNER}/{FORGE_REPOSITORY}/src/branch/main/{TEMPLATE}/template.yaml"
        return Process(
            name=NAME,
            argv=(str(_node()), "index.js", "--config", "app-config.yaml", "--config", str(self._config)),
            environment={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(Path.home()),
                "LANG": "C.UTF-8",
                "NODE_ENV": "production",
                "NEUROSCALE_PORTAL_URL": self.url,
                "NEUROSCALE_PORTAL_PORT": str(port),
                "NEUROSCALE_PORTAL_DATA": str(self._folder / "data"),
                "NEUROSCALE_PORTAL_USER": LOGINS[DEVELOPER],
                "NEUROSCALE_SERVE_URL": Pages(self.state).url.rstrip("/"),
                "NEUROSCALE_FORGE_HOST": forge.partition("://")[2],
                "NEUROSCALE_FORGE_URL": forge,
                "NEUROSCALE_TEMPLATE_URL": template,
            },
            folder=FOLDER,
            user=None,
            ready=lambda: answers(f"{self.url}/.backstage/health/v1/readiness"),
            port=port,
            needs=(gitea.NAME, PAGES),
            settings=self._config.read_text(encoding="utf-8") if self._config.exists() else "",
            ready_within=_READY_WITHIN,
            stops_within=20.0,
        )

    @property
    def _folder(self) -> Path:
        return self.state.run / NAME

    @property
    def _config(self) -> Path:
        return self._folder / "config.yaml"


def _node() -> Path | None:
    """Node, as the Python packages for development bring it."""
    folder = node_folder(delivered.FOLDER / ".venv")
    return folder / "bin" / "node" if folder else None
