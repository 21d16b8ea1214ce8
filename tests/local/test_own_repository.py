"""A stranger's repository, made by `repository init` and run by the wheel: from a request to the tool's next version.

The first request is green at the first try, a merge is deployed, and the smoke tests of the tool pass. Then the next
version's pull request is green at the first try, and after its merge the model still answers.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from neuroscale import __version__
from neuroscale.core.tool_cache import wheels
from neuroscale.forge.http import Client, segments
from neuroscale.local.forge_accounts import ADMIN, MAINTAINER
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.state import State
from neuroscale.repo.layout import LOCAL_STATE, REQUIREMENTS
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.repo.tool_pin import read_pin
from pin_lab import NEW_FIELD, NEW_TEMPLATE, NEWER, TwoVersions, two_versions
from wheel_lab import Adopter, install_by_digests

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]

_WITHIN = 420.0  # seconds, for a job of the forge or a deployment


_EDITS = {**NEW_FIELD, **NEW_TEMPLATE, "policies/probes-present/policy.yaml": lambda text: f"{text}# Newer.\n"}
"""A field of the catalog with a value, a policy and the template of the next version."""


@pytest.fixture
def two(tmp_path: Path) -> TwoVersions:
    """The tool cache has both wheels, from where the forge's jobs install them."""
    made = two_versions(tmp_path, _EDITS)
    shutil.copytree(made.wheels, wheels(tmp_path / "cache"), ignore=shutil.ignore_patterns("newer"))
    return made


@contextlib.contextmanager
def running(adopter: Adopter) -> Iterator[LocalForge]:
    """The platform of her repository."""
    try:
        up = adopter.run("local", "up", within=600)
        assert up.returncode == 0, up.stdout[-3000:] + up.stderr[-3000:]
        assert "team-alpha" not in up.stdout
        state = State.read(adopter.root / LOCAL_STATE)
        assert state is not None
        yield LocalForge(state)
    finally:
        adopter.run("local", "down", "--delete", within=120)


def comments(client: Client, pull: str) -> list[str]:
    return [comment["body"] for comment in client.get(f"{pull.replace('/pulls/', '/issues/')}/comments").data]


def wait_for_comment(client: Client, pull: str, words: str, state: State) -> str:
    """The first comment on a pull request with these words."""
    ends = time.monotonic() + _WITHIN
    while True:
        bodies = [body for body in comments(client, pull) if words in body]
        if bodies:
            return bodies[0]
        if time.monotonic() > ends:
            jobs = sorted(state.run.glob("gitea/data/actions_log/**/*"))
            pytest.fail(f"no comment says {words!r}: {comments(client, pull)} {[str(job) for job in jobs]}")
        time.sleep(1)


def merge(client: Client, pull: str, by: Client | None = None) -> None:
    """Approve a pull request and merge it as soon as the forge has seen that it can be merged.

    `by`: an administrator, where it changes files that only one may merge, by hand.
    """
    client.send("POST", f"{pull}/reviews", idempotent=False, body={"event": "APPROVED", "body": "Good."})
    ends, body = time.monotonic() + 60, {"do": "squash", "force_merge": by is not None}
    client = by or client
    while client.send("POST", f"{pull}/merge", idempotent=False, body=body, accept=(405, 409)).status >= 300:
        assert time.monotonic() < ends, "the forge does not merge it"
        time.sleep(0.5)


def answers(adopter: Adopter) -> None:
    """Her model is ready, and answers."""
    status = adopter.run("status", "here/tiny-chat", "--wait", "300", within=360)
    assert status.returncode == 0, status.stdout + status.stderr
    answer = adopter.run("query", "tiny-chat", "Hello", "--environment", "here")
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_first_request_and_then_the_next_version_are_green_at_the_first_try(two: TwoVersions) -> None:
    adopter, example = two.adopter, "templates/examples/tiny-moe-on-this-machine.yaml"
    with running(adopter) as forge:
        client = Client(f"{forge.url}/api/v1", forge.account(MAINTAINER).token())
        pulls = f"/repos/{segments(forge.platform.owner, forge.platform.name)}/pulls"
        asked = adopter.run("request", "--answers", example, "--local")
        assert asked.returncode == 0, asked.stdout + asked.stderr
        assert "Opened pull request 1" in asked.stdout
        verdict = wait_for_comment(client, f"{pulls}/1", "neuroscale-gate", forge.state)
        assert "Passed: 1 service checked" in verdict, verdict
        merge(client, f"{pulls}/1")
        smoke = wait_for_comment(client, f"{pulls}/1", "neuroscale-smoke", forge.state)
        assert "Smoke test passed" in smoke, smoke
        answers(adopter)
        takes_the_next_version(two, client, pulls, forge)


def takes_the_next_version(two: TwoVersions, client: Client, pulls: str, forge: LocalForge) -> None:
    """The upgrade's pull request, its verdict by both versions, its merge; and the services' own upgrade."""
    adopter = two.adopter
    pin = read_pin(FolderSnapshot(adopter.root))
    assert pin is not None
    releases = adopter.root.parent / "releases.json"
    releases.write_text(
        two.publisher.releases({pin.version: pin.sha256, NEWER: two.newer.sha256}, {NEWER: "- shelves"})
    )
    for outcome in ("Opened pull request 2", "up to date is pull request"):  # broken off or repeated, it is one
        done = adopter.run("repository", "upgrade", "--releases", releases, "--local", within=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert outcome in done.stdout, done.stdout
    verdict = wait_for_comment(client, f"{pulls}/2", "neuroscale-gate", forge.state)
    assert f"Judged by neuroscale {__version__}, the base's pin, and by {NEWER}, the change's." in verdict, verdict
    assert "Passed" in verdict, verdict
    merge(client, f"{pulls}/2", Client(f"{forge.url}/api/v1", forge.account(ADMIN).token()))
    answers(adopter)
    # Her next pull request is judged by the next version alone.
    adopter.git("fetch", "--quiet", forge.platform.clone_url, "main")
    adopter.git("merge", "--quiet", "--ff-only", "FETCH_HEAD")
    tool = installed(two)
    moved = tool.run("upgrade", "here/tiny-chat", "--local", within=300)
    assert moved.returncode == 0, moved.stdout + moved.stderr
    verdict = wait_for_comment(client, f"{pulls}/3", "neuroscale-gate", forge.state)
    assert "Passed: 1 service checked" in verdict, verdict
    merge(client, f"{pulls}/3")
    answers(tool)


def installed(two: TwoVersions) -> Adopter:
    """The tool by her pins, as they are now."""
    environment = two.adopter.root.parent / "next-environment"
    (newer,) = two.wheels.glob(f"neuroscale-{NEWER}-*.whl")
    install_by_digests(environment, two.adopter.root / REQUIREMENTS, newer)
    variables = {**two.adopter.variables, "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}
    return replace(two.adopter, bin=environment / "bin", variables=variables)
