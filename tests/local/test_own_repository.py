"""A stranger's repository, made by `repository init` and run by the wheel: from a request to a model that answers.

The first request is green at the first try, a merge is deployed, and the smoke tests of the tool pass.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroscale.forge.http import Client, segments
from neuroscale.forge.interface import RepositoryRef
from neuroscale.local.forge_accounts import MAINTAINER
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.state import State
from neuroscale.repo.layout import LOCAL_STATE
from wheel_lab import Adopter, adopted

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]

_WITHIN = 420.0  # seconds, for a job of the forge or a deployment


@pytest.fixture
def adopter(tmp_path: Path) -> Adopter:
    return adopted(tmp_path)


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


def comments(client: Client, repository: RepositoryRef) -> list[str]:
    path = f"/repos/{segments(repository.owner, repository.name)}/issues/1/comments"
    return [comment["body"] for comment in client.get(path).data]


def wait_for_comment(client: Client, repository: RepositoryRef, words: str, state: State) -> str:
    """The first comment on her pull request with these words."""
    ends = time.monotonic() + _WITHIN
    while True:
        found = [body for body in comments(client, repository) if words in body]
        if found:
            return found[0]
        if time.monotonic() > ends:
            jobs = sorted(state.run.glob("gitea/data/actions_log/**/*"))
            pytest.fail(f"no comment says {words!r}: {comments(client, repository)} {[str(job) for job in jobs]}")
        time.sleep(1)


def merge(client: Client, path: str) -> None:
    """Merge her pull request as soon as the forge has seen that it can be merged."""
    ends = time.monotonic() + 60
    while (
        client.send("POST", f"{path}/merge", idempotent=False, body={"do": "squash"}, accept=(405, 409)).status >= 300
    ):
        assert time.monotonic() < ends, "the forge does not merge it"
        time.sleep(0.5)


def test_the_first_request_is_green_at_the_first_try_and_its_merge_answers(adopter: Adopter) -> None:
    example = "templates/examples/tiny-moe-on-this-machine.yaml"
    with running(adopter) as forge:
        repository, client = forge.platform, Client(f"{forge.url}/api/v1", forge.account(MAINTAINER).token())
        asked = adopter.run("request", "--answers", example, "--local")
        assert asked.returncode == 0, asked.stdout + asked.stderr
        assert "Opened pull request 1" in asked.stdout
        verdict = wait_for_comment(client, repository, "neuroscale-gate", forge.state)
        assert "Passed: 1 service checked" in verdict, verdict
        path = f"/repos/{segments(repository.owner, repository.name)}/pulls/1"
        client.send("POST", f"{path}/reviews", idempotent=False, body={"event": "APPROVED", "body": "Good."})
        merge(client, path)
        told = wait_for_comment(client, repository, "neuroscale-smoke", forge.state)
        assert "Smoke test passed" in told, told
        status = adopter.run("status", "--environment", "here")
        assert "here/tiny-chat" in status.stdout
        assert "ready" in status.stdout, status.stdout + status.stderr
        answer = adopter.run("query", "tiny-chat", "Hello", "--environment", "here")
        assert answer.returncode == 0, answer.stdout + answer.stderr
