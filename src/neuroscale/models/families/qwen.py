"""Builds the decoders of Qwen, from the first to the third."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    dense_decoder,
    half_width,
    head_shape,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    reaches,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Attention, Experts, Mlp


def qwen1(c: Keys) -> Decoder:
    """The first Qwen: `intermediate_size` counts gate and up together; one tensor has queries, keys and values."""
    heads, _, head_dim = head_shape(c)
    head_dim = c.optional("kv_channels", high=2**16) or head_dim
    attention = Attention(heads, heads, head_dim, bias=True, fused="c_attn", output="c_proj", block="attn")
    return dense_decoder(c, [attention] * layer_count(c), Mlp(half_width(c), ("w1", "w2", "c_proj")), ("ln_1", "ln_2"))


def qwen2(c: Keys) -> Decoder:
    """Qwen 2 and 2.5: biases of queries, keys and values; a window only if `use_sliding_window` asks for one."""
    return dense_decoder(c, _qwen_attentions(c, bias=True), Mlp(mlp_width(c)))


def qwen2_moe(c: Keys) -> Decoder:
    """Qwen 1.5 and 2 with experts: one shared expert, weighed by a gate of its own."""
    count, chosen = needed_experts(c)
    shared = Mlp(mlp_width(c, "shared_expert_intermediate_size"), block="shared_expert", group="shared_experts")
    experts = Experts(
        count, chosen, mlp_width(c, "moe_intermediate_size"), shared=shared, shared_gate="shared_expert_gate"
    )
    attentions = _qwen_attentions(c, bias=c.flag("qkv_bias", True))
    return mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), _qwen_dense(c))


def qwen3(c: Keys) -> Decoder:
    """Qwen 3, dense: norms of queries and keys."""
    bias = c.flag("attention_bias")
    return dense_decoder(c, _qwen_attentions(c, bias=bias, output_bias=bias, norm="head"), Mlp(mlp_width(c)))


def qwen3_moe(c: Keys) -> Decoder:
    """Qwen 3 with experts."""
    count, chosen = needed_experts(c)
    experts = Experts(count, chosen, mlp_width(c, "moe_intermediate_size"))
    bias = c.flag("attention_bias")
    attentions = _qwen_attentions(c, bias=bias, output_bias=bias, norm="head")
    return mixed_decoder(c, attentions, experts, Mlp(mlp_width(c)), _qwen_dense(c))


def _qwen_attentions(c: Keys, **options: object) -> list[Attention]:
    heads, kv_heads, head_dim = head_shape(c)
    plain = replace(Attention(heads, kv_heads, head_dim), **options)  # type: ignore[arg-type]
    count = layer_count(c)
    if not c.flag("use_sliding_window"):
        return [plain] * count
    full_below = c.integer("max_window_layers", low=0, default=count)
    return [
        replace(plain, reach=reach, window=window) for reach, window in reaches(c, lambda layer: layer < full_below)
    ]


def _qwen_dense(c: Keys) -> Callable[[int], bool]:
    named = frozenset(c.integers("mlp_only_layers") or ())
    step = c.integer("decoder_sparse_step", low=0, default=1)
    return lambda layer: layer in named or step == 0 or (layer + 1) % step != 0
