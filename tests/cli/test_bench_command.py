"""`neuroscale bench` against an endpoint, with a stand-in for guidellm: what it shows before, writes, and ends with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench_lab import FakeClient, model_endpoint
from broken_model_server import BrokenServer
from command_line import Said, commands
from neuroscale.actions.bench_subject import BenchOptions, service_place
from neuroscale.actions.chosen_cluster import Service, Where
from neuroscale.actions.open_repository import open_repository
from neuroscale.planning.fit_question import Question
from roots import ROOT

KEY = "key-of-the-test-0123456789"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    found = FakeClient()
    monkeypatch.setattr("neuroscale.actions.bench_run.Guidellm", lambda: found)
    monkeypatch.setenv("NEUROSCALE_API_KEY", KEY)
    return found


@pytest.fixture
def server() -> Iterator[BrokenServer]:
    with model_endpoint() as (found, _):
        yield found


@pytest.fixture
def bench(
    client: FakeClient,
    server: BrokenServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Said]:
    lengths = ("--prompt-tokens", 256, "--answer-tokens", 16, "--tokenizer", "owner/model")
    return commands(capsys, monkeypatch, "bench", "--url", server.url, *lengths, "--output", tmp_path / "out")


def _result(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "out" / "bench.json").read_text(encoding="utf-8"))


def test_cells_are_measured_beside_the_prediction_and_what_they_cost(
    bench: Callable[..., Said], tmp_path: Path, client: FakeClient
) -> None:
    described = ("--model", "openai/gpt-oss-20b", "--accelerator", "nvidia-l4", "--usd-per-hour", 0.8)
    said = bench("--users", "1,4", *described)
    assert said.status == 0, said.err
    assert "Price: " in said.err
    assert "at most (0.80 USD an hour, --usd-per-hour)" in said.err
    assert client.ran == ["u1-p256-a16", "u4-p256-a16"]
    assert client.targets[0].key is not None
    assert client.targets[0].key.secret == KEY
    result = _result(tmp_path)
    assert KEY not in json.dumps(result) + said.out + said.err
    first = result["loads"][0]
    assert (first["users"], first["prompt_tokens"], first["answer_tokens"]) == (1, 256, 16)
    assert first["ttft_seconds"] == {"mean": 0.01, "p50": 0.01, "p95": 0.02}
    assert (first["failed_requests"], first["prefix_hit_share"]) == (0, 0.0)
    cell = result["cells"][0]
    assert cell["predicted"]["coverage"] in ("interpolated", "extrapolated", "measured")
    rate = cell["measured"]["tokens_per_second"]["total"]
    assert float(cell["usd_per_million_output_tokens"]) == pytest.approx(0.8e6 / rate / 3600, abs=1e-3)
    assert (result["model"], result["accelerator"], result["vllm_version"]) == (
        "openai/gpt-oss-20b",
        "nvidia-l4",
        "0.32.0",
    )
    assert result["report"].startswith("sha256:")
    assert (tmp_path / "out" / "guidellm.html").exists()


def test_a_failed_cell_fails_the_command_and_is_never_a_number(
    bench: Callable[..., Said], tmp_path: Path, client: FakeClient
) -> None:
    client.fails.add("u4-p256-a16")
    said = bench("--users", "1,4")
    assert said.status == 1
    assert "failed. The server is gone." in said.out
    cell = _result(tmp_path)["cells"][1]
    assert (cell["state"], cell["measured"], cell["usd_per_million_output_tokens"]) == ("failed", None, None)
    assert len(_result(tmp_path)["loads"]) == 1
    client.fails.clear()
    again = bench("--users", "1,4")
    assert again.status == 0
    assert client.ran[2:] == ["u4-p256-a16"]
    assert "measured (measured on" in again.err


def test_cells_beyond_the_servers_cache_are_skipped_and_said(
    bench: Callable[..., Said], tmp_path: Path, client: FakeClient
) -> None:
    said = bench("--users", "4,16", "--dry-run")
    assert said.status == 0
    assert "16 users, 256 + 16 tokens: not run, since the KV cache holds 15 requests of 272 tokens at once" in said.err
    assert client.ran == []
    assert not (tmp_path / "out").exists()
    assert bench("--users", "16", "--dry-run").status == 1
    assert bench("--users", "16").status == 1
    assert _result(tmp_path)["cells"][0]["state"] == "skipped"


def test_a_dry_run_for_programs_has_cells_time_and_price(bench: Callable[..., Said]) -> None:
    told = bench("--users", "1,4", "--dry-run", "--json", "--usd-per-hour", 3.6).json
    assert [each["cell"]["users"] for each in told["cells"]] == [1, 4]
    assert told["most_seconds"] == pytest.approx(640, abs=2)
    assert told["most_usd"] == "0.64"


def test_why_nothing_is_predicted_is_said(bench: Callable[..., Said]) -> None:
    assert "Nothing is predicted: name --model, --accelerator" in bench("--dry-run").err
    assert "Nothing is predicted. --accelerator: 'nvidia-l5'" in bench("--dry-run", "--accelerator", "nvidia-l5").err
    assert "Nothing is predicted: The bandwidth" in bench("--dry-run", "--accelerator", "cpu").err


def test_the_largest_load_is_searched_and_said_with_how_sure_it_is(
    bench: Callable[..., Said], tmp_path: Path, client: FakeClient
) -> None:
    said = bench("--largest-load", "--p95-ttft", 0.1)  # the p95 of N users is N times 20 ms
    assert "First token in 100 ms for 95 of 100: 5 users (likely)" in said.out
    assert "6 users missed it in 2 of 2 runs" in said.out
    largest = _result(tmp_path)["largest_load"]
    assert (largest["users"], largest["missed_users"], largest["kept_runs"]) == (5, 6, 3)
    assert {"u5-p256-a16-r2", "u5-p256-a16-r3"} <= set(client.ran)
    assert said.status == 0
    before = list(client.ran)
    assert bench("--largest-load", "--p95-ttft", 0.1).status == 0
    assert client.ran == before


def test_a_search_that_a_failure_ends_fails(bench: Callable[..., Said], client: FakeClient) -> None:
    client.fails.add("u4-p256-a16")
    said = bench("--largest-load", "--p95-ttft", 0.1, "--users", 1)
    assert said.status == 1
    assert "The search ended at 4 users, 256 + 16 tokens: The server is gone." in said.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--users", "1,x"), "is no list of numbers"),
        (("--answer-tokens", "1"), "from 2 to"),
        (("--users", "0"), "is no list of numbers"),
        (("--largest-load",), "no form of a service promises one"),
        (("--largest-load", "--p95-ttft", "0"), "is not above 0"),
        (("--users", ",".join(map(str, range(1, 40)))), "make 39 cells"),
        (("some-service",), "names a service and an address"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_before_anything_runs(
    bench: Callable[..., Said], client: FakeClient, words: tuple[str, ...], told: str
) -> None:
    said = bench(*words)
    assert said.status == 2
    assert told in said.err
    assert client.ran == []


def test_a_tokenizer_that_is_nowhere_is_asked_for(
    client: FakeClient,
    server: BrokenServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path))
    said = commands(capsys, monkeypatch)("bench", "--url", server.url, "--dry-run")
    assert said.status == 2
    assert "the server has it in /mnt/models/tiny-llama. Name its folder" in said.err


def test_a_key_is_not_sent_over_an_unencrypted_address(
    client: FakeClient, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = commands(capsys, monkeypatch)("bench", "--url", "http://example.com", "--tokenizer", "owner/model")
    assert said.status == 2
    assert "is not encrypted" in said.err


def test_a_service_is_measured_by_its_plan_its_form_and_its_price(tmp_path: Path) -> None:
    """The service of this repository; the way to its pod is that of `query`, and tested there."""
    opened = open_repository(ROOT)
    asked = BenchOptions("tiny-moe", "", "", Where(), Question(), "owner/model", "chat", None)
    with model_endpoint() as (_, endpoint):
        endpoint = dataclasses.replace(endpoint, model="tiny-llama")
        found = service_place(asked, opened, endpoint, Service("tiny-moe", "team-alpha", "local", True))
    assert (found.promise, found.load and found.load.replica_users) == (20.0, 4)
    assert found.question is not None
    assert "--max-num-seqs=4" in found.question.words
    subject = found.subject
    assert (subject.service, subject.model, subject.accelerator) == ("local/tiny-moe", "tiny-qwen3-moe", "cpu")
    assert (subject.count, subject.vllm_version, subject.prefix_caching) == (1, "0.32.0", True)
