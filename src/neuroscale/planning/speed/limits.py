"""Bounds the speed of a replica by the memory and the arithmetic of its accelerators: what no true measurement breaks.

The bounds are loose on purpose. They count what a step cannot avoid: it reads the weights that one token computes with,
and the cache of one request; no cache of the processor, no other request and no guessed token makes that less.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuroscale.catalog.measurements import MeasuredLoad
from neuroscale.core.money_and_time import duration
from neuroscale.core.units import MIB
from neuroscale.planning.speed.kinds import weight_type
from neuroscale.planning.speed.load import ReplicaSpeed

_ON_CHIP = 256 * MIB
"""Bytes that an accelerator may keep between steps without its memory: the largest is the Infinity Cache of an MI300X;
a B200 keeps 126 MiB in its second level."""

_LEEWAY = 1.25
"""How far a figure may be beyond a bound: published bandwidths are rounded, and memory may run above its usual clock.
The fastest of 2,584 published measurements (tests/ground_truth/speed) is 4 % beyond it."""


def impossible(server: ReplicaSpeed, load: MeasuredLoad) -> Iterator[tuple[str, str]]:
    """The figures of a load that are faster than the accelerators of its server can be: the field, and a sentence.

    `server`: the one that was measured. Nothing is judged by a bandwidth, a peak or a size of weights that is not
    known.
    """
    device, arguments, facts = server.device, server.arguments, server.facts
    converted = arguments.quantization is not None and facts.quantization is None
    if converted and weight_type(facts, arguments.quantization) == "16-bit":
        return  # by a method whose sizes nobody counted
    work = server.work
    guessed = 1 + arguments.speculative_tokens if arguments.speculative else 1
    peaks = (device.bf16_tflops, device.fp8_tflops, device.int8_tflops, device.fp4_tflops)
    if device.bandwidth_gb_s is not None and (arguments.speculative is None or arguments.speculative_tokens):
        chosen = 1.0 - work.missed  # all tokens of a step may choose the same experts
        weights = sum(part.bytes * (chosen if part.experts else 1.0) for part in work.matrices) + work.head.bytes
        read = max(weights - _ON_CHIP, 0.0)
        step = (read + work.kept(load.prompt_tokens)) / (device.bandwidth_gb_s * 1e9)
        reads = f"reads {read / 1e9:.3g} GB of weights at {device.bandwidth_gb_s:,g} GB/s"
        if load.inter_token_seconds.mean * _LEEWAY * guessed < step:
            token = f"a token takes {duration(step / guessed)} at least, since each step {reads}"
            yield "inter_token_seconds", f"{duration(load.inter_token_seconds.mean)} between tokens: {token}"
        if load.ttft_seconds is not None and load.ttft_seconds.mean * _LEEWAY < read / (device.bandwidth_gb_s * 1e9):
            yield "ttft_seconds", f"{duration(load.ttft_seconds.mean)} to the first token: a step {reads}"
    if device.bf16_tflops is not None:
        peak = max(peak for peak in peaks if peak is not None) * 1e12 * work.shares
        layers = sum(part.flops for part in work.matrices)
        computed = 0.0 if load.prefix_hit_share is None else load.prompt_tokens * (1.0 - load.prefix_hit_share)
        each = layers * (1.0 + computed / load.answer_tokens) + work.head.flops
        if load.tokens_per_second.total > _LEEWAY * peak / each:
            most = f"{peak / each:,.3g} are the most that {peak / 1e12 * work.ranks:,.4g} TFLOPS compute"
            yield "tokens_per_second", f"{load.tokens_per_second.total:,.4g} tokens/s in all: {most}"
