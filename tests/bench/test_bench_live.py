"""The real guidellm against a real vLLM on this machine's processor: broken off by a kill, resumed, and read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_lab import recorded
from command_line import Said, commands
from lesson_tools.model_server import tiny_server
from lesson_tools.program import Program
from neuroscale.catalog.measurements import MeasuredLoad
from neuroscale.tools.guidellm_environment import GuidellmEnvironment
from neuroscale.tools.model_server import ModelServer
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.live]

_WORDS = ("--users", "1,2", "--prompt-tokens", "64", "--answer-tokens", "8", "--requests", "8", "--model", "tiny-llama")


@pytest.fixture
def neuroscale(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    return commands(capsys, monkeypatch)


def test_a_bench_that_was_killed_goes_on_and_measures_a_real_server(
    neuroscale: Callable[..., Said], tmp_path: Path
) -> None:
    assert GuidellmEnvironment.find().installed, "guidellm is missing, so nothing was tested: run `make setup`"
    out = tmp_path / "out"
    with tiny_server(Program(tmp_path)) as server:
        words = ["bench", "--url", server.endpoint.url, *_WORDS, "--output", str(out)]
        with subprocess.Popen([sys.executable, "-m", "neuroscale", *words], stderr=subprocess.PIPE) as process:
            first = out / "cells" / "u1-p64-a8" / "outcome.json"
            wait_for((out / "cells" / "u2-p64-a8" / "guidellm.log").exists, 300.0, "the second cell runs")
            guidellm = [one for one in psutil.Process(process.pid).children() if "guidellm" in " ".join(one.cmdline())]
            assert guidellm
            process.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(guidellm, 15.0)
        assert not alive, "guidellm outlives the command"
        kept = first.read_text(encoding="utf-8")
        said = neuroscale(*words)
        assert said.status == 0, said.err
        assert first.read_text(encoding="utf-8") == kept
        assert "measured (measured on" in said.err
    result = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    loads = [MeasuredLoad.model_validate(load) for load in result["loads"]]
    assert [(load.users, load.answer_tokens) for load in loads] == [(1, 8), (2, 8)]
    assert all(64 <= load.prompt_tokens < 80 for load in loads)  # with the words of the chat's template
    assert all(load.prefix_hit_share == 0 for load in loads)
    for cell in result["cells"]:  # the client and the server count the same requests, each with its own clock
        client, counted = cell["measured"]["ttft_seconds"]["mean"], cell["server"]["ttft_seconds"]["mean"]
        assert 0 < counted < 3 * client
    assert result["vllm_version"] == ModelServer.find().version
    page = (out / "guidellm.html").read_text(encoding="utf-8")
    assert "tiny-llama" in page
    assert (out / "guidellm.csv").stat().st_size > 1000
    report = json.loads((out / "cells" / "u1-p64-a8" / "guidellm.json").read_text(encoding="utf-8"))
    assert not _missing(recorded(), report)


def _missing(part: Any, whole: Any, path: str = "") -> list[str]:
    """The places of a recorded report that a real one lacks, or fills with values of another type."""
    if isinstance(part, dict):
        there = whole if isinstance(whole, dict) else {}
        if path.endswith(".end_queuing_constraints"):
            return []  # what ended the load: on a busy machine its time, before all of its requests were sent
        lacking = [f"{path}.{name}" for name in part if name not in there]
        return lacking + [
            told for name in part if name in there for told in _missing(part[name], there[name], f"{path}.{name}")
        ]
    if isinstance(part, list) and part:
        return _missing(part[0], whole[0], f"{path}[0]") if isinstance(whole, list) and whole else [f"{path}[0]"]
    numbers = (int, float)
    alike = isinstance(whole, numbers if isinstance(part, numbers) else type(part))
    return [] if alike else [f"{path}: {whole!r}"]
