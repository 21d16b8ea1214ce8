"""Builds the decoders of Mistral, Ministral and Mixtral."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import (
    NAMES_W1_W3_W2,
    attentions_of,
    dense_decoder,
    mixed_decoder,
    mlp_width,
    needed_experts,
)
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts, Mlp


def mistral(c: Keys) -> Decoder:
    """Mistral and Ministral: no biases; one window for all layers, or a list of layer types."""
    return dense_decoder(c, attentions_of(c), Mlp(mlp_width(c)))


def mixtral(c: Keys) -> Decoder:
    """Mixtral."""
    count, chosen = needed_experts(c)
    experts = Experts(count, chosen, mlp_width(c), names=NAMES_W1_W3_W2, block="block_sparse_moe")
    return mixed_decoder(c, attentions_of(c), experts, None)
