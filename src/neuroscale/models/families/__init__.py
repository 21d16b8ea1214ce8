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

FAMILIES: dict[str, Family] = {
    "apertus": two_matrices.apertus,
    "arcee": two_matrices.arcee,
    "cohere": llama.cohere,
    "cohere2": llama.cohere2,
    "deepseek_v2": deepseek.deepseek,
    "deepseek_v3": deepseek.deepseek,
    "deepseek_v32": deepseek.deepseek,
    "deepseek_v4": deepseek.deepseek_v4,
    "ernie4_5": llama.ernie,
    "ernie4_5_moe": llama.ernie_moe,
    "exaone": llama.llama,
    "exaone4": llama.exaone4,
    "falcon": two_matrices.falcon,
    "falcon_h1": mamba.falcon_h1,
    "falcon_mamba": mamba.mamba,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "gemma3n_text": gemma.gemma3n,
    "gemma4_text": gemma.gemma4,
    "gemma4_unified_text": gemma.gemma4,
    "glm": llama.glm,
    "glm4": llama.glm4,
    "glm4_moe": llama.glm4_moe,
    "glm4_moe_lite": deepseek.glm4_moe_lite,
    "glm4v_moe_text": llama.glm4_moe,
    "glm_moe_dsa": deepseek.deepseek,
    "glm4v_text": llama.glm4,
    "gpt_oss": llama.gpt_oss,
    "granite": llama.llama,
    "granitemoe": hybrids.granitemoe,
    "granitemoehybrid": hybrids.granitemoehybrid,
    "granitemoeshared": hybrids.granitemoe,
    "hunyuan_v1_dense": llama.hunyuan,
    "jamba": mamba.jamba,
    "kimi_k2": deepseek.deepseek,
    "kimi_linear": deepseek.kimi_linear,
    "laguna": llama.laguna,
    "lfm2": hybrids.lfm2,
    "lfm2_moe": hybrids.lfm2_moe,
    "llama": llama.llama,
    "llama4_text": llama.llama4,
    "mamba": mamba.mamba,
    "mamba2": mamba.mamba2,
    "mimo": qwen.qwen2,
    "minicpm": llama.minicpm,
    "minimax_m2": llama.minimax_m2,
    "ministral": llama.mistral,
    "ministral3": llama.mistral,
    "mistral": llama.mistral,
    "mixtral": llama.mixtral,
    "molmo": llama.molmo,
    "nemotron": two_matrices.nemotron,
    "nemotron_h": mamba.nemotron_h,
    "olmo": llama.olmo,
    "olmo2": llama.olmo2,
    "olmo3": llama.olmo3,
    "olmoe": llama.olmoe,
    "opt": two_matrices.opt,
    "phi3": llama.phi3,
    "phimoe": llama.phimoe,
    "qwen2": qwen.qwen2,
    "qwen2_5_omni_text": qwen.qwen2,
    "qwen2_5_vl_text": qwen.qwen2,
    "qwen2_moe": qwen.qwen2_moe,
    "qwen2_vl_text": qwen.qwen2,
    "qwen3": qwen.qwen3,
    "qwen3_5_moe_text": qwen.qwen3_5_moe,
    "qwen3_5_text": qwen.qwen3_5,
    "qwen3_moe": qwen.qwen3_moe,
    "qwen3_next": qwen.qwen3_next,
    "qwen3_omni_moe_text": qwen.qwen3_moe,
    "qwen3_vl_moe_text": qwen.qwen3_moe,
    "qwen3_vl_text": qwen.qwen3,
    "seed_oss": llama.seed_oss,
    "smollm3": llama.llama,
    "stablelm": llama.stablelm,
    "starcoder2": two_matrices.starcoder2,
    "zamba2": mamba.zamba2,
}
"""The families by the model type of the text tower."""
