"""What is wrong with a container beside its command: `ContainerFault`."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.core.yaml_io import Path


@dataclass(frozen=True)
class ContainerFault:
    """Something wrong. `place`: within the container. `refused`: False for a remark."""

    rule: str
    place: Path
    message: str
    fix: str
    refused: bool = True
