"""A platform repository on a real forge, merges into it, and made-up results of their smoke tests."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from cluster_lab import run
from fault_proxy import FaultProxy
from forge_server import ForgeServer
from neuroscale.forge.after_merge.comments import MARKER
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.interface import PullRequest, RepositoryRef
from neuroscale.forge.rest_shapes import PullShape
from neuroscale.forge.revert import PREFIX
from neuroscale.local.forge_accounts import REVERT
from repositories import Repository
from roots import ROOT

NEEDED = ("platform/", "templates/", "policies/tripwires.yaml")


def check(service: str, name: str, outcome: str = "passed", message: str = "", do: str = "") -> dict[str, Any]:
    return {
        "service": service,
        "check": name,
        "title": name.replace("-", " ").capitalize(),
        "outcome": outcome,
        "seconds": 1.25,
        "message": message,
        "next": do,
        "needs": "",
    }


def passing(service: str) -> list[dict[str, Any]]:
    return [check(service, "health"), check(service, "chat", message="12 tokens")]


def failing(service: str, what: str = "answers 500") -> list[dict[str, Any]]:
    return [check(service, "health"), check(service, "chat", "failed", what, "neuroscale query SERVICE hello")]


@dataclass
class Seen:
    """The results of an environment's tests. `verdicts`: the verdict of the cluster's status, by service."""

    checks: list[dict[str, Any]]
    environment: str = "dev"
    verdicts: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    revision: str = ""

    def write(self, folder: Path, revision: str) -> None:
        outcomes = {one["outcome"] for one in self.checks}
        passed = not self.problems and "passed" in outcomes and not outcomes & {"failed", "error"}
        smoke = {
            "schema_version": 1,
            "environment": self.environment,
            "revision": self.revision or revision,
            "passed": passed,
            "started": "2026-01-01T00:00:00+00:00",
            "seconds": 3.5,
            "problems": list(self.problems),
            "checks": self.checks,
        }
        names = sorted({one["service"] for one in self.checks if one["service"]})
        status = {
            "schema_version": 1,
            "services": [
                {
                    "name": name,
                    "environment": self.environment,
                    "verdict": self.verdicts.get(name, "ready"),
                    "reason": "as the cluster says",
                    "url": f"https://{name}.example.com",
                    "model": "tiny",
                }
                for name in names
            ],
        }
        there = folder / self.environment
        there.mkdir(parents=True, exist_ok=True)
        (there / "smoke.json").write_text(json.dumps(smoke))
        (there / "status.json").write_text(json.dumps(status))


@dataclass(frozen=True)
class Said:
    """The exit status of a command, and its whole output."""

    status: int
    text: str


class Project:
    """A separate repository without protection of its main branch, and a clone of it."""

    def __init__(self, server: ForgeServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.clone = Repository(folder / "clone")
        for name in self._files():
            target = self.clone.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
        self.clone.commit({})
        self.repository: RepositoryRef = server.create_repository(self.clone.root)
        server.api("DELETE", f"/repos/{self.repository.slug}/branch_protections/main")
        server.local.allow_smoke_tests(self.repository, "not used here", ("dev",))
        self.bot = server.local.account(REVERT)
        self.runs = 0

    @staticmethod
    def _files() -> list[str]:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--", *NEEDED], capture_output=True, text=True, check=True
        )
        return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]

    @property
    def owner(self) -> GiteaForge:
        return self.server.forge(self.repository, self.server.owner)

    def merge(self, files: dict[str, bytes | str | None], title: str = "Change") -> PullRequest:
        """Merge a pull request of the owner with these files by squashing; afterwards the clone is at main."""
        branch = f"work-{secrets.token_hex(4)}"
        self.fetch()
        self.clone.run("switch", "--quiet", "--force-create", branch)
        commit = self.clone.commit(files)
        Branches(self.clone.git, Access(self.repository.clone_url, self.server.owner)).push(
            self.repository, branch, commit, None
        )
        pull = self.owner.open_pull(title, "", self.repository, branch, "main")
        self.owner.merge(pull.number, pull.head_sha)
        self.fetch()
        return self.owner.pull(pull.number)

    def push(self) -> None:
        """Push the clone's HEAD to main, past every pull request."""
        branches = Branches(self.clone.git, Access(self.repository.clone_url, self.server.admin))
        branches.push(self.repository, "main", self.main, branches.tip(self.repository, "main"))

    def fetch(self) -> str:
        """Bring the clone to the forge's main; its commit."""
        self.clone.run("fetch", "--quiet", self.repository.clone_url, "main")
        self.clone.run("switch", "--quiet", "--force-create", "main", "FETCH_HEAD")
        return self.main

    @property
    def main(self) -> str:
        return self.clone.run("rev-parse", "HEAD")

    def tell(
        self,
        *tested: Seen,
        proxy: FaultProxy | None = None,
        environments: tuple[str, ...] = (),
        token: str | None = None,
    ) -> Said:
        """`neuroscale after-merge` as the workflow runs it, after tests that ended so.

        `token`: None for the token of the account that opens reverts; "" if the forge has no such token.
        """
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        for one in tested:
            one.write(folder, self.main)
        environment = {
            "GITHUB_SERVER_URL": proxy.url if proxy else self.server.url,
            "GITHUB_REPOSITORY": self.repository.slug,
            "GITHUB_RUN_ID": str(self.runs),
            "GITHUB_RUN_NUMBER": str(self.runs),
            "GITHUB_RUN_ATTEMPT": "1",
            "NEUROSCALE_FORGE_TOKEN": self.bot.token().secret if token is None else token,
        }
        names = environments or tuple(one.environment for one in tested)
        named = [part for name in names for part in ("--environment", name)]
        with mock.patch.dict(os.environ, environment):
            done = run("after-merge", folder, *named, "--repository", self.clone.root)
        text = done.out + done.err
        assert self.bot.token().secret not in text
        return Said(done.status, text)

    def pulls(self) -> list[PullRequest]:
        """All pull requests of the repository, oldest first."""
        client = self.server.client(self.server.admin)
        listed = client.pages(f"/repos/{self.repository.slug}/pulls", {"state": "all"})
        found = [self.owner._to_pull(PullShape.model_validate(one)) for one in listed]
        return sorted(found, key=lambda pull: pull.number)

    def reverts(self, merged: PullRequest) -> list[PullRequest]:
        """The reverts of a merge."""
        return [pull for pull in self.pulls() if pull.head_branch.startswith(f"{PREFIX}{merged.number}-")]

    def comments(self, pull: PullRequest) -> list[str]:
        """The texts of the smoke tests' comments, without hidden lines."""
        found = [one.body for one in self.owner.comments(pull.number) if one.body.startswith(MARKER)]
        return [re.sub(r"<!-- neuroscale-.*?-->\n", "", body) for body in found]

    def files(self, commit: str, folder: str) -> dict[str, str]:
        """The folder at a commit: mode and blob by path."""
        rows = self.clone.run("ls-tree", "-r", commit, "--", folder).splitlines()
        return {path: meta for meta, path in (row.split("\t") for row in rows)}

    def fetch_pull(self, pull: PullRequest) -> str:
        """Bring a pull request's head into the clone."""
        self.clone.run("fetch", "--quiet", self.repository.clone_url, f"refs/pull/{pull.number}/head")
        return self.clone.run("rev-parse", "FETCH_HEAD")
