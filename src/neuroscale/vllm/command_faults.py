"""Defines the faults that the rules on commands of vLLM report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from neuroscale.vllm.arguments import Parsed


@dataclass(frozen=True)
class Fault:
    """A fault. `dest`: vLLM's name of the argument at fault ("": no single one). `refused`: False for a remark."""

    rule: str
    dest: str
    message: str
    fix: str
    refused: bool = True


def of_version(parsed: Parsed, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults as mere remarks if the version is not known: another version may accept the command."""
    return (replace(fault, refused=fault.refused and parsed.exact) for fault in faults)
