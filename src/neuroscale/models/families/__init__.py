"""Builds the decoder of each family of language models from its config.json.

Input: the keys of the text tower (`neuroscale.models.config_keys.Keys`), read with the defaults of its model type.
Output: a `Decoder`, with the layers and the tensors around them. Each family has one function; its module is named for
the lineage. Every function raises InputError, which names the key, for a config that its family cannot have.

Sources: the config and modelling code of transformers, and vLLM's own models, which decide on windows and on layers
that read another layer's cache. Both at the versions that defaults.json and requirements/serve.txt name.
"""

from __future__ import annotations

from neuroscale.models.families import deepseek, gemma, hybrids, llama, mamba, qwen, two_matrices
from neuroscale.models.families.common import Decoder, Family, estimated

__all__ = ["FAMILIES", "Decoder", "Family", "estimated"]

_NAMED_BY_TYPE: tuple[Family, ...] = (
    *(deepseek.deepseek_v4, deepseek.glm4_moe_lite, gemma.gemma, gemma.gemma2),
    *(hybrids.granitemoehybrid, llama.cohere, llama.cohere2, llama.exaone4),
    *(llama.glm, llama.gpt_oss, llama.laguna, llama.minicpm, llama.minimax_m2, llama.mixtral, llama.molmo),
    *(llama.olmo, llama.olmo2, llama.olmo3, llama.olmoe, llama.phi3, llama.phimoe, llama.seed_oss),
    *(llama.stablelm, mamba.falcon_h1, mamba.mamba2, mamba.nemotron_h),
    *(qwen.qwen2_moe, qwen.qwen3_next, two_matrices.apertus, two_matrices.arcee),
    *(two_matrices.nemotron, two_matrices.opt, two_matrices.starcoder2),
)
"""Families of one model type, whose name their function has."""

FAMILIES: dict[str, Family] = {
    **{family.__name__: family for family in _NAMED_BY_TYPE},
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"), deepseek.deepseek),
    "ernie4_5": llama.ernie,
    "ernie4_5_moe": llama.ernie_moe,
    **dict.fromkeys(("exaone", "granite", "llama", "smollm3"), llama.llama),
    "gemma3_text": gemma.gemma3,
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), gemma.gemma4),
    **dict.fromkeys(("glm4", "glm4v_text"), llama.glm4),
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text"), llama.glm4_moe),
    **dict.fromkeys(("granitemoe", "granitemoeshared"), hybrids.granitemoe),
    "hunyuan_v1_dense": llama.hunyuan,
    "llama4_text": llama.llama4,
    **dict.fromkeys(("mimo", "qwen2", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text"), qwen.qwen2),
    **dict.fromkeys(("ministral", "ministral3", "mistral"), llama.mistral),
    **dict.fromkeys(("qwen3", "qwen3_vl_text"), qwen.qwen3),
    "qwen3_5_moe_text": qwen.qwen3_5_moe,
    "qwen3_5_text": qwen.qwen3_5,
    **dict.fromkeys(("qwen3_moe", "qwen3_omni_moe_text", "qwen3_vl_moe_text"), qwen.qwen3_moe),
}
"""The families by the model type of the text tower."""
