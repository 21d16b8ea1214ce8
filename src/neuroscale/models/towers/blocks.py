"""Holds the common parts of towers, and adds the weights that join a vision tower to the language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.facts import Group, Sharding
from neuroscale.models.weights import Weights


@dataclass(frozen=True)
class Block:
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
        """Add the layer's weights; a fused matrix of queries, keys and values is the only one in its list."""
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
            add_norm(out, at + name, self.group, hidden, bias=self.norm_bias)


_SEPARATE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
CLIP_BLOCK = Block(_SEPARATE, "self_attn.out_proj", ("mlp.fc1",), "mlp.fc2", ("layer_norm1", "layer_norm2"))
FUSED_BLOCK = Block(("attn.qkv",), "attn.proj", ("mlp.fc1",), "mlp.fc2", ("norm1", "norm2"))
GATED_BLOCK = replace(FUSED_BLOCK, gate_up=("mlp.gate_proj", "mlp.up_proj"), down="mlp.down_proj", norm_bias=False)


def add_norm(out: Weights, name: str, group: Group, width: int, *, bias: bool = True) -> None:
    """Adds the weight of a norm, and its bias if it has one."""
    for part in ("weight", "bias") if bias else ("weight",):
        out.add(f"{name}.{part}", group, (width,))


def add_projection(
    out: Weights,
    name: str,
    width: tuple[int, int],
    *,
    bias: bool,
    sharding: Sharding = "split",
    group: Group = "projector",
) -> None:
    """Adds a matrix from `width[0]` to `width[1]` values, which joins a tower to the language model."""
    out.linear(name, group, width, sharding, bias=bias)


def height_and_width(c: Keys, key: str) -> tuple[int, int]:
    """Height and width; the key holds one number for both, or a list of two."""
    if isinstance(c.raw(key), list):
        sides = c.integers(key, low=1, most=2) or (1,)
        return sides[0], sides[-1]
    side = c.integer(key, high=2**16)
    return side, side


def add_patches(c: Keys, out: Weights, name: str, channels: int, *, bias: bool) -> None:
    """Adds the convolution that makes a vector of the hidden size of each patch of an image."""
    hidden = size_of(c, "hidden_size")
    out.add(f"{name}.weight", "vision", (hidden, channels, *height_and_width(c, "patch_size")))
    if bias:
        out.add(f"{name}.bias", "vision", (hidden,))


def patch_count(c: Keys) -> int:
    """The number of patches of an image of the size that the tower is made for."""
    (height, width), (rows, columns) = height_and_width(c, "image_size"), height_and_width(c, "patch_size")
    return (height // rows) * (width // columns)


def size_of(c: Keys, *keys: str) -> int:
    """The first of `keys` that is not null."""
    return c.integer(*keys, high=2**20)


def layer_count(c: Keys, *keys: str) -> int:
    """The number of layers, by `num_hidden_layers` or the given keys."""
    return c.integer(*(keys or ("num_hidden_layers",)), high=500)


def add_blocks(out: Weights, block: Block, at: str, count: int, widths: tuple[int, int]) -> None:
    """Adds `count` blocks below `at`; `widths`: the hidden size, and the width of the feed-forward block."""
    out.alike(range(count), lambda layer: block.weights(out, f"{at}{layer}.", *widths))


def join_gemma3(_: Keys, __: Keys, out: Weights, width: int, hidden: int) -> None:
    """Gemma 3."""
    out.add("multi_modal_projector.mm_input_projection_weight", "projector", (width, hidden))
    out.add("multi_modal_projector.mm_soft_emb_norm.weight", "projector", (width,))


def join_gemma4(_: Keys, __: Keys, out: Weights, width: int, hidden: int) -> None:
    """Gemma 4."""
    out.linear("embed_vision.embedding_projection", "projector", (width, hidden), "replicated")


def join_llama4(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """Llama 4."""
    bias = c.flag("multi_modal_projector_bias")
    add_projection(out, "multi_modal_projector.linear_1", (width, hidden), bias=bias)


def join_mistral3(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """Mistral Small 3: several patches become one token, through two matrices."""
    at, bias = "multi_modal_projector.", c.flag("multimodal_projector_bias")
    add_norm(out, f"{at}norm", "projector", width, bias=False)
    merged = width * c.integer("spatial_merge_size", high=64) ** 2
    add_projection(out, f"{at}patch_merger.merging_layer", (merged, width), bias=False, sharding="replicated")
    add_projection(out, f"{at}linear_1", (width, hidden), bias=bias)
    add_projection(out, f"{at}linear_2", (hidden, hidden), bias=bias)


def join_llava(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """LLaVA: the input comes from one layer of the tower, or from several."""
    at, bias = "multi_modal_projector.", c.flag("multimodal_projector_bias", True)
    layers = c.raw("vision_feature_layer")
    taken = len(layers) if isinstance(layers, list) and len(layers) <= 100 else 1
    add_projection(out, f"{at}linear_1", (width * taken, hidden), bias=bias)
    add_projection(out, f"{at}linear_2", (hidden, hidden), bias=bias)
    if c.model_type == "llava_next":
        out.add("image_newline", "projector", (hidden,))


def join_paligemma(c: Keys, tower: Keys, out: Weights, width: int, hidden: int) -> None:
    """PaliGemma."""
    del c, tower
    add_projection(out, "multi_modal_projector.linear", (width, hidden), bias=True)


def join_internvl(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """InternVL, by transformers' names."""
    at = "multi_modal_projector."
    _join_downsampled(c, out, width, hidden, (f"{at}layer_norm", f"{at}linear_1", f"{at}linear_2"))


def join_internvl_chat(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """InternVL, by the publisher's own names."""
    _join_downsampled(c, out, width, hidden, ("mlp1.0", "mlp1.1", "mlp1.3"))


def _join_downsampled(c: Keys, out: Weights, width: int, hidden: int, names: tuple[str, str, str]) -> None:
    """`names`: the names of the norm over several joined patches, and of the two matrices after it."""
    ratio = c.raw("downsample_ratio")
    share = 0.5 if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0.001 < ratio <= 1 else ratio
    merged = width * round(1 / share) ** 2
    norm, first, second = names
    add_norm(out, norm, "projector", merged)
    add_projection(out, first, (merged, hidden), bias=True)
    add_projection(out, second, (hidden, hidden), bias=True)


def join_idefics3(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """Idefics 3 and SmolVLM: several patches become one token."""
    merged = width * c.integer("scale_factor", high=64, default=2) ** 2
    add_projection(out, "connector.modality_projection.proj", (merged, hidden), bias=False, sharding="replicated")
