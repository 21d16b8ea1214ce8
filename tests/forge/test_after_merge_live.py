"""After a real merge: the forge's runner tests what really answers, and hands its pull request a command that works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from live_lab import Live
from neuroscale.forge.after_merge.comments import MARKER
from neuroscale.forge.gitea import GiteaForge
from neuroscale.forge.http import Client
from neuroscale.local.forge_accounts import ADMIN
from neuroscale.local.forge_repository import MAIN
from platform_lab import switch_smoke_tests

pytestmark = [pytest.mark.platform, pytest.mark.live, pytest.mark.slow]

WITHIN = 1500.0  # seconds for the run; two minutes on a quiet machine


def run_smoke_tests(live: Live) -> tuple[str, str]:
    """Run the workflow by hand, as its page's button does; how the job ended, and its log."""
    local = live.platform.local
    client = Client(f"{local.url}/api/v1", local.account(ADMIN).token())
    path = f"/repos/{local.platform.slug}/actions"

    def jobs() -> list[dict[str, Any]]:
        found = client.get(f"{path}/jobs").data.get("jobs") or []
        return [one for one in found if one["name"] == "smoke"]

    before = {one["id"] for one in jobs()}
    switch_smoke_tests(live.platform, "enable")
    try:
        client.send("POST", f"{path}/workflows/smoke.yaml/dispatches", idempotent=False, body={"ref": MAIN})
        ends = time.monotonic() + WITHIN
        while True:
            mine = [one for one in jobs() if one["id"] not in before and one["status"] == "completed"]
            if mine:
                break
            assert time.monotonic() < ends, f"the run did not end: {jobs()}\n{live.logs()}"
            time.sleep(1.0)
    finally:
        switch_smoke_tests(live.platform, "disable")
    answer = httpx.get(
        f"{local.url}/api/v1{path}/jobs/{mine[0]['id']}/logs",
        headers={"Authorization": f"Bearer {local.account(ADMIN).token().secret}"},
        trust_env=False,
        timeout=60,
    )
    return str(mine[0]["conclusion"]), answer.text


def test_the_pull_request_of_what_answers_is_told_so_with_a_command_that_works(live: Live) -> None:
    local = live.platform.local
    forge = GiteaForge(local.platform, local.account(ADMIN).token())
    pull = forge.merged_pull(live.revision, MAIN)
    assert pull is not None
    # The comment of an earlier run would say the same.
    for one in forge.comments(pull.number):
        if one.body.startswith(MARKER):
            forge.delete_comment(one.id)
    _, log = run_smoke_tests(live)
    told = [one.body for one in forge.comments(pull.number) if one.body.startswith(MARKER)]
    assert len(told) == 1, log
    assert f"Smoke test passed: `{live.environment}/{live.service}`" in told[0], f"{told[0]}\n{log}"

    (command,) = re.findall(r"```sh\n(.*)\n```", told[0])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=live.checkout,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]
