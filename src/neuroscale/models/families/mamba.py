"""Builds the decoders of Mamba-2, Falcon-H1 and Nemotron-H."""

from __future__ import annotations

from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.facts import Dtype
from neuroscale.models.families.common import (
    Decoder,
    head_shape,
    hidden_size,
    layer_count,
    mlp_width,
    needed_experts,
    shared_experts,
)
from neuroscale.models.layers import Attention, Experts, Layer, Mlp
from neuroscale.models.mixers import Mamba2


def falcon_h1(c: Keys) -> Decoder:
    """Falcon-H1: attention and Mamba-2 side by side in each layer."""
    heads, kv_heads, head_dim = head_shape(c)
    inner = c.optional("mamba_d_ssm") or c.integer("mamba_expand") * hidden_size(c)
    mixer = mamba2_of(c, inner, norm=c.flag("mamba_rms_norm"))
    norms = ("input_layernorm", "pre_ff_layernorm")
    layer = Layer(Attention(heads, kv_heads, head_dim), (Mlp(mlp_width(c), block="feed_forward"),), norms, mixer=mixer)
    return Decoder((layer,) * layer_count(c), hidden_size(c), final_norm=("final_layernorm.weight",))


def mamba2_of(c: Keys, inner: int, *, norm: bool = True) -> Mamba2:
    """Mamba-2 by the keys of Falcon-H1 and Granite; the values of a head may follow from `inner` and the heads."""
    heads = c.integer("mamba_n_heads", high=2**16)
    return Mamba2(
        inner,
        heads,
        inner // heads if c.raw("mamba_d_head") in ("auto", None) else c.integer("mamba_d_head", high=2**16),
        c.integer("mamba_d_state", high=2**16),
        c.integer("mamba_n_groups", high=2**16),
        c.integer("mamba_d_conv", high=2**10),
        conv_bias=c.flag("mamba_conv_bias", True),
        bias=c.flag("mamba_proj_bias"),
        norm=norm,
    )


_NEMOTRON_KINDS = {
    "M": "M",
    "mamba": "M",
    "linear_attention": "M",
    "*": "*",
    "attention": "*",
    "full_attention": "*",
    "-": "-",
    "mlp": "-",
    "E": "E",
    "moe": "E",
}
"""The kind of a layer, by the letters of a pattern and by the words of older and newer lists."""


def nemotron_h(c: Keys) -> Decoder:
    """Nemotron-H, and Nemotron-3 with experts that compute in a smaller space (`moe_latent_size`)."""
    kinds = _pattern(c)
    experts = _experts(c) if "E" in kinds or "E" in _predicting(c) else None
    made = {
        "M": lambda: _layer(None, (), _mamba(c)),
        "*": lambda: _layer(_attention(c), ()),
        "-": lambda: _layer(
            None,
            (Mlp(mlp_width(c), ("", "up_proj", "down_proj"), gated=False, bias=c.flag("mlp_bias"), block="mixer"),),
        ),
        "E": lambda: _layer(None, (experts,) if experts else ()),
    }
    by_kind = {kind: made[kind]() for kind in sorted(set(kinds))}
    guessing = tuple(by_kind.get(kind) or made[kind]() for kind in _predicting(c))
    return Decoder(
        tuple(by_kind[kind] for kind in kinds),
        hidden_size(c),
        predicting=guessing,
        predicting_at="mtp.",
        predicting_names=(*_JOINING, f"layers.{len(guessing) - 1}.final_layernorm"),
        final_norm=("norm_f.weight",),
    )


_JOINING = "layers.0.eh_proj", "layers.0.enorm", "layers.0.hnorm"


def _predicting(c: Keys) -> list[str]:
    """The kinds of the layers that guess tokens, if the file has them (model_executor/models/nemotron_h_mtp.py)."""
    if not (c.optional("num_nextn_predict_layers", low=0, high=100) or 0):
        return []
    said = c.text("mtp_hybrid_override_pattern") if c.written("mtp_hybrid_override_pattern") else ""
    key = "mtp_hybrid_override_pattern" if said else "mtp_layers_block_type"
    names = tuple(said) or c.texts(key, MOST_LAYERS) or ("*", "E")
    for name in names:
        if _NEMOTRON_KINDS.get(name) not in ("*", "E"):
            raise c.problem(key, f"a layer of the kind {shorten(name)} cannot guess tokens")
    return [_NEMOTRON_KINDS[name] for name in names]


