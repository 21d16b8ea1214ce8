"""A repository on the forge, and a developer's clone of it, in which commands that open pull requests run."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command_line import Said
from fault_proxy import FaultProxy, Hold
from forge_server import ForgeServer
from neuroscale.forge.http import AnswerError
from neuroscale.forge.interface import PullRequest, RepositoryRef, Token
from plan_factory import ANSWERS
from repositories import Repository
from roots import ROOT
from waiting import wait_for

SERVICE = "manifests/dev/support-chat"
BRANCH = "neuroscale/dev/support-chat"


class Site:
    """A repository on the forge, and a developer's clone of it."""

    def __init__(self, server: ForgeServer, platform: Path, folder: Path) -> None:
        self.server = server
        self.folder = folder
        shutil.copytree(platform, folder / "main")
        self.main = Repository(folder / "main")
        self.ref = server.create_repository(self.main.root)
        # Here main moves by a push; how it is protected is tested elsewhere.
        server.api("DELETE", f"/repos/{self.ref.slug}/branch_protections/main")
        shutil.copytree(self.main.root, folder / "clone")
        self.clone = Repository(folder / "clone")
        self.clone.run("remote", "add", "origin", self.ref.clone_url)
        self.environment: dict[str, str] = {}

    @property
    def fork(self) -> RepositoryRef:
        return RepositoryRef(self.server.url, "developer", self.ref.name)

    def through(self, proxy: FaultProxy) -> None:
        """Let the clone reach the forge through a proxy."""
        self.clone.run("remote", "set-url", "origin", f"{proxy.url}/{self.ref.slug}.git")

    def answers(self, **changes: Any) -> Path:
        path = self.folder / f"answers-{abs(hash(str(changes)))}.yaml"
        path.write_text(json.dumps({**ANSWERS, **changes}, indent=1))
        return path

    def start(
        self, *arguments: object, role: str = "developer", command: str = "request", **popen: Any
    ) -> subprocess.Popen[str]:
        token = self.server.token_file(role)
        program = [sys.executable, "-P", "-m", "neuroscale", command, "--token-file", str(token)]
        return subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=self.clone.root,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )

    def end(self, process: subprocess.Popen[str], given: str | None = None) -> Said:
        out, err = process.communicate(given, timeout=300)
        assert "Traceback" not in out + err
        assert "a defect of this program" not in out + err
        for secret in (self.server.developer, self.server.owner, self.server.admin):
            assert secret.secret not in out + err
            assert base64.b64encode(f"x-access-token:{secret.secret}".encode()).decode() not in out + err
        return Said(process.returncode, out, err)

    def request(self, *arguments: object, role: str = "developer", **changes: Any) -> Said:
        """Run the command for the usual answers with changes, and read what it prints for programs."""
        return self.end(self.start("--json", "--answers", self.answers(**changes), *arguments, role=role))

    def run(self, command: str, *arguments: object, role: str = "developer") -> Said:
        """Run another command."""
        return self.end(self.start(*arguments, role=role, command=command))

    def plainly(self, *words: str) -> Said:
        """Run a command that asks no forge, and so takes no token."""
        program = [sys.executable, "-P", "-m", "neuroscale", *words]
        pipe = subprocess.PIPE
        return self.end(subprocess.Popen(program, cwd=self.clone.root, text=True, stdout=pipe, stderr=pipe))

    def pulls(self, state: str = "open") -> list[PullRequest]:
        _, listed = self.server.api("GET", f"/repos/{self.ref.slug}/pulls?state={state}")
        forge = self.server.forge(self.ref, self.server.admin)
        return [forge.pull(entry["number"]) for entry in listed]

    def pull(self) -> PullRequest:
        (only,) = self.pulls()
        return only

    def commits(self, number: int) -> list[dict[str, Any]]:
        """Of a pull request, newest first."""
        _, listed = self.server.api("GET", f"/repos/{self.ref.slug}/pulls/{number}/commits")
        return list(listed)

    def files(self, head: str) -> dict[str, str]:
        """What a commit on the forge changes against main: path to content."""
        self.main.run("fetch", "--quiet", self.url(self.server.admin, self.fork), head)
        base = self.main.run("merge-base", "main", head)
        names = self.main.run("diff", "--name-only", base, head).splitlines()
        return {name: self.main.run("show", f"{head}:{name}") for name in names}

    def url(self, token: Token, ref: RepositoryRef | None = None) -> str:
        return (ref or self.ref).clone_url.replace("://", f"://x:{token.secret}@")

    def push_main(self, files: dict[str, bytes | str | None], message: str = "Somebody else's change") -> str:
        commit = self.main.commit(files, message)
        self.main.run("push", "--quiet", self.url(self.server.admin), "HEAD:main")
        return commit

    def merge(self) -> None:
        """Merge the one open pull request."""
        pull = self.pull()
        fields = {"do": "squash", "head_commit_id": pull.head_sha}
        path = f"/repos/{self.ref.slug}/pulls/{pull.number}/merge"

        def merged() -> bool:
            try:
                self.server.client(self.server.admin).send("POST", path, idempotent=False, body=fields)
            except AnswerError as error:  # Gitea looks first whether it can be merged
                if "try again later" not in str(error):
                    raise
                return False
            return True

        wait_for(merged, 60, "Gitea merges the pull request")
        self.main.run("pull", "--quiet", "--ff-only", self.url(self.server.admin), "main")

    def commit_to_branch(self, files: dict[str, bytes | str | None], message: str) -> str:
        """A commit of a person's own on the branch in the developer's fork."""
        root = self.folder / "person"
        shutil.rmtree(root, ignore_errors=True)
        self.main.run("clone", "--quiet", "--branch", BRANCH, self.url(self.server.developer, self.fork), str(root))
        person = Repository(root)
        commit = person.commit(files, message)
        person.run("push", "--quiet", "origin", f"HEAD:{BRANCH}")
        person.git.close()
        return commit

    def tip(self, ref: RepositoryRef, branch: str = BRANCH) -> str | None:
        return self.server.forge(self.ref, self.server.admin).branch(ref, branch)


def make_platform(folder: Path) -> Path:
    """What decides about services, as one commit on main."""
    made = Repository(folder / "repository")
    for part in ("platform/catalog", "templates", "policies"):
        shutil.copytree(ROOT / part, made.root / part)
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    made.commit({"README.md": "# Models\n", ".gitignore": "ignored\n"}, "platform")
    made.pack()
    made.git.close()
    return made.root


@contextlib.contextmanager
def opened_site(server: ForgeServer, platform: Path, folder: Path) -> Iterator[Site]:
    """A site, until its last command has ended."""
    made = Site(server, platform, folder)
    try:
        yield made
    finally:
        made.clone.git.close()
        made.main.git.close()


def hold_at(proxy: FaultProxy, method: str, path: str, *, after: bool) -> Hold:
    hold = Hold(after=after)
    proxy.add(method, path, hold)
    return hold
