"""The towers for images and sound beside a language model, and what joins them to it.

Sources: the modelling code of transformers for the tensors. vLLM splits the matrices of towers that it builds out of
its own layers; those of Gemma 4 and of Qwen2-Audio it takes whole from transformers, on every rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from neuroscale.models.facts import Group, Sharding
from neuroscale.models.keys import Keys
from neuroscale.models.weights import Weights

_SECTIONS: tuple[tuple[str, Group], ...] = (("vision_config", "vision"), ("audio_config", "audio"))
_TOWERS_ELSEWHERE = ("vision_backbone", "embd_layer", "img_processor", "audio_processor", "mm_vision_tower", "visual")
"""Keys of remote code that tell of towers without their sizes."""
_UNTOLD = frozenset({"molmo"})
"""Model types with a tower of which their files say nothing."""
_OTHER_SECTIONS = ("speech_config", "sound_config", "vision_tower_config", "image_config", "vit_config")


@dataclass(frozen=True)
class Wrapper:
    """A model type of several towers.

    `vision` and `audio`: the types of its towers where they do not name a known one. `join`: adds what joins the
    vision tower to the language model: the file's keys, the tower's, the tower's width and the language model's.
    `assumed`: its class in transformers builds its towers where the file has no sections for them.
    """

    vision: str = ""
    audio: str = ""
    join: Callable[[Keys, Keys, Weights, int, int], None] | None = None
    assumed: bool = True


Certainty = Literal["known", "assumed", "missing"]
"""The towers' layouts are known; some are not, and counted as plain layers; some are not counted at all."""
_WORSE: tuple[Certainty, ...] = ("known", "assumed", "missing")


def towers(c: Keys, out: Weights, hidden: int) -> tuple[list[str], Certainty]:
    """Add the towers' weights; the sentences say what is assumed or not counted. `hidden`: of the language model."""
    notes: list[str] = []
    found: list[Certainty] = ["known"]
    if (thinker := c.section("thinker_config")) is not None:
        notes.append("What speaks is not counted: vLLM loads the part that thinks alone.")
        c = thinker
    wrapper = WRAPPERS.get(c.model_type, Wrapper(assumed=False))
    for section, group in _SECTIONS:
        known = wrapper.vision if group == "vision" else wrapper.audio
        keys = c.section(section)
        if keys is None:
            if not known or not wrapper.assumed:
                continue
            keys = Keys({}, c.where, section)
            notes.append(f"The file has no {section}: that of the model type's class is assumed.")
        own = keys.text("model_type")
        kind = own if own in TOWERS else known
        if kind not in TOWERS:
            found.append(_assume(keys, section, group, out, hidden, notes))
            continue
        keys = keys.as_type(kind)
        width = TOWERS[kind](keys, out, hidden)
        if group == "vision" and wrapper.join:
            wrapper.join(c, keys, out, width, hidden)
        elif group == "vision" and c.model_type not in WRAPPERS:
            notes.append("The weights that join the vision tower to the language model are assumed.")
            _between(out, width, hidden)
            found.append("assumed")
    for section in _OTHER_SECTIONS:
        if (keys := c.section(section)) is not None:
            group = "audio" if section in ("speech_config", "sound_config") else "vision"
            found.append(_assume(keys, section, group, out, hidden, notes))
    for key in _TOWERS_ELSEWHERE:
        if c.values.get(key):
            notes.append(f"The weights of the tower that {key} tells of are not counted: its layout is unknown here.")
            found.append("missing")
    if c.model_type in _UNTOLD:
        notes.append(f"The weights of the tower that {c.model_type}'s own code has are not counted.")
        found.append("missing")
    return notes, max(found, key=_WORSE.index)


def _assume(c: Keys, section: str, group: Group, out: Weights, hidden: int, notes: list[str]) -> Certainty:
    """Count a tower of an unknown layout as plain layers of its sizes, and say so."""
    width = c.optional("hidden_size", "d_model", "width", "embed_dim", "n_embd", high=2**20)
    count = c.optional("num_hidden_layers", "encoder_layers", "layers", "depth", "num_layers", "n_layers", high=500)
    if width is None or count is None:
        notes.append(f"The weights of the tower in {section} are not counted: its layout is unknown here.")
        return "missing"
    inner = c.optional("intermediate_size", "encoder_ffn_dim", "mlp_dim", "ffn_dim", high=2**20) or 4 * width
    block = replace(_CLIP_BLOCK, sharding="replicated", group=group)
    _alike(out, block, f"{section}.layers.", count, (width, inner))
    _between(out, width, hidden)
    notes.append(f"The layout of the tower in {section} is unknown here: it is counted as {count} plain layers.")
    return "assumed"


