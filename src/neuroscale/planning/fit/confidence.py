"""Says how sure the memory engine is of its figures, and names its doubts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from neuroscale.core.releases import release
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.argument_defaults import prefix_caching
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.kv_cache import is_compressed
from neuroscale.planning.fit.overhead import ANY_RESOLUTION, runner
from neuroscale.planning.fit.rank import Rank
from neuroscale.planning.fit.result import Confidence
from neuroscale.planning.fit.sparse import are_kernels_unknown, has_indexer
from neuroscale.planning.fit.versions import MEASURED, MEASURED_SECOND, PINNED, STATES
from neuroscale.planning.fit.weights import loads_vision
from neuroscale.vllm.images import OLDEST

UNMEASURED = frozenset({"tpu", "rocm"})
"""Families whose overhead is not known. TPU: the compiler's workspace lies outside vLLM's share. ROCm: the memory of
libraries and kernels was measured on CUDA alone. A Radeon RX 9070 XT left 0.8 GiB less than such figures say
(tests/ground_truth, ds-r1-distill-qwen14b-awq-rx9070xt)."""

USUAL_SHARE = 0.92
"""vLLM's default share of the memory since 0.20."""


@dataclass(frozen=True)
class Doubt:
    """A reason, as a clause, why figures may be wrong. `low`: a part of the need is not known. `medium`: all of it is
    computed, and nobody measured such a start."""

    level: Literal["medium", "low"]
    clause: str


def unjudged(rank: Rank) -> str:
    """Why a start is not judged, as a clause; "" for one that is."""
    facts, version = rank.facts, rank.version
    if release(version) < OLDEST:
        return f"vLLM {version} is older than {'.'.join(map(str, OLDEST))}, the first release that is judged"
    scheme = facts.quantization
    # What no measured start of releases below a number had: their own rules for it are not known here.
    for since, what, has in (
        ((0, 10, 0), "on a CPU", rank.device.family == "cpu"),
        ((0, 11, 0), "that reads videos", facts.model_type.startswith(ANY_RESOLUTION)),
        ((0, 11, 1), "with LoRA adapters", rank.arguments.enable_lora),
        ((0, 14, 0), "with chunks of a context", any(layers.kind == "chunked" for layers in facts.cache)),
        ((0, 15, 0), "whose files name the cache's dtype", scheme is not None and scheme.kv_cache is not None),
        ((0, 16, 0), "whose weights it converts", scheme is None and rank.arguments.quantization is not None),
        ((0, 18, 0), "with states", bool(facts.states)),
    ):
        if has and release(version) < since:
            return f"how vLLM {version} serves a model {what} is not known here"
    if rank.weights.total >= rank.usable:
        return ""  # whatever the cache takes
    return next((part.clause for part in rank.arguments.unplanned if part.of_cache), "")


def doubts(rank: Rank) -> tuple[Doubt, ...]:
    """The doubts about a start, those of the level `low` first."""
    return (
        *(Doubt("low", clause) for clause in _unknown(rank)),
        *(Doubt("medium", clause) for clause in _computed(rank)),
    )


def confidence_of(all_doubts: Iterable[Doubt]) -> Confidence:
    """The confidence that these doubts leave: high without any."""
    levels = {doubt.level for doubt in all_doubts}
    return "low" if "low" in levels else "medium" if levels else "high"


def unknown_clauses(all_doubts: Iterable[Doubt]) -> tuple[str, ...]:
    """The clauses of the doubts of the level `low`."""
    return tuple(doubt.clause for doubt in all_doubts if doubt.level == "low")


def unknown_need(rank: Rank) -> str:
    """The part of the need that nobody knows, as a clause: a start that fits is then tight. "" if there is none."""
    facts, device = rank.facts, rank.device
    if device.family == "tpu":
        return "nobody knows how much memory the compiler takes outside that share"
    if device.family == "rocm":
        return "what its kernels and libraries take was not measured"
    if are_kernels_unknown(facts, device):
        return "nobody knows whether vLLM has kernels for it there"
    if is_compressed(facts):
        return "what its kernels for compressed tokens take was not measured"
    if facts.parts_missing:
        return "the weights of a tower are not counted"
    if _keeps_more_states(rank):
        return f"vLLM {rank.version} keeps a state at the end of each block of a request, which is not counted"
    if untried := untried_share(rank):
        return untried
    return next((part.clause for part in rank.arguments.unplanned), "")


