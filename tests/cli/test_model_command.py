"""`neuroscale model`: what programs and people read of a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from neuroscale.cli import app
from oracle_configs import TINY
from roots import ROOT


@pytest.fixture
def model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["neuroscale", "model", "--repository", str(ROOT), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return command


@pytest.mark.parametrize(
    ("name", "kind", "total", "active", "without", "cache"),
    [
        ("openai/gpt-oss-20b", "moe", 20.91, 4.19, 3.61, [(24576, 128), (24576, None)]),
        ("google/gemma-4-26B-A4B-it", "moe", 25.23, 3.82, 3.82, [(204800, 1024), (20480, None)]),
        ("google/gemma-4-E2B-it", "dense", 4.63, 2.28, 2.28, [(12288, 512), (6144, None)]),
        ("deepseek-ai/DeepSeek-V3", "moe", 671.03, 37.55, 36.63, [(70272, None)]),
        ("meta-llama/Llama-3.1-8B-Instruct", "dense", 8.03, 8.03, 7.50, [(131072, None)]),
    ],
)
def test_programs_get_parameters_bytes_and_cache_by_group(
    model: Any, name: str, kind: str, total: float, active: float, without: float, cache: Any
) -> None:
    status, out, _ = model(name, "--json")
    said = json.loads(out)
    assert (status, said["kind"]) == (0, kind)
    assert said["total_params"] / 1e9 == pytest.approx(total, abs=0.006)
    assert said["active_params"] / 1e9 == pytest.approx(active, abs=0.006)
    assert said["active_params_without_embedding"] / 1e9 == pytest.approx(without, abs=0.006)
    assert said["active_ratio"] == pytest.approx(said["active_params"] / said["total_params"], abs=1e-4)
    assert sum(said["weight_bytes_by_group"].values()) == sum(said["weight_bytes_by_dtype"].values())
    assert sum(said["params_by_group"].values()) == pytest.approx(
        said["total_params"] + said["tower_params"] + said["params_by_group"].get("mtp", 0)
    )
    assert [(group["bytes_per_token"], group["window"]) for group in said["kv_groups"]] == cache
    assert all(group["layers"] > 0 for group in said["kv_groups"])


def test_people_get_both_counts_of_active_parameters_named(model: Any) -> None:
    status, out, _ = model("openai/gpt-oss-20b")
    assert status == 0
    assert "mixture of experts, 20.91 B parameters" in out
    assert "4.19 B parameters (20.0%); without the input embedding 3.61 B" in out
    assert "32, of which a token takes 4" in out
    assert "mxfp4, 4 bits" in out
    for words in ("routed experts", "sliding window", "whole context", "24,576"):
        assert words in out


def test_an_estimate_and_what_was_assumed_are_said(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    unknown = {**TINY["llama"], "architectures": ["TheirsForCausalLM"], "model_type": "theirs"}
    path.write_text(json.dumps({key: value for key, value in unknown.items() if key != "dtype"}))
    _, out, _ = model(path)
    assert "an estimate" in out
    assert "The file names no dtype" in out


def test_a_model_that_cannot_be_planned_is_refused_with_its_key(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**TINY["llama"], "layer_types": ["linear_attention"] * 3}))
    status, out, err = model(path)
    assert (status, out) == (2, "")
    assert "layer_types" in err
    assert "hybrid" in err
