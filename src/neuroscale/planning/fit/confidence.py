"""Says how sure the memory engine is of its figures, and names its doubts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.kv_cache import is_compressed
from neuroscale.planning.fit.overhead import ANY_RESOLUTION, runner
from neuroscale.planning.fit.result import Confidence, Resolved
from neuroscale.planning.fit.sparse import are_kernels_unknown, has_indexer
from neuroscale.planning.fit.states import prefix_caching
from neuroscale.planning.fit.versions import MEASURED, PINNED, STATES, behaviour, number
from neuroscale.planning.fit.weights import loads_vision, uncounted
from neuroscale.vllm.engine_arguments import EngineArguments
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


def unjudged(facts: ModelFacts, device: Device, arguments: EngineArguments, version: str) -> str:
    """Why a start of such a version is not judged, as a clause; "" for one that is."""
    if number(version) < OLDEST:
        return f"vLLM {version} is older than {'.'.join(map(str, OLDEST))}, the first release that is judged"
    scheme = facts.quantization
    # What no measured start of releases below a number had: their own rules for it are not known here.
    for since, what, has in (
        ((0, 10, 0), "on a CPU", device.family == "cpu"),
        ((0, 11, 0), "that reads videos", facts.model_type.startswith(ANY_RESOLUTION)),
        ((0, 11, 1), "with LoRA adapters", arguments.enable_lora),
        ((0, 14, 0), "with chunks of a context", any(layers.kind == "chunked" for layers in facts.cache)),
        ((0, 15, 0), "whose files name the cache's dtype", scheme is not None and scheme.kv_cache is not None),
        ((0, 16, 0), "whose weights it converts", scheme is None and arguments.quantization is not None),
        ((0, 18, 0), "with states", bool(facts.states)),
    ):
        if has and number(version) < since:
            return f"how vLLM {version} serves a model {what} is not known here"
    return ""


def doubts(facts: ModelFacts, device: Device, arguments: EngineArguments, version: str) -> tuple[Doubt, ...]:
    """The doubts about a start, those of the level `low` first."""
    return (
        *(Doubt("low", clause) for clause in _unknown(facts, device, arguments, version)),
        *(Doubt("medium", clause) for clause in _computed(facts, device, arguments, version)),
    )


def confidence_of(found: Iterable[Doubt]) -> Confidence:
    """The confidence that these doubts leave: high without any."""
    levels = {doubt.level for doubt in found}
    return "low" if "low" in levels else "medium" if levels else "high"


def unknown_clauses(found: Iterable[Doubt]) -> tuple[str, ...]:
    """The clauses of the doubts of the level `low`."""
    return tuple(doubt.clause for doubt in found if doubt.level == "low")


def unknown_need(
    facts: ModelFacts, device: Device, arguments: EngineArguments, resolved: Resolved, version: str
) -> str:
    """The part of the need that nobody knows, as a clause: a start that fits is then tight. "" if there is none."""
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
    if keeps_more_states(facts, arguments, version):
        return f"vLLM {version} keeps a state at the end of each block of a request, which is not counted"
    if untried := untried_share(facts, device, arguments, resolved):
        return untried
    return next((one.told for one in uncounted(facts, arguments)), "")


def keeps_more_states(facts: ModelFacts, arguments: EngineArguments, version: str) -> bool:
    """Whether a request holds more states than are planned: those of Mamba under prefix caching before 0.28."""
    mamba = any(state.kind in ("mamba1", "mamba2") for state in facts.states)
    return mamba and behaviour(version).state_each_block and prefix_caching(facts, arguments)


def untried_share(facts: ModelFacts, device: Device, arguments: EngineArguments, resolved: Resolved) -> str:
    """Says, as a clause, that nobody measured a start of such a model with so large a share of such a card. All
    measured starts of towers and states with more than vLLM's default share ran on an H100 or an H200. Elsewhere a
    graph of Qwen3.5-9B did not find room beside 0.9 of an RTX 3090 (tests/ground_truth, qwen3.5-9b-4x3090-graph-oom),
    and kernels for states take more in a long prompt than vLLM measures (vllm-project/vllm#52872, on an RTX 5090)."""
    if device.family != "cuda" or device.switched or device.shared or arguments.kv_cache_memory_bytes is not None:
        return ""
    if resolved.utilization <= USUAL_SHARE:
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


def is_unmeasured(facts: ModelFacts, arguments: EngineArguments, version: str) -> bool:
    """Whether the project has no measured start of the version, or none under the model runner that it takes."""
    return number(version) > MEASURED or runner(facts, behaviour(version), arguments) == "second"


def _unknown(facts: ModelFacts, device: Device, arguments: EngineArguments, version: str) -> Iterator[str]:
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
    yield from (one.told for one in arguments.unplanned)
    if old := unjudged(facts, device, arguments, version):
        yield old
    elif number(version) > number(PINNED):
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
    changed = has_indexer(facts) or any(layers.kind == "latent" for layers in facts.cache)
    changed = changed or any(state.kind in ("mamba1", "mamba2") for state in facts.states)
    return number(version) < (number(PINNED) if changed else STATES)


def _computed(facts: ModelFacts, device: Device, arguments: EngineArguments, version: str) -> Iterator[str]:
    if has_indexer(facts) or facts.draft is not None:
        yield "nobody measured a start with an indexer or a draft model"
    if arguments.enable_lora and facts.experts:
        yield "nobody measured a start with LoRA adapters of experts"
    if device.slice_of:
        yield "no start of vLLM on a slice of a card was measured"
    elif device.shared:
        yield f"the memory of {device.title} is shared with the host"
    elif device.family not in ("cuda", *UNMEASURED):
        yield f"no start on {device.title} was measured"
    if is_unmeasured(facts, arguments, version):
        yield f"nobody measured such a start of vLLM {version}"
