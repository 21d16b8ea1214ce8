"""Chooses the family that reads a config.json, refuses models that cannot be planned, and lists what is supported.

What the pinned vLLM serves is in architectures.json, as scripts/snapshot_vllm_models.py wrote it. A file of a planned
architecture can still be refused: by a key that the rules do not know, which the message names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from neuroscale.core.errors import InputError
from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import Keys
from neuroscale.models.families import FAMILIES, Decoder, Family, estimated
from neuroscale.models.towers.known import WRAPPERS


def version() -> str:
    """The version of vLLM that the list comes from."""
    return str(_snapshot()["vllm"])


def registered() -> Mapping[str, Mapping[str, Any]]:
    """What is known of each architecture in vLLM's registry, by its name, in alphabetical order."""
    entries: Mapping[str, Mapping[str, Any]] = _snapshot()["architectures"]
    return entries


def removed() -> Mapping[str, str]:
    """The last version of vLLM that served each architecture which this version does not serve any more."""
    entries: Mapping[str, str] = _snapshot()["removed"]
    return entries


def not_served(architectures: Sequence[str]) -> str:
    """Says that vLLM has none of these architectures, and since when; empty if it has one, or if none is named."""
    if not architectures or any(name in registered() for name in architectures):
        return ""
    for name in architectures:
        if name in removed():
            return f"vLLM {version()} does not serve {name} any more; {removed()[name]} was the last version that did"
    return f"vLLM {version()} does not serve {' or '.join(architectures)}"


@lru_cache(maxsize=1)
def _snapshot() -> Mapping[str, Any]:
    text = files("neuroscale.models").joinpath("architectures.json").read_text(encoding="utf-8")
    snapshot: Mapping[str, Any] = json.loads(text)
    return snapshot


_NAMED = dict.fromkeys(("IQuestCoderForCausalLM", "InternLM3ForCausalLM", "LLaMAForCausalLM"), "llama")
_NAMED["PhiMoEForCausalLM"] = "phimoe"  # the families of architectures of which the registry knows no model type


def of_architecture(name: str) -> str | None:
    """The family of an architecture. As in vLLM, the class that a file names decides, whatever its model type."""
    entry = registered().get(name)
    types = entry["model_types"] if entry is not None and entry["part"] == "text" else ()
    return _NAMED.get(name) or next((kind for kind in types if kind in FAMILIES), None)


_OWN_TEXT = (
    *("gemma3", "gemma4", "gemma4_unified", "glm4v", "glm4v_moe", "llama4", "qwen2_5_vl"),
    *("qwen2_vl", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"),
)
TEXT_TYPES = {
    **{kind: f"{kind}_text" for kind in _OWN_TEXT},
    **dict.fromkeys(("internvl", "qwen2_audio"), "qwen2"),
    **dict.fromkeys(("llava", "llava_next"), "llama"),
    "mistral3": "mistral",
    "paligemma": "gemma",
}
"""The type of the text tower of models with several towers, for files whose `text_config` does not name it."""

_WITH_STATES = frozenset(
    FAMILIES[model_type]
    for model_type in (
        *("falcon_h1", "granitemoehybrid", "mamba2", "nemotron_h"),
        *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    )
)
"""Families with rules for layers that keep a state."""
_HYBRID_TYPES = frozenset(
    {
        *("bailing_hybrid", "bailing_moe_linear", "bamba", "falcon_mamba", "jamba", "jet_nemotron", "kimi_k3"),
        *("kimi_linear", "lfm2", "lfm2_moe"),
        *("mamba", "minimax", "minimax_text_01", "olmo_hybrid", "plamo2", "recurrent_gemma"),
        *("rwkv", "rwkv5", "rwkv6", "rwkv7", "zamba", "zamba2"),
    }
)
_HYBRID_KEYS = (
    *("attn_layer_period", "conv_L_cache", "full_attention_interval", "hybrid_override_pattern"),
    *("layers_block_type", "linear_attn_config", "linear_conv_kernel_dim", "linear_key_head_dim"),
    *("mamba_d_state", "mamba_num_heads", "mamba_ssm_dtype", "ssm_state_size", "state_size", "time_step_rank"),
)
_UNLIKE_ESTIMATES = frozenset(
    {"dbrx", "dots1", "falcon", "gemma3n", "gemma3n_text", "grok-1", "hunyuan_v1_moe", "qwen"}
)
"""Model types whose keys have other meanings than Llama's, so that an estimate would be wrong by far."""
_ENCODERS = frozenset(
    {
        *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "eurobert", "gte"),
        *("modernbert", "mpnet", "new", "nomic_bert", "roberta", "xlm-roberta"),
    }
)
_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention", "indexed_attention"})
_SPARSE_TYPES = frozenset({"deepseek_sparse_attention"})
"""Names for layers whose tokens an indexer chooses. vLLM reads `index_topk`, not these names."""

_STATEFUL = re.compile(r"linear|mamba|ssm|conv|recurr|delta|rwkv|lightning|retention|kda|gla|hyena")

