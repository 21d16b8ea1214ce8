"""Logs that hold what nobody expects: a diagnosis, or that it is not judged, and never a defect or a proposal that the
platform refuses."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accuracy.causes import read_logs
from command_line import commands
from neuroscale.catalog import Catalog
from neuroscale.catalog.loading import load_catalog
from neuroscale.explain import load_causes, next_configuration, read_lines
from neuroscale.explain.explanation import explain_lines
from neuroscale.planning.fit_question import Question
from neuroscale.policies.description import refused_arguments
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.report.cause_view import cause_lines, cause_mapping
from policies_support import fixtures
from roots import CHECKOUT, ROOT

MODEL, CARD = "openai/gpt-oss-120b", "nvidia-h100-80gb"
NOTHING = Question()
ODD = [
    *("1.2.3", "1" * 400, ".", "-1", "0", "1e999", "nan", "inf", "", "٣", "9223372036854775807", "1_0", "True", '"'),
    *(
        "a" * 3000,
        "{" * 50,
        "[" * 900 + "]" * 900,
        '{"a":' * 900 + "1" + "}" * 900,
        "None",
        "4096",
        "-0.0",
        f"{'1' * 400}k",
    ),
]
ARGUMENTS = [
    *("max_model_len", "tensor_parallel_size", "gpu_memory_utilization", "max_num_seqs", "block_size", "dtype"),
    *("speculative_config", "cpu_offload_gb", "kv_cache_dtype", "max_num_batched_tokens", "quantization"),
]
COMMANDS = [
    "non-default args: {{'model': '{model}', '{name}': {value}}}",
    "vllm serve {model} --{name}={value}",
    "args: Namespace(model_tag='{model}', {name}={value})",
    "Initializing a V1 LLM engine (v0.11.0) with config: model='{model}', {name}={value}",
]
CASES = [
    case for case in read_logs(CHECKOUT / "tests" / "ground_truth" / "logs") if re.search(r"\d", "".join(case.lines))
]


@cache
def catalog() -> Catalog:
    return load_catalog(FolderSnapshot(ROOT))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_log_of_odd_numbers_names_and_nesting_is_answered(data: st.DataObject) -> None:
    odd = st.sampled_from(ODD)
    text = "\n".join(data.draw(st.sampled_from(CASES)).lines)
    numbers = list(re.finditer(r"\d+(?:\.\d+)?", text))
    places = data.draw(st.lists(st.sampled_from(range(len(numbers))), min_size=1, max_size=3, unique=True))
    for place in sorted(places, reverse=True):
        start, end = numbers[place].span()
        text = f"{text[:start]}{data.draw(odd)}{text[end:]}"
    name, model = data.draw(st.sampled_from(ARGUMENTS)), data.draw(st.sampled_from([MODEL, "a" * 3000, "/etc/passwd"]))
    command = data.draw(st.sampled_from(COMMANDS)).format(model=model, name=name, value=data.draw(odd))
    given_ = data.draw(st.sampled_from([NOTHING, Question(MODEL, CARD, 2, vllm_version="0.11.0")]))
    explained = explain_lines(read_lines(f"{command}\n{text}"), given_, catalog())
    assert explained.diagnosis.verdict in ("cause", "healthy", "unknown", "not_judged")
    assert json.dumps(cause_mapping(explained))
    assert cause_lines(explained)


@pytest.mark.parametrize("name", ["acme/unheard-of", "a" * 3000, "/etc", "/", "\x00", "../../x"])
def test_a_name_that_only_a_log_gives_is_neither_looked_up_nor_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> Any:
        raise AssertionError("it was looked up")

    monkeypatch.setattr(next_configuration, "answer", asked)
    monkeypatch.setattr("neuroscale.explain.explanation.answer", asked)
    monkeypatch.setattr(Path, "exists", asked)
    draft = f"""{MODEL} --speculative-config='{{"method": "eagle", "model": {json.dumps(name)}}}'"""
    for command, option in ((f"'{name}' --max-model-len=8192", "--model"), (draft, "--vllm-args")):
        log = f"vllm serve {command}\ntorch.OutOfMemoryError: CUDA out of memory."
        explained = explain_lines(read_lines(log), Question("", CARD, 1), catalog())
        assert explained.next is None
        assert f"name it with {option}" in explained.no_next


def test_what_policies_refuse_is_read_from_their_messages() -> None:
    refused = refused_arguments(FolderSnapshot(ROOT))
    assert refused["trust_remote_code"] == "no-remote-code"
    for name, policy in refused.items():
        assert f"--{name.replace('_', '-')}" in str(fixtures(policy, "bad"))
    set_by_causes = {
        name
        for cause in load_causes()
        for change in (*cause.next, *(one for matcher in cause.matchers for one in matcher.next))
        if change.kind in ("set", "lower")
        for name in change.values
    }
    assert set_by_causes & refused.keys() == {"trust_remote_code"}


def test_no_argument_is_proposed_that_a_policy_refuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text(next(cause.example for cause in load_causes() if cause.name == "trust_remote_code"))
    explain = commands(capsys, monkeypatch, "explain", "--repository", ROOT)
    said = explain("--log", log, "--model", MODEL, "--accelerator", CARD, "--json")
    assert said.json["cause"] == "trust_remote_code"
    assert said.json["next"] is None
    assert "the policy no-remote-code" in said.json["no_next"]


@pytest.mark.parametrize(
    ("command", "line", "overrides"),
    [
        (
            "-tp 2",
            "ValueError: Total number of attention heads (16) must be divisible by tensor parallel size (2).",
            {"overrides.accelerator_count": 1},
        ),
        (
            "--max-num-seqs=16",
            "ValueError: max_num_seqs (16) exceeds available Mamba cache blocks (1). Each decode sequence needs one.",
            {"overrides.max_num_seqs": 1},
        ),
    ],
)
def test_a_change_to_one_is_a_change_that_update_takes(command: str, line: str, overrides: dict[str, int]) -> None:
    log = read_lines(f"vllm serve Qwen/Qwen3-0.6B {command}\n{line}")
    explained = explain_lines(log, Question(accelerator="nvidia-l4"), catalog())
    assert explained.next is not None
    assert explained.next.overrides == overrides
    assert any(f"--set={name}=1" in text for text in cause_lines(explained) for name in overrides)
