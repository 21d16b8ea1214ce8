"""The API server check: an API server of the run's own is asked whether it would take every object.

What it is asked with is imported once a run asks for it: the other runs do without its client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroscale.core import tools
from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import Evaluation, GateCheck, LeftOut

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run
    from neuroscale.kube.ephemeral import EphemeralServer


class ApiServerCheck(GateCheck):
    """Whether an API server would take every object, where the run was asked to ask one."""

    name = "server"
    title = "API server"
    beside = True

    def __init__(self) -> None:
        self._server: EphemeralServer | None = None

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.subject.server else LeftOut("it was not asked for by --server")

    def begin(self, run: Run) -> None:
        from neuroscale.kube.ephemeral import EphemeralServer

        self._server = run.ending.enter_context(EphemeralServer())

    def evaluate(self, run: Run) -> Evaluation:
        from neuroscale.gate.checks.api_server_dry_run import evaluate_by_server

        try:
            tools.find("etcd")
            version = tools.find_tool("kube-apiserver").module.version
        except UntrustedError as error:
            raise UntrustedError(f"it was asked for and not run: {error}") from error
        if self._server is None:
            raise UntrustedError("it was asked for and not run: its server was not begun.")
        return evaluate_by_server(run.judged, run.schemas(), self._server, version)
