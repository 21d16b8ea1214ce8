"""Builds towers of known layouts, and lists their model types and those of the models that contain them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.towers import blocks, gemma, qwen
from neuroscale.models.towers.blocks import (
    CLIP_BLOCK,
    FUSED_BLOCK,
    GATED_BLOCK,
    Block,
    add_blocks,
    add_norm,
    add_patches,
    add_projection,
    height_and_width,
    layer_count,
    patch_count,
    size_of,
)
from neuroscale.models.weights import Weights


def pixtral(c: Keys, out: Weights, _: int) -> int:
    """Pixtral, of Mistral."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_tower."
    add_patches(c, out, f"{at}patch_conv", size_of(c, "num_channels"), bias=False)
    add_norm(out, f"{at}ln_pre", "vision", hidden, bias=False)
    block = Block(
        ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        "attention.o_proj",
        ("feed_forward.gate_proj", "feed_forward.up_proj"),
        "feed_forward.down_proj",
        ("attention_norm", "ffn_norm"),
        bias=False,
        norm_bias=False,
    )
    add_blocks(out, block, f"{at}transformer.layers.", layer_count(c), (hidden, width))
    return hidden


def llama4(c: Keys, out: Weights, _: int) -> int:
    """Llama 4, with the adapter after its layers."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_model."
    rows, columns = height_and_width(c, "patch_size")
    out.add(f"{at}class_embedding", "vision", (hidden,))
    out.add(f"{at}positional_embedding_vlm", "vision", (patch_count(c) + 1, hidden))
    out.linear(f"{at}patch_embedding.linear", "vision", (size_of(c, "num_channels") * rows * columns, hidden), "split")
    for name in ("layernorm_pre", "layernorm_post"):
        add_norm(out, at + name, "vision", hidden)
    block = Block(
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.o_proj",
        ("mlp.fc1",),
        "mlp.fc2",
        ("input_layernorm", "post_attention_layernorm"),
    )
    add_blocks(out, block, f"{at}model.layers.", layer_count(c), (hidden, width))
    inner, outer = size_of(c, "projector_input_dim"), size_of(c, "projector_output_dim")
    add_projection(out, f"{at}vision_adapter.mlp.fc1", (width, inner), bias=False, group="vision")
    add_projection(out, f"{at}vision_adapter.mlp.fc2", (inner, outer), bias=False, group="vision")
    return size_of(c, "vision_output_dim")


def glm4v(c: Keys, out: Weights, _: int) -> int:
    """GLM-4V and GLM-4.5V."""
    hidden, given = size_of(c, "hidden_size"), size_of(c, "out_hidden_size")
    width = size_of(c, "intermediate_size")
    block = replace(GATED_BLOCK, bias=c.flag("attention_bias"), output_bias=False, mlp_bias=False)
    qwen.qwen_patches(c, out, hidden, size_of(c, "in_channels"), bias=True)
    out.add("visual.embeddings.position_embedding.weight", "vision", (patch_count(c), hidden))
    add_blocks(out, block, "visual.blocks.", layer_count(c, "depth"), (hidden, given))
    for name in ("post_conv_layernorm", "post_layernorm"):
        add_norm(out, f"visual.{name}", "vision", hidden, bias=False)
    merge = size_of(c, "spatial_merge_size")
    out.add("visual.downsample.weight", "projector", (given, hidden, merge, merge))
    out.add("visual.downsample.bias", "projector", (given,))
    at = "visual.merger."
    add_projection(out, f"{at}proj", (given, given), bias=False)
    add_norm(out, f"{at}post_projection_norm", "projector", given)
    for name in ("gate_proj", "up_proj"):
        add_projection(out, at + name, (given, width), bias=False)
    add_projection(out, f"{at}down_proj", (width, given), bias=False)
    return given


def siglip(c: Keys, out: Weights, _: int) -> int:
    """SigLIP, with the head that pools its patches."""
    hidden, width = _siglip_body(c, out)
    if c.flag("vision_use_head", True):
        head = "vision_tower.head."
        out.add(f"{head}probe", "vision", (1, 1, hidden))
        out.add(f"{head}attention.in_proj_weight", "vision", (3 * hidden, hidden))
        out.add(f"{head}attention.in_proj_bias", "vision", (3 * hidden,))
        out.linear(f"{head}attention.out_proj", "vision", (hidden, hidden), "replicated", bias=True)
        add_norm(out, f"{head}layernorm", "vision", hidden)
        out.linear(f"{head}mlp.fc1", "vision", (hidden, width), "split", bias=True)
        out.linear(f"{head}mlp.fc2", "vision", (width, hidden), "split", bias=True)
    return hidden


def idefics3(c: Keys, out: Weights, _: int) -> int:
    """SigLIP without a head, as Idefics 3 and SmolVLM have it."""
    return _siglip_body(c, out)[0]


def _siglip_body(c: Keys, out: Weights) -> tuple[int, int]:
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_tower."
    channels = c.integer("num_channels", high=2**20, default=3)
    add_patches(c, out, f"{at}embeddings.patch_embedding", channels, bias=True)
    out.add(f"{at}embeddings.position_embedding.weight", "vision", (patch_count(c), hidden))
    add_blocks(out, CLIP_BLOCK, f"{at}encoder.layers.", layer_count(c), (hidden, width))
    add_norm(out, f"{at}post_layernorm", "vision", hidden)
    return hidden, width


def clip(c: Keys, out: Weights, _: int) -> int:
    """CLIP."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")
    at = "vision_tower."
    out.add(f"{at}embeddings.class_embedding", "vision", (hidden,))
    add_patches(c, out, f"{at}embeddings.patch_embedding", size_of(c, "num_channels"), bias=False)
    out.add(f"{at}embeddings.position_embedding.weight", "vision", (patch_count(c) + 1, hidden))
    add_norm(out, f"{at}pre_layrnorm", "vision", hidden)
    add_blocks(out, CLIP_BLOCK, f"{at}encoder.layers.", layer_count(c), (hidden, width))
    add_norm(out, f"{at}post_layernorm", "vision", hidden)
    return hidden


