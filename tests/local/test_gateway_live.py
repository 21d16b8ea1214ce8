"""The way that a client goes to a real model: the line of `neuroscale status`, the gateway, vLLM."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster_lab import run
from live_lab import Live
from neuroscale.local.control_plane import control_plane
from neuroscale.local.gateway import NAME, REDIRECT
from neuroscale.local.state import State

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]


@pytest.fixture
def told(live: Live) -> dict[str, Any]:
    """What `neuroscale status` says of the service."""
    said = run("status", live.service, "--state", live.folder, "--repository", live.checkout, "--json")
    assert said.status == 0, said.out
    (service,) = said.json["services"]
    return dict(service)


@pytest.fixture
def state(live: Live) -> State:
    found = State.read(live.folder)
    assert found is not None
    return found


def pasted(line: str) -> subprocess.CompletedProcess[str]:
    """What a shell does with the line, with this installation's programs on its PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", line],
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
        env={"PATH": path, "HOME": os.environ["HOME"]},
    )


def test_the_line_of_status_is_answered_by_the_model_when_it_is_pasted(told: dict[str, Any]) -> None:
    assert told["url"].startswith("https://")
    done = pasted(told["curl"])
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["model"] == told["model"]
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0


def test_with_another_key_it_is_refused(told: dict[str, Any]) -> None:
    line, changed = re.subn(r"; \S*neuroscale key [^;]*;", "; printf another-key-of-nobody;", told["curl"])
    assert changed == 1
    done = pasted(line)
    assert done.returncode == 0, done.stderr
    assert "Unauthorized" in done.stdout


def test_a_stream_comes_through_in_pieces_and_metrics_do_not(told: dict[str, Any], live: Live, state: State) -> None:
    host = told["url"].removeprefix("https://")
    context = ssl.create_default_context(cafile=str(control_plane(state).authority_file))
    named = {"sni_hostname": host}
    key = run("key", live.service, "--print", "--state", live.folder, "--repository", live.checkout).out.strip()
    headers = {"Host": host, "Authorization": f"Bearer {key}"}
    ports = state.instance.ports
    with httpx.Client(base_url=f"https://127.0.0.1:{ports[NAME]}", verify=context, trust_env=False, timeout=60) as way:
        asked = {"model": told["model"], "prompt": "One, two,", "max_tokens": 48, "stream": True, "ignore_eos": True}
        pieces = []
        with way.stream("POST", "/v1/completions", json=asked, headers=headers, extensions=named) as answer:
            assert answer.status_code == 200
            pieces = [piece for piece in answer.iter_raw() if piece]
        # One event a token, and not all of them at once at the end.
        assert b"".join(pieces).rstrip().endswith(b"data: [DONE]")
        assert len(pieces) > 10
        assert way.get("/health", headers={"Host": host}, extensions=named).status_code == 200
        for path in ("/metrics", "/docs", "/openapi.json"):
            assert way.get(path, headers=headers, extensions=named).status_code == 404
    plain = httpx.get(f"http://127.0.0.1:{ports[REDIRECT]}/v1/models", headers={"Host": host}, trust_env=False)
    assert (plain.status_code, plain.headers["Location"]) == (308, f"{told['url']}/v1/models")
