"""`neuroscale fit`: what programs and people read, and the exit status."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from command_line import commands
from cost_examples import prices
from fit_models import LLAMA
from neuroscale.catalog import Catalog
from neuroscale.catalog.model_lookup import load_model
from neuroscale.planning.fit import PINNED
from neuroscale.planning.fit_question import Question, answer
from roots import ROOT


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Llama-3.1-8B-Instruct"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


@pytest.fixture
def fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch, "fit", "--repository", ROOT)


def test_a_length_beyond_the_context_is_refused(fit: Any, model: Path) -> None:
    asked = ("--model", model, "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=8192", "--length")
    assert fit(*asked, 8192).status == 0
    refused = fit(*asked, 8193)
    assert refused.status == 2
    assert "--length: 8,193 tokens are more than a request may have here, which is 8,192" in refused.err


def test_programs_read_the_verdict_and_its_numbers(fit: Any, model: Path) -> None:
    said = fit("--model", model, "--accelerator", "nvidia-h100-80gb", "--vllm-args", "--max-model-len 8192", "--json")
    answer = said.json
    assert said.status == 0
    assert answer["verdict"] == "fits"
    memory = answer["memory_gib"]
    assert set(memory) == {"weights", "kv_cache", "overhead", "usable", "free"}
    assert sum(memory[part] for part in ("weights", "kv_cache", "overhead", "free")) == pytest.approx(
        memory["usable"], abs=0.006
    )
    assert memory["weights"] == 14.99
    assert answer["max_concurrency"] == pytest.approx(answer["kv_cache_tokens"] / 8192, abs=0.01)
    assert (answer["max_model_len"], answer["max_context"]) == (8192, 131072)
    assert answer["confidence"] in ("high", "medium", "low")
    assert all(reason.endswith(".") for reason in answer["reasons"])


def test_people_read_the_bar_what_vllm_prints_and_why(fit: Any, model: Path) -> None:
    said = fit("--model", model, "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=8192", "--length", 2048)
    assert said.status == 0
    assert "on 1 x nvidia-l4: fits" in said.out
    assert "weights 14.9" in said.out
    assert "Model loading took 14.99 GiB" in said.out
    assert "GPU KV cache size: " in said.out
    assert " of 2,048 tokens" in said.out
    assert "Longest context: " in said.out


def test_a_refusal_says_what_starts_instead_and_ends_with_1(fit: Any, model: Path) -> None:
    said = fit("--model", model, "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=131072", "--json")
    assert said.status == 1
    answer = said.json
    assert answer["verdict"] == "refused"
    assert (answer["kv_cache_tokens"], answer["max_concurrency"]) == (0, 0.0)
    costs = [float(choice["hourly"]) for choice in answer["choices"] if choice["hourly"] is not None]
    assert costs
    assert costs == sorted(costs)
    sources = {choice["price_source"] for choice in answer["choices"] if choice["hourly"] is not None}
    assert "google-cloud of 2026-06-10: on-demand list price, US regions" in sources
    words = fit("--model", model, "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=131072").out
    assert "GiB short" in words
    assert " USD an hour (google-cloud of 2026-06-10: on-demand list price, US regions)" in words
    assert f"Shorten the context to {answer['max_context'] // 16 * 16:,} tokens." in words


def test_a_spot_price_gives_way_to_one_on_demand(model: Path) -> None:
    known = prices().catalog
    listed = known.prices["google-cloud"]
    cheap = tuple(price.model_copy(update={"usd": Decimal("0.01")}) for price in listed.prices)
    spot = listed.model_copy(update={"name": "a-spot", "tier": "spot list price", "prices": cheap})
    lists = {**known.prices, spot.name: spot}
    catalog = Catalog(known.models, known.accelerators, lists, known.runtimes, known.teams)
    asked = Question(str(model), "nvidia-l4", None, ("--max-model-len=131072",), PINNED, look_up=load_model)
    sources = {choice.price_source.partition(" of ")[0] for choice in answer(asked, catalog).choices if choice.hourly}
    assert "google-cloud" in sources
    assert "a-spot" not in sources


def test_a_card_of_amd_is_known_by_its_name_and_judged_with_low_confidence(fit: Any, model: Path) -> None:
    said = fit("--model", model, "--accelerator", "AMD Instinct MI300X", "--memory-gib", 191.98, "--json")
    assert (said.status, said.json["verdict"], said.json["confidence"]) == (0, "tight", "low")
    assert (said.json["error_band_gib"], said.json["max_context_band"]) == (None, None)
    assert any("is not known" in reason for reason in said.json["reasons"])


@pytest.mark.parametrize(
    ("version", "arguments", "words"),
    [
        ("0.7.3", "", "0.7.3 is older than 0.9.1, the first release that is judged"),
        ("0.10.2", "--enable-lora", "how vLLM 0.10.2 serves a model with LoRA adapters is not known here"),
        ("0.10.2", "--swap-space 4", "'--swap-space': vLLM has removed this argument"),
        ("0.9.2", "--cuda-graph-sizes 64", "'--cuda-graph-sizes'"),
    ],
)
def test_what_only_an_older_release_knows_is_not_judged(
    fit: Any, model: Path, version: str, arguments: str, words: str
) -> None:
    card = ("--model", model, "--accelerator", "nvidia-h100-80gb", "--vllm-version", version)
    said = fit(*card, "--vllm-args", f"--max-model-len=8192 {arguments}")
    assert (said.status, words in " ".join(said.err.split()), "judged" in said.err) == (2, True, True)
    assert fit(*card[:-1], "0.11.2", "--vllm-args", "--max-model-len=8192").status == 0


def test_a_release_after_those_whose_source_was_read_is_said_to_be_newer(fit: Any, model: Path) -> None:
    card = ("--model", model, "--accelerator", "nvidia-h100-80gb", "--vllm-args", "--max-model-len=8192", "--json")
    newer = fit(*card, "--vllm-version", "0.99.0").json
    assert newer["confidence"] == "low"
    assert any("newer than 0.32.0, the newest release whose source was read" in one for one in newer["reasons"])


def test_a_start_that_ends_before_its_weights_are_loaded_prints_no_lines_on_memory(fit: Any, model: Path) -> None:
    small = ("--model", model, "--accelerator", "some card", "--memory-gib")
    assert "Model loading took" in fit(*small, 17, "--vllm-args", "--max-model-len=8192").out
    assert "Model loading took" not in fit(*small, 10, "--vllm-args", "--max-model-len=8192").out


def test_variables_of_the_server_are_read(fit: Any, model: Path) -> None:
    card = ("--model", model, "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=8192", "--json")
    plain, without = fit(*card).json, fit(*card, "--env", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0").json
    assert without["available_kv_cache_gib"] > plain["available_kv_cache_gib"]
    assert any("On top of the share" in reason for reason in without["reasons"])
    other = fit(*card, "--env", "VLLM_USE_V1=0").json
    assert other["confidence"] == "low"
    assert "Planning with VLLM_USE_V1 does not count what the first engine takes." in other["reasons"]
    assert fit(*card, "--env", "VLLM_USE_V1").status == 2


def test_memory_that_other_programs_hold_is_not_free(fit: Any, model: Path) -> None:
    card = ("--model", model, "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=8192", "--json")
    assert fit(*card).json["verdict"] == "fits"
    held = fit(*card, "--used-gib", 4.8)
    assert (held.status, held.json["verdict"], held.json["within_error_band"]) == (1, "refused", False)
    assert "held by other programs" in held.json["reasons"][0]
    wrong = fit(*card, "--used-gib", -1)
    assert (wrong.status, "Write a number from 0" in wrong.err) == (2, True)


def test_a_refusal_that_is_not_sure_says_so(fit: Any, model: Path) -> None:
    card = ("--model", model, "--accelerator", "nvidia-l4")
    longest = fit(*card, "--vllm-args", "--max-model-len=8192", "--json").json
    least, most = longest["max_context_band"]
    assert least < longest["max_context"] < most
    over = f"--max-model-len={longest['max_context'] + 16}"
    near = fit(*card, "--vllm-args", over, "--json")
    assert (near.status, near.json["verdict"], near.json["within_error_band"]) == (1, "refused", True)
    shown = fit(*card, "--vllm-args", over).out
    assert "refused, but close: it may start" in shown
    assert f"(within the error of the estimate: {least:,} to {most:,})" in shown
    assert not fit(*card, "--vllm-args", "--max-model-len=131072", "--json").json["within_error_band"]


def test_a_count_is_the_tensor_parallel_size_unless_the_arguments_say_another(fit: Any, model: Path) -> None:
    two = fit("--model", model, "--accelerator", "nvidia-l4", "--count", 2, "--json").json
    assert (two["count"], two["memory_gib"]["weights"]) == (2, 7.51)
    piped = fit(
        *("--model", model, "--accelerator", "nvidia-l4", "--count", 2, "--json"),
        *("--vllm-args", "--pipeline-parallel-size 2 --max-model-len 8192"),
    ).json
    assert (piped["count"], piped["memory_gib"]["weights"]) == (2, 7.51)
    too_many = fit(
        *("--model", model, "--accelerator", "nvidia-l4", "--count", 2, "--json"),
        *("--vllm-args", "--tensor-parallel-size 4"),
    )
    assert too_many.status == 1
    assert "ask for 4 accelerators, and there are 2" in too_many.json["reasons"][0]


def test_an_argument_that_vllm_does_not_know_refuses_the_start(fit: Any, model: Path) -> None:
    said = fit(
        *("--model", model, "--accelerator", "nvidia-h100-80gb", "--json"),
        *("--vllm-args", "--max-model-len 8192 --swap-space 4"),
    )
    assert said.status == 1
    assert "--swap-space" in said.json["reasons"][0]


@pytest.mark.parametrize("arguments", ["--served-model-name chat other", "--served-model-name=chat"])
def test_a_served_name_is_taken_since_another_option_names_the_model(fit: Any, model: Path, arguments: str) -> None:
    asked = ("--model", model, "--accelerator", "nvidia-h100-80gb", "--json", "--vllm-args")
    without, named = (fit(*asked, f"--max-model-len 8192 {more}").json for more in ("", arguments))
    assert named == without
    assert named["verdict"] == "fits"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--enable-expert-parallel", "which is dense: vLLM ends"),
        ("--max-num-batched-tokens 8 --max-num-seqs 16", "less than --max-num-seqs"),
        ("--max-num-batched-tokens 2048 --no-enable-chunked-prefill", "must fit into one step"),
        ("--enable-auto-tool-choice", "without --tool-call-parser"),
        ("--quantization awq_marlin_2", "awq_marlin_2"),
        ("--tensor-parallel-size 3", "cannot be split over 3 ranks"),
        ("--tensor-parallel-size 0", "0 is less than 1"),
        ("--pipeline-parallel-size 0", "0 is less than 1"),
        ("--tensor-parallel-size -1", "-1 is less than 1"),
        ("--gpu-memory-utilization 0", "--gpu-memory-utilization"),
        ("--block-size -16", "--block-size"),
    ],
)
def test_what_ends_vllm_at_its_start_refuses_it_whatever_the_memory(
    fit: Any, model: Path, arguments: str, told: str
) -> None:
    card = ("--accelerator", "nvidia-h100-80gb", "--vllm-args", f"--max-model-len 4096 {arguments}", "--json")
    said = fit("--model", model, *card)
    assert (said.status, said.json["verdict"]) == (1, "refused")
    reasons = said.json["reasons"]
    assert told in reasons[0]
    assert sum(told in reason for reason in reasons) == 1
    assert not any(reason.startswith(f"{model.name} starts") for reason in reasons)


def test_another_familys_parser_is_a_remark_since_vllm_starts_with_it(fit: Any, model: Path) -> None:
    arguments = "--max-model-len 4096 --enable-auto-tool-choice --tool-call-parser gemma4"
    said = fit("--model", model, "--accelerator", "nvidia-h100-80gb", "--vllm-args", arguments, "--json")
    assert said.json["verdict"] == "fits"
    assert any("--tool-call-parser=gemma4" in reason for reason in said.json["reasons"])


def test_what_of_memory_is_not_counted_is_said(fit: Any, model: Path) -> None:
    arguments = "--max-model-len 4096 --enable-lora --lora-target-modules q_proj"
    said = fit("--model", model, "--accelerator", "nvidia-h100-80gb", "--vllm-args", arguments, "--json").json
    assert (said["verdict"], said["confidence"]) == ("tight", "low")
    assert any("does not count" in reason and "LoRA" in reason for reason in said["reasons"])


def test_overrides_of_the_context_are_planned_and_wrong_ones_are_told_once(fit: Any, model: Path) -> None:
    def asked(overrides: str) -> Any:
        return fit("--model", model, "--memory-gib=80", "--json", "--vllm-args", overrides).json

    assert asked("""--hf-overrides '{"max_position_embeddings": 4096}'""")["max_model_len"] == 4096
    wrong = asked("""--hf-overrides '{"rope_parameters": {"factor": 2}}'""")
    assert wrong["verdict"] == "refused"
    assert sum("rope_type" in reason for reason in wrong["reasons"]) == 1


def test_a_card_that_is_not_in_the_catalog_is_described_by_its_memory(fit: Any, model: Path) -> None:
    arguments = ("--model", model, "--vllm-args", "--max-model-len 8192", "--json")
    described = fit(*arguments, "--memory-gib", 24, "--bandwidth-gbs", 936).json
    assert (described["verdict"], described["memory_gib"]["usable"]) == ("fits", 22.08)
    named = fit(*arguments, "--accelerator", "rtx-4090", "--memory-gib", 23.5).json
    assert named["accelerator"] == "rtx-4090"
    older = fit(*arguments, "--memory-gib", 24, "--vllm-version", "0.19.1").json
    assert older["memory_gib"]["usable"] == 21.6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--accelerator", "nvidia-l5"), "Did you mean 'nvidia-l4'?"),
        ((), "no accelerator is named"),
        (("--accelerator", "nvidia-l4", "--memory-gib", "-1"), "is not a size"),
        (("--accelerator", "nvidia-l4", "--memory-gib", "nan"), "is not a size"),
        (("--accelerator", "nvidia-l4", "--count", "0"), "is not a size"),
        (("--accelerator", "nvidia-l4", "--vllm-version", "latest"), "is not a version"),
        (("--accelerator", "nvidia-l4", "--vllm-args", "--served-model-name 'x"), "cannot be split into words"),
    ],
)
def test_what_cannot_be_read_is_one_clear_message(
    fit: Any, model: Path, arguments: tuple[str, ...], words: str
) -> None:
    said = fit("--model", model, *arguments)
    assert said.status == 2
    assert words in said.err
