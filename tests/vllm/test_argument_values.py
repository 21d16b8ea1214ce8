"""Reading the arguments of any `vllm serve` as values, and writing them as words again."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroscale.explain import facts_of_log, read_lines
from neuroscale.vllm.argument_values import values_of, values_of_container, words_of


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("--enforce-eager -tp 4", {"enforce_eager": True, "tensor_parallel_size": 4}),
        ("--max-model-len 32k --dtype=half", {"max_model_len": 32000, "dtype": "half"}),
        ("--max-model-len=32K", {"max_model_len": 32768}),
        ("--no-enable-prefix-caching -O3", {"enable_prefix_caching": False, "optimization_level": "3"}),
        ("--lora-modules a=b c=d --max-num-seqs=4", {"lora_modules": ["a=b", "c=d"], "max_num_seqs": 4}),
        ("--speculative-config.method=ngram", {"speculative_config": {"method": "ngram"}}),
        # What the version refuses keeps its text, in its place.
        ("--seed=1 --max-modl-len 4 --dtype=half", {"seed": 1, "max_modl_len": "4", "dtype": "half"}),
        ("--swap-space 4", {"swap_space": "4"}),
        ("--dtype float7", {"dtype": "float7"}),
        ("--max-num-seqs=many --of-tomorrow", {"max_num_seqs": "many", "of_tomorrow": True}),
    ],
)
def test_a_command_is_read_as_its_version_reads_it(line: str, values: dict[str, Any]) -> None:
    assert values_of(shlex.split(line), "0.32.0") == values
    assert list(values_of(shlex.split(line), "0.32.0")) == list(values)


def test_a_log_and_a_pod_are_read_by_the_same_parser() -> None:
    line = "--enforce-eager -tp 4 --max-model-len 32k"
    expected = {"enforce_eager": True, "tensor_parallel_size": 4, "max_model_len": 32000}
    facts = facts_of_log(read_lines(f"$ vllm serve Qwen/Qwen3-8B {line}"))
    assert (facts.model, facts.arguments) == ("Qwen/Qwen3-8B", expected)
    image = {"image": "vllm/vllm-openai:v0.32.0"}
    for command, first in (([], ["Qwen/Qwen3-8B"]), (["vllm", "serve"], ["Qwen/Qwen3-8B"])):
        container = {**image, "command": command, "args": [*first, *line.split()]}
        assert values_of_container(container) == {"model": "Qwen/Qwen3-8B", **expected}
    module = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=Qwen/Qwen3-8B", *line.split()]
    assert values_of_container({**image, "command": module}) == {"model": "Qwen/Qwen3-8B", **expected}
    assert values_of_container({"image": "acme/llm", "args": ["--port=80"]}) == {"port": 80}


_WORDS = st.lists(
    st.sampled_from(
        [
            *("--enforce-eager", "-tp=2", "--max-model-len=8k", "--gpu-memory-utilization=0.85", "--cpu-offload-gb=10"),
            *("--no-enable-prefix-caching", '--hf-overrides={"a": [1]}', "--served-model-name=a", "--enable-lora"),
            *("--quantization=awq", "--kv-cache-dtype=fp8", "--trust-remote-code", "--max-num-seqs=16"),
            *("--cudagraph-capture-sizes", "1", "2"),
        ]
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(_WORDS)
def test_words_of_values_set_the_same_values(words: list[str]) -> None:
    values = values_of(words, "0.32.0")
    assert values_of(words_of(values, "0.32.0"), "0.32.0") == values
