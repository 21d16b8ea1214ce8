"""`neuroscale compare`: measured figures side by side, what is predicted, and what is not comparable."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import commands
from measured_models import measured_load, measurement_file
from neuroscale.core.yaml_io import dump
from platform_repository import CATALOG, copy_platform
from roots import ROOT

SMALL, LARGE = "Qwen/Qwen3-8B", "Qwen/Qwen3-32B"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "platform-repository"
    shutil.copytree(ROOT / "templates", made / "templates")
    shutil.copytree(ROOT / "manifests", made / "manifests", dirs_exist_ok=True)
    return copy_platform(made)


@pytest.fixture
def compare(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch, "compare", "--repository", root)


def measure(root: Path, model: str, *measurements: dict[str, Any]) -> None:
    path = root / "platform/catalog/models" / f"{model.rpartition('/')[2]}.yaml"
    path.write_text(path.read_text() + dump({"measurements": list(measurements)}))


def of(model: str, accelerator: str, *loads: dict[str, Any], **values: Any) -> dict[str, Any]:
    return measurement_file(CATALOG.models[model], accelerator, loads=loads, **values)


def test_two_servers_that_were_measured_alike_stand_side_by_side_without_a_remark(compare: Any, root: Path) -> None:
    one = of(
        SMALL,
        "nvidia-l4",
        measured_load(1, ttft=0.3, inter_token=0.06),
        measured_load(8, inter_token=0.07, ttft=0.6),
        version="0.32.0",
    )
    other = of(SMALL, "nvidia-l4", measured_load(8, inter_token=0.05, ttft=0.6), arguments={"max_num_seqs": 16})
    measure(root, SMALL, one, other)
    answer = compare(SMALL, "--json")
    assert answer.status == 0
    told = answer.json
    assert told["load"] == {"users": 8, "prompt_tokens": 1024, "answer_tokens": 256}
    assert [each["inter_token_mean"] for each in told["subjects"]] == [0.07, 0.05]
    assert [each["name"] for each in told["subjects"]] == [
        "Qwen/Qwen3-8B@1xnvidia-l4 (vLLM 0.32.0)",
        "Qwen/Qwen3-8B@1xnvidia-l4 (vLLM 0.32.0, max_num_seqs=16)",
    ]
    assert all(each["is_measured"] and each["basis"] == "measured on 2026-11-28" for each in told["subjects"])
    assert len(told["not_comparable"]) == 1, told["not_comparable"]
    (apart,) = told["not_comparable"]
    assert apart.startswith("--max-num-seqs differs: ")
    shown = compare(f"{SMALL}@nvidia-l4", f"{SMALL}@nvidia-l4")
    assert "70 ms" in shown.out
    assert "measured on 2026-11-28" in shown.out


def test_what_is_not_comparable_is_named(compare: Any, root: Path) -> None:
    measure(root, SMALL, of(SMALL, "nvidia-l4", measured_load(8, 1000, inter_token=0.07)))
    cached = measured_load(8, 1024, inter_token=0.04, prefix_hit_share=0.9)
    served = {"tensor_parallel_size": 2, "enable_prefix_caching": True}
    measure(root, LARGE, of(LARGE, "nvidia-h100-80gb", cached, version="0.31.0", arguments=served))
    told = compare(SMALL, LARGE, "--json").json
    remarks = " ".join(told["not_comparable"])
    for part in (
        "The loads differ",
        "The accelerators differ: Qwen/Qwen3-8B@1xnvidia-l4 1 x nvidia-l4; ",
        "The versions of vLLM differ",
        "Prefix caching differs",
        "--enable-prefix-caching differs",
        "its own tokenizer",
        "90% of the prompts' tokens were cached",
    ):
        assert part in remarks
    assert "--tensor-parallel-size" not in remarks
    assert [each["count"] for each in told["subjects"]] == [1, 2]


def test_what_was_not_measured_is_predicted_and_says_so(compare: Any, root: Path) -> None:
    measure(root, SMALL, of(SMALL, "nvidia-l4", measured_load(8, inter_token=0.07)))
    told = compare(SMALL, f"{SMALL}@2xnvidia-l4", "--json").json
    assert [each["basis"] for each in told["subjects"]] == ["measured on 2026-11-28", "predicted (interpolated)"]
    assert told["not_comparable"][0].startswith("Some figures are predictions: Qwen/Qwen3-8B@1xnvidia-l4 measured on")
    other = compare(SMALL, f"{SMALL}@2xnvidia-l4", "--users", 16, "--json").json
    assert other["load"]["users"] == 16
    assert other["subjects"][0]["basis"] == "predicted from another load that was measured"
    assert not other["subjects"][0]["is_measured"]


def test_a_service_of_the_clone_is_compared_by_its_plan(compare: Any, root: Path) -> None:
    tiny = CATALOG.models["tiny-qwen3-moe"]
    arguments = {"max_num_seqs": 4, "enforce_eager": True}
    measure(
        root, "tiny-qwen3-moe", measurement_file(tiny, "cpu", loads=[measured_load(2, 200, 64)], arguments=arguments)
    )
    told = compare("local/tiny-moe", "tiny-qwen3-moe@cpu", "--json").json
    service, model = told["subjects"]
    assert (service["name"], service["model"], service["accelerator"]) == ("local/tiny-moe", "tiny-qwen3-moe", "cpu")
    assert service["is_measured"], told
    assert service["inter_token_mean"] == model["inter_token_mean"] == 0.02


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ((SMALL, LARGE), "has no measured load in the catalog"),
        ((f"{SMALL}@nvidia-l4",), "nothing to compare it with"),
        ((f"{SMALL}@nvidia-l4", f"{SMALL}@nvidia-l5"), "'nvidia-l5' is not an accelerator"),
        ((f"{SMALL}@nvidia-l4", "dev/nobody"), "'dev/nobody' is not a service"),
    ],
)
def test_what_cannot_be_compared_is_said(compare: Any, named: tuple[str, ...], told: str) -> None:
    said = compare(*named)
    assert said.status == 2
    assert told in said.err