def _keeps_more_states(rank: Rank) -> bool:
    """Whether a request holds more states than are planned: those of Mamba under prefix caching before 0.28."""
    mamba = any(state.kind == "mamba2" for state in rank.facts.states)
    return mamba and rank.does.state_each_block and prefix_caching(rank.facts, rank.arguments)


def untried_share(rank: Rank) -> str:
    """Says, as a clause, that nobody measured a start of such a model with so large a share of such a card. All
    measured starts of towers and states with more than vLLM's default share ran on an H100 or an H200. Elsewhere a
    graph of Qwen3.5-9B did not find room beside 0.9 of an RTX 3090 (tests/ground_truth, qwen3.5-9b-4x3090-graph-oom),
    and kernels for states take more in a long prompt than vLLM measures (vllm-project/vllm#52872, on an RTX 5090)."""
    facts, device, arguments = rank.facts, rank.device, rank.arguments
    if device.family != "cuda" or device.switched or device.shared or arguments.kv_cache_memory_bytes is not None:
        return ""
    if rank.resolved.utilization <= USUAL_SHARE:
        return ""
    sees = facts.multimodal and loads_vision(facts, arguments)
    parts = ["states" if facts.states else "", "a tower for images" if sees else ""]
    if not any(parts):
        return ""
    named = " and ".join(part for part in parts if part)
    return (
        f"nobody measured a start of a model with {named} on such a card with more than {USUAL_SHARE:g} of its memory, "
        "and kernels need room beside that"
    )


def is_unmeasured(rank: Rank) -> bool:
    """Whether the project has no measured start of the version, or none under the model runner that it takes."""
    version = release(rank.version)
    if runner(rank.facts, rank.does, rank.arguments) == "second" and version < MEASURED_SECOND:
        return True
    return version > MEASURED


def _unknown(rank: Rank) -> Iterator[str]:
    facts, device, version = rank.facts, rank.device, rank.version
    if not device.memory_gib:
        yield f"the memory of {device.title} is not known"
    elif device.family in UNMEASURED:
        yield "vLLM's overhead on such an accelerator was not measured"
    if facts.basis == "estimate":
        yield f"the layers of {facts.name} are estimated, since its architecture is not known"
    elif facts.parts_missing:
        yield f"the size of a part of {facts.name}'s weights is not known"
    if are_kernels_unknown(facts, device):
        yield f"nobody knows whether vLLM has kernels for {facts.name} on {device.title}"
    if is_compressed(facts):
        yield f"nobody measured what kernels for the compressed tokens of {facts.name} take"
    yield from (part.clause for part in rank.arguments.unplanned)
    if (not_judged := unjudged(rank)) and not any(part.of_cache for part in rank.arguments.unplanned):
        yield not_judged
    elif release(version) > release(PINNED):
        yield f"vLLM {version} is newer than {PINNED}, the newest release whose source was read"
    elif unread_states(facts, device, version):
        yield f"how vLLM {version} keeps states and indexers on {device.title} was not read"


def unread_states(facts: ModelFacts, device: Device, version: str) -> bool:
    """Whether the source of states or indexers was not read for the version and the family of the device."""
    if not (facts.states or has_indexer(facts)):
        return False
    if device.family not in ("cuda", "cpu"):
        return True
    # Blocks beside latent attention, and what Mamba keeps of a prompt, changed after 0.23.
    changed = has_indexer(facts) or any(state.kind == "mamba2" for state in facts.states)
    return release(version) < (release(PINNED) if changed else STATES)


def _computed(rank: Rank) -> Iterator[str]:
    facts, device = rank.facts, rank.device
    if has_indexer(facts) or facts.draft is not None:
        yield "nobody measured a start with an indexer or a draft model"
    if rank.arguments.enable_lora and facts.experts:
        yield "nobody measured a start with LoRA adapters of experts"
    if device.slice_of:
        yield "no start of vLLM on a slice of a card was measured"
    elif device.shared:
        yield f"the memory of {device.title} is shared with the host"
    elif device.family not in ("cuda", *UNMEASURED):
        yield f"no start on {device.title} was measured"
    if is_unmeasured(rank):
        yield f"nobody measured such a start of vLLM {rank.version}"
