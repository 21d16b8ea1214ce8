"""Builds the decoders of Granite with experts or Mamba-2 layers, and of LFM2 with its short convolutions."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    Decoder,
    attentions_of,
    head_shape,
    hidden_size,
    kinds_of,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    per_token,
    routed_experts,
)
from neuroscale.models.families.mamba import mamba2_of
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
    return Decoder(layers, hidden_size(c), final_norm=("embedding_norm.weight",))


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
    return kinds_of(c, "layer_types", types, {"conv": False, "full_attention": True})


def granitemoe(c: Keys) -> Decoder:
    """Granite with experts, and with a shared one beside them."""
    count, chosen = needed_experts(c)
    experts = _experts(c, count, chosen)
    made = mixed_decoder(c, attentions_of(c, biases="attention_bias"), experts, None)
    shared = _shared(c)
    if shared is None:
        return made
    return replace(made, layers=tuple(replace(layer, blocks=(*layer.blocks, shared)) for layer in made.layers))


def _experts(c: Keys, count: int, chosen: int) -> Experts:
    return Experts(
        count,
        chosen,
        mlp_width(c),
        fused=("input_linear", "output_linear"),
        block="block_sparse_moe",
        router="router.layer",
    )


def _shared(c: Keys) -> Mlp | None:
    shared_width = c.optional("shared_intermediate_size", low=0) or 0
    if not shared_width:
        return None
    return Mlp(
        shared_width,
        ("gate_proj", "up_proj", "output_linear"),
        fused="input_linear",
        block="shared_mlp",
        group="shared_experts",
    )


def granitemoehybrid(c: Keys) -> Decoder:
    """Granite 4: Mamba-2 layers between attention layers; the models with experts have them in all layers."""
    count = routed_experts(c)
    experts = _experts(c, count, per_token(c, count)) if count else None
    shared = _shared(c)
    if shared is not None and experts is None:
        # Without experts, the shared block is the only feed-forward block of a token.
        shared = replace(shared, group="dense_mlp")
    blocks = tuple(block for block in (experts, shared) if block is not None)
    heads, kv_heads, _ = head_shape(c)
    bias = c.flag("attention_bias")
    attention = Attention(
        heads,
        kv_heads,
        hidden_size(c) // heads,
        bias=bias,
        output_bias=bias,
        turned=c.text("position_embedding_type") == "rope",
    )
    mixer = mamba2_of(c, c.integer("mamba_expand") * hidden_size(c))
    kinds = _kinds(c)
    layers = tuple(Layer(attention, blocks) if whole else Layer(None, blocks, mixer=mixer) for whole in kinds)
    return Decoder(layers, hidden_size(c))


def _kinds(c: Keys) -> list[bool]:
    """Which layers have attention."""
    count = layer_count(c)
    types = c.texts("layer_types", MOST_LAYERS) or c.texts("layers_block_type", MOST_LAYERS)
    if types is None or len(types) < count:
        raise c.problem("layer_types", f"must name the kind of each of the {count} layers")
    known = {"mamba": False, "linear_attention": False, "attention": True, "full_attention": True}
    return kinds_of(c, "layer_types", types, known)
