"""Writes the lines that vLLM prints, and explains the verdict."""

from __future__ import annotations

from neuroscale.core.money_and_time import duration
from neuroscale.core.releases import release
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.confidence import unread_states
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.rank import Rank
from neuroscale.planning.fit.result import Fit
from neuroscale.planning.fit.sparse import are_kernels_unknown
from neuroscale.planning.fit.versions import MEASURED, PINNED

_BASIS = {
    "headers": "what its files or a start of it say",
    "config": "counted from its config",
    "estimate": "estimated, because its architecture is not known here",
}


_HELD = (
    "the memory that the host and other programs hold differs by many GiB from host to host (give it with "
    "--used-gib, or take a lower --gpu-memory-utilization)"
)
_HELD_OF_A_CARD = (
    "how much of this card the driver and other programs, such as a desktop, hold is not known (give it with "
    "--used-gib, or take a lower --gpu-memory-utilization)"
)


def _held(device: Device) -> str:
    return _HELD if device.shared else _HELD_OF_A_CARD


def log_lines(result: Fit, rank: Rank) -> tuple[str, ...]:
    """The lines on memory in vLLM's log, in the words of the version; none for a start that ends before them."""
    weights = rank.weights.total / GIB
    too_large = result.total_gib is not None and weights > result.total_gib
    if result.against or too_large:
        return ()
    lines = [f"Model loading took {weights:.2f} GiB memory"]
    lines.append(f"Available KV cache memory: {result.available_gib:.2f} GiB")
    if result.verdict != "refused":
        size = f"GPU KV cache size: {result.kv_cache_tokens:,} tokens"
        most = f"Maximum concurrency for {result.max_model_len:,} tokens per request: {result.max_concurrency:.2f}x"
        lines += [f"{size}, {most}"] if rank.does.one_line else [size, most]
    elif result.available_gib <= 0:
        lines.append("ValueError: No available memory for the cache blocks.")
    else:
        lines.append(
            f"ValueError: To serve at least one request with the model's max seq len ({result.max_model_len}), "
            f"({result.request_gib:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({result.available_gib:.2f} GiB). Based on the available memory, the estimated maximum model length is "
            f"{result.max_context}."
        )
    return tuple(lines)


def explained(result: Fit, rank: Rank, unknown: str) -> tuple[str, ...]:
    """Complete sentences: first the reason of the verdict, then the source of each number. `unknown`: the part of the
    need that nobody knows, as a clause ("": there is none)."""
    facts, device = rank.facts, rank.device
    sentences = list(result.against)
    sentences += _decision(result, device, unknown)
    sentences += _parts(result, facts)
    sentences += _context(result)
    sentences += _offload(result, device)
    sentences += _unknown(result, facts, device)
    return tuple(sentences)


def _on(result: Fit, device: Device) -> str:
    return f"{result.count} x {device.title}"


def _decision(result: Fit, device: Device, unknown: str) -> list[str]:
    memory = result.memory_gib
    length = f"{result.max_model_len:,} tokens"
    if result.verdict == "refused":
        if result.against and memory.free >= 0:
            return _close(result, device)
        total = memory.weights + memory.overhead + memory.kv_cache
        return [
            f"{result.model} does not fit {_on(result, device)}: weights {memory.weights:.2f} GiB + overhead "
            f"{memory.overhead:.2f} GiB + KV cache for one request of {length} {memory.kv_cache:.2f} GiB = {total:.2f} "
            f"GiB on each accelerator, and {memory.usable:.2f} GiB are usable ({-memory.free:.2f} GiB short).",
            *_close(result, device),
        ]
    sentences = [
        f"{result.model} starts on {_on(result, device)}: weights {memory.weights:.2f} GiB and overhead "
        f"{memory.overhead:.2f} GiB leave {result.available_gib:.2f} GiB of {memory.usable:.2f} GiB for the KV cache, "
        f"which holds {result.max_concurrency:.2f} requests of {length} at once."
    ]
    if result.verdict == "tight":
        why = (
            f"the memory to spare is less than the {result.band_gib:.2f} GiB by which the estimate may be off"
            if result.close == "estimate"
            else _held(device)
            if result.close == "held"
            else unknown
        )
        sentences.append(f"Tight: {why}, so the start may fail.")
    return sentences


def _close(result: Fit, device: Device) -> list[str]:
    """Says so if a refusal is not sure."""
    if not result.close:
        return []
    why = (
        f"the missing memory is less than the {result.band_gib:.2f} GiB by which the estimate may be off"
        if result.close == "estimate"
        else _held(device)
    )
    return [f"Close: {why}, so the start may succeed. Measure one before you rely on either."]


