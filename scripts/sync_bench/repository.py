"""Makes a repository for one run: this repository with room for many services, and a branch that adds them all."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.forge.branches import Access, Branches
from neuroscale.forge.http import Client, segments
from neuroscale.local.forge_accounts import ADMIN
from neuroscale.local.forge_repository import MAIN
from neuroscale.local.forge_setup import LocalForge
from neuroscale.planning.planner import plan
from neuroscale.rendering.example_files import make_example
from neuroscale.rendering.platform.files import render_repository, write
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.rendering.service_folder import render
from neuroscale.repo.git import Git
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.request.service_request import Request

ENVIRONMENT = "dev"
_BRANCH = "many-services"
_MERGEABLE_WITHIN = 600.0  # seconds that the forge may take to see that the pull request can be merged
_PLENTY = 100_000
_WHO = ("-c", "user.name=Bench", "-c", "user.email=bench@example.org")


@dataclass(frozen=True)
class Scratch:
    """A repository's work tree on its main branch, with `services` new ones on a branch of their own.

    `nodes_each`: the simulated nodes for each accelerator that hold them all.
    """

    root: Path
    services: int
    accelerator: str
    nodes_each: int


@dataclass(frozen=True)
class Merged:
    """The merge: the time of the request to the forge (by `time.monotonic`), and the seconds until its answer.

    `mergeable`: the seconds that the forge took before to see that the pull request can be merged.
    """

    asked: float
    answered: float
    mergeable: float


def make(root: Path, source: Path, services: int) -> Scratch:
    """The example organisation's repository at `root`, with the other files of `source`, its quotas raised and without
    services.

    The environment keeps the one accelerator that the services are planned for, so that only its nodes are simulated.
    """
    _copy(source, root)
    make_example(root)
    snapshot = FolderSnapshot(root)
    teams = sorted(load_catalog(snapshot).teams)
    planned = plan(_request("measured", teams[0]), load_catalog(snapshot), load_settings(snapshot))

    def keep_one(found: Any) -> None:
        found["environments"][ENVIRONMENT]["accelerators"] = [planned.accelerator]

    _change(root / "platform/settings.yaml", keep_one)
    for path in sorted((root / "platform/catalog/teams").glob("*.yaml")):
        _change(path, raise_quota)
    snapshot = FolderSnapshot(root)
    write(root, snapshot, render_repository(snapshot))
    git = Git(root)
    git.run("init", "--quiet", f"--initial-branch={MAIN}")
    _commit(git, "Begin")
    git.run("switch", "--quiet", "--create", _BRANCH)
    _write_services(root, services, teams)
    # The measurement excludes its workflows.
    _commit(git, f"Serve {services} models [skip ci]")
    git.run("switch", "--quiet", MAIN)
    largest = max(load_catalog(snapshot).accelerators[planned.accelerator].counts)
    wanted = services * planned.accelerator_count * planned.replicas.max
    return Scratch(root, services, planned.accelerator, math.ceil(wanted / largest) + 1)


def merge(scratch: Scratch, local: LocalForge) -> Merged:
    """Merge all services at once, as one commit and past the gate, as an administrator can."""
    token = local.account(ADMIN).token()
    client = Client(f"{local.url}/api/v1", token)
    with closing(Git(scratch.root)) as git:
        branches = Branches(git, Access(local.platform.clone_url, token))
        branches.push(local.platform, _BRANCH, git.commit(_BRANCH, "branch"), None)
    path = f"/repos/{segments(local.platform.owner, local.platform.name)}"
    title = f"Serve {scratch.services} models [skip ci]"
    request = {"base": MAIN, "head": _BRANCH, "title": title}
    number = client.send("POST", f"{path}/pulls", idempotent=False, body=request).data["number"]
    merging = {"do": "squash", "force_merge": True, "merge_title_field": title}
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        answer = client.send(
            "POST", f"{path}/pulls/{number}/merge", idempotent=False, body=merging, accept=(404, 405, 409)
        )
        if answer.status < 300:
            return Merged(asked, time.monotonic() - asked, asked - began)
        if asked - began > _MERGEABLE_WITHIN:
            raise SystemExit(f"the forge does not merge #{number}: {answer.status} {answer.data}")
        time.sleep(0.5)


def _copy(source: Path, root: Path) -> None:
    with closing(Git(source)) as git:
        names = git.records("ls-files", "-z")
    for name in names:
        is_of_service = name.startswith("manifests/") and name.count("/") > 1
        if not is_of_service and (source / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, root / name)


def _write_services(root: Path, services: int, teams: Sequence[str]) -> None:
    snapshot = FolderSnapshot(root)
    catalog, settings, template = load_catalog(snapshot), load_settings(snapshot), load_template(snapshot)
    for number in range(services):
        request = _request(f"bench-{number}", teams[number % len(teams)])
        made = plan(request, catalog, settings, template.version)
        folder = root / "manifests" / ENVIRONMENT / request.service
        folder.mkdir(parents=True)
        for name, text in render(request, made, template).items():
            (folder / name).write_text(text, encoding="utf-8")


def _request(service: str, team: str) -> Request:
    return Request(
        service=service,
        model="google/gemma-4-26B-A4B-it-qat-w4a16-ct",
        team=team,
        environment=ENVIRONMENT,
        concurrent_users=4,
        longest_prompt_tokens=4096,
        longest_answer_tokens=512,
        p95_ttft_seconds=3.0,
        availability="standard",
    )


def raise_quota(team: Any) -> None:
    """Give a team's entry of the catalog room for all services of a measurement."""
    quota = team["quota"]
    accelerators = dict.fromkeys(quota["accelerators"], _PLENTY)
    team["quota"] = {"cpu": _PLENTY, "memory_gib": _PLENTY * 8, "pods": _PLENTY, "accelerators": accelerators}


def _change(path: Path, change: Callable[[Any], None]) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(found)
    path.write_text(yaml.safe_dump(found, sort_keys=False), encoding="utf-8")


def _commit(git: Git, message: str) -> None:
    git.run("add", "--all")
    git.run(*_WHO, "commit", "--quiet", f"--message={message}")
