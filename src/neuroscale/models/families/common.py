"""Describes a decoder, and reads heads, windows, widths and experts for all families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import MOST_LAYERS, Keys
from neuroscale.models.layers import Attention, Experts, Extra, LatentAttention, Layer, Mlp, Reach


@dataclass(frozen=True)
class Decoder:
    """The text tower: its layers, and the tensors around them."""

    layers: tuple[Layer, ...]
    hidden: int
    extras: tuple[Extra, ...] = ()  # tensors below `model.`
    # Layers of multi-token prediction; a checkpoint numbers them after the others, or has them below `predicting_at`
    # without an embedding and an LM head of their own.
    predicting: tuple[Layer, ...] = ()
    predicting_at: str = ""
    # The names, below `predicting_at`, of the matrix that joins an embedding and the output, and of three norms.
    predicting_names: tuple[str, ...] = ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    final_norm: tuple[str, ...] = ("norm.weight",)  # the names of the final norm's tensors
    lm_head_bias: bool = False
    estimated: bool = False  # the layout is an assumption
    notes: tuple[str, ...] = ()

    @cached_property
    def experts(self) -> Experts | None:
        """The experts of the first layer with some; None for a dense model."""
        blocks = (block for layer in (*self.layers, *self.predicting) for block in layer.blocks)
        return next((block for block in blocks if isinstance(block, Experts)), None)


Family = Callable[[Keys], Decoder]
"""Makes a decoder from the keys of a text tower. Raises InputError for a config that the family cannot have."""


NORMS_AROUND = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
"""The norms of a layer with norms before and after both blocks."""
NORMS_BEHIND = ("post_attention_layernorm", "post_feedforward_layernorm")
"""The norms of a layer with norms only after its blocks."""
NAMES_W1_W3_W2 = ("w1", "w3", "w2")
"""Mixtral's names of an expert's matrices: gate, up, down."""
EXPERT_KEYS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


def layer_count(c: Keys) -> int:
    """The number of decoder layers."""
    return c.shape("num_hidden_layers", high=MOST_LAYERS)


def hidden_size(c: Keys) -> int:
    """The hidden size: values of a token between the layers."""
    return c.shape("hidden_size", high=2**20)


def head_shape(c: Keys) -> tuple[int, int, int]:
    """The numbers of attention heads, of KV heads, and of values of a head."""
    heads = c.shape("num_attention_heads", high=2**16)
    kv_heads = c.integer("num_key_value_heads", high=2**16, default=heads)
    if heads % kv_heads:
        raise c.problem("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    head_dim = c.optional("head_dim", high=2**16)
    if head_dim is None:
        hidden = hidden_size(c)
        if hidden < heads:
            raise c.problem("hidden_size", f"{hidden} is less than the {heads} attention heads")
        head_dim = hidden // heads
    return heads, kv_heads, head_dim


def window_of(c: Keys) -> int | None:
    """The window of a model whose layers are all alike: vLLM applies `sliding_window` to each; 0 means no window."""
    if c.raw("use_sliding_window") is False:
        return None
    return c.optional("sliding_window", low=0) or None


def reaches(c: Keys, default: Callable[[int], bool] | None = None) -> list[tuple[Reach, int | None]]:
    """How far each layer looks back, and its window. `default`: whether a layer has full attention if the file lists no
    `layer_types` (None: all layers are alike)."""
    count = layer_count(c)
    types = c.texts("layer_types", MOST_LAYERS)
    if types is None:
        if default is None:
            window = window_of(c)
            return [("sliding", window) if window else ("full", None)] * count
        types = tuple("full_attention" if default(layer) else "sliding_attention" for layer in range(count))
    if len(types) < count:
        raise c.problem("layer_types", f"names {len(types)} layers of {count}")
    return [_reach(c, kind) for kind in types[:count]]


def _reach(c: Keys, kind: str) -> tuple[Reach, int | None]:
    if kind == "full_attention":
        return "full", None
    if kind == "sliding_attention":
        window = window_of(c)
        return ("sliding", window) if window else ("full", None)
    if kind == "chunked_attention":
        chunk = c.optional("attention_chunk_size", low=0)
        return ("chunked", chunk) if chunk else ("full", None)
    raise c.problem("layer_types", f"a layer of the kind {kind!r} is not planned", "Measure this model under vLLM.")


def kinds_of(c: Keys, key: str, names: Sequence[str], known: Mapping[str, bool]) -> list[bool]:
    """What `known` says of the kind of each layer, by the names that the file has under `key`."""
    count = layer_count(c)
    if len(names) < count:
        raise c.problem(key, f"names {len(names)} layers of {count}")
    for name in names:
        if name not in known:
            raise c.problem(key, f"a layer of the kind {shorten(name)} is not planned")
    return [known[name] for name in names[:count]]


def full_every(period: int) -> Callable[[int], bool]:
    """The pattern of layers in which the last layer of each period has full attention."""
    return lambda layer: (layer + 1) % period == 0


def attentions_of(
    c: Keys, pattern: Callable[[int], bool] | None = None, *, biases: str = "", **options: object
) -> list[Attention]:
    """The attention of each layer. `pattern`: as `default` of `reaches`; `biases`: the key that gives all matrices a
    bias; `options`: other fields of all layers."""
    heads, kv_heads, head_dim = head_shape(c)
    if biases:
        options |= {"bias": c.flag(biases), "output_bias": c.flag(biases)}
    plain = replace(Attention(heads, kv_heads, head_dim), **options)  # type: ignore[arg-type]
    return [replace(plain, reach=reach, window=window) for reach, window in reaches(c, pattern)]


def mlp_width(c: Keys, *keys: str) -> int:
    """The width of a feed-forward block or an expert, by the first of `keys` (none: `intermediate_size`)."""
    return c.shape(*(keys or ("intermediate_size",)), high=2**22)


def half_width(c: Keys) -> int:
    """The width of a dense block if `intermediate_size` counts gate and up together."""
    width = mlp_width(c)
    if width % 2:
        raise c.problem("intermediate_size", f"{width} counts two matrices together and is odd")
    return width // 2


def routed_experts(c: Keys) -> int:
    """The number of routed experts by vLLM's rule: the first key that exists decides, and null counts as 0."""
    for key in EXPERT_KEYS:
        if c.has(key):
            value = c.raw(key)
            if isinstance(value, list) and value:  # some remote code writes one number for each kind of input
                return (c.integers(key, most=100) or (0,))[0]
            return c.optional(key, low=0, high=2**16) or 0
    return 0


