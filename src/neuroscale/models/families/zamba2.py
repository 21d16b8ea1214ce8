"""Builds the decoder of Zamba2: Mamba-2 in every layer, and one of a few shared blocks of attention before some."""

from __future__ import annotations

from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.families.common import hidden_size, layer_count
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Extra, Layer, SharedAttention
from neuroscale.models.mixers import Mamba2

_KINDS = {"mamba": False, "linear_attention": False, "hybrid": True}
_WITH_ATTENTION = (6, 12, 18, 24, 30, 36, 42, 47, 51)
"""The layers with attention if the file does not list its layers (transformers' class)."""


def zamba2(c: Keys) -> Decoder:
    """Layers share `num_mem_blocks` blocks in turn, and each has adapters and a KV cache of its own."""
    hidden = hidden_size(c)
    heads = c.shape("num_attention_heads", high=2**16)
    width = c.optional("intermediate_size", high=2**22) or 4 * hidden
    blocks, rank = c.integer("num_mem_blocks", high=2**10), c.integer("adapter_rank", high=2**16)
    inner = c.integer("mamba_expand") * hidden
    states = c.integer("n_mamba_heads", high=2**16)
    shared = SharedAttention(
        heads,
        heads,
        2 * hidden // heads,
        turned=c.flag("use_mem_rope"),
        block="shared_transformer.self_attn",
        adapter=rank,
        adapts_attention=c.flag("use_shared_attention_adapter"),
        mlp_width=width,
    )
    mixer = Mamba2(
        inner,
        states,
        inner // states,
        c.integer("mamba_d_state", high=2**16),
        c.integer("mamba_ngroups", high=2**16),
        c.integer("mamba_d_conv", high=2**10),
        conv_bias=c.flag("use_conv_bias", True),
        bias=c.flag("add_bias_linear"),
    )
    plain = Layer(None, (), ("input_layernorm",), mixer=mixer)
    with_block = Layer(shared, (), ("input_layernorm",), mixer=mixer)
    kinds = _with_attention(c)
    first = [number for number, attends in enumerate(kinds) if attends][:blocks]
    return Decoder(
        tuple(with_block if attends else plain for attends in kinds),
        hidden,
        extras=tuple(one for number in first for one in _block(f"layers.{number}.", hidden, c)),
        final_norm=("final_layernorm.weight",),
    )


def _with_attention(c: Keys) -> list[bool]:
    count = layer_count(c)
    names = c.texts("layers_block_type", MOST_LAYERS)
    if names is None:
        return [number in _WITH_ATTENTION for number in range(count)]
    if len(names) != count:
        raise c.problem("layers_block_type", f"names {len(names)} layers of {count}")
    for name in names:
        if name not in _KINDS:
            raise c.problem("layers_block_type", f"a layer of the kind {shorten(name)} is not known")
    return [_KINDS[name] for name in names]


def _block(at: str, hidden: int, c: Keys) -> list[Extra]:
    """A shared block: it reads the embedding beside the hidden values of a token."""
    at, width = f"{at}shared_transformer.", c.optional("intermediate_size", high=2**22) or 4 * hidden
    found = [
        Extra(f"{at}self_attn.{name}", "attention", (2 * hidden, 2 * hidden), linear=True, sharding="split")
        for name in ("q_proj", "k_proj", "v_proj")
    ]
    found += [
        Extra(f"{at}self_attn.o_proj", "attention", (2 * hidden, hidden), linear=True, sharding="split"),
        Extra(f"{at}feed_forward.gate_up_proj", "dense_mlp", (hidden, 2 * width), linear=True, sharding="split"),
        Extra(f"{at}feed_forward.down_proj", "dense_mlp", (width, hidden), linear=True, sharding="split"),
        Extra(f"{at}input_layernorm.weight", "norm", (2 * hidden,)),
        Extra(f"{at}pre_ff_layernorm.weight", "norm", (hidden,)),
    ]
    if c.flag("add_bias_linear"):
        found += [
            Extra(f"{at}feed_forward.gate_up_proj.bias", "dense_mlp", (2 * width,), sharding="split"),
            Extra(f"{at}feed_forward.down_proj.bias", "dense_mlp", (hidden,)),
        ]
    return found
