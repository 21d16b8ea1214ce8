"""Builds the decoder of Kimi-Linear: Kimi delta attention in most layers, latent attention in the others."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    hidden_size,
    layer_count,
    mixed_decoder,
    mlp_width,
    needed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, LatentAttention, Mlp
from neuroscale.models.mixers import KimiDelta

_MEASURE = "Start it once under vLLM, and plan with the numbers that it prints."
_OF_KIMI_K3 = "attn_res_block_size", "routed_expert_hidden_size", "mla_use_output_gate", "q_lora_rank"
"""Keys of the parts that only Kimi K3 has."""


def kimi_linear(c: Keys) -> Decoder:
    """Kimi-Linear. Raises InputError for a file with the parts of Kimi K3."""
    for key in _OF_KIMI_K3:
        if c.raw(key):
            raise c.problem(key, "is a part of Kimi K3, which is not planned", _MEASURE)
    if not c.flag("mla_use_nope"):
        raise c.problem("mla_use_nope", "is not true, and vLLM serves this architecture only without rotary embeddings")
    delta = c.section("linear_attn_config")
    if delta is None:
        raise c.problem("linear_attn_config", "is missing, so that the kind of each layer is not known")
    if delta.flag("use_full_rank_gate"):
        raise delta.problem("use_full_rank_gate", "is a part of Kimi K3, which is not planned", _MEASURE)
    latent = LatentAttention(
        c.shape("num_attention_heads", high=2**16),
        rank=c.integer("kv_lora_rank", high=2**20),
        rope_dim=c.integer("qk_rope_head_dim", high=2**16),
        nope_dim=c.integer("qk_nope_head_dim", high=2**16),
        value_dim=c.integer("v_head_dim", high=2**16),
        query_rank=None,
        turned=False,
    )
    mixer = KimiDelta(
        delta.integer("num_heads", high=2**16),
        delta.integer("head_dim", high=2**16),
        delta.integer("short_conv_kernel_size", high=2**10),
    )
    count, chosen = needed_experts(c)
    width = mlp_width(c, "moe_intermediate_size")
    shared = width * (c.optional("num_shared_experts", low=0, high=2**10) or 0)
    experts = Experts(
        count,
        chosen,
        width,
        names=NAMES_W1_W3_W2,
        block="block_sparse_moe",
        # Kernels of Hopper and Blackwell read it in 16 bits (router/gate_linear.py of vLLM's fused_moe).
        full_router=True,
        correction="gate.e_score_correction_bias",
        shared=Mlp(shared, block="shared_experts", group="shared_experts") if shared else None,
    )
    leading = c.integer("first_k_dense_replace", low=0, default=0)
    frequency = c.integer("moe_layer_freq", default=1)
    made = mixed_decoder(
        c,
        [latent] * layer_count(c),
        experts,
        Mlp(mlp_width(c)),
        lambda layer: layer < leading or layer % frequency != 0,
    )
    # The file counts layers from 1.
    of_states = frozenset(delta.integers("kda_layers", low=1) or ())
    layers = tuple(
        replace(layer, attention=None, mixer=mixer) if number in of_states else layer
        for number, layer in enumerate(made.layers, start=1)
    )
    return replace(made, layers=layers, hidden=hidden_size(c))
