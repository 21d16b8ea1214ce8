"""Collects weight tensors layer by layer, and finds the purpose of a tensor by its name in a checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from neuroscale.models.facts import Group, Sharding, Tensor

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_STORED = (
    # The endings that quantisation methods give to the tensors of `NAME.weight`, longest first.
    *(".weight_global_scale", ".input_global_scale", ".weight_zero_point", ".weight_scale_inv", ".weight_g_idx"),
    *(".weight_packed", ".weight_scale_2", ".weight_scale", ".weight_shape", ".input_scale", ".qweight", ".qzeros"),
    *(".scales", ".g_idx", "_blocks", "_scales"),
)
_BITSANDBYTES = re.compile(r"\.weight\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*|SCB)$")
_PREFIXES = (
    *("model.language_model.model.", "model.language_model.", "language_model.model.", "language_model."),
    *("thinker.model.", "thinker.", "llm.model.", "backbone.", "model.", "llm."),
)
_TOWERS: tuple[tuple[Group, re.Pattern[str]], ...] = (
    ("projector", re.compile(r"(^|\.)(multi_modal_projector|mm_projector|merger|deepstack_merger_list|embed_vision|"
                             r"embed_audio|mlp1|connector|image_newline|aligner|projector)(\.|$)")),
    ("vision", re.compile(r"(^|\.)(visual|vision_tower|vision_model|vision_encoder|vpm|vit|image_encoder)(\.|$)")),
    ("audio", re.compile(r"(^|\.)(audio_tower|audio_model|audio_encoder|apm|speech_encoder|sound_encoder)(\.|$)")),
)  # fmt: skip
_TEXT: tuple[tuple[Group, re.Pattern[str]], ...] = (
    ("mtp", re.compile(r"(^|\.)(mtp|mtp_layers|nextn|eh_proj|enorm|hnorm|shared_head)(\.|$)")),
    ("per_layer_embedding", re.compile(r"(^|\.)embed_tokens_per_layer(\.|$)")),
    ("embedding", re.compile(r"(^|\.)(embed_tokens|tok_embeddings|word_embeddings|wte|wpe|embed_positions|embed_in|"
                             r"embeddings?)(\.|$)")),
    ("lm_head", re.compile(r"(^|\.)(lm_head|embed_out|output_layer)(\.|$)|^output\.")),
    ("shared_experts", re.compile(r"(^|\.)(shared_experts?|shared_expert_gate|shared_mlp)(\.|$)")),
    ("routed_experts", re.compile(r"(^|\.)(experts|input_linear|output_linear)(\.|$)")),
    ("router", re.compile(r"(^|\.)(gate|router|moe_statics|e_score_correction_bias|wg)(\.|$)")),
    ("norm", re.compile(r"(^|\.|_)(layer_?norm|norm\d?|layernorm|rmsnorm|ln_\w+|\w*_layernorm\w*|\w+_norm\w*|"
                        r"layer_scalar)(\.|$)")),
    ("attention", re.compile(r"(^|\.)(self_attn|attention|attn|self_attention)(\.|$)")),
    ("recurrent", re.compile(r"(^|\.)(linear_attn|mamba|conv)(\.|$)")),
)  # fmt: skip
_UNUSED = re.compile(r"(\.inv_freq|\.masked_bias|\.attn\.bias|position_ids|rotary_emb\.\w+_cached)$")


def core(name: str) -> str:
    """A name without the prefixes that models of several towers put before names of the language model."""
    return without_prefix(name, _PREFIXES)


def without_prefix(name: str, prefixes: Iterable[str]) -> str:
    """A name without the first of the prefixes with which it begins."""
    for prefix in prefixes:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def stored_name(name: str) -> str:
    """The name of the weight that a tensor stores or belongs to: scales and zero points go with their matrix."""
    name = _BITSANDBYTES.sub(".weight", name)
    for suffix in _STORED:
        if name.endswith(suffix):
            base = name.removesuffix(suffix)
            return base if suffix.startswith("_") else f"{base}.weight"
    return name


def template(name: str) -> str:
    """The core of a weight's name with `{}` for every number, and without `.weight`."""
    parts = core(stored_name(name)).removesuffix(".weight").split(".")
    return ".".join("{}" if part.isdigit() else part for part in parts)


