"""What the rules on commands of vLLM say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from neuroscale.vllm.arguments import Parsed


@dataclass(frozen=True)
class Fault:
    """Something wrong. `dest`: vLLM's name of the argument it is about ("" for none). `refused`: False for a remark."""

    rule: str
    dest: str
    message: str
    fix: str
    refused: bool = True


def of_version(parsed: Parsed, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Remarks where the version is not known: what one version refuses may be right for another."""
    return (replace(fault, refused=fault.refused and parsed.exact) for fault in faults)
