"""Reads the services in a clone of the repository: from the folders of its default branch, or from a commit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import decode, read_mapping
from neuroscale.kube.client import Object
from neuroscale.planning.plan import Plan, read_plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.repo.git import Git, GitError, fetch_origin
from neuroscale.repo.layout import MANIFESTS, REQUEST_FILE, SERVICE_FILE, ServicePath
from neuroscale.repo.snapshot import FolderSnapshot, GitSnapshot, Snapshot, read_file, read_text
from neuroscale.request.service_request import Request, load_request, read_request

_FETCHED = re.compile(r"(https?|ssh)://")
"""The addresses that are fetched from: no file of this machine, and no program of git's that somebody names."""


@dataclass(frozen=True)
class Planned:
    """A service's request and plan."""

    name: str
    request: Request
    plan: Plan


def planned_service(service: ServicePath, snapshot: Snapshot, inputs: PlanningInputs) -> Planned | None:
    """The request and the plan of a service; None if it has none that can be read."""
    try:
        plan = read_plan(snapshot, service.folder)
        path = f"{service.folder}/{REQUEST_FILE}"
        request = read_request(read_text(snapshot, path), path, inputs.catalog, inputs.settings) if plan else None
    except (OSError, InputError):
        return None
    return Planned(service.name, request, plan) if request and plan else None


