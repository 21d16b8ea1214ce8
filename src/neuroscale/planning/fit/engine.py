"""Judges whether a model starts on an accelerator, and predicts the lines that vLLM prints: see `fit`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neuroscale.core.errors import InputError
from neuroscale.core.units import GIB
from neuroscale.models.facts import ModelFacts
from neuroscale.models.hf_overrides import with_overrides
from neuroscale.planning.fit.argument_defaults import Resolved
from neuroscale.planning.fit.confidence import (
    UNMEASURED,
    USUAL_SHARE,
    confidence_of,
    doubts,
    is_unmeasured,
    unjudged,
    unknown_need,
    untried_share,
)
from neuroscale.planning.fit.device import CONTEXT_GIB, SMALL_CARD_GIB, Device
from neuroscale.planning.fit.drafts import draft_apart
from neuroscale.planning.fit.kv_cache import Pool
from neuroscale.planning.fit.messages import explained, log_lines
from neuroscale.planning.fit.overhead import SAMPLER_BYTES, runner
from neuroscale.planning.fit.rank import Rank, assemble
from neuroscale.planning.fit.result import Closeness, Fit, Verdict, memory_of
from neuroscale.planning.fit.support import too_long, unsupported
from neuroscale.planning.fit.versions import PINNED
from neuroscale.vllm.engine_arguments import EngineArguments

_BAND_GIB, _BAND_OF_OVERHEAD, _BAND_SHARED_GIB = 0.35, 0.15, 1.5
_BAND_STATES_GIB, _SMALL_BATCH = 0.009, 256
"""GiB for each request at once that may be lacking beside states on cards without a switched fabric, and the number of
requests up to which starts on them were measured. With 1,024 requests on an RTX PRO 6000, Qwen3.8-27B has 556 blocks at
0.95 of the memory, and 939 in fp8 at 0.92 (vllm-project/recipes#831): some 9 GiB less than these figures say. The cause
is not known."""
_BAND_OF_WEIGHTS = {"headers": 0.003, "config": 0.01, "estimate": 0.1}


def fit(facts: ModelFacts, device: Device, arguments: EngineArguments, *, version: str = PINNED) -> Fit:
    """The verdict, the memory of the fullest rank, and what vLLM prints at its start. The number of accelerators is the
    product of the arguments' parallel sizes. A `max_model_len` of -1 is the longest context that fits. Raises
    ValueError for a text that is not a version."""
    against: list[str] = []
    if arguments.hf_overrides:
        try:
            facts = replace(with_overrides(facts, arguments.hf_overrides), draft=facts.draft)
        except InputError as error:
            against = [f"{problem.where} {problem.field}: {problem.message}." for problem in error.problems]
        arguments = replace(arguments, hf_overrides=None)
    if arguments.max_model_len == -1:
        fitted = fit(facts, device, replace(arguments, max_model_len=None), version=version)
        arguments = replace(arguments, max_model_len=max(min(fitted.max_context, fitted.max_model_len), 1))
    rank = assemble(facts, device, arguments, version)
    facts, arguments, resolved, blocks = rank.facts, rank.arguments, rank.resolved, rank.pool
    against += unsupported(rank)
    against += too_long(facts, arguments, resolved)
    if blocks is None:
        against.append(f"The layers of {facts.name} keep caches that vLLM {version} cannot put into one.")
    elif device.family == "cpu" or runner(facts, rank.does, arguments) == "first":
        against += draft_apart(facts, arguments, blocks)
    is_fixed = arguments.kv_cache_memory_bytes is not None  # the command sets the cache's size, so it is exact
    available = rank.usable - rank.taken
    if arguments.kv_cache_memory_bytes is not None:
        available = arguments.kv_cache_memory_bytes
    room = available - (blocks.block_bytes if blocks and rank.does.spare_block else 0)
    request = blocks.request_bytes(resolved.max_model_len, resolved.in_flight_tokens) if blocks else 0
    off = band_gib(rank)
    lacks = [*too_much(rank), *_too_little(arguments, resolved, request, room)]
    lacks += too_few_states(rank, available, 0.0 if is_fixed else off)
    spare = _spare(rank, room, request)
    states = [] if is_fixed else _spare_states(rank, available)
    least = min([spare, *(-lack.missing for lack in lacks), *states])
    decided = bool(against) or blocks is None or not device.memory_gib
    # Memory that other programs do not hold does not help a start that surely lacks more.
    asks = not decided and spare >= -off * GIB
    close: Closeness = _by_held(rank, off) if asks else ""
    if not decided and not close and abs(least) < off * GIB:
        close = "estimate"
    against += [lack.sentence for lack in lacks]
    starts = not against and blocks is not None and request <= room
    concurrency = tokens = 0.0
    if starts and blocks is not None:
        per_request = blocks.blocks_per_request(resolved.max_model_len, resolved.in_flight_tokens)
        concurrency = blocks.num_blocks(available) / per_request
        tokens = _printed_tokens(blocks, available, concurrency, rank)
    verdict: Verdict = "refused" if not starts else "tight" if close else "fits"
    unknown = unjudged(rank) or unknown_need(rank)
    if verdict == "fits" and unknown:
        verdict = "tight"
    kv_cache = available if starts else request
    most = facts.longest_context(windows=not arguments.disable_sliding_window)
    result = Fit(
        verdict=verdict,
        model=facts.name,
        accelerator=device.name,
        count=arguments.ranks,
        version=version,
        resolved=resolved,
        memory_gib=memory_of(rank.weights.total, kv_cache, sum(rank.beside.counted.values()), rank.usable),
        total_gib=device.memory_gib,
        available_gib=available / GIB,
        request_gib=request / GIB,
        weights_gib={group: size / GIB for group, size in rank.weights.by_group.items()},
        overhead_gib={part: size / GIB for part, size in rank.beside.counted.items()},
        later_gib={part: size / GIB for part, size in rank.beside.later.items()},
        band_gib=off,
        kv_cache_tokens=int(tokens),
        max_concurrency=concurrency,
        max_model_len=resolved.max_model_len,
        max_context=blocks.longest(room, resolved.in_flight_tokens, most) if blocks else 0,
        context_band=_context_band(blocks, room, 0.0 if is_fixed else off, resolved, most),
        band_known=has_band(rank),
        close=close,
        seconds_per_step=_offload_seconds(rank),
        log=(),
        confidence=confidence_of(doubts(rank)),
        against=tuple(against),
        reasons=(),
        unjudged=unjudged(rank),
        uncounted=arguments.unplanned,
        pool=blocks,
    )
    reasons = (*explained(result, rank, unknown), *(part.sentence for part in arguments.unplanned))
    return replace(result, log=log_lines(result, rank), reasons=reasons)


def _spare(rank: Rank, room: int, request: int) -> int:
    """Bytes beyond the need, as far as an estimate decides them: in the cache's share of the memory or, if the command
    sets the cache's size, beside the cache."""
    if rank.arguments.kv_cache_memory_bytes is None:
        return room - request
    return rank.device.memory_bytes - rank.device.held_bytes - rank.taken - rank.arguments.kv_cache_memory_bytes


def _by_held(rank: Rank, off: float) -> Closeness:
    """Whether the verdict depends on how much memory other programs hold, if that is not known. What vLLM takes outside
    its share may be `off` GiB less than estimated; the share itself is exact."""
    device = rank.device
    least, most = device.held_band
    if device.may_show and (device.memory_bytes < SMALL_CARD_GIB * GIB or rank.resolved.utilization > USUAL_SHARE):
        most = max(most, device.shown_bytes)
    if rank.arguments.kv_cache_memory_bytes is not None or least == most:
        return ""
    later = sum(rank.beside.later.values())
    surely = rank.usable + max(later - round(off * GIB), 0)
    depends = device.memory_bytes - most < rank.usable + later and surely <= device.memory_bytes - least
    return "held" if depends else ""


def _context_band(blocks: Pool | None, room: int, off: float, resolved: Resolved, most: int) -> tuple[int, int]:
    """The longest contexts with `off` GiB less than `room` bytes, and with `off` GiB more."""
    if blocks is None:
        return 0, 0
    by = round(off * GIB)
    least, longest = (blocks.longest(room + more, resolved.in_flight_tokens, most) for more in (-by, by))
    return least, longest


def _printed_tokens(blocks: Pool, available: int, concurrency: float, rank: Rank) -> int:
    """The 'GPU KV cache size' that the version prints, in tokens."""
    if rank.does.tokens_by_concurrency:
        return int(concurrency * rank.resolved.max_model_len)
    smallest = min(group.spec.block_size * group.spec.shards for group in blocks.groups)
    return blocks.num_blocks(available) // len(blocks.groups) * smallest


@dataclass(frozen=True)
class Lack:
    """Memory that a start lacks: `missing` bytes (infinite where nothing is known), and the sentence that says so."""

    missing: float
    sentence: str


def too_much(rank: Rank) -> list[Lack]:
    """The parts that do not fit outside the share that vLLM takes, or beside a cache whose size is fixed."""
    device, arguments, resolved, taken = rank.device, rank.arguments, rank.resolved, rank.taken
    if not device.memory_gib:
        return [Lack(math.inf, f"The memory of {device.title} is not known, so nothing can be fitted to it.")]
    if arguments.kv_cache_memory_bytes is not None:
        short = arguments.kv_cache_memory_bytes + taken + device.held_bytes - device.memory_bytes
        if short <= 0:
            return []
        sentence = (
            f"A KV cache of {arguments.kv_cache_memory_bytes / GIB:.2f} GiB beside {taken / GIB:.2f} GiB of weights "
            f"and overhead is {short / GIB:.2f} GiB more than is free: vLLM runs out of memory while it starts."
        )
        return [Lack(short, sentence)]
    if device.family == "cpu":
        return []
    # Negative if the share is larger than the free memory.
    outside = device.memory_bytes - rank.usable - device.held_bytes
    if outside < 0:
        sentence = (
            f"--gpu-memory-utilization={resolved.utilization:g} of {device.memory_gib:.2f} GiB is more than is free "
            f"when vLLM starts: about {device.held_bytes / GIB:.1f} GiB are held by {_holders(device)}."
        )
        # The memory is never free as a whole: vLLM's own process holds some of it when it asks.
        return [Lack(-outside if resolved.utilization < 1 else math.inf, sentence)]
    later = sum(rank.beside.later.values())
    if later > outside:
        sentence = (
            f"The {' and the '.join(rank.beside.later)} take {later / GIB:.2f} GiB after the cache has its share, and "
            f"{max(outside, 0) / GIB:.2f} GiB are left outside it: vLLM runs out of memory while it starts."
        )
        return [Lack(later - outside, sentence)]
    return []


def _spare_states(rank: Rank, available: int) -> list[int]:
    """Bytes of the blocks beyond those that hold a state for each request that CUDA graphs are captured for; negative
    if there are too few blocks (`resolve_cudagraph_mode_and_sizes` of vLLM's config/compilation.py). Empty if any
    number of blocks does."""
    blocks, resolved = rank.pool, rank.resolved
    if blocks is None or not resolved.states or not resolved.graphs or not rank.does.blocks_for_all_states:
        return []
    return [(blocks.num_blocks(available) - resolved.max_num_seqs) * blocks.block_bytes]


def too_few_states(rank: Rank, available: int, off: float) -> list[Lack]:
    """Says so if CUDA graphs are captured for more requests than there are blocks to hold a state of each. `off`: GiB
    by which the bytes available may be off (0.0: they are exact): the number to write instead surely starts."""
    blocks = rank.pool
    (spare, *_) = (*_spare_states(rank, available), 0)
    # Without a block there is no room for one request, which `_too_little` or the verdict says.
    if blocks is None or spare >= 0 or not (held := blocks.num_blocks(available)):
        return []
    surely = max(blocks.num_blocks(available - round(off * GIB)), 1)
    sentence = (
        f"--max-num-seqs={rank.resolved.max_num_seqs} is more than the {held} blocks that hold states: vLLM captures "
        f"CUDA graphs for a state of each request. Write --max-num-seqs={surely} or less."
    )
    return [Lack(-spare if off else math.inf, sentence)]


def _too_little(arguments: EngineArguments, resolved: Resolved, request: int, room: int) -> list[Lack]:
    """Says so if a cache whose size is fixed does not hold one request."""
    if arguments.kv_cache_memory_bytes is None or request <= room:
        return []
    blocks = arguments.num_gpu_blocks_override
    named = "" if blocks is None else f" of --num-gpu-blocks-override={blocks}"
    sentence = (
        f"One request of {resolved.max_model_len:,} tokens needs {request / GIB:.2f} GiB of KV cache, and the "
        f"cache{named} has {max(room, 0) / GIB:.2f} GiB."
    )
    # A size that the command sets is not an estimate, so the lack is sure.
    return [Lack(math.inf, sentence)]


def _holders(device: Device) -> str:
    """The programs that hold memory before vLLM starts, in words."""
    if device.used_gib is not None and device.used_gib > 0:
        return "other programs and the driver"
    return "the host, which shares this memory, and other programs" if device.shared else "the driver"


def band_gib(rank: Rank) -> float:
    """GiB by which the estimate of the memory for the cache may be off. It holds for 95 of 100 held-out starts in
    tests/ground_truth that have a band (`has_band`). Kinds of starts without one there have a wider band: slices of a
    card, and those of `untried_share`, twice the common one."""
    facts, device, requests = rank.facts, rank.device, rank.resolved.max_num_seqs
    of_overhead = _BAND_OF_OVERHEAD * sum(rank.beside.counted.values()) / GIB
    off = max(_BAND_GIB, of_overhead) + _BAND_OF_WEIGHTS[facts.basis] * rank.weights.total / GIB
    if rank.does.sampler == "sorted" and device.family == "cuda":
        # Some images of these versions bring FlashInfer's sampler, which needs as little as that of later ones.
        less = SAMPLER_BYTES["sorted"] - SAMPLER_BYTES["filtered"]
        off += less * requests * facts.vocab_size / GIB
    if device.shared:
        off += _BAND_SHARED_GIB
    if is_unmeasured(rank):
        off += of_overhead
    if device.slice_of or untried_share(rank):
        off *= 2
    if device.slice_of:
        off += CONTEXT_GIB
    if facts.states and not device.switched and requests > _SMALL_BATCH and device.family == "cuda":
        off += _BAND_STATES_GIB * requests
    return off


def has_band(rank: Rank) -> bool:
    """Whether measured starts support the band: none does for families of accelerators without measurements, for layers
    that are estimated, and for stages, whose ranks differ."""
    stages = rank.arguments.pipeline_parallel_size
    return rank.device.family not in UNMEASURED and rank.facts.basis != "estimate" and stages == 1


def _offload_seconds(rank: Rank) -> float | None:
    """Seconds of each step in which offloaded weights cross PCIe; None if its speed is unknown."""
    if not rank.weights.offloaded:
        return 0.0
    return rank.weights.offloaded / (rank.device.pcie_gb_s * 1e9) if rank.device.pcie_gb_s else None
