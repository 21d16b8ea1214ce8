"""Adds the weights that join a vision tower to the language model."""

from __future__ import annotations

import math

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers.blocks import add_norm, add_projection
from neuroscale.models.weights import Weights


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


def join_aya(c: Keys, _: Keys, out: Weights, width: int, hidden: int) -> None:
    """Aya Vision."""
    factor = c.integer("downsample_factor", high=64, default=2)
    inner = c.integer("alignment_intermediate_size", high=2**20, default=hidden)
    at = "multi_modal_projector."
    merged = width * factor**2
    add_norm(out, f"{at}layernorm", "projector", merged)
    add_projection(out, f"{at}linear_1", (merged, inner), bias=True)
    add_projection(out, f"{at}linear_2", (math.ceil(inner / 2), hidden), bias=True)