def _between(out: Weights, width: int, hidden: int) -> None:
    """What joins a tower to the language model where that is not known: four patches in one, and two matrices."""
    _project(out, "projector.linear_1", (4 * width, hidden), bias=True, sharding="replicated")
    _project(out, "projector.linear_2", (hidden, hidden), bias=True, sharding="replicated")


# Blocks.


@dataclass(frozen=True)
class _Block:
    """A layer of a tower: names of its matrices and norms, their biases, and how they are laid out."""

    query_key_value: Sequence[str]
    output: str
    gate_up: Sequence[str]
    down: str
    norms: Sequence[str]
    bias: bool = True
    output_bias: bool | None = None
    norm_bias: bool = True
    mlp_bias: bool | None = None
    sharding: Sharding = "split"
    group: Group = "vision"
    unbiased: str = ""

    def weights(self, out: Weights, at: str, hidden: int, width: int) -> None:
        """Add them; a fused matrix of queries, keys and values is the only one of its list."""
        rows = 3 * hidden if len(self.query_key_value) == 1 else hidden
        for name in self.query_key_value:
            bias = self.bias and name != self.unbiased
            out.linear(at + name, self.group, (hidden, rows), self.sharding, bias=bias)
        output_bias = self.bias if self.output_bias is None else self.output_bias
        out.linear(at + self.output, self.group, (hidden, hidden), self.sharding, bias=output_bias)
        mlp_bias = self.bias if self.mlp_bias is None else self.mlp_bias
        for name in self.gate_up:
            out.linear(at + name, self.group, (hidden, width), self.sharding, bias=mlp_bias)
        out.linear(at + self.down, self.group, (width, hidden), self.sharding, bias=mlp_bias)
        for name in self.norms:
            _norm(out, at + name, self.group, hidden, bias=self.norm_bias)


def _norm(out: Weights, name: str, group: Group, width: int, *, bias: bool = True) -> None:
    for part in ("weight", "bias") if bias else ("weight",):
        out.add(f"{name}.{part}", group, (width,))


def _project(
    out: Weights,
    name: str,
    width: tuple[int, int],
    *,
    bias: bool,
    sharding: Sharding = "split",
    group: Group = "projector",
) -> None:
    out.linear(name, group, width, sharding, bias=bias)


def _side(c: Keys, key: str) -> tuple[int, int]:
    """Height and width: one number for both, or a list of two."""
    if isinstance(c.raw(key), list):
        sides = c.integers(key, low=1, most=2) or (1,)
        return sides[0], sides[-1]
    side = c.integer(key, high=2**16)
    return side, side


