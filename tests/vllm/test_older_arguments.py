"""Arguments that older releases had, and what becomes of those that nothing reads."""

from __future__ import annotations

import pytest

from neuroscale.vllm.arguments import parse_arguments
from neuroscale.vllm.known_arguments import versions
from neuroscale.vllm.older_arguments import _FLAGS, _WITH_A_VALUE


@pytest.mark.parametrize(
    ("version", "words", "values"),
    [
        ("0.9.2", ["--limit-mm-per-prompt", "image=2,video=0"], {"limit_mm_per_prompt": {"image": 2, "video": 0}}),
        ("0.9.2", ["--rope_theta=1000000"], {"hf_overrides": {"rope_theta": 1_000_000.0}}),
        ("0.11.2", ["--enable-multimodal-encoder-data-parallel"], {"mm_encoder_tp_mode": "data"}),
        ("0.11.2", ["--num-redundant-experts", "8"], {"eplb_config": {"num_redundant_experts": 8}}),
        ("0.8.2", ["--speculative-model", "tiny", "--num-speculative-tokens", "4"], {"spec_model": "tiny"}),
        ("0.11.2", ["--task", "generate", "--swap-space=4", "--max-seq-len-to-capture", "8192"], None),
    ],
)
def test_what_an_older_release_had_is_read(version: str, words: list[str], values: dict[str, object] | None) -> None:
    parsed = parse_arguments([*words, "--max-num-seqs=8"], version)
    left = [problem.word for problem in parsed.problems]
    if values is None:
        assert left == ["--max-seq-len-to-capture"]  # 0.11 had it no more
    else:
        assert (left, parsed.values) == ([], {**values, "max_num_seqs": 8})


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.7.3", ["--swap-space", "4"]),
        ("0.9.2", ["--task", "embed"]),
        ("0.9.2", ["--device", "cpu"]),
        ("0.9.2", ["--rope-scaling", "[1]"]),
        ("0.9.2", ["--rope-theta", "high"]),
        ("0.10.2", ["--limit-mm-per-prompt", "image=2"]),
        ("0.9.2", ["--limit-mm-per-prompt", "image=many"]),
        ("0.9.2", ["--enable-reasoning=yes"]),
        ("0.9.2", ["--cuda-graph-sizes", "64"]),
        ("0.9.2", ["--no-such-argument", "1"]),
        ("0.9.2", ["--gpu-memory-utilization", "much"]),
    ],
)
def test_what_cannot_be_read_stays_a_problem(version: str, words: list[str]) -> None:
    assert parse_arguments(words, version).problems


def test_the_known_version_is_read_by_its_own_parser_alone() -> None:
    for option in (*_FLAGS, *_WITH_A_VALUE):
        if option != "--limit-mm-per-prompt":
            problems = parse_arguments([option, "1"], versions()[-1]).problems
            assert problems, option