_NOT_PLANNED = (
    ("is_encoder_decoder", "a model of encoder and decoder, whose cache of the encoder's output"),
    ("cross_attention_layers", "a model with cross-attention, whose cache of the other tower's output"),
    ("compress_ratios", "attention over a compressed cache, which"),
    ("block_configs", "a model whose layers differ one by one, which"),
    ("hybrid_layer_pattern", "a model whose layers differ one by one, which"),
    ("index_topk", "attention that an indexer with a cache of its own makes sparse, which"),
)
"""Keys that make a plan by the common rules wrong if they are neither null nor false."""
_PLANNED_KEYS: dict[Family | None, tuple[str, ...]] = {
    FAMILIES["deepseek_v3"]: ("index_topk",),
    FAMILIES["deepseek_v4"]: ("index_topk", "compress_ratios"),
}
"""Those of these keys that a family reads itself."""
_UNLIKE_LLAMA = re.compile(
    r"lora_rank|kv_shared|shared_kv|cross_layer|swa_|_swa|hybrid|compress|sparse_attention|indexer|mamba|ssm|_conv|"
    r"linear_attn|linear_attention|recurren|retention|altup|per_layer|loop|mixture_of_depths|num_codebooks"
)
"""Keys of layers that keep something other than keys and values, or that share them."""

_OTHER = "Name a model that generates text."
_MEASURE = "Start it once under vLLM, and plan with the numbers that it prints."
_SERVED = "Name a model that this version serves: docs/models.md lists them."


def text_keys(c: Keys) -> Keys:
    """The keys of the language model: a section if the model has several towers, else the whole file."""
    section = c.section("text_config", "llm_config", "language_config", model_type=TEXT_TYPES.get(c.model_type, ""))
    if section is None and c.written("speculators_model_type"):
        section = c.section("transformer_layer_config")
    if section is None and (thinker := c.section("thinker_config")) is not None:
        section = thinker.section("text_config")
    if section is not None:
        return section
    if c.model_type in TEXT_TYPES:
        if not c.written("hidden_size"):
            raise c.problem("text_config", "is missing")
        return c.as_type(TEXT_TYPES[c.model_type])
    return c


def family_of(c: Keys, text: Keys) -> Family | None:
    """The family that reads the text tower; None for an unknown architecture."""
    if text is c:
        for architecture in _named(c):
            if (named := of_architecture(architecture)) is not None:
                return FAMILIES[named]
    return FAMILIES.get(text.model_type)


def refuse_unplanned(c: Keys, text: Keys, family: Family | None) -> None:
    """Raises InputError for a model that keeps anything other than keys and values of tokens."""
    for keys in (c, text):
        if keys.model_type in _ENCODERS:
            raise keys.problem("model_type", f"{keys.model_type} has no decoder and keeps no KV cache", _OTHER)
        if keys.model_type in _UNLIKE_ESTIMATES:
            message = f"{keys.model_type} is not planned: its layers are not known here, and are unlike Llama's"
            raise keys.problem("model_type", message, _MEASURE)
        for key, words in _NOT_PLANNED:
            if key in _PLANNED_KEYS.get(family, ()):
                continue
            if keys.values.get(key) not in (None, False, [], {}):
                raise keys.problem(key, f"says that it is {words} is not planned", _MEASURE)
        if keys.values.get("per_layer_config") and not keys.model_type.startswith("gemma4"):
            message = "says that its layers differ one by one, which is not planned"
            raise keys.problem("per_layer_config", message, _MEASURE)
        if family not in _WITH_STATES:
            sparse = family is FAMILIES["deepseek_v32"] and keys.written("index_topk")
            _refuse_hybrid(keys, _LAYER_TYPES | _SPARSE_TYPES if sparse else _LAYER_TYPES, not_served(_named(c)))


def why_refused(model_type: str) -> str:
    """Why every file of a model type is refused, as a clause; "" for one that is not."""
    if model_type in _HYBRID_TYPES:
        return "its layers keep states that are not planned"
    if model_type in _UNLIKE_ESTIMATES:
        return "its layers are not known here, and are unlike Llama's"
    return "it has no decoder and keeps no KV cache" if model_type in _ENCODERS else ""


def _named(c: Keys) -> tuple[str, ...]:
    return c.texts("architectures", 100) or ()


def _refuse_hybrid(c: Keys, known: frozenset[str], not_served: str) -> None:
    """Raises InputError if layers keep a state. `known`: the kinds of layers that do not. `not_served`: why vLLM itself
    does not serve the model, if it does not."""
    if c.model_type in _HYBRID_TYPES:
        raise _hybrid(c, "model_type", f"{c.model_type} has layers with a state in place of a KV cache", not_served)
    types = c.values.get("layer_types")
    types = types if isinstance(types, list) else []
    for kind in types:
        if isinstance(kind, str) and kind not in known:
            if _STATEFUL.search(kind) or "attention" in types:
                raise _hybrid(c, "layer_types", f"it has layers of the kind {shorten(kind)}", not_served)
            raise c.problem("layer_types", f"has layers of the kind {shorten(kind)}, which is not planned", _MEASURE)
    kinds = c.values.get("attn_type_list")
    if isinstance(kinds, list) and 0 in kinds:
        raise _hybrid(c, "attn_type_list", "it has layers of the kind 0", not_served)
    for key in _HYBRID_KEYS:
        if c.values.get(key) is not None:
            why = f"{key} says that it has layers with a state in place of a KV cache"
            raise _hybrid(c, key, why, not_served)


