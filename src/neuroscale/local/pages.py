"""Runs the pages on which people ask for services (`neuroscale serve`), with this platform's forge and cluster."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core.printable import one_line
from neuroscale.core.tool_cache import cache_folder
from neuroscale.local.forge_accounts import DEVELOPER
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.gitea import NAME as GITEA
from neuroscale.local.process import Process, answers
from neuroscale.local.state import LocalError, State

NAME: Final = "pages"
PORTS = (NAME,)


@dataclass(frozen=True)
class Pages:
    """The pages of a local platform: their clone and their process. The port must have been chosen."""

    state: State

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.state.instance.ports[NAME]}/"

    @property
    def clone(self) -> Path:
        """A clone of its own: what a person has checked out meanwhile does not count."""
        return self.state.run / NAME

    def prepare(self, checkout: Path) -> None:
        """Make the clone, if it is missing. Raises LocalError."""
        if self.clone.exists():
            return
        command = ["git", "clone", "--quiet", "--no-tags", "--single-branch", str(checkout), str(self.clone)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LocalError(f"git cannot clone {checkout} for the pages: {one_line(done.stderr, 400)}")

    def process(self) -> Process:
        """The process for the supervisor. It runs as the person who started the platform, whose tools judge."""
        port, forge = self.state.instance.ports[NAME], LocalForge(self.state)
        options = ["--local", "--state", str(self.state.folder), "--port", str(port), "--repository", str(self.clone)]
        if self.state.instance.portal:
            options += ["--token-file", str(forge.account(DEVELOPER).token_file)]
            options += ["--portal-token-file", str(portal_token(self.state))]
        return Process(
            name=NAME,
            argv=(sys.executable, "-P", "-m", "neuroscale", "serve", *options),
            environment={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(Path.home()),
                "LANG": "C.UTF-8",
                "NEUROSCALE_CACHE": str(cache_folder()),
            },
            folder=self.clone,
            user=None,
            ready=lambda: answers(f"{self.url}healthz"),
            port=port,
            needs=(GITEA,),
            # The account that opens the pull requests of a portal's guest must be there before the server starts.
            prepare=lambda: forge.ensure_account(DEVELOPER) if self.state.instance.portal else None,
            stops_within=12.0,
        )


def portal_token(state: State) -> Path:
    """The file of the token by which Backstage shows itself to the pages' server."""
    return state.tokens / "portal"