def internvl(c: Keys, out: Weights, _: int) -> int:
    """InternVL as transformers has it."""
    hidden = size_of(c, "hidden_size")
    at = "vision_tower."
    out.add(f"{at}embeddings.cls_token", "vision", (1, 1, hidden))
    if c.flag("use_absolute_position_embeddings", True):
        out.add(f"{at}embeddings.position_embeddings", "vision", (1, patch_count(c) + 1, hidden))
    add_patches(c, out, f"{at}embeddings.patch_embeddings.projection", size_of(c, "num_channels"), bias=True)
    block = Block(
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
        add_norm(out, f"{at}layernorm", "vision", hidden)
    return hidden


def intern_vit(c: Keys, out: Weights, _: int) -> int:
    """InternViT as the publisher's own code has it (vLLM's intern_vit.py)."""
    hidden, at = size_of(c, "hidden_size"), "vision_model."
    out.add(f"{at}embeddings.class_embedding", "vision", (1, 1, hidden))
    out.add(f"{at}embeddings.position_embedding", "vision", (1, patch_count(c) + 1, hidden))
    channels = c.integer("num_channels", high=2**20, default=3)
    add_patches(c, out, f"{at}embeddings.patch_embedding", channels, bias=True)
    norm_bias = c.text("norm_type", "rms_norm") == "layer_norm"
    block = replace(FUSED_BLOCK, bias=c.flag("qkv_bias"), output_bias=True, mlp_bias=True, norm_bias=norm_bias)
    scales = ["ls1", "ls2"]
    if c.flag("qk_normalization", True):
        scales += ["attn.q_norm.weight", "attn.k_norm.weight"]
    _scaled(c, out, block, f"{at}encoder.layers.", scales)
    return hidden


def _scaled(c: Keys, out: Weights, block: Block, at: str, scales: Sequence[str]) -> None:
    """Blocks below `at` with `scales` of the hidden size beside each."""
    hidden, width = size_of(c, "hidden_size"), size_of(c, "intermediate_size")

    def add(layer: int) -> None:
        block.weights(out, f"{at}{layer}.", hidden, width)
        for name in scales:
            out.add(f"{at}{layer}.{name}", "vision", (hidden,))

    out.alike(range(layer_count(c)), add)


TOWERS: dict[str, Callable[[Keys, Weights, int], int]] = {
    "clip_vision_model": clip,
    "gemma4_audio": gemma.gemma4_audio,
    "gemma4_unified_audio": gemma.gemma4_unified_audio,
    "gemma4_unified_vision": gemma.gemma4_unified,
    "gemma4_vision": gemma.gemma4,
    **dict.fromkeys(("idefics3", "idefics3_vision", "smolvlm_vision"), idefics3),
    "intern_vit_6b": intern_vit,
    **dict.fromkeys(("glm4v_moe_vision", "glm4v_vision"), glm4v),
    "internvl_vision": internvl,
    "llama4_vision_model": llama4,
    "pixtral": pixtral,
    **dict.fromkeys(("qwen2_5_omni_vision_encoder", "qwen2_5_vl_vision"), qwen.qwen2_5),
    "qwen2_audio_encoder": qwen.qwen2_audio,
    "qwen2_vl_vision": qwen.qwen2,
    **dict.fromkeys(("qwen3_5_moe_vision", "qwen3_5_vision", "qwen3_vl_moe_vision", "qwen3_vl_vision"), qwen.qwen3),
    "siglip_vision_model": siglip,
}
"""Functions by model type, from a tower's keys, the `Weights` to add to, and the language model's width, to the tower's
own width."""


@dataclass(frozen=True)
class Wrapper:
    """A model type with several towers."""

    # The types of its towers, for files that do not name a known one.
    vision: str = ""
    audio: str = ""
    # Adds the weights that join the vision tower to the language model, from the file's keys, the tower's keys, the
    # tower's width and the language model's.
    join: Callable[[Keys, Keys, Weights, int, int], None] | None = None
    assumed: bool = True  # its class in transformers builds the towers even if the file has no sections for them


WRAPPERS = {
    "gemma3": Wrapper("siglip_vision_model", join=blocks.join_gemma3),
    "gemma4": Wrapper("gemma4_vision", "gemma4_audio", join=blocks.join_gemma4, assumed=False),
    "gemma4_unified": Wrapper("gemma4_unified_vision", "gemma4_unified_audio", assumed=False),
    "glm4v": Wrapper("glm4v_vision"),
    "glm4v_moe": Wrapper("glm4v_moe_vision"),
    "idefics3": Wrapper("idefics3_vision", join=blocks.join_idefics3, assumed=False),
    "internvl": Wrapper("internvl_vision", join=blocks.join_internvl),
    "internvl_chat": Wrapper("intern_vit_6b", join=blocks.join_internvl_chat, assumed=False),
    "llama4": Wrapper("llama4_vision_model", join=blocks.join_llama4),
    "llava": Wrapper("clip_vision_model", join=blocks.join_llava),
    "llava_next": Wrapper("clip_vision_model", join=blocks.join_llava),
    "mistral3": Wrapper("pixtral", join=blocks.join_mistral3),
    "paligemma": Wrapper("siglip_vision_model", join=blocks.join_paligemma),
    "qwen2_5_omni_thinker": Wrapper("qwen2_5_omni_vision_encoder", "qwen2_5_omni_audio_encoder", assumed=False),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_vision"),
    "qwen2_audio": Wrapper(audio="qwen2_audio_encoder"),
    "qwen2_vl": Wrapper("qwen2_vl_vision"),
    "qwen3_5": Wrapper("qwen3_5_vision"),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_vision"),
    "qwen3_vl": Wrapper("qwen3_vl_vision"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_vision"),
    "smolvlm": Wrapper("smolvlm_vision", join=blocks.join_idefics3, assumed=False),
}
