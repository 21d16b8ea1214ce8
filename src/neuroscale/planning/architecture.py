"""Mixture of experts or dense, and how many parameters: counted from the model's config.

The count is of the text tower: towers for images and sound are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from neuroscale.catalog import ModelConfig
from neuroscale.planning.plan import Architecture

_QK_NORM = ("qwen3", "gemma4")


@dataclass(frozen=True)
class Parameters:
    """Parameters of the text tower. `active`: what one token computes with, its input embedding included."""

    total: int
    active: int
    input_embedding: int
    """The part of `active` that is only looked up: 0 where the same matrix also computes the output."""


def architecture(config: ModelConfig) -> Architecture:
    """Kind and parameters of a model. MoE by vLLM's rule: the first existing experts key, when above 0."""
    counted = count_parameters(config)
    return Architecture(
        kind="moe" if config.experts > 0 else "dense",
        total_params=counted.total,
        active_params=counted.active,
        active_params_without_embedding=counted.active - counted.input_embedding,
        active_ratio=round(counted.active / counted.total, 3),
    )


def full_attention_layers(config: ModelConfig) -> list[bool]:
    """For each layer, whether its attention sees the whole context (else only `sliding_window` tokens)."""
    pattern = config.sliding_window_pattern
    return [pattern is None or layer % pattern == pattern - 1 for layer in range(config.num_hidden_layers)]


def layers_with_cache(config: ModelConfig) -> int:
    """Layers that keep keys and values of their own; the last `num_kv_shared_layers` read an earlier layer's."""
    return config.num_hidden_layers - config.num_kv_shared_layers


@lru_cache(maxsize=256)
def count_parameters(config: ModelConfig) -> Parameters:
    """Every weight that the config implies. Source: the layouts of transformers' modelling code for each family."""
    embedding = config.vocab_size * config.hidden_size
    total = embedding if config.tie_word_embeddings else 2 * embedding
    idle = 0
    for layer, full in enumerate(full_attention_layers(config)):
        shares_cache = layer >= layers_with_cache(config)
        total += _attention(config, full, shares_cache) + _norms(config, full)
        dense, experts, unused = _feed_forward(config, layer, shares_cache)
        total += dense + experts
        idle += unused
    total += config.hidden_size  # the last norm
    per_layer = config.hidden_size_per_layer_input
    if per_layer:
        table = config.vocab_size * config.num_hidden_layers * per_layer
        total += table
        total += config.hidden_size * config.num_hidden_layers * per_layer  # the projection into all layers
        total += config.num_hidden_layers * 2 * config.hidden_size * per_layer  # gate and projection in each
        idle += table  # looked up row by row; published 'effective' counts leave it out
    return Parameters(total, total - idle, 0 if config.tie_word_embeddings else embedding)


def _attention(config: ModelConfig, full: bool, shares_cache: bool) -> int:
    hidden, heads = config.hidden_size, config.num_attention_heads
    if config.kv_lora_rank and config.qk_nope_head_dim and config.qk_rope_head_dim and config.v_head_dim:
        query_dim = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
        rank = config.q_lora_rank
        query = hidden * rank + rank + rank * query_dim if rank else hidden * query_dim
        latent = hidden * (config.kv_lora_rank + config.qk_rope_head_dim) + config.kv_lora_rank
        expand = config.kv_lora_rank * heads * (config.qk_nope_head_dim + config.v_head_dim)
        return query + latent + expand + heads * config.v_head_dim * hidden
    head_dim, kv_heads = attention_shape(config, full)
    query_and_output = 2 * hidden * heads * head_dim
    if shares_cache:
        return query_and_output
    projections = 1 if config.attention_k_eq_v and full else 2
    return query_and_output + projections * hidden * kv_heads * head_dim


def attention_shape(config: ModelConfig, full: bool) -> tuple[int, int]:
    """Head dimension and KV heads of a layer; full layers of a windowed model may have their own."""
    if full and config.sliding_window_pattern is not None:
        return (
            config.global_head_dim or config.head_dim,
            config.num_global_key_value_heads or config.num_key_value_heads,
        )
    return config.head_dim, config.num_key_value_heads


def _norms(config: ModelConfig, full: bool) -> int:
    norms = 4 if config.model_type.startswith("gemma4") else 2
    query_and_key = 2 * attention_shape(config, full)[0] if config.model_type.startswith(_QK_NORM) else 0
    return norms * config.hidden_size + query_and_key


def _feed_forward(config: ModelConfig, layer: int, shares_cache: bool) -> tuple[int, int, int]:
    """Parameters outside the routed experts, in them, and in those that one token leaves unused."""
    hidden = config.hidden_size
    width = config.intermediate_size * (2 if config.use_double_wide_mlp and shares_cache else 1)
    mlp = 3 * hidden * width
    experts = config.experts
    if not experts or layer < config.first_k_dense_replace:
        return mlp, 0, 0
    one = 3 * hidden * (config.moe_intermediate_size or 0)
    router = hidden * experts
    shared = config.n_shared_experts * one
    beside = mlp if config.enable_moe_block else 0  # Gemma 4 computes a dense block and the experts
    return router + shared + beside, experts * one, (experts - (config.num_experts_per_tok or 0)) * one
