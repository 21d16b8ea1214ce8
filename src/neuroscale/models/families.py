"""How each family of language models builds its decoder out of its config.json.

One function a family: the keys of the text tower to a `Decoder`. Sources: the config and modelling code of
transformers, and vLLM's own models, which decide on windows and on what a layer reads from another one's cache. Both at
the versions that defaults.json and requirements/serve.txt name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from neuroscale.models.keys import MOST_LAYERS, Keys
from neuroscale.models.layers import Attention, Experts, Extra, LatentAttention, Layer, Mlp, Reach

_SANDWICH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_AFTER = ("post_attention_layernorm", "post_feedforward_layernorm")
_W123 = ("w1", "w3", "w2")


@dataclass(frozen=True)
class Decoder:
    """The text tower: its layers, and the tensors around them.

    `extras`: below `model.`. `predicting`: layers of multi-token prediction, which a checkpoint numbers behind the
    others. `final_norm`: the names of its tensors. `estimated`: the layout is an assumption.
    """

    layers: tuple[Layer, ...]
    hidden: int
    experts: int = 0
    experts_per_token: int = 0
    extras: tuple[Extra, ...] = ()
    predicting: tuple[Layer, ...] = ()
    final_norm: tuple[str, ...] = ("norm.weight",)
    lm_head_bias: bool = False
    embedding_width: int | None = None
    estimated: bool = False
    notes: tuple[str, ...] = ()


Family = Callable[[Keys], Decoder]

_MEASURE = "Measure it under vLLM."
EXPERT_KEYS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


# What families have in common.


def layer_count(c: Keys) -> int:
    """Decoder layers."""
    return c.shape("num_hidden_layers", high=MOST_LAYERS)


def routed_experts(c: Keys) -> int:
    """Routed experts by vLLM's rule: the first key that exists decides, and null counts as none."""
    for key in EXPERT_KEYS:
        if c.has(key):
            value = c.raw(key)
            if isinstance(value, list) and value:  # some remote code writes one number for each kind of input
                return (c.integers(key, most=100) or (0,))[0]
            return c.optional(key, low=0, high=2**16) or 0
    return 0


def per_token(c: Keys, experts: int) -> int:
    """How many of the routed experts compute for a token, by the keys that vLLM asks for."""
    keys = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k")
    chosen = c.shape(*keys)
    if chosen > experts:
        key = next((key for key in keys if c.written(key)), keys[0])
        raise c.problem(key, f"{chosen} is more than the {experts} experts")
    return chosen


def _hidden(c: Keys) -> int:
    return c.shape("hidden_size", high=2**20)


