"""What the process that runs the checks is told."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "NEUROSCALE_SMOKE"
"""Names the file that holds the Spec. A path, so that nothing of it stands in arguments."""


@dataclass(frozen=True)
class Spec:
    """Which deployment is looked at. It holds no secret.

    `repository`: the clone; `revision`: the commit whose facts count. `services`: names, in the order in which they are
    looked at. `base_url`: where the one service is reached ("": through the API server). `kubeconfig` and `context`:
    "" for the usual ones. `patience`: seconds that the first part of an answer may take. `journal`: the descriptor that
    results are written to.
    """

    repository: str
    environment: str
    revision: str
    services: tuple[str, ...]
    base_url: str = ""
    kubeconfig: str = ""
    context: str = ""
    patience: float = 60.0
    journal: int = -1

    def write(self, path: Path) -> None:
        """Write it for the process to read."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_spec() -> Spec:
    """The spec that the environment names. Raises KeyError where it names none."""
    found = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    return Spec(**{**found, "services": tuple(found["services"])})
