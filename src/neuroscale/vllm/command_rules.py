"""Finds faults of a command of vLLM beyond its spelling: in itself, for its model, and on its accelerators.

Each rule names what vLLM (release 0.32) does with such a command: most end its start, some let it answer wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.catalog import ModelEntry
from neuroscale.models.facts import ModelFacts
from neuroscale.vllm.accelerator_rules import Place, check_accelerator, check_dtype, check_support
from neuroscale.vllm.argument_rules import check_arguments, check_batch
from neuroscale.vllm.arguments import Parsed
from neuroscale.vllm.command_faults import Fault
from neuroscale.vllm.model_rules import check_model, check_parsers, check_shares

BY_ABSENCE = frozenset(
    {
        *("no-model", "tool-choice-without-parser", "outputs-without-requests", "adapters-without-lora"),
        *("parallel-sizes", "load-balancing", "expert-balancing", "answers-nobody"),
        *("context-parallelism", "whole-prompts"),
    }
)
"""Rules that report a missing argument: words that cannot be read may contain it."""


def check_command(
    parsed: Parsed,
    facts: ModelFacts | None = None,
    entry: ModelEntry | None = None,
    place: Place | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[Fault, ...]:
    """The faults of a command. A parameter of None leaves out the rules that need it. `entry`: the catalog's entry."""
    faults = [*check_arguments(parsed), *check_batch(parsed, facts)]
    if facts is not None:
        faults += check_model(parsed, facts, variables or {})
        faults += check_parsers(parsed, facts, entry)
        faults += check_shares(parsed, facts)
    if place is not None:
        faults += check_accelerator(parsed, place)
        if facts is not None:
            faults += check_dtype(parsed, facts, place.accelerator)
        if entry is not None:
            faults += check_support(entry, place.accelerator)
    return tuple(faults)