def _hybrid(c: Keys, key: str, why: str, not_served: str) -> InputError:
    if not_served:
        return c.problem(key, f"{not_served}: {why}, and Transformers' own code does not keep one in vLLM", _SERVED)
    words = f"this is a hybrid of attention and linear attention or state-space layers, which is not planned: {why}"
    return c.problem(key, words, _MEASURE)


def estimate(c: Keys) -> Decoder:
    """Estimates a decoder of an unknown architecture as if it were Llama's, or Mixtral's if it has experts. Raises
    InputError if the file lacks the keys of such a model."""
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        if not c.written(key):
            raise c.problem(
                key,
                f"is missing, and the architecture {c.model_type or 'of this file'} is unknown, so that nothing can be "
                "estimated",
                _MEASURE,
            )
    for key, value in c.values.items():
        if _UNLIKE_LLAMA.search(key) and value not in (None, False, 0, [], {}):
            architecture = c.model_type or "of this file"
            message = f"the architecture {architecture} is unknown, and this key shows that it is unlike Llama"
            raise c.problem(key, message, _MEASURE)
    return estimated(c)


Status = Literal["planned", "estimated", "refused"]

_REFUSED: Mapping[str, str] = {
    "DeepseekV41ForCausalLM": "it compresses its caches in other ways than DeepSeek V4",
    "DeepseekV4ForConditionalGeneration": "its tower for images is not known",
    "DeciLMForCausalLM": "its layers differ one by one",
    "DbrxForCausalLM": "its keys have other meanings than Llama's",
    "DiffusionGemmaForBlockDiffusion": "it writes blocks of text by diffusion",
    "Glm5NextForCausalLM": "its layers keep states",
    "HYV4ForCausalLM": "its layers are not known here",
    "InklingForCausalLM": "its layers keep the inputs of convolutions beside keys and values",
    "InklingForConditionalGeneration": "its layers keep the inputs of convolutions beside keys and values",
    "KimiK3ForConditionalGeneration": "its layers keep states",
    "MiMoV2FlashForCausalLM": "its layers differ one by one",
    "MiMoV2ForCausalLM": "its layers differ one by one",
    "MiniMaxM3SparseForCausalLM": "its sparse attention keeps an index",
    "MiniMaxM3SparseForConditionalGeneration": "its sparse attention keeps an index",
    "NemotronHPuzzleForCausalLM": "its layers differ one by one",
    "Qwen4ExpForCausalLM": "its layers keep states of several sizes",
    "Qwen4ExpForConditionalGeneration": "its layers keep states of several sizes",
    "UnlimitedOCRForCausalLM": "its attention window counts generated tokens only",
}
"""Why each of these cannot be planned, from vLLM's classes of these names."""


_OF_REMOTE_CODE: Mapping[str, tuple[str, ...]] = {
    "ExaoneForCausalLM": ("exaone",),
    "InternVLChatModel": ("internvl_chat",),
    "MiMoForCausalLM": ("mimo",),
    "MiniCPMForCausalLM": ("minicpm",),
    "MolmoForCausalLM": ("molmo",),
}
"""The model types of architectures whose config classes come with their models."""


@dataclass(frozen=True)
class Support:
    """The `status` of an architecture, and `why`, as a sentence's end; empty if known rules plan all of it."""

    status: Status
    why: str


def supported() -> dict[str, Support]:
    """The support of each architecture by its name, in alphabetical order."""
    return {name: _support(name, entry) for name, entry in registered().items()}


def _support(name: str, entry: Mapping[str, Any]) -> Support:
    if entry["part"] == "draft":
        return Support("refused", "it guesses tokens for another model, and is not served alone")
    if entry["part"] == "other":
        return Support("refused", "it does not generate text")
    if name in _REFUSED:
        return Support("refused", _REFUSED[name])
    if entry["part"] == "transformers":
        return Support("estimated", "vLLM runs Transformers' own code; planned with Llama's layer layout")
    types = [*entry["model_types"], *_OF_REMOTE_CODE.get(name, ())]
    if of_architecture(name) is not None or any(one in FAMILIES for one in types):
        return Support("planned", "")
    if any(one in TEXT_TYPES or one in WRAPPERS for one in types):
        towers = any(one in WRAPPERS for one in types)
        why = "" if towers else "its language model is known; its towers are not"
        return Support("planned" if towers else "estimated", why)
    if entry["keeps"] == "encoder_decoder":
        return Support("refused", "it keeps a cache of the encoder's output")
    if why := next(filter(None, map(why_refused, types)), ""):
        return Support("refused", why)
    if entry["keeps"]:
        return Support("refused", "its layers keep states that are not planned")
    if entry["part"] == "multimodal":
        return Support("estimated", "its towers are not known, and its language model only if its model_type is")
    return Support("estimated", "planned with Llama's layer layout; a key of another layout is refused")
