"""Defines `ContainerFault`: a fault of a container that is not in its command."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.core.yaml_io import Path


@dataclass(frozen=True)
class ContainerFault:
    """A fault. `place`: its field within the container. `refused`: False for a notice."""

    rule: str
    place: Path
    message: str
    fix: str
    refused: bool = True
