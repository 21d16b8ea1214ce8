"""Judges the backends of kernels that a command names: refused with vLLM's reason, served, or not judged.

`neuroscale fit`, the plan and the gate all read the two lists of `judge`; vllm/backend_rules.py has the rules and their
source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neuroscale.core.releases import release
from neuroscale.models.facts import DTYPE_BYTES, CacheLayers, ModelFacts
from neuroscale.planning.fit.argument_defaults import Resolved
from neuroscale.planning.fit.device import Device, served_dtype
from neuroscale.planning.fit.weights import loads_vision
from neuroscale.vllm.backend_rules import (
    NEWEST_READ,
    OLDEST_READ,
    SPANS,
    SPANS_FOR_IMAGES_ALONE,
    SPANS_IN_CONFIG,
    VARIABLE,
    VARIABLE_READ_BEFORE,
    VARIABLE_UNREAD_SINCE,
    AttentionRules,
    attention_names,
    attention_rules,
    experts_verdict,
)
from neuroscale.vllm.engine_arguments import EngineArguments, Unplanned

_DENSE = ("full", "sliding", "chunked")


@dataclass(frozen=True)
class Backends:
    """`against`: sentences on backends with which vLLM ends; `unjudged`: those of which nobody knows that here."""

    against: tuple[str, ...] = ()
    unjudged: tuple[Unplanned, ...] = ()


def judge(facts: ModelFacts, device: Device, arguments: EngineArguments, resolved: Resolved, version: str) -> Backends:
    """The verdict on all backends that the command names. Raises ValueError for a text that is not a version."""
    parts = [*_attention(facts, device, arguments, resolved, version), *_experts(facts, device, arguments, version)]
    if arguments.linear_backend:
        what = f"whether {arguments.linear_backend} has a kernel for each matrix of {facts.name}"
        parts.append(Unplanned("linear_backend", what, verb="judge"))
    return Backends(
        tuple(part for part in parts if isinstance(part, str)),
        tuple(part for part in parts if isinstance(part, Unplanned)),
    )


def _attention(
    facts: ModelFacts, device: Device, arguments: EngineArguments, resolved: Resolved, version: str
) -> Iterator[str | Unplanned]:
    of = release(version)
    dest, name = "attention_backend", arguments.attention_backend
    if arguments.attention_variable and of < VARIABLE_UNREAD_SINCE:
        dest, name = VARIABLE, arguments.attention_variable
    said = f"{VARIABLE if dest == VARIABLE else '--attention-backend'}={name}"

    def unknown(why: str) -> Unplanned:
        return Unplanned(dest, f"whether {name} serves {facts.name} on {device.title}: {why}", verb="judge")

    if "backend_per_kind" in arguments.attention_settings:
        yield Unplanned("attention_config", "the backends of single kinds of layers", verb="judge")
    if not name:
        return
    if of < OLDEST_READ or of > NEWEST_READ or (dest == VARIABLE and of >= VARIABLE_READ_BEFORE):
        yield unknown(f"the backends of vLLM {version} were not read")
        return
    if of < (0, 13, 0):
        name = name.removesuffix("_VLLM_V1")
    if name not in attention_names(of):
        yield f"{said}: vLLM {version} has no attention backend of that name, and ends."
        return
    layers = [*facts.cache, *(facts.draft.cache if facts.draft else ())]
    if not layers:
        return
    rules, card = attention_rules(name, of), device.capability
    why = _not_judged(facts, device, arguments, rules, layers) or _odd_cache(resolved)
    if rules is None or card is None or why:
        yield unknown(why)
        return
    of_kernels = list(dict.fromkeys(_kernels_lack(facts, arguments, resolved, rules, layers, card, of)))
    lacks = list(dict.fromkeys(_lacks(facts, arguments, resolved, rules, layers)))
    if of_kernels and not lacks and card // 10 in rules.unsure:
        yield unknown(f"the kernels that are installed decide ({', '.join(of_kernels)})")
    elif lacks or of_kernels:
        why = ", ".join([*lacks, *of_kernels])
        yield f"{said} cannot serve {facts.name} on {device.title}: {why}. vLLM {version} ends."


def _not_judged(
    facts: ModelFacts,
    device: Device,
    arguments: EngineArguments,
    rules: AttentionRules | None,
    layers: list[CacheLayers],
) -> str:
    """Why the rules of a backend do not decide, as a clause; "" where they do."""
    if device.family != "cuda":
        return "its rules are known for CUDA cards alone"
    if rules is None:
        return "its rules were not read"
    if device.capability is None:
        return "the compute capability of the card is not known"
    if facts.basis == "estimate":
        return "the layers of the model are estimated"
    if any(kind.kind not in (*_DENSE, "latent") for kind in layers):
        return "its rules for indexers and compressed tokens were not read"
    if any(kind.kind in _DENSE and kind.head_dim != kind.value_head_dim for kind in layers):
        return "keys and values have different sizes"
    if any("sink" in key for key in facts.config or {}):
        return "whether its attention has sinks is not known"
    if any(kind.kind == "latent" for kind in layers) and any(
        part.dest == "VLLM_MLA_DISABLE" for part in arguments.unplanned
    ):
        return "VLLM_MLA_DISABLE gives its layers ordinary heads"
    if arguments.attention_settings:
        return f"--attention-config sets {', '.join(arguments.attention_settings)}, too"
    return ""


def _odd_cache(resolved: Resolved) -> str:
    plain = resolved.kv_cache_dtype in DTYPE_BYTES or resolved.kv_cache_dtype in ("fp8", "fp8_e4m3", "fp8_e5m2")
    return "" if plain else f"its rules for a KV cache in {resolved.kv_cache_dtype} were not read"


def _lacks(
    facts: ModelFacts, arguments: EngineArguments, resolved: Resolved, rules: AttentionRules, layers: list[CacheLayers]
) -> Iterator[str]:
    """What the layers need and the backend lacks on every card, each in a few words."""
    for kind in layers:
        if (kind.kind == "latent") != rules.latent:
            yield "it computes no latent attention" if kind.kind == "latent" else "it computes latent attention alone"
    dtype = resolved.kv_cache_dtype
    if dtype.startswith("fp8") and dtype not in rules.cache:
        yield f"it reads no KV cache in {dtype}"
    if served_dtype(facts, arguments) == "float32" and not rules.single:
        yield "it does not compute float32"
    if arguments.block_size is not None and arguments.block_size % rules.block:
        yield f"--block-size={arguments.block_size} is not a multiple of {rules.block}"
    nope = (facts.config or {}).get("qk_nope_head_dim")
    if rules.nope and isinstance(nope, int) and nope not in rules.nope:
        yield f"it does not support heads with {nope} values without a position"


def _kernels_lack(
    facts: ModelFacts,
    arguments: EngineArguments,
    resolved: Resolved,
    rules: AttentionRules,
    layers: list[CacheLayers],
    card: int,
    of: tuple[int, int, int],
) -> Iterator[str]:
    """What the backend's kernels lack on the card, each in a few words."""
    major, named = card // 10, f"compute capability {card // 10}.{card % 10}"
    least, most = rules.capabilities
    if not least <= card <= most or (rules.majors is not None and major not in rules.majors):
        yield f"it has no kernels for {named}"
    for kind in layers:
        if (kind.kind == "latent") == rules.latent and not _reads(rules, kind.head_dim):
            yield f"it does not support heads of {kind.head_dim} values"
    if resolved.kv_cache_dtype in rules.cache and rules.cache_majors is not None and major not in rules.cache_majors:
        yield f"it reads no KV cache in {resolved.kv_cache_dtype} on {named}"
    if facts.model_type.startswith("gpt_oss") and rules.sinks is not None and major not in rules.sinks:
        yield f"it supports no attention sinks on {named}"
    if not rules.spans and _spans(facts, arguments, of):
        yield "it does not let the tokens of an image see each other"


