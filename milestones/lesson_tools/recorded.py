"""Shows starts of vLLM that others recorded, for failures that need a GPU: cases of `tests/ground_truth`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from lesson_tools.program import Program
from neuroscale.core import delivered
from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import decode

RECORDED = "RECORDED"
"""The first word of each recorded start in the output."""
FOLDER = "tests/ground_truth"
_FIGURES = {
    "load_seconds": "{:.2f} s to read the weights",
    "compile_seconds": "{:.2f} s to compile",
    "kv_tokens": "a KV cache of {:,} tokens",
    "decode_tokens_per_second": "{} tokens a second",
}
"""The measurements that are shown, in the words of the output."""


class Accelerator(BaseModel):
    """The cards of a start, as far as its source names them."""

    name: str | None
    count: int | None


class Measured(BaseModel):
    """Figures of a start that lessons show."""

    load_seconds: float | None = None
    compile_seconds: float | None = None
    kv_tokens: int | None = None
    decode_tokens_per_second: float | None = None


class RecordedStart(BaseModel):
    """One start of vLLM: what lessons show of a case, whose other fields `tests/ground_truth/README.md` describes."""

    id: str
    source: str
    model: str | None = None
    catalog: str | None = None
    accelerator: Accelerator
    arguments: tuple[str, ...]
    outcome: Literal["started", "refused", "other"]
    cause: str | None = None
    detail: str | None = None
    measured: Measured


class _Starts(BaseModel):
    cases: tuple[RecordedStart, ...]


def recorded(program: Program, case_id: str) -> RecordedStart:
    """Print a recorded start with its source, arguments and figures, and return it.

    Raises UntrustedError if the delivered files do not hold the case.
    """
    path = delivered.FOLDER / FOLDER / "starts/seeds.yaml"
    try:
        starts = parse(_Starts, decode(path.read_bytes(), str(path)), str(path)).cases
    except (InputError, OSError) as error:
        raise UntrustedError(f"The recorded starts cannot be read: {error}") from error
    case = next((one for one in starts if one.id == case_id), None)
    if case is None:
        raise UntrustedError(f"{FOLDER} does not hold the case {case_id}.")
    program.say(f"{RECORDED} elsewhere, not run here: {case.id} in {FOLDER}. Source: {case.source}.")
    card = case.accelerator
    cards = f"{card.count or '?'} x {card.name or 'a card that the source does not name'}"
    program.say(f"  {case.model or case.catalog} on {cards}: {' '.join(case.arguments)}")
    program.say(f"  {_outcome(case)}")
    return case


def _outcome(case: RecordedStart) -> str:
    figures = case.measured.model_dump()
    told = [words.format(figures[name]) for name, words in _FIGURES.items() if figures[name] is not None]
    told += [case.detail] if case.detail else []
    began = (
        "It started" if case.outcome == "started" else f"It failed ({(case.cause or case.outcome).replace('_', ' ')})"
    )
    return f"{began}: {'; '.join(told)}." if told else f"{began}."