def per_token(c: Keys, experts: int) -> int:
    """The number of routed experts that compute for a token, by the keys that vLLM reads."""
    keys = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k")
    chosen = c.shape(*keys)
    if chosen > experts:
        key = next((key for key in keys if c.written(key)), keys[0])
        raise c.problem(key, f"{chosen} is more than the {experts} experts")
    return chosen


def shared_experts(width: int, **options: object) -> Mlp | None:
    """The shared experts of a layer as one block of `width` in all; None for a width of 0."""
    if not width:
        return None
    return Mlp(width, block="shared_experts", group="shared_experts", **options)  # type: ignore[arg-type]


def needed_experts(c: Keys) -> tuple[int, int]:
    """The numbers of routed experts and of those that compute for a token. Raises InputError if the file lacks them."""
    count = routed_experts(c)
    if not count or not (c.path or any(c.written(key) for key in EXPERT_KEYS)):
        raise c.problem("num_experts", "is missing or 0, and this architecture has experts")
    return count, per_token(c, count)


def dense_decoder(
    c: Keys, attentions: list[Attention], mlp: Mlp, norms: tuple[str, ...] | None = None, *, norm_bias: bool = False
) -> Decoder:
    """Layers that all have the same dense block."""
    used = ("input_layernorm", "post_attention_layernorm") if norms is None else norms
    final = ("norm.weight", "norm.bias") if norm_bias else ("norm.weight",)
    layers = tuple(Layer(attention, (mlp,), used, norm_bias) for attention in attentions)
    return Decoder(layers, hidden_size(c), final_norm=final)


def mixed_decoder(
    c: Keys,
    attentions: Sequence[Attention | LatentAttention],
    experts: Experts,
    dense: Mlp | None,
    is_dense: Callable[[int], bool] | None = None,
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm"),
    *,
    norm_bias: bool = False,
) -> Decoder:
    """Layers of experts, but dense layers at the numbers that `is_dense` accepts."""
    layers = tuple(
        Layer(attention, (dense if dense and is_dense and is_dense(layer) else experts,), norms, norm_bias)
        for layer, attention in enumerate(attentions)
    )
    final = ("norm.weight", "norm.bias") if norm_bias else ("norm.weight",)
    return Decoder(layers, hidden_size(c), final_norm=final)


def estimated(c: Keys) -> Decoder:
    """A model with the plain keys of Llama, and of Mixtral, Qwen or DeepSeek for experts."""
    gated = c.text("hidden_act") not in ("relu", "relu2", "squared_relu", "gelu", "gelu_new", "gelu_fast")
    attentions = attentions_of(
        c,
        bias=c.flag("attention_bias") or c.flag("qkv_bias") or c.flag("use_qkv_bias"),
        norm="head" if c.flag("use_qk_norm") or c.flag("qk_layernorm") else "",
    )
    count = routed_experts(c)
    if not count:
        return replace(dense_decoder(c, attentions, Mlp(mlp_width(c), gated=gated)), estimated=True)
    width = mlp_width(c, "moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    wide = c.optional("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", low=0, high=2**22)
    shared = c.optional("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", low=0, high=2**10)
    wide = wide or (shared or 0) * width
    experts = Experts(count, per_token(c, count), width, shared=shared_experts(wide), gated=gated)
    leading = c.optional("first_k_dense_replace", "num_dense_layers", low=0) or 0
    dense = Mlp(mlp_width(c)) if leading else None
    return replace(mixed_decoder(c, attentions, experts, dense, lambda layer: layer < leading), estimated=True)
