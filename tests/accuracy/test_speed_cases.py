"""The reader of the published measurements of speed: what it accepts, and the mistakes in a file that it names."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from accuracy.reading import read_cases
from accuracy.speed_cases import SpeedCases, read_speed_cases
from accuracy.speed_planner import load
from neuroscale.catalog import load_catalog
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dump
from neuroscale.repo.snapshot import FolderSnapshot
from roots import CHECKOUT, ROOT

FOLDER = CHECKOUT / "tests/ground_truth"
MODEL, ACCELERATOR = "Qwen/Qwen3-32B", "nvidia-h100-80gb"

SERIES: dict[str, Any] = {
    "id": "qwen3-32b-h100-tp2",
    "model": MODEL,
    "accelerator": ACCELERATOR,
    "tensor_parallel": 2,
    "version": "0.12.0",
    "mean": True,
    "columns": ["prompt", "answer", "users", "ttft_s", "ttft_p95_s", "inter_token_s", "tokens_per_second"],
    "rows": [[1000, 500, 4, 0.08, 0.12, 0.01, 380.0], [1000, 500, 8, 0.09, None, 0.011, 700.0]],
}


def _read(folder: Path, *series: dict[str, Any], **more: Any) -> SpeedCases:
    (folder / "speed").mkdir(exist_ok=True)
    content = {"source": "a page about speed", "read": "2026-11-28", **more, "series": list(series)}
    (folder / "speed/page.yaml").write_text(dump(content), encoding="utf-8")
    return read_speed_cases(folder, {MODEL}, {ACCELERATOR})


def _changed(**changes: Any) -> dict[str, Any]:
    return {**deepcopy(SERIES), **changes}


def _row(**values: Any) -> dict[str, Any]:
    """The series with one row that differs in these columns."""
    row = dict(zip(SERIES["columns"], SERIES["rows"][0], strict=True)) | values
    return _changed(rows=[list(row.values())])


def test_the_repository_has_600_measurements_and_holds_a_third_of_the_series_out() -> None:
    catalog = load_catalog(FolderSnapshot(ROOT))
    cases = read_speed_cases(FOLDER, {*read_cases(FOLDER).models, *catalog.models}, catalog.accelerators)
    assert len(cases.measurements) >= 1000
    pairs = {(each.series.model, each.series.accelerator): each.series.held_out for each in cases.measurements}
    assert 0.2 < sum(pairs.values()) / len(pairs) < 0.5
    out = sum(each.series.held_out for each in cases.measurements)
    assert 0.2 < out / len(cases.measurements) < 0.5


def test_a_row_has_the_mean_lengths_and_the_figures_that_can_be_judged(tmp_path: Path) -> None:
    [first, second] = _read(tmp_path, _changed(range_ratio=[0.8, 1.0], repeated_prompts=True)).measurements
    assert (first.prompt, first.answer, first.users) == (900, 450, 4)
    assert dict(first.figures) == {"inter_token_s": 0.01, "tokens_per_second": 380.0}  # prefill was cached
    assert first.series.words == ("--tensor-parallel-size=2",)
    assert first.name == "qwen3-32b-h100-tp2 1000/500 4 users"
    assert second.users == 8


@pytest.mark.parametrize(
    ("series", "words"),
    [
        (_changed(model="Qwen/Qwen3-33B"), "neither a model of the ground truth nor of the catalog"),
        (_changed(accelerator="nvidia-h101"), "not an accelerator of the catalog"),
        (_changed(columns=SERIES["columns"][:-1]), "has 7 values for 6 columns"),
        (_changed(rows=[SERIES["rows"][0], SERIES["rows"][0]]), "has the load of an earlier row"),
        (_changed(columns=["prompt", "users", "ttft_s"], rows=[[1000, 4, 0.1]]), "do not describe the load"),
        (_changed(arguments="--tensor-parallel-size=2"), "sets parallelism"),
        (_changed(not_judged={"users": "is not known"}), "was not measured"),
        (_row(users=None), "has no load"),
        (_row(ttft_s=81.0 * 60, ttft_p95_s=None), "not plausible"),
        (_row(inter_token_s=10.0), "not plausible"),
        (_row(tokens_per_second=1200.0), "more than 4 users' inter-token times allow"),
        (_changed(speed="fast"), "speed"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(tmp_path: Path, series: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(tmp_path, series)
    assert words in str(caught.value)
    assert all(problem.fix for problem in caught.value.problems)


def test_a_measurement_counts_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="stands twice"):
        _read(tmp_path, SERIES, SERIES)
    again = _changed(id="the-same-elsewhere", version=None)
    with pytest.raises(InputError, match="is a measurement of qwen3-32b-h100-tp2, too"):
        _read(tmp_path, SERIES, again)


def test_an_accelerator_may_be_described_in_the_file(tmp_path: Path) -> None:
    described = {
        "title": "A new card",
        "memory_gib": 100,
        "bandwidth_gb_s": 5000,
        "tflops": {"bf16": 1000},
        "source": "its data sheet",
    }
    series = _changed(accelerator="nvidia-new")
    assert _read(tmp_path, series, accelerators={"nvidia-new": described}).accelerators["nvidia-new"].memory_gib == 100
    with pytest.raises(InputError, match="described twice"):
        _read(tmp_path, SERIES, accelerators={ACCELERATOR: described})


def test_a_series_says_how_unlike_its_prompts_are(tmp_path: Path) -> None:
    drawn = _read(tmp_path, _changed(range_ratio=[0.1, 1.9]))
    assert drawn.measurements[0].prompt == 1000
    assert drawn.measurements[0].series.spread == pytest.approx((1.0, 1.81))
    said = _read(tmp_path, _changed(prompt_spread=[0.8, 2.2]))
    assert said.measurements[0].series.spread == (0.8, 2.2)
    alike = _read(tmp_path, _changed(cached_share=0.5, starts_per_second=2))
    assert alike.measurements[0].series.spread == (1.0, 1.0)
    asked = load(alike.measurements[0])
    assert (asked.cached_tokens, asked.starts_per_second) == (496, 2)  # blocks of 16 tokens
