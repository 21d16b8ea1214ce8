"""Builds the decoder of MiniMax."""

from __future__ import annotations

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import NAMES_W1_W3_W2, attentions_of, mixed_decoder, mlp_width, needed_experts
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Experts


def minimax_m2(c: Keys) -> Decoder:
    """MiniMax M2: full attention, norms over all queries and keys."""
    count, chosen = needed_experts(c)
    experts = Experts(
        count,
        chosen,
        mlp_width(c),
        names=NAMES_W1_W3_W2,
        block="block_sparse_moe",
        full_router=True,
        correction="e_score_correction_bias",
    )
    return mixed_decoder(c, attentions_of(c, norm="all"), experts, None)
