"""How the smoke tests ask: prompts of an exact length that no cache knows, and limits of time."""

from __future__ import annotations

import pytest

from neuroscale.smoke.model_requests import SLOWEST, Prompts, limits, percentile

_BLOCK = 16
"""Tokens by which vLLM's prefix cache compares."""


@pytest.mark.parametrize("tokens", [1, 3, 64, 1000, 8193])
def test_a_prompt_has_exactly_as_many_tokens_as_asked_for(tokens: int) -> None:
    prompts = Prompts(range(100, 170))
    assert [len(prompts.of(tokens)) for _ in range(5)] == [tokens] * 5


def test_no_two_prompts_begin_alike() -> None:
    """Else a cache would answer in the model's place, and latency would look better than it is."""
    prompts = Prompts(range(100, 170))
    beginnings = [tuple(prompts.of(500)[:_BLOCK]) for _ in range(4096)]
    assert len(set(beginnings)) == len(beginnings)


def test_a_prompt_holds_only_tokens_of_the_server() -> None:
    assert set(Prompts((7, 8, 9)).of(50)) <= {7, 8, 9}


def test_more_tokens_may_take_longer_and_silence_may_not() -> None:
    short, long = limits(60.0, 10), limits(60.0, 1000)
    assert long.seconds - short.seconds == pytest.approx(990 * SLOWEST)
    assert short.silence == long.silence == 60.0


def test_the_percentile_is_one_of_the_values() -> None:
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.95) == 5.0
    assert percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.5) == 3.0
    assert percentile([1.0], 0.95) == 1.0
