"""Holds the facts that all pods of the local node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from neuroscale.kube.client import Cluster
from neuroscale.local.node.container import Keeper
from neuroscale.local.node.events import Events
from neuroscale.local.node.launch import LocalVllm
from neuroscale.local.node.probes import Prober


@dataclass(frozen=True)
class Machine:
    """The facts that all pods of the node share. `folder` holds one folder for each pod; `cpu` in cores, `memory` in
    bytes. `root_problem`: why no process here gets a read-only root file system, "" if it can have one.
    """

    name: str
    host: str
    cpu: int
    memory: int
    folder: Path
    cluster: Cluster
    keeper: Keeper
    server: Callable[[], LocalVllm]
    events: Events
    prober: Prober
    say: Callable[[str], None]
    root_problem: str = ""
