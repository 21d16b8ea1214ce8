"""Computes weights and states of layers that keep a state of one size for a request in place of keys and values.

Shapes and shardings follow vLLM 0.32: model_executor/layers/mamba (mamba_mixer2.py, gdn/qwen_gdn_linear_attn.py) and
mamba_utils.py, which computes the states.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.models.facts import Dtype, StateLayers
from neuroscale.models.weights import Weights


@dataclass(frozen=True)
class GatedDelta:
    """A gated delta rule over `value_heads` matrices of `value_dim` x `key_dim` values (Qwen3-Next, Qwen3.5).

    `fused`: the checkpoint has one matrix for queries, keys, values and the gate, and one for the two vectors of each
    head; otherwise it has four matrices. `dtype`: as in `StateLayers`.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    fused: bool
    dtype: Dtype | None = None

    @property
    def channels(self) -> int:
        """Values of a token that the convolution reads: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}linear_attn."
        values = self.value_heads * self.value_dim
        parts = (
            (("in_proj_qkvz", self.channels + values), ("in_proj_ba", 2 * self.value_heads))
            if self.fused
            else (
                ("in_proj_qkv", self.channels),
                ("in_proj_z", values),
                ("in_proj_b", self.value_heads),
                ("in_proj_a", self.value_heads),
            )
        )
        for name, width in parts:
            out.linear(at + name, "recurrent", (hidden, width), "split")
        out.add(f"{at}conv1d.weight", "recurrent", (self.channels, 1, self.kernel), "split")
        out.add(f"{at}A_log", "recurrent", (self.value_heads,), "split", full_precision=True)
        out.add(f"{at}dt_bias", "recurrent", (self.value_heads,), "split")
        out.add(f"{at}norm.weight", "norm", (self.value_dim,))
        out.linear(f"{at}out_proj", "recurrent", (values, hidden), "split")

    def state(self) -> StateLayers:
        """The state of this layer."""
        return StateLayers(
            "gated_delta",
            1,
            self.value_heads,
            self.value_dim,
            self.key_dim,
            self.channels,
            self.kernel,
            dtype=self.dtype,
        )


@dataclass(frozen=True)
class Mamba2:
    """Mamba-2: `heads` matrices of `head_dim` x `state` values; the heads of each of `groups` share inputs and outputs.

    `inner`: values of a token inside the block. `bias`: the two matrices have biases; `conv_bias`: the convolution has
    one. `norm`: the output has a norm. `dtype`: as in `StateLayers`.
    """

    inner: int
    heads: int
    head_dim: int
    state_size: int
    groups: int
    kernel: int
    conv_bias: bool = True
    bias: bool = False
    norm: bool = True
    block: str = "mamba"
    dtype: Dtype | None = None

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}."
        shared = 2 * self.groups * self.state_size
        # vLLM splits the two kinds of rows of this one tensor differently.
        out.linear(f"{at}in_proj", "recurrent", (hidden, 2 * self.inner + self.heads), "split", bias=self.bias)
        out.linear(f"{at}in_proj", "recurrent", (hidden, shared), "state_groups", bias=self.bias)
        for rows, sharding in ((self.inner, "split"), (shared, "state_groups")):
            out.add(f"{at}conv1d.weight", "recurrent", (rows, 1, self.kernel), sharding)  # type: ignore[arg-type]
            if self.conv_bias:
                out.add(f"{at}conv1d.bias", "recurrent", (rows,), sharding)  # type: ignore[arg-type]
        for name in ("A_log", "D", "dt_bias"):
            out.add(at + name, "recurrent", (self.heads,), "split", full_precision=name == "A_log")
        if self.norm:
            out.add(f"{at}norm.weight", "norm", (self.inner,), "split")
        out.linear(
            f"{at}out_proj", "recurrent", (self.inner, hidden), "split", bias=self.bias, bias_sharding="replicated"
        )

    def state(self) -> StateLayers:
        """The state of this layer."""
        return StateLayers(
            "mamba2",
            1,
            self.heads,
            self.head_dim,
            self.state_size,
            self.inner,
            self.kernel,
            self.groups,
            self.state_size,
            self.dtype,
        )


@dataclass(frozen=True)
class Mamba1:
    """Mamba: `inner` rows of `state` values.

    `rank`: the rank of the projection that makes the time steps; `norms`: that projection and the two inputs have
    norms. vLLM does not quantise any of its matrices.
    """

    inner: int
    state_size: int
    rank: int
    kernel: int
    conv_bias: bool = True
    bias: bool = False
    norms: bool = False
    block: str = "mamba"

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}{self.block}."
        made = self.rank + 2 * self.state_size
        out.linear(f"{at}in_proj", "recurrent", (hidden, 2 * self.inner), "split", bias=self.bias, convert=False)
        out.add(f"{at}conv1d.weight", "recurrent", (self.inner, 1, self.kernel), "split")
        if self.conv_bias:
            out.add(f"{at}conv1d.bias", "recurrent", (self.inner,), "split")
        out.linear(f"{at}x_proj", "recurrent", (self.inner, made), "split", convert=False)
        out.linear(f"{at}dt_proj", "recurrent", (self.rank, self.inner), "split", bias=True, convert=False)
        out.add(f"{at}A_log", "recurrent", (self.inner, self.state_size), "split", full_precision=True)
        out.add(f"{at}D", "recurrent", (self.inner,), "split")
        out.linear(
            f"{at}out_proj",
            "recurrent",
            (self.inner, hidden),
            "split",
            bias=self.bias,
            bias_sharding="replicated",
            convert=False,
        )
        if self.norms:
            for name, width in (("dt", self.rank), ("b", self.state_size), ("c", self.state_size)):
                out.add(f"{at}{name}_layernorm.weight", "norm", (width,))

    def state(self) -> StateLayers:
        """The state of this layer."""
        return StateLayers("mamba1", 1, self.inner, 1, self.state_size, self.inner, self.kernel)


@dataclass(frozen=True)
class ShortConv:
    """A gated convolution of `channels` values over `kernel` tokens, without any other state (LFM2)."""

    channels: int
    kernel: int
    bias: bool = False

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at = f"{at}conv."
        out.linear(f"{at}in_proj", "recurrent", (hidden, 3 * self.channels), "split", bias=self.bias)
        out.add(f"{at}conv.weight", "recurrent", (self.channels, 1, self.kernel), "split")
        if self.bias:
            out.add(f"{at}conv.bias", "recurrent", (self.channels,), "split")
        out.linear(
            f"{at}out_proj", "recurrent", (self.channels, hidden), "split", bias=self.bias, bias_sharding="replicated"
        )

    def state(self) -> StateLayers:
        """The state of this layer."""
        return StateLayers("short_conv", 1, 0, 0, 0, self.channels, self.kernel)


@dataclass(frozen=True)
class KimiDelta:
    """Kimi delta attention: `heads` matrices of `head_dim` x `head_dim` values, which vLLM keeps in float32."""

    heads: int
    head_dim: int
    kernel: int

    def weights(self, out: Weights, at: str, hidden: int) -> None:
        """Add them below `at`, such as `model.layers.0.`."""
        at, values = f"{at}self_attn.", self.heads * self.head_dim
        for name in ("q", "k", "v"):
            out.linear(f"{at}{name}_proj", "recurrent", (hidden, values), "split")
            out.add(f"{at}{name}_conv1d.weight", "recurrent", (values, 1, self.kernel), "split", full_precision=True)
        out.linear(f"{at}b_proj", "recurrent", (hidden, self.heads), "split")
        for name in ("f", "g"):
            out.linear(f"{at}{name}_a_proj", "recurrent", (hidden, self.head_dim), "replicated")
            out.linear(f"{at}{name}_b_proj", "recurrent", (self.head_dim, values), "split")
        out.add(f"{at}A_log", "recurrent", (self.heads,), "split", full_precision=True)
        out.add(f"{at}dt_bias", "recurrent", (values,), "split", full_precision=True)
        out.add(f"{at}o_norm.weight", "norm", (self.head_dim,))
        out.linear(f"{at}o_proj", "recurrent", (values, hidden), "split")

    def state(self) -> StateLayers:
        """The state of this layer."""
        channels = 3 * self.heads * self.head_dim
        return StateLayers(
            "kimi_delta", 1, self.heads, self.head_dim, self.head_dim, channels, self.kernel, dtype="float32"
        )


Mixer = GatedDelta | KimiDelta | Mamba1 | Mamba2 | ShortConv