def _layer(attention: Attention | None, blocks: tuple[Mlp | Experts, ...], mixer: Mamba2 | None = None) -> Layer:
    return Layer(attention, blocks, ("norm",), mixer=mixer)


def _pattern(c: Keys) -> list[str]:
    said = c.text("hybrid_override_pattern") if c.written("hybrid_override_pattern") else ""
    key = "hybrid_override_pattern" if said else "layers_block_type"
    names = tuple(said) or c.texts(key, MOST_LAYERS)
    if not names:
        raise c.problem("hybrid_override_pattern", "is missing, so that the kind of each layer is not known")
    for name in names:
        if name not in _NEMOTRON_KINDS:
            raise c.problem(key, f"a layer of the kind {shorten(name)} is not known")
    return [_NEMOTRON_KINDS[name] for name in names]


def _attention(c: Keys) -> Attention:
    heads, kv_heads, head_dim = head_shape(c)
    window = c.optional("sliding_window", low=0) or None
    return Attention(
        heads, kv_heads, head_dim, reach="sliding" if window else "full", window=window, turned=False, block="mixer"
    )


def _mamba(c: Keys) -> Mamba2:
    heads = c.integer("mamba_num_heads", high=2**16)
    head_dim = c.integer("mamba_head_dim", high=2**16)
    return Mamba2(
        heads * head_dim,
        heads,
        head_dim,
        c.integer("ssm_state_size", high=2**16),
        c.integer("n_groups", "mamba_n_groups", high=2**16),
        c.integer("conv_kernel", "mamba_d_conv", high=2**10),
        conv_bias=c.flag("use_conv_bias", True),
        bias=c.flag("use_bias"),
        block="mixer",
        dtype=_dtype(c),
    )


def _dtype(c: Keys) -> Dtype:
    """The dtype of the state: float32 unless the file sets one (`NemotronHForCausalLMConfig` of vLLM's
    model_executor/models/config.py)."""
    said = c.text("mamba_ssm_cache_dtype", "float32")
    if said not in ("bfloat16", "float16", "float32"):
        raise c.problem("mamba_ssm_cache_dtype", f"{shorten(said)} is not bfloat16, float16 or float32")
    return said  # type: ignore[return-value]


def _experts(c: Keys) -> Experts:
    count, chosen = needed_experts(c)
    beside = c.optional("n_shared_experts", low=0) or 0
    width = beside * (c.optional("moe_shared_expert_intermediate_size", low=0, high=2**22) or 0)
    return Experts(
        count,
        chosen,
        mlp_width(c, "moe_intermediate_size"),
        ("", "up_proj", "down_proj"),
        block="mixer",
        # Kernels of Hopper and Blackwell read it in 16 bits (router/gate_linear.py of vLLM's fused_moe).
        full_router=True,
        correction="gate.e_score_correction_bias",
        shared=shared_experts(width, names=("", "up_proj", "down_proj"), gated=False),
        gated=False,
        latent=c.optional("moe_latent_size", high=2**20),
        latent_names=("fc1_latent_proj", "fc2_latent_proj"),
    )


def mamba2(c: Keys) -> Decoder:
    """Mamba-2, such as Codestral Mamba."""
    mixer = Mamba2(
        c.optional("intermediate_size", high=2**22) or c.integer("expand") * hidden_size(c),
        c.integer("num_heads", high=2**16),
        c.integer("head_dim", high=2**16),
        c.integer("state_size", high=2**16),
        c.integer("n_groups", high=2**16),
        c.integer("conv_kernel", high=2**10),
        conv_bias=c.flag("use_conv_bias", True),
        bias=c.flag("use_bias"),
        block="mixer",
    )
    layer = Layer(None, (), ("norm",), mixer=mixer)
    return Decoder((layer,) * layer_count(c), hidden_size(c), final_norm=("norm_f.weight",))
