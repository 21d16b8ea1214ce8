"""Two changes at once, for accelerators of one's own on which no single change of the command starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from fit_models import H100, L4, llama_8b, qwen3_30b_a3b
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit import Choice, Device, OtherCandidates, choices, fit
from neuroscale.vllm.engine_arguments import EngineArguments


def own_card(gib: float, *dtypes: str, counts: tuple[int, ...] = (1,)) -> Device:
    return Device("my-card", "My card", "cuda", gib, 500.0, counts=counts, kv_cache_dtypes=("auto", *dtypes))


def copy_of(facts: ModelFacts, name: str, share: float) -> ModelFacts:
    sizes = {group: round(size * share) for group, size in facts.weight_bytes.items()}
    return replace(facts, name=name, weight_bytes=sizes)


def named(
    device: Device, arguments: EngineArguments, *copies: ModelFacts, others: Sequence[Device] = ()
) -> tuple[Choice, ...]:
    """The choices for a Llama 3.1 8B, each of which the engine starts as it says."""
    facts = llama_8b()
    refused = fit(facts, device, arguments)
    assert refused.verdict == "refused"
    around = OtherCandidates(copies, others, lambda name, count: {"nvidia-h100-80gb": Decimal(11)}.get(name))
    return choices(refused, facts, device, arguments, around)


SMALL = copy_of(llama_8b(), "llama-w4", 0.36)


def test_a_smaller_copy_with_a_shorter_context_is_named_where_neither_suffices() -> None:
    arguments = EngineArguments(max_model_len=32768)
    (pair,) = named(own_card(8.9), arguments, SMALL)
    assert (pair.model, pair.accelerator, pair.accelerator_count) == ("llama-w4", "my-card", 1)
    assert pair.change == f"Shorten the context to {pair.max_context:,} tokens, and choose the model 'llama-w4'."
    assert pair.arguments == (f"--max-model-len={pair.max_context}",)
    alone = fit(SMALL, own_card(8.9), arguments)
    assert alone.verdict == "refused"
    assert fit(llama_8b(), own_card(8.9), replace(arguments, max_model_len=256)).verdict == "refused"
    started = fit(SMALL, own_card(8.9), replace(arguments, max_model_len=pair.max_context))
    assert started.verdict != "refused"


def test_a_pair_that_keeps_the_context_comes_before_one_that_shortens_it() -> None:
    card = own_card(8.9, "fp8")
    fewer = named(card, EngineArguments(max_model_len=8192, max_num_seqs=256), SMALL)
    in_8_bits = named(card, EngineArguments(max_model_len=14000, max_num_seqs=16), SMALL)
    assert [one.change for one in fewer] == ["Choose the model 'llama-w4', and compute at most 64 requests at once."]
    assert [one.change for one in in_8_bits] == ["Choose the model 'llama-w4', and keep the KV cache in 8 bits."]
    assert in_8_bits[0].arguments == ("--kv-cache-dtype=fp8",)
    (longer,) = named(own_card(8.9, "fp8"), EngineArguments(max_model_len=65536), SMALL)
    assert longer.change.startswith("Shorten the context to")


def test_one_change_that_suffices_is_not_paired() -> None:
    found = named(own_card(17.5), EngineArguments(max_model_len=8192), SMALL)
    assert found
    assert not any(", and " in choice.change for choice in found)


def test_what_one_s_own_accelerators_can_do_comes_before_what_others_cost() -> None:
    own, other = named(own_card(8.9), EngineArguments(max_model_len=32768), SMALL, others=(H100,))
    assert (own.accelerator, own.hourly) == ("my-card", None)
    assert (other.accelerator, other.hourly) == ("nvidia-h100-80gb", Decimal(11))


def test_more_cards_are_paired_where_all_of_them_alone_are_too_small() -> None:
    card = own_card(6.5, counts=(1, 2))
    (pair,) = named(card, EngineArguments(max_model_len=2048), SMALL)
    assert (pair.model, pair.accelerator_count) == ("llama-w4", 2)
    assert pair.change == "Choose the model 'llama-w4', and use 2 x My card."


def test_where_nothing_helps_nothing_is_named() -> None:
    assert named(own_card(2.0, "fp8"), EngineArguments(max_model_len=32768), SMALL) == ()


@pytest.mark.parametrize("gib", [5.8, 7.8, 11.6, 15.6, 23.5, 31.3])
@pytest.mark.parametrize("length", [2048, 32768])
def test_every_named_change_starts(gib: float, length: int) -> None:
    facts = qwen3_30b_a3b()
    copies = {copy.name: copy for copy in (facts, copy_of(facts, "qwen-fp8", 0.5), copy_of(facts, "qwen-w4", 0.3))}
    card, arguments = own_card(gib, "fp8", counts=(1, 2)), EngineArguments(max_model_len=length)
    refused = fit(facts, card, arguments)
    devices = {device.name: device for device in (card, L4)}
    found = choices(refused, facts, card, arguments, OtherCandidates(tuple(copies.values()), (L4,)))
    assert found
    assert not any("--tensor-parallel-size=1" in choice.arguments for choice in found)
    for choice in found:
        said = dict(option.removeprefix("--").replace("-", "_").split("=") for option in choice.arguments)
        numbers = {name: float(value) if "." in value else int(value) for name, value in said.items() if value != "fp8"}
        changed = replace(arguments, **numbers, kv_cache_dtype=said.get("kv_cache_dtype", "auto"))  # type: ignore[arg-type]
        result = fit(copies[choice.model], devices[choice.accelerator], changed)
        assert result.verdict != "refused"
        assert (result.count, result.max_context) == (choice.accelerator_count, choice.max_context)
