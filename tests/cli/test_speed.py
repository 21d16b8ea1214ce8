"""`neuroscale speed`: what programs and people read, and the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import commands
from roots import ROOT

LOAD = ("--prompt-tokens", 1000, "--answer-tokens", 200)
LLAMA = ("--model", "meta-llama/Llama-3.1-8B-Instruct")


@pytest.fixture
def speed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch, "speed", "--repository", ROOT)


def test_programs_read_figures_with_their_bands(speed: Any) -> None:
    said = speed(*LLAMA, "--accelerator", "nvidia-l4", *LOAD, "--users", 8, "--p95-ttft", 2.0, "--json")
    answer = said.json
    assert said.status == 0
    assert answer["coverage"] in ("measured", "interpolated", "extrapolated")
    for group, names in (
        ("ttft_seconds", ("p50", "p95")),
        ("inter_token_seconds", ("p50", "p95")),
        ("tokens_per_second", ("user", "total")),
    ):
        for name in names:
            figure = answer[group][name]
            assert 0 < figure["low"] < figure["value"] < figure["high"]
    assert answer["largest_users"] >= 8
    assert answer["requests_at_once"] >= 8
    assert (answer["users"], answer["prompt_tokens"], answer["answer_tokens"]) == (8, 1000, 200)


def test_people_read_a_table_over_users(speed: Any, tmp_path: Path) -> None:
    picture = tmp_path / "speed.svg"
    said = speed(*LLAMA, "--accelerator", "nvidia-l4", *LOAD, "--users", 3, "--picture", picture)
    assert said.status == 0
    rows = [line.split()[0] for line in said.out.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert rows == ["1", "2", "3", "4", "8", "16", "32", "64", "128", "256", "512"]
    assert "tokens a second in all" in picture.read_text(encoding="utf-8")


def test_a_promise_that_is_not_kept_and_an_unknown_speed_are_not_green(speed: Any) -> None:
    late = speed(*LLAMA, "--accelerator", "nvidia-l4", *LOAD, "--users", 256, "--p95-ttft", 0.5, "--json")
    assert late.status == 1
    assert late.json["largest_users"] < 256
    unknown = speed("--model", "tiny-llama", "--accelerator", "cpu", *LOAD, "--p95-ttft", 5, "--json")
    assert unknown.status == 1
    assert unknown.json["coverage"] == "unknown"
    assert unknown.json["largest_users"] is None
    assert set(unknown.json["ttft_seconds"].values()) == {None}
    assert unknown.json["reasons"]


def test_a_model_that_does_not_start_has_no_speed(speed: Any) -> None:
    said = speed("--model", "google/gemma-4-31B-it", "--accelerator", "nvidia-l4", *LOAD, "--json")
    assert said.status == 1
    assert (said.json["verdict"], said.json["coverage"]) == ("refused", "unknown")
    assert "does not fit" in said.json["reasons"][0]


def test_a_described_card_needs_its_peak(speed: Any) -> None:
    described = ("--accelerator", "NVIDIA A30", "--memory-gib", 23.6, "--bandwidth-gbs", 933)
    unknown = speed(*LLAMA, *described, *LOAD, "--json")
    assert unknown.status == 1
    assert "peak" in unknown.json["reasons"][0]
    known = speed(*LLAMA, *described, "--tflops", 165, *LOAD, "--json")
    assert known.status == 0
    assert known.json["ttft_seconds"]["p95"]["value"] > 0


def test_requests_longer_than_the_context_are_refused(speed: Any) -> None:
    arguments = ("--vllm-args", "--max-model-len=1024")
    said = speed(*LLAMA, "--accelerator", "nvidia-l4", *LOAD, *arguments)
    assert said.status == 2
    assert "1,200 tokens, and a request may have 1,024" in said.err
