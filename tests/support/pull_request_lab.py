"""A repository with the gate's workflow on a real forge, and the actions of a developer and an owner."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from forge_server import ForgeServer
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.interface import MergeRefusedError, PullRequest, RepositoryRef
from neuroscale.forge.rest import wait_for_status
from neuroscale.local.forge_repository import REQUIRED_STATUS
from repositories import Repository, copy_of_the_example_repository
from roots import ROOT

ANSWERS = ROOT / "templates/examples/gemma-4-26b-a4b-qat.yaml"
WITHIN = 300.0  # seconds for a run; about ten on a quiet machine


def committed_repository(folder: Path) -> Path:
    """This repository's files in a commit, with which the forge's main begins."""
    source = copy_of_the_example_repository(folder / "platform")
    source.commit({})
    source.git.close()
    return source.root


def cloned(server: ForgeServer, main_branch: Path, folder: Path) -> Project:
    """A separate repository that begins with that commit. The caller closes the clone's git."""
    repository = server.create_repository(main_branch)
    clone = Repository(folder)
    clone.run("remote", "add", "origin", repository.clone_url)
    clone.run("fetch", "--quiet", "origin")
    clone.run("switch", "--quiet", "--force-create", "main", "origin/main")
    return Project(server, repository, clone)


@dataclass
class Project:
    """A repository of its own on the forge, and a developer's clone of it, who may only read."""

    server: ForgeServer
    repository: RepositoryRef
    clone: Repository

    @property
    def developer(self) -> GiteaForge:
        return self.server.forge(self.repository, self.server.developer)

    @property
    def owner(self) -> GiteaForge:
        return self.server.forge(self.repository, self.server.owner)

    def request(self, answers: Path = ANSWERS, expect: int = 0) -> PullRequest:
        """`neuroscale request` as the developer types it."""
        command = [sys.executable, "-P", "-m", "neuroscale", "request", "--answers", str(answers), "--json"]
        command += ["--token-file", str(self.server.token_file("developer"))]
        done = subprocess.run(command, cwd=self.clone.root, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == expect, done.stdout + done.stderr
        return self.developer.pull(json.loads(done.stdout)["number"])

    def open(self, branch: str, files: dict[str, bytes | str | None], base: str = "origin/main") -> PullRequest:
        """A pull request of a change made by hand, from the developer's fork."""
        self.clone.run("switch", "--quiet", "--force-create", branch, base)
        commit = self.clone.commit(files)
        fork = self.developer.fork().ref
        Branches(self.clone.git, Access(self.repository.clone_url, self.server.developer)).push(
            fork, branch, commit, None
        )
        return self.developer.open_pull(branch, "By hand.", fork, branch, "main")

    def status(self, pull: PullRequest) -> str:
        return wait_for_status(self.owner, pull.head_sha, REQUIRED_STATUS, WITHIN).state

    def comments(self, pull: PullRequest) -> list[str]:
        return [comment.body for comment in self.owner.comments(pull.number)]

    def refused(self, pull: PullRequest) -> str:
        """Approve, try to merge as the owner, and return the forge's reason for its refusal."""
        self.owner.approve(pull.number, pull.head_sha)
        with pytest.raises(MergeRefusedError) as caught:
            self.owner.merge(pull.number, pull.head_sha)
        return str(caught.value)

    def main(self) -> str:
        self.clone.run("fetch", "--quiet", "origin")
        return self.clone.run("rev-parse", "origin/main")

    def files(self, commit: str) -> frozenset[str]:
        """The files that git tracks there."""
        return frozenset(self.clone.run("ls-tree", "-r", "-z", "--name-only", commit).split("\0"))
