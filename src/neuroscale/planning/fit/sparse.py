"""Plans sparse latent attention (DeepSeek V3.2 and V4, GLM-5): cards with kernels for it, its cache, its buffers.

Sources, all in vLLM 0.32: `_get_backend_priorities` of platforms/cuda.py, `_canonicalize_sparse_mla_kv_cache_dtype` of
model_executor/layers/attention/mla_attention.py, model_executor/layers/sparse_attn_indexer.py, and the backends'
own files in v1/attention/backends/mla. Nobody has measured such a start for this project.
"""

from __future__ import annotations

import re
from typing import Literal

from neuroscale.models.cache_bytes import SPARSE_CACHE
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.kv_cache import is_compressed

BLOCK = 64
"""Tokens of a block: the only size of the indexer's kernels."""


Generation = Literal["hopper", "blackwell", "workstation", "older", ""]

_GENERATIONS: tuple[tuple[Generation, str], ...] = (
    ("blackwell", r"\bg?b[123]00\b"),
    ("workstation", r"\b(gb10|spark|rtx 50[5-9]0|rtx pro|rtx 6000 (pro|blackwell))\b"),
    ("hopper", r"\bg?h([128]00|20)\b"),
    ("older", r"\b(a(100|800|10g?|30|40|2|16)|a[456]000|l4|l40s?|l20?|rtx [2-4]0[5-9]0)\b"),
    ("older", r"\b(t4|v100|p(4|40|100)|gtx|titan|quadro|rtx [2-8]000)\b"),
)


def has_indexer(facts: ModelFacts) -> bool:
    """Whether indexers choose the tokens that attention reads."""
    return any(layers.kind in ("indexer", "compressed_indexer") for layers in facts.cache)


def sparse_cache_dtype(facts: ModelFacts, device: Device, asked: str, dtype: str) -> str:
    """The dtype of the cache. `asked`: --kv-cache-dtype; `dtype`: the dtype that dense attention would keep."""
    card = _generation(device)
    if is_compressed(facts):
        return SPARSE_CACHE
    if card == "workstation" and asked in ("auto", "fp8", "fp8_e4m3"):
        return SPARSE_CACHE
    if card == "blackwell":
        return "fp8" if asked == "auto" and "GlmMoeDsaForCausalLM" in facts.architectures else dtype
    return SPARSE_CACHE if dtype.startswith("fp8") else dtype


def no_kernels(facts: ModelFacts, device: Device) -> str:
    """The sentence that says that vLLM cannot serve sparse attention on this accelerator; empty if it can."""
    if not has_indexer(facts) or (device.family not in ("cpu", "tpu") and _generation(device) != "older"):
        return ""
    if device.family == "cpu" and is_compressed(facts):
        return f"The compressed tokens that {facts.name} keeps on a CPU are not planned."
    return (
        f"vLLM cannot serve {facts.name} on {device.title}: its kernels for sparse attention need a Hopper or "
        "Blackwell card."
    )


def are_kernels_unknown(facts: ModelFacts, device: Device) -> bool:
    """Whether nobody knows if vLLM has kernels for the model's sparse attention on a card, whose name is not known."""
    return has_indexer(facts) and device.family == "cuda" and not _generation(device)


def _generation(device: Device) -> Generation:
    """The generation of a card by its name; empty if the name does not say it."""
    name = re.sub(r"[-_]", " ", f"{device.name} {device.title}".lower())
    return next((generation for generation, pattern in _GENERATIONS if re.search(pattern, name)), "")
