"""Builds the decoders of Qwen; three of four layers of Qwen3-Next, Qwen3.5 and 3.6 keep a state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.facts import Dtype
from neuroscale.models.families.common import (
    Decoder,
    dense_decoder,
    head_shape,
    hidden_size,
    kinds_of,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
    reaches,
)
from neuroscale.models.layers import Attention, Experts, Layer, Mlp
from neuroscale.models.mixers import GatedDelta

_UNSAID = (
    "The file has no mamba_ssm_dtype, so vLLM keeps states in the model's dtype; published files of Qwen3.5 ask for "
    "float32, which takes twice as much."
)
_PERIOD = 4  # every so many layers, one has attention, unless the file sets another number (transformers' class)


def qwen3_next(c: Keys) -> Decoder:
    """Qwen3-Next: experts in every layer, or in those that `decoder_sparse_step` names."""
    experts, dense = _experts(c), Mlp(mlp_width(c)) if c.optional("intermediate_size") else None
    named = frozenset(c.integers("mlp_only_layers") or ())
    step = c.integer("decoder_sparse_step", low=0, default=1)

    def block(layer: int) -> Mlp | Experts:
        if dense and (layer in named or step == 0 or (layer + 1) % step):
            return dense
        return experts

    return _decoder(c, block, fused=True, dtype=None)


def qwen3_5(c: Keys) -> Decoder:
    """Qwen3.5 and 3.6, dense."""
    mlp = Mlp(mlp_width(c))
    return _decoder(c, lambda _: mlp, fused=False, dtype=_state_dtype(c))


def qwen3_5_moe(c: Keys) -> Decoder:
    """Qwen3.5 and 3.6 with experts in every layer."""
    experts = _experts(c)
    return _decoder(c, lambda _: experts, fused=False, dtype=_state_dtype(c))


def _experts(c: Keys) -> Experts:
    count, chosen = needed_experts(c)
    width = c.optional("shared_expert_intermediate_size", low=0, high=2**22) or 0
    shared = Mlp(width, block="shared_expert", group="shared_experts") if width else None
    return Experts(
        count, chosen, mlp_width(c, "moe_intermediate_size"), shared=shared, shared_gate="shared_expert_gate"
    )


def _state_dtype(c: Keys) -> Dtype | None:
    """The dtype of the state that the file asks for (`Qwen3_5ForConditionalGenerationConfig` of vLLM's
    model_executor/models/config.py)."""
    said = c.text("mamba_ssm_dtype")
    if said in ("bfloat16", "float16", "float32"):
        return said  # type: ignore[return-value]
    if said:
        raise c.problem("mamba_ssm_dtype", f"{shorten(said)} is not bfloat16, float16 or float32")
    return None


def _decoder(c: Keys, block: Callable[[int], Mlp | Experts], *, fused: bool, dtype: Dtype | None) -> Decoder:
    heads, kv_heads, head_dim = head_shape(c)
    attention = Attention(
        heads, kv_heads, head_dim, bias=c.flag("qkv_bias"), norm="head", gated_queries=c.flag("attn_output_gate", True)
    )
    mixer = GatedDelta(
        c.integer("linear_num_key_heads", high=2**16),
        c.integer("linear_num_value_heads", high=2**16),
        c.integer("linear_key_head_dim", high=2**16),
        c.integer("linear_value_head_dim", high=2**16),
        c.integer("linear_conv_kernel_dim", high=2**10),
        fused,
        dtype,
    )
    layers = tuple(
        Layer(attention, (block(number),)) if whole else Layer(None, (block(number),), mixer=mixer)
        for number, whole in enumerate(_whole(c))
    )
    unsaid = not fused and dtype is None
    predicting = c.optional("mtp_num_hidden_layers", "num_nextn_predict_layers", low=0, high=100)
    if predicting is None:
        predicting = 1 if fused else 0  # Qwen3-Next's checkpoint has one such layer, which its config.json leaves out
    return Decoder(
        layers,
        hidden_size(c),
        predicting=(Layer(attention, (block(len(layers) - 1),)),) * predicting,
        predicting_at="mtp.",
        notes=(_UNSAID,) if unsaid else (),
    )


def _whole(c: Keys) -> list[bool]:
    """Which layers have attention over the whole context."""
    count = layer_count(c)
    types, period = c.texts("layer_types", MOST_LAYERS), c.integer("full_attention_interval", default=_PERIOD)
    if types is None:
        return [(layer + 1) % period == 0 for layer in range(count)]
    return kinds_of(c, "layer_types", types, {"linear_attention": False, "full_attention": True})


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
