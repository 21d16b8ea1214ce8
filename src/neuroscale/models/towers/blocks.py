"""Holds the common parts of towers: a layer's matrices and norms, sizes from the keys, and patches of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


CLIP_BLOCK = Block(
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.out_proj",
    ("mlp.fc1",),
    "mlp.fc2",
    ("layer_norm1", "layer_norm2"),
)


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