def _reads(rules: AttentionRules, head: int) -> bool:
    if rules.heads:
        return head in rules.heads
    return rules.least_head <= head <= (rules.most_head or head) and head % rules.head_step == 0


def _spans(facts: ModelFacts, arguments: EngineArguments, of: tuple[int, int, int]) -> bool:
    """Whether the release asks a backend to let the tokens of an image see each other."""
    if of >= SPANS_FOR_IMAGES_ALONE and not (facts.multimodal and loads_vision(facts, arguments)):
        return False
    if facts.model_type in SPANS:
        return of >= release(SPANS[facts.model_type])
    text = (facts.config or {}).get("text_config") or facts.config or {}
    said = facts.model_type.startswith("gemma4") and text.get("use_bidirectional_attention") == "vision"
    return bool(said) and of >= SPANS_IN_CONFIG


def _experts(facts: ModelFacts, device: Device, arguments: EngineArguments, version: str) -> Iterator[str | Unplanned]:
    name = arguments.experts_backend
    if not name or not facts.experts:
        return  # without experts it changes nothing
    method = facts.quantization.method if facts.quantization else arguments.quantization or ""
    verdict = experts_verdict(name, method)
    if release(version) > NEWEST_READ or device.family != "cuda" or verdict is None:
        what = f"whether {name} computes the experts of {facts.name} on {device.title}"
        yield Unplanned("moe_backend", what, verb="judge")
    elif not verdict:
        stored = f"experts in {method}" if method else "experts that are not quantised"
        yield f"--moe-backend={name} does not compute {stored}: vLLM {version} ends."