class Clone:
    """A clone, as it was last fetched; its work tree counts only if git is missing.

    `newest` brings the newest commit of the default branch from another place than the origin (None: it cannot), and
    returns it.
    """

    def __init__(self, root: Path, branch: str, newest: Callable[[Git], str | None] | None = None) -> None:
        self._git = Git(root)
        self._newest = newest
        self._brought: str | None = None
        self._root = root
        self._branch = branch
        self._source = ""
        self._trees: dict[tuple[str, str], dict[str, str]] = {}
        self._commits: dict[str, str | None] = {}

    def follow(self, source: str) -> None:
        """Read the remote with this address, if the clone has it: Argo CD reads that repository."""
        if source != self._source:
            self._source = source
            self._read_anew()

    def fetch(self) -> None:
        """Fetch the newest commits, if that is possible without a password prompt, and read them."""
        if self._newest is None:
            fetch_origin(self._git)
        else:
            self._brought = self._newest(self._git) or self._brought
        self._commits.clear()
        self._read_anew()

    @property
    def fetch_line(self) -> str:
        """The command that fetches what Argo CD reads: of the remote with its address, else of the address itself."""
        urls = self._urls()
        remotes = self._that_argo_cd_reads(urls) if self._source else [name for name in ("origin",) if name in urls]
        if self._source and not remotes:
            return shlex.join(["git", "fetch", self._source, self._branch])
        return shlex.join(["git", "fetch", *remotes[:1]])

    @property
    def sources(self) -> tuple[str, ...]:
        """The remotes that may have what Argo CD reads, the likeliest first, and the address that it reads."""
        addresses = [self._source] if _FETCHED.match(self._source) else []
        return (*self._remotes(), *addresses)

    def close(self) -> None:
        """End git's child process."""
        self._git.close()

    @cached_property
    def tip(self) -> str | None:
        """The newest commit of the default branch in this clone; None without git."""
        if self._brought is not None:
            return self._brought
        named = [f"refs/remotes/{name}/{self._branch}" for name in self._remotes()]
        for name in (*named, f"refs/heads/{self._branch}", "HEAD"):
            if (found := self._commit(name)) is not None:
                return found
        return None

    @cached_property
    def services(self) -> frozenset[ServicePath]:
        """The services of the default branch."""
        found = (ServicePath.of(entry.path) for entry in self._snapshot.entries(MANIFESTS))
        names = {service for service in found if service is not None}
        if self.tip is None:
            return frozenset(one for one in names if self._snapshot.read(f"{one.folder}/{REQUEST_FILE}") is not None)
        return frozenset(names)

    def removed(self, service: ServicePath) -> bool:
        """Whether the default branch once held the service's folder, and does no more."""
        if self.tip is None or service in self.services:
            return False
        return bool(self._git.text("log", "--max-count=1", "--format=%H", self.tip, "--", service.folder))

    def request(self, service: ServicePath) -> Request | None:
        """The answers of a service in the default branch; None if there are none, or they cannot be read."""
        try:
            return read_file(self._snapshot, f"{service.folder}/{REQUEST_FILE}", load_request)
        except InputError:
            return None

    def holding(self, service: ServicePath) -> Snapshot:
        """The default branch, or the work tree for a service that only that holds."""
        return self._snapshot if service in self.services else FolderSnapshot(self._root)

    def wanted(self, service: ServicePath, revision: str = "") -> Object | None:
        """The InferenceService in a commit of this clone (empty: in the default branch).

        None if it does not exist there, or cannot be read.
        """
        path = f"{service.folder}/{SERVICE_FILE}"
        data = (GitSnapshot(self._git, revision) if revision else self._snapshot).read(path)
        try:
            found: Any = None if data is None else read_mapping(decode(data, path), path).value
        except InputError:
            return None
        return found if isinstance(found, dict) else None

    def contains(self, revision: str, service: ServicePath) -> bool | None:
        """Whether a commit has the last change of a service. None if this clone does not have the commit."""
        if revision not in self._commits:
            self._commits[revision] = self._commit(revision) if revision else None
        commit = self._commits[revision]
        if self.tip is None or commit is None or service not in self.services:
            return None
        there, newest = (self._folders(one, service.environment).get(service.folder) for one in (commit, self.tip))
        if there == newest:
            return True
        # Different content is newer only if the commit comes after every commit of this clone.
        return self._git.run("merge-base", "--is-ancestor", self.tip, commit, check=False).returncode == 0

    @cached_property
    def _snapshot(self) -> Snapshot:
        return FolderSnapshot(self._root) if self.tip is None else GitSnapshot(self._git, self.tip)

    def _read_anew(self) -> None:
        for name in ("tip", "services", "_snapshot"):
            self.__dict__.pop(name, None)

    def _folders(self, commit: str, environment: str) -> dict[str, str]:
        """Git's hash of the tree of each service folder, by the folder's path."""
        key = (commit, environment)
        if key not in self._trees:
            below = f"{MANIFESTS}/{environment}/"
            rows = self._git.records("ls-tree", "-z", "--full-tree", commit, "--", below)
            self._trees[key] = {path: meta.split(" ")[2] for meta, path in (row.split("\t", 1) for row in rows)}
        return self._trees[key]

    def _commit(self, name: str) -> str | None:
        arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        try:
            done = self._git.run(*arguments, check=False)
        except GitError:
            return None
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def _remotes(self) -> list[str]:
        """The names of the remotes: the one that Argo CD reads, then origin."""
        urls = self._urls()
        same = self._that_argo_cd_reads(urls)
        return [*same, *(name for name in ("origin",) if name in urls and name not in same)]

    def _that_argo_cd_reads(self, urls: dict[str, str]) -> list[str]:
        """The names of the remotes with the address that Argo CD reads; none if that is not known."""
        return [name for name, url in urls.items() if self._source and _address(url) == _address(self._source)]

    def _urls(self) -> dict[str, str]:
        """The addresses of the remotes, by name."""
        try:
            done = self._git.run("config", "--null", "--get-regexp", r"^remote\..*\.url$", check=False)
        except GitError:
            return {}
        rows = [row.split("\n", 1) for row in done.stdout.decode(errors="replace").split("\0") if "\n" in row]
        return {key.removeprefix("remote.").removesuffix(".url"): url for key, url in rows}


def _address(url: str) -> str:
    """`host/path` of a remote, whatever its protocol."""
    bare = re.sub(r"^[a-z+]+://", "", url.strip().lower())
    bare = re.sub(r"^[^/@]*@", "", bare).removesuffix("/").removesuffix(".git")
    return re.sub(r"^([^/:]+):(?!\d+/)", r"\1/", bare)
