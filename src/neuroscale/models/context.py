"""Computes how long a context a model reads: `context_of`, like vLLM's `_get_and_verify_max_len` (config/model.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neuroscale.core.validation import shorten
from neuroscale.models.config_keys import Keys

_KEYS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_target_positions", "max_sequence_length", "max_seq_length", "seq_len"),
)
_AS_WRITTEN = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
"""Scalings whose files already give the scaled number of positions: their factor is not applied a second time."""
UNSAID = 2048
"""Tokens that vLLM takes without --max-model-len if no key of the file gives the context."""
LONGEST = 2**20
"""The most tokens that are planned if no key gives the context: vLLM takes any number that the command sets."""
LONG = ("longrope", "su")
"""Scalings that answer short prompts worse when long ones are allowed: vLLM allows long prompts only on demand."""


@dataclass(frozen=True)
class Context:
    """The longest request that a model reads, in tokens."""

    positions: int  # the number in the file
    longest: int  # the most that vLLM allows
    default: int  # what vLLM takes without --max-model-len
    # The most that those releases of vLLM allow that multiply YaRN's original positions by its factor (None: the same
    # as `longest`).
    by_yarn: int | None


def context_of(text: Keys, *, endless: bool = False) -> Context:
    """The context of a language model, from its keys. `endless`: no layer has positions, so that the file may leave
    them out. Raises InputError if none of the keys gives the context of another model."""
    positions = _positions(text, endless=endless)
    if not positions:
        return Context(UNSAID, LONGEST, UNSAID, None)
    scalings = list(_each_scaling(text))
    factor, by_yarn = 1.0, None
    for scaling in scalings:
        kind, original = rope_kind(scaling), scaling.optional("original_max_position_embeddings")
        if kind not in _AS_WRITTEN:
            factor = rope_factor(scaling, factor)
        elif kind == "yarn" and original:
            by_yarn = int(original * rope_factor(scaling, 1.0))
    if "gemma3" in text.model_type:  # its files already give the scaled positions
        factor, by_yarn = 1.0, None
    longest = max(int(positions * factor), 1)
    default = longest
    if any(rope_kind(scaling) in LONG for scaling in scalings):
        default = min(text.optional("original_max_position_embeddings") or longest, longest)
    return Context(positions, longest, default, by_yarn if by_yarn != longest else None)


def rope_scaling(text: Keys) -> Keys | None:
    """The section on rotary embeddings, for all layers or by kind of layer; None if the file has no such section."""
    for key in ("rope_scaling", "rope_parameters"):
        if (said := text.section(key)) is not None:
            return said
    return None


def rope_kind(scaling: Keys) -> str:
    """The name of a scaling, under the newer key or the older one."""
    return scaling.text("rope_type") or scaling.text("type")


def _positions(text: Keys, *, endless: bool) -> int:
    """`model_max_length` if the file has it, else the least of the keys that vLLM looks at; 0 without any of them."""
    found = [value for key in _KEYS if (value := text.optional(key)) is not None]
    if not found:
        if endless:
            return 0
        raise text.problem(_KEYS[0], "is missing", "Write the longest context that the model reads.")
    return text.optional("model_max_length") or min(found)


def _each_scaling(text: Keys) -> Iterator[Keys]:
    said = rope_scaling(text)
    if said is None:
        return
    kinds = [said.section(key) for key in ("full_attention", "sliding_attention", "chunked_attention")]
    by_kind = [one for one in kinds if one is not None]
    yield from by_kind or [said]


def rope_factor(scaling: Keys, default: float) -> float:
    """The factor by which the scaling stretches positions. Raises InputError if it is not a number in bounds."""
    factor = scaling.raw("factor")
    if factor is None:
        return default
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 2**20:
        raise scaling.problem("factor", f"{shorten(factor)} is not a factor from 0 to {2**20}")
    return float(factor)
