"""What the rules on commands of vLLM say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Something wrong. `dest`: vLLM's name of the argument it is about ("" for none). `refused`: False for a remark."""

    rule: str
    dest: str
    message: str
    fix: str
    refused: bool = True
