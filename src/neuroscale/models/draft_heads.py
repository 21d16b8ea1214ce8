"""Describes the model that guesses tokens for another one: an independent draft model, or an EAGLE head.

Follows config/speculative.py, models/llama_eagle.py, models/llama_eagle3.py and models/qwen3_eagle3.py of vLLM 0.32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from neuroscale.models.config_keys import Keys
from neuroscale.models.facts import DTYPE_BYTES, Group, ModelFacts
from neuroscale.models.layers import Mlp
from neuroscale.models.registry import text_keys
from neuroscale.models.weights import Weights, together

DraftMethod = Literal["draft_model", "eagle", "eagle3"]
"""The methods of speculative decoding whose draft is planned."""

_HEADS: Mapping[str, frozenset[str]] = {
    "eagle": frozenset({"EagleLlamaForCausalLM", "LlamaForCausalLM"}),
    "eagle3": frozenset(
        {
            *("Eagle3LlamaForCausalLM", "Eagle3MiniMaxM2ForCausalLM", "Eagle3Qwen2_5vlForCausalLM"),
            *("Eagle3Qwen3ForCausalLM", "Eagle3Qwen3vlForCausalLM"),
            *("LlamaForCausalLM", "LlamaForCausalLMEagle3"),
        }
    ),
}
_SPECULATORS = "speculators_model_type"  # the key by which files of the speculators library name the method
_QWEN3 = "Eagle3Qwen3ForCausalLM"
_STATES_READ = 3  # layers of the model whose outputs an EAGLE-3 head reads, if its file does not number them
_NAME_WIDTH = 8  # bytes of the number of a token, in the table from the head's vocabulary to the model's


def draft_of(facts: ModelFacts, target: ModelFacts, method: DraftMethod) -> ModelFacts | None:
    """The facts of the model or head `facts` as vLLM loads it beside `target`; None if its layers are not known here.
    An EAGLE head shares the embedding of the model, and the first generation shares its LM head, too."""
    if facts.basis == "estimate" or facts.states or any(layers.kind == "indexer" for layers in facts.cache):
        return None
    if method == "draft_model":
        return None if facts.multimodal else facts
    if facts.quantization is not None or facts.config is None or facts.experts:
        return None
    known = bool(set(facts.architectures) & _HEADS[method])
    if _SPECULATORS in facts.config:
        known = facts.config[_SPECULATORS] == method == "eagle3"
    if not known or facts.model_type not in ("llama", "qwen3"):
        return None
    if [layers.kind for layers in facts.cache] != ["full"]:
        return None
    c = Keys(facts.config, facts.source)
    return _head(facts, target, text_keys(c), c, third=method == "eagle3")


def _head(facts: ModelFacts, target: ModelFacts, text: Keys, c: Keys, *, third: bool) -> ModelFacts:
    hidden, out = facts.hidden_size, Weights()
    normed = _QWEN3 in facts.architectures or (c.written(_SPECULATORS) and facts.model_type == "qwen3")
    for number in range(facts.num_layers):
        first = number == 0
        _attention(facts, out, f"layers.{number}.", 2 * hidden if third and first else hidden, text, normed=normed)
        Mlp(facts.intermediate_size).weights(out, f"layers.{number}.", hidden)
        norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        for norm in norms if third else norms[2:] if first else (norms[0], norms[2]):
            out.add(f"layers.{number}.{norm}.weight", "norm", (hidden,))
    vocabulary = facts.vocab_size
    if third:
        vocabulary = c.optional("draft_vocab_size", high=2**26) or text.optional("draft_vocab_size") or vocabulary
        _third(facts, target, out, c, vocabulary)
    else:
        out.linear("fc", "attention", (2 * hidden, hidden), "replicated", bias=False)
    if hidden != target.hidden_size:
        out.add("embed_tokens.weight", "embedding", (facts.vocab_size, hidden), "vocabulary")
    sizes: dict[Group, int] = {}
    for weight in out.all:
        size = math.prod(weight.shape) * weight.copies * DTYPE_BYTES[facts.dtype]
        sizes[weight.group] = sizes.get(weight.group, 0) + size
    return replace(
        facts,
        tensors=together(out.all),
        weight_bytes=sizes,
        vocab_size=vocabulary,
        basis="config",
        file_dtype=None,
        multimodal=False,
        parts_missing=False,
    )


def _attention(facts: ModelFacts, out: Weights, at: str, read: int, text: Keys, *, normed: bool) -> None:
    """Adds attention that reads `read` values of a token."""
    queries, keys, bias = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim, text.flag("attention_bias")
    out.linear(f"{at}self_attn.q_proj", "attention", (read, queries), "split", bias=bias)
    for name in ("k_proj", "v_proj"):
        out.linear(f"{at}self_attn.{name}", "attention", (read, keys), "kv_heads", bias=bias)
    out.linear(
        f"{at}self_attn.o_proj",
        "attention",
        (queries, facts.hidden_size),
        "split",
        bias=bias and not normed,
        bias_sharding="replicated",
    )
    for name in ("q_norm", "k_norm") if normed else ():
        out.add(f"{at}self_attn.{name}.weight", "norm", (facts.head_dim,))


def _third(facts: ModelFacts, target: ModelFacts, out: Weights, c: Keys, vocabulary: int) -> None:
    """Adds the parts around the layers of an EAGLE-3 head: it has an LM head of its own, often for fewer tokens."""
    hidden = facts.hidden_size
    eagle = c.section("eagle_config")
    if eagle is None or eagle.flag("use_aux_hidden_state", True):
        numbered = c.integers("eagle_aux_hidden_state_layer_ids") or (
            eagle.integers("eagle_aux_hidden_state_layer_ids") if eagle else None
        )
        read = c.optional("num_aux_hidden_states", "num_aux_layers", high=1000) or len(numbered or ()) or _STATES_READ
        wide = c.optional("target_hidden_size", high=2**20) or hidden
        out.linear("fc", "attention", (read * wide, hidden), "replicated")
        if (eagle.flag("norm_before_fc") if eagle else False) or c.flag("norm_before_fc"):
            out.add("input_norm.weight", "norm", (read * wide,))
        if c.flag("fc_norm"):
            out.add("fc_norm.{}.weight", "norm", (wide,), copies=read)
    out.add("norm.weight", "norm", (hidden,))
    out.add("lm_head.weight", "lm_head", (vocabulary, hidden), "vocabulary")
    if vocabulary != target.vocab_size:
        # Two values of 32 bits for each number of a token.
        out.add("d2t", "norm", (vocabulary, _NAME_WIDTH // 4), full_precision=True)
