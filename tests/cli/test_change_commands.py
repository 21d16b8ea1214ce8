"""`update`, `promote`, `retire` and `restore` against a real forge: a service's life, and going on after a kill."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault_proxy import FaultProxy
from forge_server import ForgeServer
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import read_planning_inputs
from neuroscale.rendering.service_folder import RENDERED_FILES, pull_request_of
from neuroscale.repo.snapshot import FolderSnapshot
from plan_factory import ANSWERS, make_request
from request_site import SERVICE, Site, hold_at, make_platform, opened_site

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_platform(tmp_path_factory.mktemp("platform"))


@pytest.fixture
def site(forge_server: ForgeServer, kyverno_once: None, platform: Path, tmp_path: Path) -> Iterator[Site]:
    """With dev/support-chat on main, which the developer's clone does not have yet."""
    with opened_site(forge_server, platform, tmp_path) as made:
        inputs = read_planning_inputs(FolderSnapshot(made.main.root))
        request = make_request(**ANSWERS)
        planned = plan(request, inputs.catalog, inputs.settings, inputs.template.version)
        made.push_main(dict(pull_request_of(request, planned, inputs.template).files), "Serve it")
        yield made


def test_a_service_is_changed_promoted_retired_and_restored_by_pull_requests(site: Site) -> None:
    update = ("update", "support-chat", "--set", "concurrent_users=6", "--json")
    shown = site.run(*update, "--dry-run")
    assert (shown.status, shown.json["outcome"], site.pulls()) == (0, "dry_run", [])
    assert {"what": "Concurrent users", "before": "4", "after": "6"} in shown.json["changes"]
    opened = site.run(*update)
    assert (opened.status, opened.json["outcome"], opened.json["notes"]) == (0, "opened", []), opened.err
    assert opened.json["changes"] == shown.json["changes"]
    assert "A restart with a gap of" in opened.json["merge"]
    assert site.pull().title == "Change dev/support-chat: concurrent_users 6"
    assert "Concurrent users: `4` to `6`" in site.pull().body
    assert site.run(*update).json["outcome"] == "unchanged"
    other = site.run(*update, role="owner")
    assert (other.status, "and developer opened it" in other.err) == (2, True)
    site.merge()
    assert site.run(*update).json["outcome"] == "no_difference"

    promote = ("promote", "dev/support-chat", "--to", "prod", "--set", "availability=high")
    refused = site.run(*promote)
    assert (refused.status, site.pulls()) == (2, [])
    assert "is not known to be live and tested: dev/support-chat: " in refused.err
    promoted = site.run(*promote, "--reason", "The fair begins on Monday.")
    assert promoted.status == 0, promoted.err
    assert "- Why: The fair begins on Monday." in site.pull().body
    assert "- replicas: 1 in dev, 2 in prod" in site.pull().body
    site.merge()

    retire = ("retire", "dev/support-chat", "--reason", "Everybody uses production.")
    said = site.run(*retire)
    assert said.status == 0, said.err
    assert "This saves " in said.out
    assert "delete secret support-chat-api-key" in site.pull().body
    assert "Nothing to do" in site.run(*retire).out
    site.merge()
    assert not (site.main.root / SERVICE).exists()
    assert "main has no manifests/dev/support-chat: nothing to do" in site.run(*retire).out

    unsure = site.run("retire", "support-chat")
    assert (unsure.status, site.pulls()) == (2, []), "prod has one of this name: which one is meant is not guessed"
    restored = site.run("restore", "support-chat", "--json")
    assert (restored.status, restored.json["outcome"]) == (0, "opened"), restored.err
    assert sorted(site.files(site.pull().head_sha)) == [f"{SERVICE}/{name}" for name in sorted(RENDERED_FILES)]
    assert site.run("restore", "dev/support-chat", "--json").json["outcome"] == "unchanged"


@pytest.mark.parametrize("path", [r"/git-receive-pack$", r"/pulls$"])
def test_after_a_kill_at_any_step_the_next_run_completes_the_removal(site: Site, path: str) -> None:
    with FaultProxy(site.server.url) as proxy:
        site.through(proxy)
        hold = hold_at(proxy, "POST", path, after=True)
        process = site.start("dev/support-chat", command="retire")
        assert hold.reached.wait(120)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        proxy.clear()
        before = site.tip(site.fork)
        said = site.run("retire", "dev/support-chat", "--json")
    assert said.status == 0, said.err
    pull = site.pull()
    assert said.json["outcome"] in ("opened", "unchanged")
    assert (pull.number, pull.head_sha) == (said.json["number"], said.json["commit"])
    assert before in (None, pull.head_sha), "what was pushed is used"
    assert len(site.commits(pull.number)) == 1