def unused(name: str) -> bool:
    """Whether the tensor is not a weight, but a table that vLLM computes itself."""
    return _UNUSED.search(name) is not None


def layer_number(name: str) -> int | None:
    """The number of the decoder layer that a tensor belongs to; None outside the decoder's layers."""
    found = _LAYER.search(name)
    return int(found.group(1)) if found else None


def group_by_name(name: str, layers: int) -> Group:
    """The group of a tensor by its name; layers after the last of the `layers` are for multi-token prediction."""
    for group, pattern in _TOWERS:
        if pattern.search(name):
            return group
    number = layer_number(name)
    if number is not None and number >= layers:
        return "mtp"
    for group, pattern in _TEXT:
        if pattern.search(stored_name(name)):
            return group
    return "dense_mlp"


class Weight(NamedTuple):
    """`copies` tensors of one shape in one place of a checkpoint."""

    name: str  # as in the checkpoint, with the layer's number; `{}` stands for the number of an expert
    group: Group
    shape: tuple[int, ...]
    sharding: Sharding
    # A matrix that quantisation methods convert. Experts that a checkpoint fuses into one tensor count one by one.
    linear: bool = False
    copies: int = 1
    full_precision: bool = False  # as in `Tensor`

    @property
    def module(self) -> str:
        """The name without `.weight`, as lists of unquantised modules write it."""
        return self.name.removesuffix(".weight")


class Weights:
    """Collects weights. `groups` divides the numbers of similar layers into those that a quantisation treats alike."""

    def __init__(self, groups: Callable[[Sequence[int]], list[list[int]]] = lambda numbers: [list(numbers)]) -> None:
        self.all: list[Weight] = []
        self._groups = groups

    def alike(self, numbers: Sequence[int], add: Callable[[int], None]) -> None:
        """Adds similar layers by `add`: the first number of each group, with a copy for each other one."""
        for group in self._groups(numbers):
            start = len(self.all)
            add(group[0])
            if len(group) > 1:
                self.all[start:] = [one._replace(copies=one.copies * len(group)) for one in self.all[start:]]

    def add(
        self,
        name: str,
        group: Group,
        shape: Sequence[int],
        sharding: Sharding = "replicated",
        *,
        copies: int = 1,
        full_precision: bool = False,
    ) -> None:
        """Adds a tensor that quantisation does not convert. `full_precision`: as in `Tensor`."""
        self.all.append(Weight(name, group, tuple(shape), sharding, copies=copies, full_precision=full_precision))

    def linear(
        self,
        name: str,
        group: Group,
        width: tuple[int, int],
        sharding: Sharding,
        *,
        bias: bool = False,
        bias_sharding: Sharding | None = None,
        copies: int = 1,
        convert: bool = True,
        full_precision: bool = False,
    ) -> None:
        """Adds a matrix from `width[0]` to `width[1]` values, stored as (out, in), and its bias. `bias_sharding`: the
        sharding of the bias if it differs from the matrix's, as after a `RowParallelLinear`. `convert`: false for a
        matrix that vLLM's layers never quantise. `full_precision`: as in `Tensor`."""
        into, out = width
        self.all.append(Weight(f"{name}.weight", group, (out, into), sharding, convert, copies, full_precision))
        if bias:
            self.all.append(Weight(f"{name}.bias", group, (out,), bias_sharding or sharding, copies=copies))


def together(weights: Iterable[Weight]) -> tuple[Tensor, ...]:
    """The weights with equal tensors of different layers as one entry, in the order of their first layer."""
    found: Counter[tuple[str, Group, tuple[int, ...], Sharding, bool, bool]] = Counter()
    for one in weights:
        key = (_without_numbers(one.name), one.group, one.shape, one.sharding, one.linear, one.full_precision)
        found[key] += one.copies
    return tuple(
        Tensor(name, group, shape, copies, sharding, linear, full_precision)
        for (name, group, shape, sharding, linear, full_precision), copies in found.items()
    )


@lru_cache(maxsize=65_536)
def _without_numbers(name: str) -> str:
    """A tensor's name with `{}` for the numbers of layers and experts."""
    return ".".join("{}" if part.isdigit() else part for part in name.split("."))
