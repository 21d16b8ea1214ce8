"""Plans sparse latent attention (DeepSeek V3.2 and V4, GLM-5): cards with kernels for it, its cache, its buffers.

Sources, all in vLLM 0.32: `_get_backend_priorities` of platforms/cuda.py, `_canonicalize_sparse_mla_kv_cache_dtype` of
model_executor/layers/attention/mla_attention.py, model_executor/layers/sparse_attn_indexer.py, and the backends'
own files in v1/attention/backends/mla. Nobody has measured such a start for this project.
"""

from __future__ import annotations

from neuroscale.models.cache_bytes import SPARSE_CACHE
from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.kv_cache import is_compressed

BLOCK = 64
"""Tokens of a block: the only size of the indexer's kernels."""


def has_indexer(facts: ModelFacts) -> bool:
    """Whether indexers choose the tokens that attention reads."""
    return any(layers.kind in ("indexer", "compressed_indexer") for layers in facts.cache)


def sparse_cache_dtype(facts: ModelFacts, device: Device, asked: str, dtype: str) -> str:
    """The dtype of the cache. `asked`: --kv-cache-dtype; `dtype`: the dtype that dense attention would keep."""
    card = device.capability or 0
    if is_compressed(facts):
        return SPARSE_CACHE
    if card >= 120 and asked in ("auto", "fp8", "fp8_e4m3"):
        return SPARSE_CACHE
    if 100 <= card < 110:
        return "fp8" if asked == "auto" and "GlmMoeDsaForCausalLM" in facts.architectures else dtype
    return SPARSE_CACHE if dtype.startswith("fp8") else dtype


def no_kernels(facts: ModelFacts, device: Device) -> str:
    """The sentence that says that vLLM cannot serve sparse attention on this accelerator; empty if it can."""
    if not has_indexer(facts) or (device.family not in ("cpu", "tpu") and (device.capability or 90) >= 90):
        return ""
    if device.family == "cpu" and is_compressed(facts):
        return f"The compressed tokens that {facts.name} keeps on a CPU are not planned."
    return (
        f"vLLM cannot serve {facts.name} on {device.title}: its kernels for sparse attention need a Hopper or "
        "Blackwell card."
    )


def are_kernels_unknown(facts: ModelFacts, device: Device) -> bool:
    """Whether nobody knows if vLLM has kernels for the model's sparse attention on a card, whose name is not known."""
    return has_indexer(facts) and device.family == "cuda" and device.capability is None
