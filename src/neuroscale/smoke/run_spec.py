"""Holds the instructions for the process that runs the checks."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from neuroscale.cluster.command_lines import CommandLines, lines_with
from neuroscale.cluster.endpoint.routes import Routes, read_rules

VARIABLE = "NEUROSCALE_SMOKE"
"""The variable that names the file with the Spec. A file, so that no argument shows its content."""


@dataclass(frozen=True)
class Spec:
    """The deployment to check. It holds no secret.

    `repository`: the clone; `revision`: the commit whose facts count. `services`: names, in the order of the checks.
    `base_url`: the address of the one service (""; with `connect_to`, each service's own by KServe, else through the
    API server). `connect_to`: the ways to hosts, as `--connect-to` takes them; `authority`: the file of what signs the
    certificates there ("": as for all others). `kubeconfig` and `context`: "" for the
    default ones. `own_options`: the options by which this project's commands ask the cluster, if they are not these.
    `fetch`: the command that fetches what Argo CD reads. `patience`: seconds that the first part of an answer may take.
    `journal`: the file descriptor for the results.
    """

    repository: str
    environment: str
    revision: str
    services: tuple[str, ...]
    base_url: str = ""
    connect_to: tuple[str, ...] = ()
    authority: str = ""
    kubeconfig: str = ""
    context: str = ""
    own_options: tuple[str, ...] | None = None
    fetch: str = "git fetch"
    patience: float = 60.0
    journal: int = -1

    @property
    def routes(self) -> Routes:
        """The ways to the hosts of services."""
        return Routes(read_rules(self.connect_to), Path(self.authority) if self.authority else None)

    @property
    def lines(self) -> CommandLines:
        """The beginnings of command lines that ask the same cluster."""
        named = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        return lines_with([f"{name}={value}" for name, value in named.items() if value], self.own_options)

    def write(self, path: Path) -> None:
        """Write it for the process to read."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_spec() -> Spec:
    """The spec in the file that the environment names. Raises KeyError if the variable is not set."""
    found = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    own = found["own_options"]
    return Spec(
        **{
            **found,
            "services": tuple(found["services"]),
            "own_options": own if own is None else tuple(own),
            "connect_to": tuple(found["connect_to"]),
        }
    )
