"""Builds the decoders of models that keep states alone: Mamba, Falcon Mamba and Mamba-2."""

from __future__ import annotations

import math

from neuroscale.models.config_keys import Keys
from neuroscale.models.families.common import hidden_size, layer_count
from neuroscale.models.families.decoder import Decoder
from neuroscale.models.layers import Layer
from neuroscale.models.mixers import Mamba1, Mamba2, Mixer


def mamba(c: Keys) -> Decoder:
    """Mamba, and Falcon Mamba, whose norms inside the block have no weights."""
    hidden, rank = hidden_size(c), c.raw("time_step_rank")
    mixer = Mamba1(
        c.optional("intermediate_size", high=2**22) or c.integer("expand") * hidden,
        c.integer("state_size", high=2**16),
        math.ceil(hidden / 16) if rank in ("auto", None) else c.integer("time_step_rank", high=2**16),
        c.integer("conv_kernel", high=2**10),
        conv_bias=c.flag("use_conv_bias", True),
        bias=c.flag("use_bias"),
        block="mixer",
    )
    return _of_states(c, mixer)


def mamba2(c: Keys) -> Decoder:
    """Mamba-2, such as Codestral Mamba."""
    mixer = Mamba2(
        c.optional("intermediate_size", high=2**22) or c.integer("expand") * hidden_size(c),
        c.integer("num_heads", high=2**16),
        c.integer("head_dim", high=2**16),
        c.integer("state_size", high=2**16),
        c.integer("n_groups", high=2**16),
        c.integer("conv_kernel", high=2**10),
        conv_bias=c.flag("use_conv_bias", True),
        bias=c.flag("use_bias"),
        block="mixer",
    )
    return _of_states(c, mixer)


def _of_states(c: Keys, mixer: Mixer) -> Decoder:
    layer = Layer(None, (), ("norm",), mixer=mixer)
    return Decoder((layer,) * layer_count(c), hidden_size(c), final_norm=("norm_f.weight",))