def _parts(result: Fit, facts: ModelFacts) -> list[str]:
    memory, resolved = result.memory_gib, result.resolved
    beside = ", ".join(f"{name} {size:.2f}" for name, size in result.overhead_gib.items() if size >= 0.005)
    total = result.total_gib or 0.0
    by_share = f"{resolved.utilization:g} of {total:.2f} GiB" if memory.usable < total else f"all of {total:.2f} GiB"
    sentences = [
        f"Usable is {by_share}. The weights are {_BASIS[facts.basis]}"
        + (f"; overhead in GiB: {beside}." if beside else "."),
        f"vLLM {result.version} computes up to {resolved.max_num_batched_tokens:,} tokens of {resolved.max_num_seqs:,} "
        f"requests in a step and keeps the KV cache as {resolved.kv_cache_dtype} in blocks of {resolved.block_size} "
        "tokens.",
        f"The memory for the KV cache may be {result.band_gib:.2f} GiB more or less than these lines say."
        if result.band_known
        else "The memory for the KV cache may be less than these lines say, and nobody knows by how much.",
    ]
    if resolved.states and result.pool is not None:
        # Padding of the pages included.
        held = result.pool.block_bytes * sum(spec.held * groups for spec, groups in result.pool.kinds) / GIB
        copies = max(state.blocks for state in resolved.states)
        sentences.append(
            f"{sum(state.layers for state in resolved.states)} layers keep a state in place of, or beside, keys and "
            f"values: {held:.2f} GiB for each request, however long it is, in {copies} "
            f"{'copies' if copies > 1 else 'copy'}. A block is as large as the largest state."
        )
    if result.later_gib:
        later = ", ".join(f"{name} {size:.2f} GiB" for name, size in result.later_gib.items())
        sentences.append(f"On top of the share that vLLM takes come {later}.")
    return sentences


def _context(result: Fit) -> list[str]:
    if result.max_context < 1:
        return []
    return [
        f"The longest context that starts is {result.max_context:,} tokens{context_range(result)}. Prompt and answer "
        "share it, so a prompt must leave room for its answer."
    ]


def context_range(result: Fit) -> str:
    """The error of the longest context, to write after its tokens; "" if the error band does not change it."""
    least, longest = result.context_band
    if not result.band_known:
        return " (by how much less is not known)"
    if least == longest:
        return ""
    if least < 1:
        return f" (within the error of the estimate: none, up to {longest:,})"
    return f" (within the error of the estimate: {least:,} to {longest:,})"


def _offload(result: Fit, device: Device) -> list[str]:
    if result.seconds_per_step is None:
        return [f"Part of the weights lies in host memory; how fast {device.title} reads it is not known."]
    if result.seconds_per_step == 0.0:
        return []
    return [
        f"Part of the weights lies in host memory and crosses PCIe in every step: {duration(result.seconds_per_step)} "
        f"more for each, so one user gets at most {1 / result.seconds_per_step:.1f} tokens per second."
    ]


def _unknown(result: Fit, facts: ModelFacts, device: Device) -> list[str]:
    sentences = list(facts.notes)
    if device.family == "tpu":
        sentences.append("Not modelled: the compiler's workspace on a TPU, which takes memory outside vLLM's share.")
    if are_kernels_unknown(facts, device):
        sentences.append(
            f"Not known: whether vLLM has kernels for the sparse attention of {facts.name} on {device.title}. They "
            "need a Hopper or Blackwell card, and the name of this one is not known."
        )
    if device.slice_of:
        sentences.append(
            f"{device.title} is a slice of a card, and nobody has measured a start on it. vLLM takes the default batch "
            "of a small card for it, whatever its memory."
        )
    if device.may_show:
        sentences.append(
            "A desktop or Windows (WSL2) holds 1 to 1.8 GiB of such a card: give it with --used-gib if the host has "
            "one."
        )
    if device.family == "rocm":
        sentences.append(
            f"Not measured: activations, libraries and graphs on {device.title}. They are taken to be those of CUDA, "
            "and measured starts on ROCm left less; trust the number of tokens only once a start has printed it."
        )
    if release(result.version) > release(PINNED):
        sentences.append(
            f"vLLM {result.version} is newer than {PINNED}, the newest release whose source was read: the figures are "
            f"those of {PINNED}."
        )
    if result.confidence == "medium" and device.family == "cuda" and not (device.shared or device.slice_of):
        runner = "" if release(result.version) > MEASURED else " under its second model runner"
        sentences.append(
            f"No start of vLLM {result.version}{runner} was measured: its overhead is read from its source."
        )
    if facts.states and unread_states(facts, device, result.version):
        sentences.append(
            f"How states are kept is read from the source of other releases on CUDA devices and CPUs; {device.title} "
            f"or vLLM {result.version} may keep them otherwise."
        )
    return sentences


def more_room(result: Fit) -> str:
    """What gives a tight start more room."""
    if result.close == "held":
        return "Leave other programs more of the memory: lower --gpu-memory-utilization."
    sure = result.context_band[0]
    if not result.band_known or sure < 1:
        return "Leave more room: lower --max-model-len or --max-num-seqs, and measure a start."
    return f"Leave more room: lower --max-model-len (at most {sure:,} tokens surely fit) or --max-num-seqs."
