"""`neuroscale upgrade` against a real forge: a batch, broken off and run again, what is left out, and the dry run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_lab import run
from command_line import Said
from forge_server import ForgeServer
from neuroscale.forge.interface import PullRequest
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.request.service_request import dump_request
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS, TEMPLATE
from repositories import Repository
from roots import ROOT

pytestmark = pytest.mark.tools

MODEL = "google/gemma-4-26B-A4B-it-qat-w4a16-ct"
NAMES = ("one", "two", "three", "four")
DEAR = "dear"


def older(made: Plan) -> Plan:
    """The plan as an earlier planner made it, with a shorter time for the startup probe."""
    lock = made.lock.model_copy(update={"planner_version": "0.1.0"})
    budget = made.startup.probe_budget_seconds - 60
    startup = made.startup.model_copy(update={"probe_budget_seconds": budget})
    return made.model_copy(update={"lock": lock, "startup": startup})


def folder(name: str, *, cheap: bool = False) -> dict[str, bytes | str | None]:
    request = make_request(service=name, model=MODEL, environment="dev")
    made = older(plan(request, CATALOG, SETTINGS, TEMPLATE.version))
    if cheap:
        made = made.model_copy(update={"cost": made.cost.model_copy(update={"monthly_min": 1})})
    return {f"manifests/dev/{name}/{file}": text for file, text in render(request, made, TEMPLATE).items()}


class Site:
    """A repository of services whose sources moved, on the forge, and a clone of it."""

    def __init__(self, server: ForgeServer, root: Path) -> None:
        self.server = server
        self.clone = Repository(root / "clone")
        for name in ("platform/catalog", "templates", "policies"):
            shutil.copytree(ROOT / name, self.clone.root / name)
        settings = (ROOT / "platform/settings.yaml").read_text().replace("open_at_once: 10", "open_at_once: 2")
        files: dict[str, bytes | str | None] = {"platform/settings.yaml": settings}
        for name in NAMES:
            files |= folder(name)
        self.clone.commit({**files, **folder(DEAR, cheap=True)})
        self.ref = server.create_repository(self.clone.root)
        server.api("DELETE", f"/repos/{self.ref.slug}/branch_protections/main")
        self.clone.run("remote", "add", "origin", self.ref.clone_url)

    def upgrade(self, *options: object) -> Said:
        done = run("upgrade", "--repository", self.clone.root, *options)
        assert self.server.owner.secret not in done.out + done.err
        return done

    def pulls(self) -> list[PullRequest]:
        forge = self.server.forge(self.ref, self.server.owner)
        _, listed = self.server.api("GET", f"/repos/{self.ref.slug}/pulls?state=open")
        return sorted((forge.pull(one["number"]) for one in listed), key=lambda pull: pull.head_branch)

    def branches(self) -> list[str]:
        return [pull.head_branch for pull in self.pulls()]


@pytest.fixture
def site(
    forge_server: ForgeServer, kyverno_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    monkeypatch.setenv("NEUROSCALE_FORGE_TOKEN", forge_server.owner.secret)
    made = Site(forge_server, tmp_path)
    yield made
    made.clone.git.close()


def results(said: Said) -> dict[str, Any]:
    return {one["service"].removeprefix("dev/"): one["result"] for one in said.json["upgrades"]}


def test_a_batch_that_is_killed_and_run_again_ends_the_same(site: Site) -> None:
    command = [sys.executable, "-P", "-m", "neuroscale", "upgrade", "--all", "--repository", str(site.clone.root)]
    with subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        ends = time.monotonic() + 120
        while not site.branches() and time.monotonic() < ends:
            time.sleep(0.1)
        killed.kill()
    first = site.pulls()
    assert first

    said = site.upgrade("--all", "--json")
    assert said.status == 0, said.err
    assert {name for name, result in results(said).items() if result == "waiting"} == {"three", "two"}
    assert results(said)["four"] == "unchanged"
    assert site.branches() == ["neuroscale/dev/four", "neuroscale/dev/one"]
    again = site.upgrade("--all")
    assert site.branches() == ["neuroscale/dev/four", "neuroscale/dev/one"]
    assert "Waiting\n  dev/three: 2 upgrades of 2 open" in again.out
    assert "dev/dear: dearer: 1.00 -> " in again.out
    pull = site.pulls()[0]
    assert pull.title.startswith("Upgrade dev/four: planner 0.1.0 -> ")
    assert "The answers stay. Planned anew" in pull.body
    assert "**The merge** A restart with a gap of" in pull.body

    owner = site.server.forge(site.ref, site.server.owner)
    for pull in site.pulls():
        owner.merge(pull.number, pull.head_sha)
    after = site.upgrade("--all", "--json", "--limit", "1")
    assert sorted(results(after).items()) == [("three", "opened"), ("two", "waiting")]

    # What somebody closed unmerged is opened again only for who names it.
    (pull,) = site.pulls()
    path = f"/repos/{site.ref.slug}/pulls/{pull.number}"
    site.server.api("PATCH", path, site.server.owner, {"state": "closed"})
    declined = site.upgrade("--all", "--json")
    assert declined.status == 0, declined.err
    assert sorted(results(declined).items()) == [("three", "declined"), ("two", "opened")]
    assert results(site.upgrade("three", "--json")) == {"three": "opened"}


def test_what_gets_worse_and_what_others_change_is_left_out_by_name(site: Site) -> None:
    request = make_request(service="one", model=MODEL, environment="dev", concurrent_users=9)
    site.clone.run("switch", "--quiet", "--create", "neuroscale/dev/one")
    site.clone.commit({"manifests/dev/one/request.yaml": dump_request(request)})
    url = site.ref.clone_url.replace("://", f"://x:{site.server.owner.secret}@")
    site.clone.run("push", "--quiet", url, "HEAD:neuroscale/dev/one")
    owner = site.server.forge(site.ref, site.server.owner)
    pull = owner.open_pull("More users", "", site.ref, "neuroscale/dev/one", "main")
    said = site.upgrade("one", DEAR, "--also-worse", "--json")
    assert said.status == 1
    (dear, one) = said.json["upgrades"]
    assert (dear["service"], dear["result"]) == ("dev/dear", "opened")
    assert dear["worse"][0].startswith("dearer: 1.00 -> ")
    assert (one["result"], pull.url in one["why"]) == ("left out", True)
    assert "It gets worse: dearer" in next(one.body for one in site.pulls() if one.url == dear["url"])


def test_the_dry_run_asks_no_forge_and_opens_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROSCALE_FORGE_TOKEN")
    site.clone.run("remote", "remove", "origin")
    said = site.upgrade("--team", "team-alpha", "--dry-run")
    assert said.status == 0, said.err
    assert "4 of 5 services would change by planning anew" in said.out
    assert "Left out, since they get worse" in said.out
    assert site.branches() == []
    for options, told in (
        ((), "names no service"),
        (("--all", "one"), "names services in two ways"),
        (("--team", "team-alfa"), "'team-alfa' is not a team of the catalog. Did you mean 'team-alpha'?"),
        (("--environment", "devel"), "'devel' is not an environment of the settings"),
        (("nobody",), "'nobody' is not a service of main"),
    ):
        refused = site.upgrade("--dry-run", *options)
        assert refused.status == 2
        assert told in refused.err
