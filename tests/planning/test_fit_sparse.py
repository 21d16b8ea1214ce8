"""Sparse latent attention: the indexers' cache, the card's own 8-bit format, and cards without kernels for it."""

from __future__ import annotations

from typing import Any

import pytest

from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Device, Fit, fit
from neuroscale.vllm.engine_arguments import EngineArguments
from oracle_sparse import FULL

GIB = 2**30


def _card(title: str, family: Any = "cuda") -> Device:
    return Device(title.lower().replace(" ", "-"), title, family, 10000.0, bandwidth_gb_s=4800)


def _model(name: str) -> ModelFacts:
    return read_config(FULL[name], name)


def _planned(name: str, card: Device, **arguments: Any) -> Fit:
    return fit(_model(name), card, EngineArguments(max_model_len=65536, tensor_parallel_size=8, **arguments))


def _bytes_of_token(planned: Fit) -> float:
    return planned.request_gib * GIB / planned.max_model_len


@pytest.mark.parametrize(
    ("name", "card", "dtype", "each"),
    [
        # Latents of 576 values and an indexer's key of 128 bytes with a scale of 4 in each of 61 layers.
        ("DeepSeek-V3.2", "NVIDIA H200 141GB", "auto", 61 * (1152 + 132)),
        ("DeepSeek-V3.2", "NVIDIA H200 141GB", "fp8", 61 * (656 + 132)),
        ("DeepSeek-V3.2", "NVIDIA B200", "fp8", 61 * (576 + 132)),
        ("DeepSeek-V3.2", "NVIDIA RTX PRO 6000 Blackwell", "auto", 61 * (656 + 132)),
        # 21 of 78 layers have an indexer; on a B200 vLLM sets 8 bits by itself.
        ("GLM-5.2", "NVIDIA H200 141GB", "auto", 78 * 1152 + 21 * 132),
        ("GLM-5.2", "NVIDIA B200", "auto", 78 * 576 + 21 * 132),
    ],
)
def test_a_token_takes_its_latent_in_the_cards_format_and_a_key_of_each_indexer(
    name: str, card: str, dtype: str, each: int
) -> None:
    planned = _planned(name, _card(card), kv_cache_dtype=dtype)
    assert (_bytes_of_token(planned), planned.resolved.block_size) == (each, 64)


_OLDER = [
    *("NVIDIA A100 80GB", "NVIDIA L40S", "NVIDIA GeForce RTX 4090", "NVIDIA L20", "NVIDIA RTX 6000 Ada Generation"),
    *("Quadro RTX 8000", "Tesla P40", "NVIDIA RTX 4000 SFF Ada"),
]


@pytest.mark.parametrize("card", _OLDER)
def test_a_card_without_kernels_for_sparse_attention_is_refused(card: str) -> None:
    planned = _planned("DeepSeek-V3.2", _card(card))
    assert planned.verdict == "refused"
    assert f"vLLM cannot serve DeepSeek-V3.2 on {card}" in planned.against[0]


def test_a_card_whose_name_is_not_known_is_at_most_tight() -> None:
    planned = _planned("DeepSeek-V3.2", _card("NVIDIA X900"))
    assert (planned.verdict, planned.confidence) == ("tight", "low")
    assert "Tight: nobody knows whether vLLM has kernels for it there, so the start may fail." in planned.reasons
    assert any("Not known: whether vLLM has kernels for the sparse attention" in one for one in planned.reasons)


@pytest.mark.parametrize("card", ["NVIDIA RTX PRO 6000 Blackwell", "NVIDIA RTX 6000 Pro", "NVIDIA H20", "NVIDIA GB300"])
def test_a_card_with_kernels_is_not_taken_for_an_older_one(card: str) -> None:
    planned = _planned("DeepSeek-V3.2", _card(card))
    assert (planned.verdict, planned.confidence) == ("fits", "medium")


def test_a_tpu_is_refused() -> None:
    assert "kernels for sparse attention" in _planned("GLM-5.2", _card("TPU v6e", "tpu")).against[0]


def test_a_cpu_is_refused_and_so_is_a_block_that_indexers_cannot_read() -> None:
    assert "kernels for sparse attention" in _planned("GLM-5.2", _card("this machine", "cpu")).against[0]
    planned = _planned("GLM-5.2", _card("NVIDIA H200 141GB"), block_size=16)
    assert planned.against == ("--block-size=16 is not a multiple of 64, which indexers need.",)


def test_indexers_take_their_buffers_and_no_such_plan_is_sure() -> None:
    planned = _planned("DeepSeek-V3.2", _card("NVIDIA H200 141GB"), max_num_batched_tokens=8192)
    # The chosen tokens of a step in 32 bits, and its scores.
    assert planned.overhead_gib["indexers"] >= 8192 * 2048 * 4 / GIB + 0.5
    assert planned.confidence == "medium"


def test_every_layer_of_multi_token_prediction_has_an_indexer() -> None:
    plain, guessing = (_planned("GLM-5.2", _card("NVIDIA H200 141GB"), **more) for more in ({}, {"speculative": "mtp"}))
    assert _bytes_of_token(guessing) - _bytes_of_token(plain) == 1152 + 132
