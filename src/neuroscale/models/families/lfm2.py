"""Builds the decoder of LFM2: short convolutions between layers with attention, dense or with experts."""

from __future__ import annotations

from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    Decoder,
    hidden_size,
    layer_count,
    mlp_width,
    needed_experts,
)
from neuroscale.models.layers import Attention, Experts, Layer, Mlp
from neuroscale.models.mixers import ShortConv

_NORMS = ("operator_norm", "ffn_norm")


def lfm2(c: Keys) -> Decoder:
    """LFM2, dense: the width of its feed-forward blocks is computed from the width in the file."""
    width = mlp_width(c, "block_ff_dim", "intermediate_size")
    if c.flag("block_auto_adjust_ff_dim", True):
        width = _adjusted(c, width)
    mlp = Mlp(width, NAMES_W1_W3_W2, block="feed_forward")
    whole = _whole(c)
    return _decoder(c, whole, [mlp] * len(whole), c.integer("conv_dim", default=hidden_size(c)))


def lfm2_moe(c: Keys) -> Decoder:
    """LFM2 with experts after its first layers."""
    count, chosen = needed_experts(c)
    experts = Experts(
        count,
        chosen,
        mlp_width(c, "moe_intermediate_size"),
        NAMES_W1_W3_W2,
        block="feed_forward",
        correction="expert_bias" if c.flag("use_expert_bias", True) else "",
    )
    dense = Mlp(mlp_width(c), NAMES_W1_W3_W2, block="feed_forward")
    first, whole = c.integer("num_dense_layers", low=0), _whole(c)
    blocks = [dense if layer < first else experts for layer in range(len(whole))]
    return _decoder(c, whole, blocks, hidden_size(c))


def _adjusted(c: Keys, width: int) -> int:
    """The width of a feed-forward block, as `Lfm2MLP` of vLLM's models/lfm2.py computes it."""
    width = int(2 * width / 3)
    factor = c.raw("block_ffn_dim_multiplier")
    if isinstance(factor, int | float) and not isinstance(factor, bool):
        width = int(factor * width)
    step = c.integer("block_multiple_of", default=256)
    return step * ((width + step - 1) // step)


def _decoder(c: Keys, whole: list[bool], blocks: list[Mlp | Experts], channels: int) -> Decoder:
    attention = _attention(c)
    mixer = ShortConv(channels, c.integer("conv_L_cache", high=2**10), c.flag("conv_bias"))
    layers = tuple(
        Layer(attention, (block,), _NORMS) if attends else Layer(None, (block,), _NORMS, mixer=mixer)
        for attends, block in zip(whole, blocks, strict=True)
    )
    experts = [block for block in blocks if isinstance(block, Experts)]
    return Decoder(
        layers,
        hidden_size(c),
        experts[0].count if experts else 0,
        experts[0].per_token if experts else 0,
        final_norm=("embedding_norm.weight",),
    )


def _attention(c: Keys) -> Attention:
    heads = c.shape("num_attention_heads", high=2**16)
    kv_heads = c.integer("num_key_value_heads", high=2**16)
    return Attention(
        heads,
        kv_heads,
        hidden_size(c) // heads,
        norm="head",
        norm_names=("q_layernorm", "k_layernorm"),
        output="out_proj",
    )


def _whole(c: Keys) -> list[bool]:
    """Which layers have attention."""
    count = layer_count(c)
    types = c.texts("layer_types", MOST_LAYERS)
    if types is None:
        named = c.integers("full_attn_idxs")
        if named is None:
            raise c.problem("layer_types", "is missing: nothing says which layers have attention")
        return [layer in named for layer in range(count)]
    if len(types) < count:
        raise c.problem("layer_types", f"names {len(types)} layers of {count}")
    for kind in types:
        if kind not in ("conv", "full_attention"):
            raise c.problem("layer_types", f"a layer of the kind {shorten(kind)} is not planned")
    return [kind == "full_attention" for kind in types[:count]]
