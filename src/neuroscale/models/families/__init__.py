"""Builds the decoder of each family of language models from its config.json.

Input: the keys of the text tower (`neuroscale.models.config_keys.Keys`), read with the defaults of its model type.
Output: a `Decoder`, with the layers and the tensors around them. Each family has one function; its module is named for
the lineage. Every function raises InputError, which names the key, for a config that its family cannot have.

Sources: the config and modelling code of transformers, and vLLM's own models, which decide on windows and on layers
that read another layer's cache. Both at the versions that defaults.json and requirements/serve.txt name.
"""

from __future__ import annotations

from neuroscale.models.families.common import Decoder, Family, estimated
from neuroscale.models.families.deepseek import deepseek, deepseek_v4, glm4_moe_lite, kimi_linear
from neuroscale.models.families.gemma import gemma, gemma2, gemma3, gemma3n, gemma4
from neuroscale.models.families.hybrids import granitemoe, granitemoehybrid, lfm2, lfm2_moe
from neuroscale.models.families.llama import (
    cohere,
    cohere2,
    ernie,
    ernie_moe,
    exaone4,
    glm,
    glm4,
    glm4_moe,
    gpt_oss,
    hunyuan,
    laguna,
    llama,
    llama4,
    minicpm,
    minimax_m2,
    mistral,
    mixtral,
    molmo,
    olmo,
    olmo2,
    olmo3,
    olmoe,
    phi3,
    phimoe,
    seed_oss,
    stablelm,
)
from neuroscale.models.families.mamba import falcon_h1, jamba, mamba, mamba2, nemotron_h, zamba2
from neuroscale.models.families.qwen import qwen2, qwen2_moe, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_next
from neuroscale.models.families.two_matrices import apertus, arcee, falcon, nemotron, opt, starcoder2

__all__ = ["FAMILIES", "Decoder", "Family", "estimated"]

FAMILIES: dict[str, Family] = {
    "apertus": apertus,
    "arcee": arcee,
    "cohere": cohere,
    "cohere2": cohere2,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "deepseek_v32": deepseek,
    "deepseek_v4": deepseek_v4,
    "ernie4_5": ernie,
    "ernie4_5_moe": ernie_moe,
    "exaone": llama,
    "exaone4": exaone4,
    "falcon": falcon,
    "falcon_h1": falcon_h1,
    "falcon_mamba": mamba,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "gemma4_unified_text": gemma4,
    "glm": glm,
    "glm4": glm4,
    "glm4_moe": glm4_moe,
    "glm4_moe_lite": glm4_moe_lite,
    "glm4v_moe_text": glm4_moe,
    "glm_moe_dsa": deepseek,
    "glm4v_text": glm4,
    "gpt_oss": gpt_oss,
    "granite": llama,
    "granitemoe": granitemoe,
    "granitemoehybrid": granitemoehybrid,
    "granitemoeshared": granitemoe,
    "hunyuan_v1_dense": hunyuan,
    "jamba": jamba,
    "kimi_k2": deepseek,
    "kimi_linear": kimi_linear,
    "laguna": laguna,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "llama": llama,
    "llama4_text": llama4,
    "mamba": mamba,
    "mamba2": mamba2,
    "mimo": qwen2,
    "minicpm": minicpm,
    "minimax_m2": minimax_m2,
    "ministral": mistral,
    "ministral3": mistral,
    "mistral": mistral,
    "mixtral": mixtral,
    "molmo": molmo,
    "nemotron": nemotron,
    "nemotron_h": nemotron_h,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "olmoe": olmoe,
    "opt": opt,
    "phi3": phi3,
    "phimoe": phimoe,
    "qwen2": qwen2,
    "qwen2_5_omni_text": qwen2,
    "qwen2_5_vl_text": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen2_vl_text": qwen2,
    "qwen3": qwen3,
    "qwen3_5_moe_text": qwen3_5_moe,
    "qwen3_5_text": qwen3_5,
    "qwen3_moe": qwen3_moe,
    "qwen3_next": qwen3_next,
    "qwen3_omni_moe_text": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "qwen3_vl_text": qwen3,
    "seed_oss": seed_oss,
    "smollm3": llama,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "zamba2": zamba2,
}
"""The families by the model type of the text tower."""