def _patches(c: Keys) -> int:
    (height, width), (rows, columns) = _side(c, "image_size"), _side(c, "patch_size")
    return (height // rows) * (width // columns)


def _size(c: Keys, *keys: str) -> int:
    return c.integer(*keys, high=2**20)


def _layers(c: Keys, *keys: str) -> int:
    return c.integer(*(keys or ("num_hidden_layers",)), high=500)


def _alike(out: Weights, block: _Block, at: str, count: int, widths: tuple[int, int]) -> None:
    """`count` blocks below `at`; `widths`: hidden, and of the feed-forward."""
    out.alike(range(count), lambda layer: block.weights(out, f"{at}{layer}.", *widths))


_CLIP_BLOCK = _Block(
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.out_proj",
    ("mlp.fc1",),
    "mlp.fc2",
    ("layer_norm1", "layer_norm2"),
)


# Towers for images.


def _siglip(c: Keys, out: Weights, _: int) -> int:
    hidden, width = _siglip_body(c, out)
    if c.flag("vision_use_head", True):
        head = "vision_tower.head."
        out.add(f"{head}probe", "vision", (1, 1, hidden))
        out.add(f"{head}attention.in_proj_weight", "vision", (3 * hidden, hidden))
        out.add(f"{head}attention.in_proj_bias", "vision", (3 * hidden,))
        out.linear(f"{head}attention.out_proj", "vision", (hidden, hidden), "replicated", bias=True)
        _norm(out, f"{head}layernorm", "vision", hidden)
        out.linear(f"{head}mlp.fc1", "vision", (hidden, width), "split", bias=True)
        out.linear(f"{head}mlp.fc2", "vision", (width, hidden), "split", bias=True)
    return hidden


def _idefics3(c: Keys, out: Weights, _: int) -> int:
    return _siglip_body(c, out)[0]


def _siglip_body(c: Keys, out: Weights) -> tuple[int, int]:
    hidden, width = _size(c, "hidden_size"), _size(c, "intermediate_size")
    at = "vision_tower."
    rows, columns = _side(c, "patch_size")
    channels = c.integer("num_channels", high=2**20, default=3)
    out.add(f"{at}embeddings.patch_embedding.weight", "vision", (hidden, channels, rows, columns))
    out.add(f"{at}embeddings.patch_embedding.bias", "vision", (hidden,))
    out.add(f"{at}embeddings.position_embedding.weight", "vision", (_patches(c), hidden))
    _alike(out, _CLIP_BLOCK, f"{at}encoder.layers.", _layers(c), (hidden, width))
    _norm(out, f"{at}post_layernorm", "vision", hidden)
    return hidden, width


def _clip(c: Keys, out: Weights, _: int) -> int:
    hidden, width = _size(c, "hidden_size"), _size(c, "intermediate_size")
    at = "vision_tower."
    rows, columns = _side(c, "patch_size")
    out.add(f"{at}embeddings.class_embedding", "vision", (hidden,))
    out.add(f"{at}embeddings.patch_embedding.weight", "vision", (hidden, _size(c, "num_channels"), rows, columns))
    out.add(f"{at}embeddings.position_embedding.weight", "vision", (_patches(c) + 1, hidden))
    _norm(out, f"{at}pre_layrnorm", "vision", hidden)
    _alike(out, _CLIP_BLOCK, f"{at}encoder.layers.", _layers(c), (hidden, width))
    _norm(out, f"{at}post_layernorm", "vision", hidden)
    return hidden


def _pixtral(c: Keys, out: Weights, _: int) -> int:
    hidden, width = _size(c, "hidden_size"), _size(c, "intermediate_size")
    at = "vision_tower."
    rows, columns = _side(c, "patch_size")
    out.add(f"{at}patch_conv.weight", "vision", (hidden, _size(c, "num_channels"), rows, columns))
    _norm(out, f"{at}ln_pre", "vision", hidden, bias=False)
    block = _Block(
        ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        "attention.o_proj",
        ("feed_forward.gate_proj", "feed_forward.up_proj"),
        "feed_forward.down_proj",
        ("attention_norm", "ffn_norm"),
        bias=False,
        norm_bias=False,
    )
    _alike(out, block, f"{at}transformer.layers.", _layers(c), (hidden, width))
    return hidden


def _llama4(c: Keys, out: Weights, _: int) -> int:
    hidden, width = _size(c, "hidden_size"), _size(c, "intermediate_size")
    at = "vision_model."
    rows, columns = _side(c, "patch_size")
    out.add(f"{at}class_embedding", "vision", (hidden,))
    out.add(f"{at}positional_embedding_vlm", "vision", (_patches(c) + 1, hidden))
    out.linear(f"{at}patch_embedding.linear", "vision", (_size(c, "num_channels") * rows * columns, hidden), "split")
    for name in ("layernorm_pre", "layernorm_post"):
        _norm(out, at + name, "vision", hidden)
    block = _Block(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.o_proj",
        ("mlp.fc1",),
        "mlp.fc2",
        ("input_layernorm", "post_attention_layernorm"),
    )
    _alike(out, block, f"{at}model.layers.", _layers(c), (hidden, width))
    inner, outer = _size(c, "projector_input_dim"), _size(c, "projector_output_dim")
    _project(out, f"{at}vision_adapter.mlp.fc1", (width, inner), bias=False, group="vision")
    _project(out, f"{at}vision_adapter.mlp.fc2", (inner, outer), bias=False, group="vision")
    return _size(c, "vision_output_dim")


def _qwen2(c: Keys, out: Weights, _: int) -> int:
    hidden = _size(c, "embed_dim")
    ratio = c.raw("mlp_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64:
        raise c.problem("mlp_ratio", "is not a number from 0 to 64")
    block = _Block(("attn.qkv",), "attn.proj", ("mlp.fc1",), "mlp.fc2", ("norm1", "norm2"))
    _qwen_patches(c, out, hidden, _size(c, "in_channels", "in_chans"), bias=False)
    _alike(out, block, "visual.blocks.", _layers(c, "depth"), (hidden, int(hidden * ratio)))
    _norm(out, "visual.merger.ln_q", "projector", hidden)
    merged = hidden * _size(c, "spatial_merge_size") ** 2
    _project(out, "visual.merger.mlp.0", (merged, merged), bias=True)
    _project(out, "visual.merger.mlp.2", (merged, _size(c, "hidden_size")), bias=True)
    return merged


def _qwen2_5(c: Keys, out: Weights, _: int) -> int:
    hidden = _size(c, "hidden_size")
    block = _Block(
        ("attn.qkv",),
        "attn.proj",
        ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj",
        ("norm1", "norm2"),
        norm_bias=False,
    )
    _qwen_patches(c, out, hidden, _size(c, "in_channels", "in_chans"), bias=False)
    _alike(out, block, "visual.blocks.", _layers(c, "depth"), (hidden, _size(c, "intermediate_size")))
    _norm(out, "visual.merger.ln_q", "projector", hidden, bias=False)
    merged = hidden * _size(c, "spatial_merge_size") ** 2
    _project(out, "visual.merger.mlp.0", (merged, merged), bias=True)
    _project(out, "visual.merger.mlp.2", (merged, _size(c, "out_hidden_size")), bias=True)
    return merged


def _qwen3(c: Keys, out: Weights, _: int) -> int:
    hidden = _size(c, "hidden_size")
    block = _Block(("attn.qkv",), "attn.proj", ("mlp.linear_fc1",), "mlp.linear_fc2", ("norm1", "norm2"))
    _qwen_patches(c, out, hidden, _size(c, "in_channels"), bias=True)
    out.add("visual.pos_embed.weight", "vision", (_size(c, "num_position_embeddings"), hidden))
    _alike(out, block, "visual.blocks.", _layers(c, "depth"), (hidden, _size(c, "intermediate_size")))
    merged = hidden * _size(c, "spatial_merge_size") ** 2
    deep = c.integers("deepstack_visual_indexes", most=500) or ()
    mergers = ["visual.merger.", *(f"visual.deepstack_merger_list.{number}." for number in range(len(deep)))]
    for at in mergers:
        _norm(out, f"{at}norm", "projector", hidden if at == mergers[0] else merged)
        _project(out, f"{at}linear_fc1", (merged, merged), bias=True)
        _project(out, f"{at}linear_fc2", (merged, _size(c, "out_hidden_size")), bias=True)
    return merged


def _qwen_patches(c: Keys, out: Weights, hidden: int, channels: int, *, bias: bool) -> None:
    rows, columns = _side(c, "patch_size")
    shape = (hidden, channels, _size(c, "temporal_patch_size"), rows, columns)
    out.add("visual.patch_embed.proj.weight", "vision", shape)
    if bias:
        out.add("visual.patch_embed.proj.bias", "vision", (hidden,))


def _glm4v(c: Keys, out: Weights, _: int) -> int:
    hidden, given = _size(c, "hidden_size"), _size(c, "out_hidden_size")
    width = _size(c, "intermediate_size")
    block = _Block(
        ("attn.qkv",),
        "attn.proj",
        ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj",
        ("norm1", "norm2"),
        bias=c.flag("attention_bias"),
        output_bias=False,
        mlp_bias=False,
        norm_bias=False,
    )
    _qwen_patches(c, out, hidden, _size(c, "in_channels"), bias=True)
    out.add("visual.embeddings.position_embedding.weight", "vision", (_patches(c), hidden))
    _alike(out, block, "visual.blocks.", _layers(c, "depth"), (hidden, given))
    for name in ("post_conv_layernorm", "post_layernorm"):
        _norm(out, f"visual.{name}", "vision", hidden, bias=False)
    merge = _size(c, "spatial_merge_size")
    out.add("visual.downsample.weight", "projector", (given, hidden, merge, merge))
    out.add("visual.downsample.bias", "projector", (given,))
    at = "visual.merger."
    _project(out, f"{at}proj", (given, given), bias=False)
    _norm(out, f"{at}post_projection_norm", "projector", given)
    for name in ("gate_proj", "up_proj"):
        _project(out, at + name, (given, width), bias=False)
    _project(out, f"{at}down_proj", (width, given), bias=False)
    return given


def _internvl(c: Keys, out: Weights, _: int) -> int:
    hidden = _size(c, "hidden_size")
    at = "vision_tower."
    rows, columns = _side(c, "patch_size")
    out.add(f"{at}embeddings.cls_token", "vision", (1, 1, hidden))
    if c.flag("use_absolute_position_embeddings", True):
        out.add(f"{at}embeddings.position_embeddings", "vision", (1, _patches(c) + 1, hidden))
    shape = (hidden, _size(c, "num_channels"), rows, columns)
    out.add(f"{at}embeddings.patch_embeddings.projection.weight", "vision", shape)
    out.add(f"{at}embeddings.patch_embeddings.projection.bias", "vision", (hidden,))
    block = _Block(
        ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        "attention.projection_layer",
        ("mlp.fc1",),
        "mlp.fc2",
        ("layernorm_before", "layernorm_after"),
        bias=c.flag("attention_bias"),
        output_bias=True,
        mlp_bias=True,
        norm_bias=c.text("norm_type", "layer_norm") == "layer_norm",
    )
    scales = ["lambda_1", "lambda_2"]
    if c.flag("use_qk_norm"):
        scales += ["attention.q_norm.weight", "attention.k_norm.weight"]
    _scaled(c, out, block, f"{at}encoder.layer.", scales)
    if not c.flag("use_mean_pooling", True):
        _norm(out, f"{at}layernorm", "vision", hidden)
    return hidden


def _intern_vit(c: Keys, out: Weights, _: int) -> int:
    """InternViT as the publisher's own code has it (vLLM's intern_vit.py)."""
    hidden, at = _size(c, "hidden_size"), "vision_model."
    rows, columns = _side(c, "patch_size")
    channels = c.integer("num_channels", high=2**20, default=3)
    out.add(f"{at}embeddings.class_embedding", "vision", (1, 1, hidden))
    out.add(f"{at}embeddings.position_embedding", "vision", (1, _patches(c) + 1, hidden))
    out.add(f"{at}embeddings.patch_embedding.weight", "vision", (hidden, channels, rows, columns))
    out.add(f"{at}embeddings.patch_embedding.bias", "vision", (hidden,))
    block = _Block(
        ("attn.qkv",),
        "attn.proj",
        ("mlp.fc1",),
        "mlp.fc2",
        ("norm1", "norm2"),
        bias=c.flag("qkv_bias"),
        output_bias=True,
        mlp_bias=True,
        norm_bias=c.text("norm_type", "rms_norm") == "layer_norm",
    )
    scales = ["ls1", "ls2"]
    if c.flag("qk_normalization", True):
        scales += ["attn.q_norm.weight", "attn.k_norm.weight"]
    _scaled(c, out, block, f"{at}encoder.layers.", scales)
    return hidden


def _scaled(c: Keys, out: Weights, block: _Block, at: str, scales: Sequence[str]) -> None:
    """Blocks below `at` with `scales` of the hidden size beside each."""
    hidden, width = _size(c, "hidden_size"), _size(c, "intermediate_size")

    def add(layer: int) -> None:
        block.weights(out, f"{at}{layer}.", hidden, width)
        for name in scales:
            out.add(f"{at}{layer}.{name}", "vision", (hidden,))

    out.alike(range(_layers(c)), add)


def _gemma4(c: Keys, out: Weights, _: int) -> int:
    hidden, width = _size(c, "hidden_size"), _size(c, "intermediate_size")
    heads, head_dim = _size(c, "num_attention_heads"), _size(c, "head_dim")
    kv_heads = c.integer("num_key_value_heads", default=heads)
    at = "vision_tower."
    out.add(f"{at}patch_embedder.position_embedding_table", "vision", (2, _size(c, "position_embedding_size"), hidden))
    inputs = 3 * _size(c, "patch_size") ** 2
    out.linear(f"{at}patch_embedder.input_proj", "vision", (inputs, hidden), "replicated")

    def add(layer: int) -> None:
        place = f"{at}encoder.layers.{layer}."
        for name, into, to in (
            ("self_attn.q_proj", hidden, heads * head_dim),
            ("self_attn.k_proj", hidden, kv_heads * head_dim),
            ("self_attn.v_proj", hidden, kv_heads * head_dim),
            ("self_attn.o_proj", heads * head_dim, hidden),
            ("mlp.gate_proj", hidden, width),
            ("mlp.up_proj", hidden, width),
            ("mlp.down_proj", width, hidden),
        ):
            out.linear(f"{place}{name}.linear", "vision", (into, to), "replicated")
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            _norm(out, place + name, "vision", head_dim, bias=False)
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ):
            _norm(out, place + name, "vision", hidden, bias=False)

    out.alike(range(_layers(c)), add)
    if c.flag("standardize"):
        for name in ("std_bias", "std_scale"):
            out.add(at + name, "vision", (hidden,))
    return hidden


def _gemma4_unified(c: Keys, out: Weights, hidden: int) -> int:
    width = _size(c, "mm_embed_dim")
    inputs = 3 * (_size(c, "patch_size") * _size(c, "pooling_kernel_size")) ** 2
    at = "embed_vision."
    out.add(f"{at}pos_embedding", "vision", (_size(c, "mm_posemb_size"), 2, width))
    _norm(out, f"{at}patch_ln1", "vision", inputs)
    out.linear(f"{at}patch_dense", "vision", (inputs, width), "replicated", bias=True)
    for name in ("patch_ln2", "pos_norm"):
        _norm(out, at + name, "vision", width)
    given = c.integer("output_proj_dims", high=2**20)
    out.linear(f"{at}multimodal_embedder.embedding_projection", "projector", (given, hidden), "replicated")
    return given


def _gemma3n(c: Keys, out: Weights, hidden: int) -> int:
    """A convolutional tower out of another library, by what its publisher says: 300 million parameters."""
    width = _size(c, "hidden_size")
    out.add("vision_tower", "vision", (300_000_000,))
    _embedder(c, out, "embed_vision.", width, hidden)
    return width


def _embedder(c: Keys, out: Weights, at: str, width: int, hidden: int) -> None:
    out.add(f"{at}embedding.weight", "projector", (_size(c, "vocab_size"), width))
    for name in ("hard_embedding_norm", "soft_embedding_norm"):
        _norm(out, at + name, "projector", width, bias=False)
    out.linear(f"{at}embedding_projection", "projector", (width, hidden), "replicated")


# Towers for sound.


@dataclass(frozen=True)
class _Conformer:
    """The names of Gemma's layers for sound: attention and a convolution between two half feed-forwards.

    `linear`: what the name of a matrix that may be clipped ends with. `scale`: of the attention, by head dimension.
    """

    linear: str
    halves: Sequence[str]
    scale: str
    attention: Sequence[str]
    norms: Sequence[str]
    convolutions: str

    def weights(self, out: Weights, at: str, hidden: int, heads: int, kernel: int) -> None:
        """Those of one layer below `at`; `kernel`: the width of its convolution."""
        for half in self.halves:
            out.linear(f"{at}{half}.ffw_layer_1{self.linear}", "audio", (hidden, 4 * hidden), "replicated")
            out.linear(f"{at}{half}.ffw_layer_2{self.linear}", "audio", (4 * hidden, hidden), "replicated")
            for name in ("pre_layer_norm", "post_layer_norm"):
                _norm(out, f"{at}{half}.{name}", "audio", hidden, bias=False)
        out.add(at + self.scale, "audio", (hidden // heads,))
        for name in self.attention:
            out.linear(at + name, "audio", (hidden, hidden), "replicated")
        out.linear(f"{at}lconv1d.linear_start{self.linear}", "audio", (hidden, 2 * hidden), "replicated")
        out.linear(f"{at}lconv1d.linear_end{self.linear}", "audio", (hidden, hidden), "replicated")
        out.add(f"{at}lconv1d.depthwise_conv1d.weight", "audio", (hidden, 1, kernel))
        for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", *self.norms):
            _norm(out, at + name, "audio", hidden, bias=False)

    def before(self, out: Weights, hidden: int, channels: Sequence[int], mel_bins: int) -> None:
        """The convolutions in front of the layers, of which each halves the mel bins, and the matrix behind them."""
        at = "audio_tower.subsample_conv_projection."
        for number, (into, to) in enumerate(pairwise((1, *channels))):
            place = f"{at}{self.convolutions}{number}."
            out.add(f"{place}conv.weight", "audio", (to, into, 3, 3))
            out.add(f"{place}norm.weight", "audio", (to,))
        flat = (channels[-1] if channels else 1) * (mel_bins >> len(channels))
        out.linear(f"{at}input_proj_linear", "audio", (flat, hidden), "replicated")


_GEMMA_3N = _Conformer(
    "",
    ("ffw_layer_start", "ffw_layer_end"),
    "attention.attn.per_dim_scale",
    (
        *("attention.attn.relative_position_embedding.pos_proj", "attention.attn.q_proj", "attention.attn.k_proj"),
        *("attention.attn.v_proj", "attention.post"),
    ),
    ("attention.pre_attn_norm", "attention.post_norm", "norm"),
    "conv_",
)
_GEMMA_4 = _Conformer(
    ".linear",
    ("feed_forward1", "feed_forward2"),
    "self_attn.per_dim_scale",
    (
        *("self_attn.q_proj.linear", "self_attn.k_proj.linear", "self_attn.v_proj.linear", "self_attn.post.linear"),
        "self_attn.relative_k_proj",
    ),
    ("norm_pre_attn", "norm_post_attn", "norm_out"),
    "layer",
)


def _gemma3n_audio(c: Keys, out: Weights, text: int) -> int:
    hidden, heads = _size(c, "hidden_size"), _size(c, "conf_num_attention_heads")
    channels, kernel = c.integers("sscp_conv_channel_size", low=1, most=8) or (), _size(c, "conf_conv_kernel_size")
    _GEMMA_3N.before(out, hidden, channels, _size(c, "input_feat_size"))
    out.alike(
        range(_layers(c, "conf_num_hidden_layers")),
        lambda layer: _GEMMA_3N.weights(out, f"audio_tower.conformer.{layer}.", hidden, heads, kernel),
    )
    _embedder(c, out, "embed_audio.", hidden, text)
    return hidden


def _gemma4_audio(c: Keys, out: Weights, text: int) -> int:
    hidden, heads = _size(c, "hidden_size"), _size(c, "num_attention_heads")
    channels, kernel = c.integers("subsampling_conv_channels", low=1, most=8) or (), _size(c, "conv_kernel_size")
    _GEMMA_4.before(out, hidden, channels, 128)  # its class has no key for the mel bins
    out.alike(
        range(_layers(c)),
        lambda layer: _GEMMA_4.weights(out, f"audio_tower.layers.{layer}.", hidden, heads, kernel),
    )
    given = _size(c, "output_proj_dims")
    out.linear("audio_tower.output_proj", "audio", (hidden, given), "replicated", bias=True)
    out.linear("embed_audio.embedding_projection", "projector", (given, text), "replicated")
    return given


def _gemma4_unified_audio(c: Keys, out: Weights, hidden: int) -> int:
    width = _size(c, "audio_embed_dim")
    out.linear("embed_audio.embedding_projection", "projector", (width, hidden), "replicated")
    return width


def _qwen2_audio(c: Keys, out: Weights, text: int) -> int:
    hidden, width = _size(c, "d_model"), _size(c, "encoder_ffn_dim")
    at = "audio_tower."
    out.add(f"{at}conv1.weight", "audio", (hidden, _size(c, "num_mel_bins"), 3))
    out.add(f"{at}conv2.weight", "audio", (hidden, hidden, 3))
    for name in ("conv1.bias", "conv2.bias"):
        out.add(at + name, "audio", (hidden,))
    out.add(f"{at}embed_positions.weight", "audio", (_size(c, "max_source_positions"), hidden))
    block = _Block(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.out_proj",
        ("fc1",),
        "fc2",
        ("self_attn_layer_norm", "final_layer_norm"),
        sharding="replicated",
        group="audio",
        unbiased="self_attn.k_proj",
    )
    _alike(out, block, f"{at}layers.", _layers(c, "encoder_layers"), (hidden, width))
    _norm(out, f"{at}layer_norm", "audio", hidden)
    out.linear("multi_modal_projector.linear", "projector", (hidden, text), "replicated", bias=True)
    return hidden


TOWERS: dict[str, Callable[[Keys, Weights, int], int]] = {
    "clip_vision_model": _clip,
    "gemma3n_audio": _gemma3n_audio,
    "gemma3n_vision": _gemma3n,
    "gemma4_audio": _gemma4_audio,
    "gemma4_unified_audio": _gemma4_unified_audio,
    "gemma4_unified_vision": _gemma4_unified,
    "gemma4_vision": _gemma4,
    "idefics3": _idefics3,
    "idefics3_vision": _idefics3,
    "intern_vit_6b": _intern_vit,
    "glm4v_moe_vision": _glm4v,
    "glm4v_vision": _glm4v,
    "internvl_vision": _internvl,
    "llama4_vision_model": _llama4,
    "pixtral": _pixtral,
    "qwen2_5_omni_vision_encoder": _qwen2_5,
    "qwen2_5_vl_vision": _qwen2_5,
    "qwen2_audio_encoder": _qwen2_audio,
    "qwen2_vl_vision": _qwen2,
    "qwen3_vl_moe_vision": _qwen3,
    "qwen3_vl_vision": _qwen3,
    "siglip_vision_model": _siglip,
    "smolvlm_vision": _idefics3,
}
"""By model type: the tower's keys, where its weights go, and the language model's width, to the tower's own width."""


# What joins a vision tower to the language model.


def _join_gemma3(_: Keys, __: Keys, out: Weights, width: int, hidden: int) -> None:
    out.add("multi_modal_projector.mm_input_projection_weight", "projector", (width, hidden))
    out.add("multi_modal_projector.mm_soft_emb_norm.weight", "projector", (width,))


def _join_gemma4(_: Keys, __: Keys, out: Weights, width: int, hidden: int) -> None:
    out.linear("embed_vision.embedding_projection", "projector", (width, hidden), "replicated")


def _join_llama4(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    bias = c.flag("multi_modal_projector_bias")
    _project(out, "multi_modal_projector.linear_1", (width, hidden), bias=bias)


def _join_mistral3(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    at, bias = "multi_modal_projector.", c.flag("multimodal_projector_bias")
    _norm(out, f"{at}norm", "projector", width, bias=False)
    merged = width * c.integer("spatial_merge_size", high=64) ** 2
    _project(out, f"{at}patch_merger.merging_layer", (merged, width), bias=False, sharding="replicated")
    _project(out, f"{at}linear_1", (width, hidden), bias=bias)
    _project(out, f"{at}linear_2", (hidden, hidden), bias=bias)


def _join_llava(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    at, bias = "multi_modal_projector.", c.flag("multimodal_projector_bias", True)
    layers = c.raw("vision_feature_layer")
    taken = len(layers) if isinstance(layers, list) and len(layers) <= 100 else 1
    _project(out, f"{at}linear_1", (width * taken, hidden), bias=bias)
    _project(out, f"{at}linear_2", (hidden, hidden), bias=bias)
    if c.model_type == "llava_next":
        out.add("image_newline", "projector", (hidden,))


def _join_paligemma(c: Keys, tower: Keys, out: Weights, width: int, hidden: int) -> None:
    del c, tower
    _project(out, "multi_modal_projector.linear", (width, hidden), bias=True)


def _join_internvl(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    at = "multi_modal_projector."
    _join_downsampled(c, out, width, hidden, (f"{at}layer_norm", f"{at}linear_1", f"{at}linear_2"))


def _join_internvl_chat(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    _join_downsampled(c, out, width, hidden, ("mlp1.0", "mlp1.1", "mlp1.3"))


def _join_downsampled(c: Keys, out: Weights, width: int, hidden: int, names: tuple[str, str, str]) -> None:
    """`names`: of the norm over several patches in one, and of the two matrices behind it."""
    ratio = c.raw("downsample_ratio")
    share = 0.5 if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0.001 < ratio <= 1 else ratio
    merged = width * round(1 / share) ** 2
    norm, first, second = names
    _norm(out, norm, "projector", merged)
    _project(out, first, (merged, hidden), bias=True)
    _project(out, second, (hidden, hidden), bias=True)


def _join_idefics3(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    merged = width * c.integer("scale_factor", high=64, default=2) ** 2
    _project(out, "connector.modality_projection.proj", (merged, hidden), bias=False, sharding="replicated")


def _join_aya(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    factor = c.integer("downsample_factor", high=64, default=2)
    inner = c.integer("alignment_intermediate_size", high=2**20, default=hidden)
    at = "multi_modal_projector."
    merged = width * factor**2
    _norm(out, f"{at}layernorm", "projector", merged)
    _project(out, f"{at}linear_1", (merged, inner), bias=True)
    _project(out, f"{at}linear_2", (math.ceil(inner / 2), hidden), bias=True)


WRAPPERS = {
    "aya_vision": Wrapper("siglip_vision_model", join=_join_aya),
    "gemma3": Wrapper("siglip_vision_model", join=_join_gemma3),
    "gemma3n": Wrapper("gemma3n_vision", "gemma3n_audio"),
    "gemma4": Wrapper("gemma4_vision", "gemma4_audio", join=_join_gemma4, assumed=False),
    "gemma4_unified": Wrapper("gemma4_unified_vision", "gemma4_unified_audio", assumed=False),
    "glm4v": Wrapper("glm4v_vision"),
    "glm4v_moe": Wrapper("glm4v_moe_vision"),
    "idefics3": Wrapper("idefics3_vision", join=_join_idefics3, assumed=False),
    "internvl": Wrapper("internvl_vision", join=_join_internvl),
    "internvl_chat": Wrapper("intern_vit_6b", join=_join_internvl_chat, assumed=False),
    "llama4": Wrapper("llama4_vision_model", join=_join_llama4),
    "llava": Wrapper("clip_vision_model", join=_join_llava),
    "llava_next": Wrapper("clip_vision_model", join=_join_llava),
    "mistral3": Wrapper("pixtral", join=_join_mistral3),
    "paligemma": Wrapper("siglip_vision_model", join=_join_paligemma),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_vision_encoder", "qwen2_5_omni_audio_encoder", assumed=False),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_vision"),
    "qwen2_audio": Wrapper(audio="qwen2_audio_encoder"),
    "qwen2_vl": Wrapper("qwen2_vl_vision"),
    "qwen3_vl": Wrapper("qwen3_vl_vision"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_vision"),
    "smolvlm": Wrapper("smolvlm_vision", join=_join_idefics3, assumed=False),
}
