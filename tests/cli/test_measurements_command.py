"""`neuroscale catalog record` and `neuroscale explain --record`: from a run, or a log, to the file of its model."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import commands
from measured_models import measured_load
from neuroscale.catalog import load_catalog
from neuroscale.catalog.measurements import Measurement
from neuroscale.repo.snapshot import FolderSnapshot
from platform_repository import CATALOG, copy_platform
from roots import ROOT

MODEL = "Qwen/Qwen3-8B"
PATH = "platform/catalog/models/Qwen3-8B.yaml"
SERVED = ["--tensor-parallel-size=1", "--max-num-seqs=16", "--max-num-batched-tokens=2048", "--max-model-len=8192"]
LOG = (
    "(APIServer pid=1) INFO 11-28 10:00:00 [api_server.py:1] vLLM API server version 0.32.0\n"
    "(APIServer pid=1) INFO 11-28 10:00:01 [utils.py:253] non-default args: {'model_tag': 'Qwen/Qwen3-8B', "
    "'model': 'Qwen/Qwen3-8B', 'max_model_len': 8192, 'max_num_seqs': 16}\n"
    "(EngineCore pid=9) INFO 11-28 10:00:40 [gpu_model_runner.py:1] Model loading took 15.2683 GiB and 31.5 seconds\n"
    "(EngineCore pid=9) INFO 11-28 10:01:10 [gpu_worker.py:1] Available KV cache memory: 3.1 GiB\n"
    "(EngineCore pid=9) INFO 11-28 10:01:10 [kv_cache_utils.py:1] GPU KV cache size: 22,560 tokens\n"
    "(EngineCore pid=9) INFO 11-28 10:01:12 [core.py:1] init engine (profile, create kv cache, warmup model) took "
    "33.2 seconds\n"
    "(APIServer pid=1) INFO:     Application startup complete.\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "templates", tmp_path / "platform-repository" / "templates")
    return copy_platform(tmp_path / "platform-repository")


@pytest.fixture
def run(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch, "catalog", "record", "--repository", root)


@pytest.fixture
def explain(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch, "explain", "--repository", root)


def bench(folder: Path, **changes: Any) -> Path:
    """The `bench.json` of a good run, with changes."""
    told = {
        "schema_version": 1,
        "service": "dev/help-desk",
        "model": MODEL,
        "revision": None,
        "accelerator": "nvidia-l4",
        "count": 1,
        "vllm_version": "0.32.0",
        "vllm_args": SERVED,
        "guidellm_version": "0.5.4",
        "date": "2026-11-28",
        "report": f"sha256:{'5' * 64}",
        "loads": [measured_load(1, inter_token=0.062), measured_load(8, inter_token=0.07)],
        "cells": [{"users": 1, "state": "measured"}, {"users": 64, "state": "skipped", "reason": "the cache"}],
        **changes,
    }
    path = folder / "bench.json"
    path.write_text(json.dumps(told))
    return path


def recorded(root: Path) -> tuple[Measurement, ...]:
    return load_catalog(FolderSnapshot(root)).models[MODEL].measurements


def test_a_run_comes_into_its_models_file_once_and_the_rest_stays_as_it_was(run: Any, root: Path) -> None:
    before = (root / PATH).read_text()
    shown = run("--from", bench(root), "--dry-run")
    assert (shown.status, (root / PATH).read_text()) == (0, before)
    assert "would be changed" in shown.out
    said = run("--from", bench(root), "--json")
    assert (said.status, said.json["changed"], said.json["remarks"]) == (0, [PATH], [])
    after = (root / PATH).read_text()
    assert after.startswith(before)
    (one,) = recorded(root)
    assert (one.accelerator, one.count, one.vllm_version, len(one.loads)) == ("nvidia-l4", 1, "0.32.0", 2)
    assert (one.arguments.max_num_seqs, one.weights) == (16, CATALOG.models[MODEL].weights_digest)
    assert run("--from", bench(root), "--json").json["changed"] == []
    # The same figures on another day are the same measurement.
    assert run("--from", bench(root, date="2026-11-30", report=f"sha256:{'6' * 64}"), "--json").json["changed"] == []
    later = bench(root, date="2026-11-29", loads=[measured_load(1, inter_token=0.06)])
    assert run("--from", later, "--json").json["changed"] == [PATH]
    assert [str(each.date) for each in recorded(root)] == ["2026-11-29"]


@pytest.mark.parametrize("at_the_end", [True, False])
def test_comments_and_what_stands_around_the_list_stay(run: Any, root: Path, at_the_end: bool) -> None:
    path = root / PATH
    text = "# of the team\n" + path.read_text()
    path.write_text(text)
    assert run("--from", bench(root)).status == 0
    measured = path.read_text().removeprefix(text)
    head, serving, tail = text.partition("serving:\n")
    around = (text, "# the end\n") if at_the_end else (head, serving + tail)
    path.write_text(measured.join(around))
    assert run("--from", bench(root, loads=[measured_load(2, inter_token=0.064)])).status == 0
    assert [load.users for load in recorded(root)[0].loads] == [2]
    assert path.read_text().startswith(around[0])
    assert path.read_text().endswith(around[1])


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        (
            {"cells": [{"users": 8, "state": "failed", "reason": "2 of 40 requests failed"}]},
            "cells",
            "2 of 40 requests",
        ),
        ({"loads": []}, "loads", "no measured load"),
        ({"accelerator": None}, "accelerator", "is not known"),
        ({"vllm_version": ""}, "vllm_version", "is not known"),
        ({"vllm_args": None}, "vllm_args", "is not known"),
        ({"count": None}, "count", "is not known"),
        ({"count": "many"}, "count", "not a number of accelerators"),
        ({"model": "Qwen/Qwen3-8b-mine"}, "model", "not a model of the catalog"),
        ({"accelerator": "nvidia-h999"}, "accelerator", "not an accelerator of the catalog"),
        ({"report": None}, "report", "is not known"),
        ({"vllm_args": [*SERVED, "--max-nun-seqs=4"]}, "vllm_args", "no command of that version"),
        ({"vllm_args": [*SERVED, '--compilation-config={"mode": 0}']}, "vllm_args", "--compilation-config"),
        ({"loads": [measured_load(1, failed_requests=3)]}, "loads[0]", "3 of its 11 requests failed"),
        ({"loads": [{"users": 1}]}, "loads[0]", "required"),
        # Each step reads 16 GB at 300 GB/s.
        ({"loads": [measured_load(8, inter_token=0.001)]}, "loads[0].inter_token_seconds", "That cannot be"),
        ({"loads": [measured_load(1, inter_token=0.062, ttft=0.01)]}, "loads[0].ttft_seconds", "That cannot be"),
        ({"date": "2126-11-28"}, "measurements[0].date", "2126-11-28 is in the future"),
        ({"schema_version": 2}, "", "is no result of `neuroscale bench`"),
    ],
)
def test_a_run_that_proves_nothing_is_refused(
    run: Any, root: Path, changes: dict[str, Any], field: str, told: str
) -> None:
    before = (root / PATH).read_text()
    said = run("--from", bench(root, **changes))
    assert said.status == 2
    assert told in said.err
    assert field in said.err
    assert (root / PATH).read_text() == before


def test_a_report_that_was_changed_after_the_run_is_refused(run: Any, root: Path) -> None:
    report = root / "guidellm.json"
    report.write_text("{}")
    digest = f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    assert run("--from", bench(root, report=digest), "--dry-run").status == 0
    report.write_text('{"benchmarks": []}')
    said = run("--from", bench(root, report=digest), "--dry-run")
    assert said.status == 2
    assert "one of the two was changed" in said.err


def test_a_reviewer_reads_what_plans_do_not_believe(run: Any, root: Path) -> None:
    said = run("--from", bench(root, loads=[measured_load(256, inter_token=0.08, ttft=0.25)]))
    assert said.status == 0
    assert "Plans do not believe it" in said.out


def test_the_next_prediction_says_measured(run: Any, root: Path, capsys: Any, monkeypatch: Any) -> None:
    asked: tuple[Any, ...] = ("--model", MODEL, "--accelerator", "nvidia-l4", "--users", 8, "--prompt-tokens", 1024)
    asked += ("--answer-tokens", 256, "--vllm-args", "--max-num-seqs=16", "--json")
    speed = commands(capsys, monkeypatch, "speed", "--repository", root)
    before = speed(*asked).json
    assert run("--from", bench(root)).status == 0
    after = speed(*asked).json
    assert (before["coverage"], after["coverage"]) == ("interpolated", "measured")
    assert after["inter_token_seconds"]["mean"]["value"] == pytest.approx(0.07, rel=0.02)
    # Figures of another card are not what was measured.
    assert speed(*asked, "--bandwidth-gbs", 500).json["coverage"] != "measured"


def log_file(root: Path, text: str = LOG) -> Path:
    path = root / "server.log"
    path.write_text(text)
    return path


def test_a_good_start_is_shown_as_a_measurement(explain: Any, root: Path) -> None:
    said = explain("--log", log_file(root), "--accelerator", "nvidia-l4", "--record", "--dry-run", "--json")
    assert said.status == 0
    one = said.json["measurement"]
    assert said.json["model"] == MODEL
    assert one["start"] == {
        "weights_gib": 15.2683,
        "kv_cache_gib": 3.1,
        "kv_cache_tokens": 22560,
        "load_seconds": 31.5,
        "engine_seconds": 33.2,
    }
    assert one["arguments"] == {"max_model_len": 8192, "max_num_seqs": 16}
    assert said.json["changed"] == [PATH]
    assert recorded(root) == ()


def test_a_start_on_a_processor_has_no_weights_and_is_shown_all_the_same(explain: Any, root: Path) -> None:
    text = LOG.replace("Model loading took", "Model took")
    said = explain("--log", log_file(root, text), "--accelerator", "cpu", "--record", "--dry-run")
    assert said.status == 0
    assert "Start: room for the KV cache 3.1 GiB, KV cache 22,560 tokens, start of the engine 33.2 s." in said.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LOG.replace("Application startup complete.", "ValueError: it ended"), "no log of a good start"),
        (LOG.replace("version 0.32.0", "version 0.32.1rc2.dev5"), "is no release"),
        (LOG.partition("\n")[2], "lacks the begin of the start"),
        (LOG.replace("Model loading took", "Model took").replace("init engine", "engine"), "tells neither what"),
        (LOG.replace("'max_num_seqs': 16", "'mamba_block_size': 64"), "--mamba-block-size"),
    ],
)
def test_a_start_that_proves_nothing_is_refused(explain: Any, root: Path, text: str, told: str) -> None:
    said = explain("--log", log_file(root, text), "--accelerator", "nvidia-l4", "--record", "--dry-run")
    assert said.status == 2
    assert told in said.err