def _heads(c: Keys) -> tuple[int, int, int]:
    """Attention heads, KV heads, and values of a head."""
    heads = c.shape("num_attention_heads", high=2**16)
    kv_heads = c.integer("num_key_value_heads", high=2**16, default=heads)
    if heads % kv_heads:
        raise c.problem("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    head_dim = c.optional("head_dim", high=2**16)
    if head_dim is None:
        hidden = _hidden(c)
        if hidden < heads:
            raise c.problem("hidden_size", f"{hidden} is less than the {heads} attention heads")
        head_dim = hidden // heads
    return heads, kv_heads, head_dim


def _window(c: Keys) -> int | None:
    """Of a model whose layers are all alike: vLLM takes `sliding_window` for each of them, and 0 for none."""
    if c.raw("use_sliding_window") is False:
        return None
    return c.optional("sliding_window", low=0) or None


def reaches(c: Keys, default: Callable[[int], bool] | None = None) -> list[tuple[Reach, int | None]]:
    """How far each layer looks back, and its window.

    `default`: whether a layer has full attention where the file lists no `layer_types`; None: those layers are alike.
    """
    count = layer_count(c)
    types = c.texts("layer_types", MOST_LAYERS)
    if types is None:
        if default is None:
            window = _window(c)
            return [("sliding", window) if window else ("full", None)] * count
        types = tuple("full_attention" if default(layer) else "sliding_attention" for layer in range(count))
    if len(types) < count:
        raise c.problem("layer_types", f"names {len(types)} layers of {count}")
    return [_reach(c, kind) for kind in types[:count]]


def _reach(c: Keys, kind: str) -> tuple[Reach, int | None]:
    if kind == "full_attention":
        return "full", None
    if kind == "sliding_attention":
        window = _window(c)
        return ("sliding", window) if window else ("full", None)
    if kind == "chunked_attention":
        chunk = c.optional("attention_chunk_size", low=0)
        return ("chunked", chunk) if chunk else ("full", None)
    raise c.problem("layer_types", f"a layer of the kind {kind!r} is not planned", "Measure this model under vLLM.")


def _every(period: int) -> Callable[[int], bool]:
    """Every such layer has full attention, the last of each period."""
    return lambda layer: (layer + 1) % period == 0


def _attentions(c: Keys, pattern: Callable[[int], bool] | None = None, **options: object) -> list[Attention]:
    heads, kv_heads, head_dim = _heads(c)
    plain = replace(Attention(heads, kv_heads, head_dim), **options)  # type: ignore[arg-type]
    return [replace(plain, reach=reach, window=window) for reach, window in reaches(c, pattern)]


def _width(c: Keys, *keys: str) -> int:
    return c.shape(*(keys or ("intermediate_size",)), high=2**22)


def _plain(
    c: Keys, attentions: list[Attention], mlp: Mlp, norms: tuple[str, ...] | None = None, *, norm_bias: bool = False
) -> Decoder:
    """Layers that all have the same dense block."""
    used = ("input_layernorm", "post_attention_layernorm") if norms is None else norms
    final = ("norm.weight", "norm.bias") if norm_bias else ("norm.weight",)
    layers = tuple(Layer(attention, (mlp,), used, norm_bias) for attention in attentions)
    return Decoder(layers, _hidden(c), final_norm=final)


def _mixed(
    c: Keys,
    attentions: Sequence[Attention | LatentAttention],
    experts: Experts,
    dense: Mlp | None,
    is_dense: Callable[[int], bool] | None = None,
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm"),
    *,
    norm_bias: bool = False,
) -> Decoder:
    """Layers of experts, and dense ones where `is_dense` says so."""
    layers = tuple(
        Layer(attention, (dense if dense and is_dense and is_dense(layer) else experts,), norms, norm_bias)
        for layer, attention in enumerate(attentions)
    )
    final = ("norm.weight", "norm.bias") if norm_bias else ("norm.weight",)
    return Decoder(layers, _hidden(c), experts.count, experts.per_token, final_norm=final)


def _need_experts(c: Keys) -> tuple[int, int]:
    count = routed_experts(c)
    if not count or not (c.path or any(c.written(key) for key in EXPERT_KEYS)):
        raise c.problem("num_experts", "is missing or 0, and this architecture has experts")
    return count, per_token(c, count)


# Llama and what differs from it in little.


def llama(c: Keys) -> Decoder:
    """Llama, and the many that vLLM or transformers serve with its layout."""
    bias = c.flag("attention_bias")
    attentions = _attentions(c, bias=bias, output_bias=bias)
    return _plain(c, attentions, Mlp(_width(c), bias=c.flag("mlp_bias")))


def mistral(c: Keys) -> Decoder:
    """Mistral and Ministral: no biases; one window for all layers, or a list of layer types."""
    return _plain(c, _attentions(c), Mlp(_width(c)))


def qwen2(c: Keys) -> Decoder:
    """Qwen 2 and 2.5: biases of queries, keys and values; a window only where `use_sliding_window` asks for one."""
    return _plain(c, _qwen_attentions(c, bias=True), Mlp(_width(c)))


def qwen3(c: Keys) -> Decoder:
    """Qwen 3, dense: norms of queries and keys."""
    bias = c.flag("attention_bias")
    return _plain(c, _qwen_attentions(c, bias=bias, output_bias=bias, norm="head"), Mlp(_width(c)))


def qwen2_moe(c: Keys) -> Decoder:
    """Qwen 1.5 and 2 with experts: one shared expert, weighed by a gate of its own."""
    count, chosen = _need_experts(c)
    shared = Mlp(_width(c, "shared_expert_intermediate_size"), block="shared_expert", group="shared_experts")
    experts = Experts(
        count, chosen, _width(c, "moe_intermediate_size"), shared=shared, shared_gate="shared_expert_gate"
    )
    attentions = _qwen_attentions(c, bias=c.flag("qkv_bias", True))
    return _mixed(c, attentions, experts, Mlp(_width(c)), _qwen_dense(c))


def qwen3_moe(c: Keys) -> Decoder:
    """Qwen 3 with experts."""
    count, chosen = _need_experts(c)
    experts = Experts(count, chosen, _width(c, "moe_intermediate_size"))
    bias = c.flag("attention_bias")
    attentions = _qwen_attentions(c, bias=bias, output_bias=bias, norm="head")
    return _mixed(c, attentions, experts, Mlp(_width(c)), _qwen_dense(c))


def _qwen_attentions(c: Keys, **options: object) -> list[Attention]:
    heads, kv_heads, head_dim = _heads(c)
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


def mixtral(c: Keys) -> Decoder:
    """Mixtral."""
    count, chosen = _need_experts(c)
    experts = Experts(count, chosen, _width(c), names=_W123, block="block_sparse_moe")
    return _mixed(c, _attentions(c), experts, None)


def phi3(c: Keys) -> Decoder:
    """Phi-3, Phi-3.5 and Phi-4: fused matrices."""
    return _plain(c, _attentions(c, fused="qkv_proj"), Mlp(_width(c), fused="gate_up_proj"))


def phimoe(c: Keys) -> Decoder:
    """Phi-3.5-MoE and its smaller copies: norms with biases, and a bias of the output matrix."""
    count, chosen = _need_experts(c)
    experts = Experts(count, chosen, _width(c), names=_W123, block="block_sparse_moe")
    bias = c.flag("attention_bias")
    made = _mixed(c, _attentions(c, bias=bias, output_bias=bias), experts, None, norm_bias=True)
    return replace(made, lm_head_bias=c.flag("lm_head_bias"))


def granitemoe(c: Keys) -> Decoder:
    """Granite with experts, and with a shared one beside them."""
    count, chosen = _need_experts(c)
    experts = Experts(
        count,
        chosen,
        _width(c),
        fused=("input_linear", "output_linear"),
        block="block_sparse_moe",
        router="router.layer",
    )
    bias = c.flag("attention_bias")
    made = _mixed(c, _attentions(c, bias=bias, output_bias=bias), experts, None)
    shared_width = c.optional("shared_intermediate_size", low=0) or 0
    if not shared_width:
        return made
    shared = Mlp(
        shared_width,
        ("gate_proj", "up_proj", "output_linear"),
        fused="input_linear",
        block="shared_mlp",
        group="shared_experts",
    )
    return replace(made, layers=tuple(replace(layer, blocks=(*layer.blocks, shared)) for layer in made.layers))


def olmo(c: Keys) -> Decoder:
    """OLMo: its norms have no weights."""
    bias = c.flag("attention_bias")
    made = _plain(c, _attentions(c, bias=bias, output_bias=bias), Mlp(_width(c)), ())
    return replace(made, final_norm=())


def olmo2(c: Keys) -> Decoder:
    """OLMo 2: norms behind the blocks, and over all queries and keys."""
    bias = c.flag("attention_bias")
    return _plain(c, _attentions(c, bias=bias, output_bias=bias, norm="all"), Mlp(_width(c)), _AFTER)


def olmo3(c: Keys) -> Decoder:
    """OLMo 3: as OLMo 2, with a window in three layers of four."""
    bias = c.flag("attention_bias")
    attentions = _attentions(c, _every(4), bias=bias, output_bias=bias, norm="all")
    return _plain(c, attentions, Mlp(_width(c)), _AFTER)


def olmoe(c: Keys) -> Decoder:
    """OLMoE."""
    count, chosen = _need_experts(c)
    bias = c.flag("attention_bias")
    attentions = _attentions(c, bias=bias, output_bias=bias, norm="all")
    return _mixed(c, attentions, Experts(count, chosen, _width(c)), None)


def cohere(c: Keys) -> Decoder:
    """Command R: one norm a layer."""
    bias = c.flag("attention_bias")
    norm = "heads" if c.flag("use_qk_norm") else ""
    attentions = _attentions(c, bias=bias, output_bias=bias, norm=norm)
    return _plain(c, attentions, Mlp(_width(c)), ("input_layernorm",))


def cohere2(c: Keys) -> Decoder:
    """Command R7B and Command A: a window in three layers of four, one token wider than its config says."""
    bias = c.flag("attention_bias")
    period = c.integer("sliding_window_pattern", low=1, default=4)
    attentions = [
        replace(attention, window=attention.window + 1 if attention.window else None)
        for attention in _attentions(c, _every(period), bias=bias, output_bias=bias)
    ]
    return _plain(c, attentions, Mlp(_width(c)), ("input_layernorm",))


def starcoder2(c: Keys) -> Decoder:
    """StarCoder 2: two matrices in the dense block, biases everywhere."""
    bias = c.flag("use_bias", True)
    mlp = Mlp(_width(c), ("", "c_fc", "c_proj"), gated=False, bias=bias)
    return _plain(c, _attentions(c, bias=bias, output_bias=bias), mlp, norm_bias=True)


def stablelm(c: Keys) -> Decoder:
    """StableLM 2."""
    if c.flag("use_parallel_residual") or c.flag("qk_layernorm"):
        raise c.problem("qk_layernorm", "this variant of StableLM is not planned", "Measure it under vLLM.")
    return _plain(c, _attentions(c, bias=c.flag("use_qkv_bias")), Mlp(_width(c)), norm_bias=True)


def glm(c: Keys) -> Decoder:
    """GLM-4-9B of the first layout."""
    return _plain(c, _attentions(c, bias=c.flag("attention_bias", True)), Mlp(_width(c), fused="gate_up_proj"))


def glm4(c: Keys) -> Decoder:
    """GLM-4-0414: norms before and behind both blocks."""
    norms = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    attentions = _attentions(c, bias=c.flag("attention_bias", True))
    return _plain(c, attentions, Mlp(_width(c), fused="gate_up_proj"), norms)


def seed_oss(c: Keys) -> Decoder:
    """Seed-OSS."""
    bias, output = c.flag("attention_bias", True), c.flag("attention_out_bias")
    return _plain(c, _attentions(c, bias=bias, output_bias=output), Mlp(_width(c), bias=c.flag("mlp_bias")))


def exaone4(c: Keys) -> Decoder:
    """EXAONE 4: norms behind the blocks."""
    period = c.optional("sliding_window_pattern", low=1) if _is_number(c, "sliding_window_pattern") else 4
    every = _every(period or 4) if _window(c) else None
    return _plain(c, _attentions(c, every, norm="head"), Mlp(_width(c)), _AFTER)


def ernie(c: Keys) -> Decoder:
    """ERNIE 4.5, dense."""
    bias = c.flag("use_bias")
    return _plain(c, _attentions(c, bias=bias, output_bias=bias), Mlp(_width(c), bias=bias))


def hunyuan(c: Keys) -> Decoder:
    """Hunyuan, dense."""
    bias = c.flag("attention_bias")
    attentions = _attentions(
        c, bias=bias, output_bias=bias, norm="head", norm_names=("query_layernorm", "key_layernorm")
    )
    return _plain(c, attentions, Mlp(_width(c)))


def arcee(c: Keys) -> Decoder:
    """Arcee AFM: two matrices in the dense block."""
    bias = c.flag("attention_bias")
    attentions = _attentions(c, bias=bias, output_bias=bias)
    return _plain(c, attentions, Mlp(_width(c), gated=False, bias=c.flag("mlp_bias")))


def apertus(c: Keys) -> Decoder:
    """Apertus: two matrices in the dense block, whose activation has two numbers of its own."""
    bias = c.flag("attention_bias")
    attentions = _attentions(c, bias=bias, output_bias=bias, norm="head")
    made = _plain(c, attentions, Mlp(_width(c), gated=False), ("attention_layernorm", "feedforward_layernorm"))
    numbers = (Extra("mlp.act_fn.alpha_p", "dense_mlp", (1,)), Extra("mlp.act_fn.alpha_n", "dense_mlp", (1,)))
    return replace(made, layers=tuple(replace(layer, extras=numbers) for layer in made.layers))


def nemotron(c: Keys) -> Decoder:
    """Nemotron and Minitron, dense: two matrices in the dense block, norms with biases."""
    bias = c.flag("attention_bias")
    attentions = _attentions(c, bias=bias, output_bias=bias)
    return _plain(c, attentions, Mlp(_width(c), gated=False, bias=c.flag("mlp_bias")), norm_bias=True)


def opt(c: Keys) -> Decoder:
    """OPT: learned positions, biases everywhere."""
    hidden = _hidden(c)
    if c.integer("word_embed_proj_dim", default=hidden) != hidden or not c.flag("do_layer_norm_before", True):
        raise c.problem("word_embed_proj_dim", "this variant of OPT is not planned", "Measure it under vLLM.")
    bias = c.flag("enable_bias", True)
    mlp = Mlp(_width(c, "ffn_dim"), ("", "fc1", "fc2"), gated=False, bias=bias, block="")
    norms = ("self_attn_layer_norm", "final_layer_norm")
    made = _plain(c, _attentions(c, bias=bias, output_bias=bias, output="out_proj"), mlp, norms, norm_bias=True)
    positions = Extra("embed_positions.weight", "embedding", (c.integer("max_position_embeddings") + 2, hidden))
    return replace(made, extras=(positions,), final_norm=("final_layer_norm.weight", "final_layer_norm.bias"))


def falcon(c: Keys) -> Decoder:
    """Falcon: queries, keys and values in one, an MLP of four times the hidden size, attention beside it."""
    hidden, heads = _hidden(c), c.shape("num_attention_heads", high=2**16)
    inner = c.optional("ffn_hidden_size", high=2**22) or 4 * hidden
    if inner != 4 * hidden:
        raise c.problem("ffn_hidden_size", f"{inner} is not four times hidden_size, as vLLM's Falcon has it", _MEASURE)
    newer, bias = c.flag("new_decoder_architecture"), c.flag("bias")
    kv_heads = 1 if c.flag("multi_query", True) else heads
    if newer:
        kv_heads = c.integer("num_kv_heads", high=2**16, default=heads)
    if hidden % heads or heads % kv_heads:
        raise c.problem("num_attention_heads", f"{heads} heads cannot share {hidden} values and {kv_heads} KV heads")
    names = {"fused": "query_key_value", "output": "dense", "block": "self_attention"}
    attention = Attention(heads, kv_heads, hidden // heads, bias=bias, output_bias=bias, **names)  # type: ignore[arg-type]
    norms: tuple[str, ...] = ("input_layernorm",)
    if newer and c.optional("num_ln_in_parallel_attn") in (None, 2):
        norms = ("ln_attn", "ln_mlp")
    elif not (newer or c.flag("parallel_attn", True)):
        norms = ("input_layernorm", "post_attention_layernorm")
    mlp = Mlp(inner, ("", "dense_h_to_4h", "dense_4h_to_h"), gated=False, bias=bias)
    made = _plain(c, [attention] * layer_count(c), mlp, norms, norm_bias=True)
    return replace(made, final_norm=("ln_f.weight", "ln_f.bias"))


def minicpm(c: Keys) -> Decoder:
    """MiniCPM: Llama's layout where it has no experts."""
    return estimated(c) if routed_experts(c) else llama(c)


def molmo(c: Keys) -> Decoder:
    """Molmo: `intermediate_size` counts gate and up together."""
    norm = "all" if c.flag("attention_layer_norm") else ""
    attentions = _attentions(c, bias=c.flag("qkv_bias"), norm=norm)
    return _plain(c, attentions, Mlp(_half(c)))


def qwen1(c: Keys) -> Decoder:
    """The first Qwen: `intermediate_size` counts gate and up together; queries, keys and values in one."""
    heads, _, head_dim = _heads(c)
    head_dim = c.optional("kv_channels", high=2**16) or head_dim
    attention = Attention(heads, heads, head_dim, bias=True, fused="c_attn", output="c_proj", block="attn")
    return _plain(c, [attention] * layer_count(c), Mlp(_half(c), ("w1", "w2", "c_proj")), ("ln_1", "ln_2"))


def _half(c: Keys) -> int:
    width = _width(c)
    if width % 2:
        raise c.problem("intermediate_size", f"{width} counts two matrices together and is odd")
    return width // 2


def _is_number(c: Keys, key: str) -> bool:
    return isinstance(c.raw(key), int)


# Gemma.


def gemma(c: Keys) -> Decoder:
    """Gemma."""
    bias = c.flag("attention_bias")
    return _plain(c, _attentions(c, bias=bias, output_bias=bias), Mlp(_width(c)))


def gemma2(c: Keys) -> Decoder:
    """Gemma 2: every second layer has a window."""
    bias = c.flag("attention_bias")
    return _plain(c, _attentions(c, _every(2), bias=bias, output_bias=bias), Mlp(_width(c)), _SANDWICH)


def gemma3(c: Keys) -> Decoder:
    """Gemma 3: five layers with a window to one without."""
    bias = c.flag("attention_bias")
    period = c.integer("sliding_window_pattern", low=1, default=6)
    attentions = _attentions(c, _every(period), bias=bias, output_bias=bias, norm="head")
    return _plain(c, attentions, Mlp(_width(c)), _SANDWICH)


def gemma3n(c: Keys) -> Decoder:
    """Gemma 3n: streams that are mixed before and behind each layer, per-layer embeddings, shared caches."""
    hidden, count = _hidden(c), layer_count(c)
    per_layer = c.integer("hidden_size_per_layer_input")
    streams, rank = c.integer("altup_num_inputs"), c.integer("laurel_rank")
    widths = c.integers("intermediate_size", low=1) if isinstance(c.raw("intermediate_size"), list) else None
    if widths is not None and len(widths) < count:
        raise c.problem("intermediate_size", f"names {len(widths)} layers of {count}")
    extras = (
        Extra("altup.correct_output_scale", "norm", (hidden,)),
        Extra("altup.correction_coefs.weight", "norm", (streams, streams)),
        Extra("altup.prediction_coefs.weight", "norm", (streams * streams, streams)),
        Extra("altup.modality_router.weight", "norm", (streams, hidden)),
        Extra("altup.router_norm.weight", "norm", (hidden,)),
        Extra("laurel.linear_left", "dense_mlp", (hidden, rank), linear=True, sharding="split"),
        Extra("laurel.linear_right", "dense_mlp", (rank, hidden), linear=True, sharding="split"),
        Extra("laurel.post_laurel_norm.weight", "norm", (hidden,)),
        *_per_layer_input(hidden, per_layer),
    )
    own = _layers_with_cache(c)
    layers = []
    for number, attention in enumerate(_attentions(c, _every(5), norm="head")):
        # The checkpoint holds the matrices of keys and values of these layers too; vLLM leaves them out.
        shared = replace(attention, reads_other=number >= own)
        mlp = Mlp(widths[number] if widths else _width(c))
        layers.append(Layer(shared, (mlp,), _SANDWICH, extras=extras))
    around = (
        *_per_layer_table(c, hidden, per_layer),
        *(
            Extra(f"{name}.{stream}", "dense_mlp", (hidden, hidden), linear=True, sharding="split")
            for name in ("altup_projections", "altup_unembed_projections")
            for stream in range(streams - 1)
        ),
    )
    return Decoder(tuple(layers), hidden, extras=around)


def gemma4(c: Keys) -> Decoder:
    """Gemma 4: global layers of their own shape, keys that serve as values, experts beside a dense block."""
    hidden = _hidden(c)
    heads, kv_heads, head_dim = _heads(c)
    wide = c.integer("global_head_dim", high=2**16, default=512)
    equal = c.flag("attention_k_eq_v")
    few = (c.optional("num_global_key_value_heads") if equal else None) or kv_heads
    own = _layers_with_cache(c)
    count = routed_experts(c)
    per_layer = c.optional("hidden_size_per_layer_input", low=0) or 0
    experts, extras = _gemma4_experts(c, count, hidden) if count else (None, ())
    kinds = reaches(c, _every(6))
    kinds[-1] = ("full", None)  # whatever layer_types says of it
    # Newer files write the shape of the global layers layer by layer.
    apart = c.section("per_layer_config")
    layers = []
    for number, (reach, window) in enumerate(kinds):
        shared = number >= own
        full = reach == "full"
        here = apart.section(str(number)) if apart else None
        layer_heads = (few if full else kv_heads) if apart is None else kv_heads
        layer_dim = (wide if full else head_dim) if apart is None else head_dim
        attention = Attention(
            heads,
            here.integer("num_key_value_heads", default=layer_heads, high=2**16) if here else layer_heads,
            here.integer("head_dim", default=layer_dim, high=2**16) if here else layer_dim,
            reach,
            window,
            bias=c.flag("attention_bias"),
            output_bias=c.flag("attention_bias"),
            norm="head",
            reads_other=shared,
            own_values=not (equal and full),
        )
        mlp = Mlp(_width(c) * (2 if shared and c.flag("use_double_wide_mlp") else 1))
        beside = _per_layer_input(hidden, per_layer) if per_layer else ()
        norms: tuple[str, ...] = _SANDWICH
        if experts:
            norms = (
                *norms,
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
                "pre_feedforward_layernorm_2",
            )
        scalar = Extra("layer_scalar", "norm", (1,))
        layers.append(Layer(attention, (mlp, experts) if experts else (mlp,), norms, extras=(*extras, *beside, scalar)))
    around = _per_layer_table(c, hidden, per_layer) if per_layer else ()
    chosen = experts.per_token if experts else 0
    return Decoder(tuple(layers), hidden, count, chosen, extras=around)


def _gemma4_experts(c: Keys, count: int, hidden: int) -> tuple[Experts, tuple[Extra, ...]]:
    experts = Experts(
        count,
        per_token(c, count),
        _width(c, "moe_intermediate_size", "expert_intermediate_size"),
        fused=("experts.gate_up_proj", "experts.down_proj"),
        block="",
        router="router.proj",
    )
    scales = (Extra("router.scale", "router", (hidden,)), Extra("router.per_expert_scale", "router", (count,)))
    return experts, scales


def _layers_with_cache(c: Keys) -> int:
    count = layer_count(c)
    shared = c.optional("num_kv_shared_layers", low=0) or 0
    if shared >= count:
        raise c.problem("num_kv_shared_layers", f"{shared} is not less than the {count} layers")
    return count - shared


def _per_layer_input(hidden: int, width: int) -> tuple[Extra, ...]:
    return (
        Extra("per_layer_input_gate", "dense_mlp", (hidden, width), linear=True),
        Extra("per_layer_projection", "dense_mlp", (width, hidden), linear=True),
        Extra("post_per_layer_input_norm.weight", "norm", (hidden,)),
    )


def _per_layer_table(c: Keys, hidden: int, width: int) -> tuple[Extra, ...]:
    all_layers = layer_count(c) * width
    rows = c.integer("vocab_size_per_layer_input", "vocab_size", high=2**26)
    return (
        Extra("embed_tokens_per_layer.weight", "per_layer_embedding", (rows, all_layers), sharding="vocabulary"),
        Extra("per_layer_model_projection", "dense_mlp", (hidden, all_layers), linear=True, sharding="split"),
        Extra("per_layer_projection_norm.weight", "norm", (width,)),
    )


# Experts in the majority.


def deepseek(c: Keys) -> Decoder:
    """DeepSeek V2 and V3, Kimi K2: latent attention, leading dense layers, shared experts."""
    if c.has("index_topk") and c.raw("index_topk") is not None:
        raise c.problem(
            "index_topk",
            "attention that an indexer with a cache of its own makes sparse is not planned",
            "Measure this model under vLLM.",
        )
    return _latent_moe(c, correction="gate.e_score_correction_bias")


def glm4_moe_lite(c: Keys) -> Decoder:
    """GLM-4.7-Flash: DeepSeek's layout."""
    return _latent_moe(c, correction="gate.e_score_correction_bias")


def _latent_moe(c: Keys, correction: str) -> Decoder:
    heads = c.shape("num_attention_heads", high=2**16)
    attention = LatentAttention(
        heads,
        rank=c.integer("kv_lora_rank", high=2**20),
        rope_dim=c.integer("qk_rope_head_dim", high=2**16),
        nope_dim=c.integer("qk_nope_head_dim", high=2**16),
        value_dim=c.integer("v_head_dim", high=2**16),
        query_rank=c.optional("q_lora_rank", high=2**20),
        bias=c.flag("attention_bias"),
    )
    count = routed_experts(c)
    if not count:
        return Decoder(tuple(Layer(attention, (Mlp(_width(c)),)) for _ in range(layer_count(c))), _hidden(c))
    # DeepSeek V2 chooses without the correcting bias.
    corrected = c.text("topk_method", "noaux_tc" if c.model_type != "deepseek_v2" else "") == "noaux_tc"
    experts = _deepseek_experts(c, count, correction if corrected else "")
    leading = c.integer("first_k_dense_replace", low=0, default=1 if c.model_type == "glm4_moe_lite" else 0)
    frequency = c.integer("moe_layer_freq", default=1)
    made = _mixed(
        c,
        [attention] * layer_count(c),
        experts,
        Mlp(_width(c)),
        lambda layer: layer < leading or layer % frequency != 0,
    )
    return replace(made, predicting=_predicting(c, Layer(attention, (experts,))))


def _deepseek_experts(c: Keys, count: int, correction: str) -> Experts:
    width = _width(c, "moe_intermediate_size")
    shared = c.optional("n_shared_experts", low=0, high=2**10) or 0
    return Experts(
        count,
        per_token(c, count),
        width,
        correction=correction,
        shared=Mlp(width * shared, block="shared_experts", group="shared_experts") if shared else None,
    )


def _predicting(c: Keys, like: Layer) -> tuple[Layer, ...]:
    """Layers of multi-token prediction, only where the file itself says that its checkpoint has them."""
    if not c.written("num_nextn_predict_layers"):
        return ()
    return (like,) * (c.optional("num_nextn_predict_layers", low=0, high=100) or 0)


def glm4_moe(c: Keys) -> Decoder:
    """GLM-4.5 and its successors of that layout."""
    count, _ = _need_experts(c)
    experts = _deepseek_experts(c, count, "gate.e_score_correction_bias")
    norm = "head" if c.flag("use_qk_norm") else ""
    attentions = _attentions(c, bias=c.flag("attention_bias"), norm=norm)
    leading = c.optional("first_k_dense_replace", low=0) or 0
    made = _mixed(c, attentions, experts, Mlp(_width(c)), lambda layer: layer < leading)
    return replace(made, predicting=_predicting(c, Layer(attentions[-1], (experts,))))


def laguna(c: Keys) -> Decoder:
    """Laguna: layers with different numbers of heads, a gate behind attention, one shared expert."""
    count, _ = _need_experts(c)
    _, kv_heads, head_dim = _heads(c)
    kinds = reaches(c, _every(1))
    heads = c.integers("num_attention_heads_per_layer", low=1) or (c.shape("num_attention_heads"),) * len(kinds)
    blocks = c.texts("mlp_layer_types", MOST_LAYERS) or ("dense", *("sparse",) * (len(kinds) - 1))
    for key, told in (("num_attention_heads_per_layer", heads), ("mlp_layer_types", blocks)):
        if len(told) < len(kinds):
            raise c.problem(key, f"names {len(told)} layers of {len(kinds)}")
    per_head = c.raw("gating") in (True, None, "per-head")
    bias = c.flag("attention_bias")
    attentions = [
        Attention(
            heads[layer],
            kv_heads,
            head_dim,
            reach,
            window,
            bias=bias,
            output_bias=bias,
            norm="head",
            gate=heads[layer] * (1 if per_head else head_dim),
        )
        for layer, (reach, window) in enumerate(kinds)
    ]
    shared = Mlp(_width(c, "shared_expert_intermediate_size"), block="shared_experts", group="shared_experts")
    experts = Experts(
        count,
        per_token(c, count),
        _width(c, "moe_intermediate_size"),
        correction="gate.e_score_correction_bias",
        shared=shared,
    )
    return _mixed(c, attentions, experts, Mlp(_width(c)), lambda layer: blocks[layer] == "dense")


def dots1(c: Keys) -> Decoder:
    """dots.llm1."""
    count, _ = _need_experts(c)
    experts = _deepseek_experts(c, count, "gate.e_score_correction_bias")
    full_below = c.integer("max_window_layers", low=0, default=layer_count(c))
    bias = c.flag("attention_bias")
    attentions = _attentions(c, lambda layer: layer < full_below, bias=bias, output_bias=bias, norm="head")
    leading = c.optional("first_k_dense_replace", low=0) or 0
    return _mixed(c, attentions, experts, Mlp(_width(c)), lambda layer: layer < leading)


def llama4(c: Keys) -> Decoder:
    """Llama 4: chunks in three layers of four, experts in every `interleave_moe_layer_step`th."""
    count, chosen = _need_experts(c)
    layers = layer_count(c)
    heads, kv_heads, head_dim = _heads(c)
    rotary = c.integers("no_rope_layers", most=MOST_LAYERS)
    if not rotary:
        interval = c.integer("no_rope_layer_interval", default=4)
        rotary = tuple(int((layer + 1) % interval != 0) for layer in range(layers))
    if len(rotary) < layers:
        raise c.problem("no_rope_layers", f"names {len(rotary)} layers of {layers}")
    chunk = c.optional("attention_chunk_size", low=0) or None
    bias = c.flag("attention_bias")
    plain = Attention(heads, kv_heads, head_dim, bias=bias, output_bias=bias)
    chunked = replace(plain, reach="chunked", window=chunk) if chunk else plain
    step = c.integer("interleave_moe_layer_step", low=0, default=1)
    width = _width(c)
    experts = Experts(
        count,
        chosen,
        width,
        fused=("experts.gate_up_proj", "experts.down_proj"),
        block="feed_forward",
        router="router",
        shared=Mlp(width, block="shared_expert", group="shared_experts"),
    )
    dense = Mlp(_width(c, "intermediate_size_mlp"), block="feed_forward")
    attentions = [chunked if rotary[layer] else plain for layer in range(layers)]
    return _mixed(c, attentions, experts, dense, lambda layer: not step or (layer + 1) % step != 0)


def gpt_oss(c: Keys) -> Decoder:
    """gpt-oss: sinks, biases, a window in every second layer."""
    count, chosen = _need_experts(c)
    experts = Experts(
        count,
        chosen,
        _width(c),
        fused=("experts.gate_up_proj", "experts.down_proj"),
        bias=True,
        router="router",
        router_bias=True,
    )
    heads, kv_heads, head_dim = _heads(c)
    bias = c.flag("attention_bias", True)
    plain = Attention(heads, kv_heads, head_dim, bias=bias, output_bias=bias, sinks=True)
    window = _window(c)
    # vLLM takes the window for every second layer, whatever layer_types says.
    windowed = replace(plain, reach="sliding", window=window) if window else plain
    attentions = [plain if layer % 2 else windowed for layer in range(layer_count(c))]
    return _mixed(c, attentions, experts, None)


def minimax_m2(c: Keys) -> Decoder:
    """MiniMax M2: full attention, norms over all queries and keys."""
    count, chosen = _need_experts(c)
    experts = Experts(
        count,
        chosen,
        _width(c),
        names=_W123,
        block="block_sparse_moe",
        correction="e_score_correction_bias",
    )
    return _mixed(c, _attentions(c, norm="all"), experts, None)


def ernie_moe(c: Keys) -> Decoder:
    """ERNIE 4.5 with experts."""
    count, chosen = _need_experts(c)
    bias = c.flag("use_bias")
    width = _width(c, "moe_intermediate_size")
    shared = c.optional("moe_num_shared_experts", low=0, high=2**10) or 0
    experts = Experts(
        count,
        chosen,
        width,
        correction="moe_statics.e_score_correction_bias",
        shared=Mlp(width * shared, block="shared_experts", bias=bias, group="shared_experts") if shared else None,
    )
    first = c.optional("moe_layer_start_index", low=0) or 0
    last = c.optional("moe_layer_end_index", low=-1)
    last = layer_count(c) - 1 if last is None or last < 0 else last
    interval = c.integer("moe_layer_interval", default=1)
    return _mixed(
        c,
        _attentions(c, bias=bias, output_bias=bias),
        experts,
        Mlp(_width(c), bias=bias),
        lambda layer: not (first <= layer <= last and (layer + 1) % interval == 0),
    )


# Unknown ones.


def estimated(c: Keys) -> Decoder:
    """A model with the plain keys of Llama, and of Mixtral, Qwen or DeepSeek for experts."""
    gated = c.text("hidden_act") not in ("relu", "relu2", "squared_relu", "gelu", "gelu_new", "gelu_fast")
    attentions = _attentions(
        c,
        bias=c.flag("attention_bias") or c.flag("qkv_bias") or c.flag("use_qkv_bias"),
        norm="head" if c.flag("use_qk_norm") or c.flag("qk_layernorm") else "",
    )
    count = routed_experts(c)
    if not count:
        return replace(_plain(c, attentions, Mlp(_width(c), gated=gated)), estimated=True)
    width = _width(c, "moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    wide = c.optional("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", low=0, high=2**22) or 0
    shared_count = (
        c.optional("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", low=0, high=2**10) or 0
    )
    wide = wide or shared_count * width
    shared = Mlp(wide, block="shared_experts", group="shared_experts") if wide else None
    experts = Experts(count, per_token(c, count), width, shared=shared, gated=gated)
    leading = c.optional("first_k_dense_replace", "num_dense_layers", low=0) or 0
    dense = Mlp(_width(c)) if leading else None
    return replace(_mixed(c, attentions, experts, dense, lambda layer: layer < leading), estimated=True)
