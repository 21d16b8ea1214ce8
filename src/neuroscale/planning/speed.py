"""Estimates the speed of one replica: a roofline of compute and memory bandwidth, scaled by measurements."""

from __future__ import annotations

import math

from neuroscale.catalog import Accelerator, ModelEntry
from neuroscale.core.units import GIB
from neuroscale.models.facts import CacheLayers
from neuroscale.planning.plan import Speed
from neuroscale.planning.replica_memory import weights

PREFILL_EFFICIENCY = 0.4
"""Share of the dense bf16 peak: Gemma 4 31B took 67.7 ms for 512 tokens on an H100 (JarvisLabs, vLLM), or 0.47."""

DECODE_EFFICIENCY = {"dense": 0.7, "moe": 0.4}
"""Share of the memory bandwidth at one user. On an H100 in bf16 the 31B made 40.3 tokens/s (0.74) and the 26B-A4B 177.1
(0.40) in the same series; the 12B with 4-bit weights made 78 on an RTX 3090 (0.74)."""

STEP_SECONDS = 0.05
"""Scheduling, tokenising and the first decode step."""


def speed(model: ModelEntry, accelerator: Accelerator, count: int, prompt_tokens: int, batched_tokens: int) -> Speed:
    """Seconds to the first token of the longest prompt on an idle replica, and tokens per second of one user.

    Each is None if the accelerator's figures are unknown. Queueing is not included.
    """
    bandwidth, peak = accelerator.bandwidth_gb_s.value, accelerator.bf16_tflops.value
    if bandwidth is None or peak is None:
        return Speed(ttft_seconds=None, decode_tokens_per_second=None)
    facts = model.facts
    # Two operations per active parameter and token, and two products over the context in each attention layer.
    operations = 2.0 * facts.active_params * prompt_tokens
    read_by = [_read_tokens(layers, prompt_tokens) for layers in facts.cache for _ in range(layers.layers)]
    if read_by:
        # Layers that read another layer's cache compute as much as the others on average; layers with a state do not.
        seen = sum(read_by) / len(read_by)
        attending = len(read_by) if facts.states else facts.num_layers
        operations += 2.0 * facts.heads * facts.head_dim * prompt_tokens * seen * attending
    compute = operations / (peak * 1e12 * PREFILL_EFFICIENCY * count)
    read = math.ceil(prompt_tokens / batched_tokens) * weights(model).gib * GIB / (bandwidth * 1e9 * count)
    share = facts.active_params / facts.total_params
    efficiency = DECODE_EFFICIENCY[facts.kind]
    step = weights(model).gib * GIB * share / (bandwidth * 1e9 * count * efficiency)
    return Speed(
        ttft_seconds=round(max(compute, read) + STEP_SECONDS, 2),
        decode_tokens_per_second=round(1 / step, 1),
    )


def _read_tokens(layers: CacheLayers, prompt_tokens: int) -> float:
    """The vectors that a token of a prompt reads in a layer: no more than the window, or one for `ratio` tokens."""
    return min(prompt_tokens, layers.window or prompt_tokens) / (1 if layers.window else layers.ratio)
