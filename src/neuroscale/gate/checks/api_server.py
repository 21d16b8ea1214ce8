"""The API server check: asks an API server that the run starts whether it would accept every object.

It imports the client only in a run with --server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import APPLIED, GateCheck, LeftOut, Run
from neuroscale.gate.evaluation import Evaluation
from neuroscale.manifests.serving_runtimes import KSERVE

if TYPE_CHECKING:
    from neuroscale.kube.ephemeral import EphemeralServer

_NO_WEBHOOK = (
    "KServe's own admission webhook, which the run's API server does not ask: it also refuses addresses of models, "
    "autoscaler settings, canaries and several nodes that it cannot deploy."
)


class ApiServerCheck(GateCheck):
    """Whether an API server would take every object. It runs only with --server."""

    name = "server"
    title = "API server"
    needs = APPLIED
    beside = True

    def __init__(self) -> None:
        self._server: EphemeralServer | None = None

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.subject.server else LeftOut("the run has no --server")

    def begin(self, run: Run) -> None:
        from neuroscale.kube.ephemeral import EphemeralServer

        self._server = run.ending.enter_context(EphemeralServer())

    def evaluate(self, run: Run) -> Evaluation:
        from neuroscale.gate.checks.api_server_dry_run import evaluate_by_server

        try:
            tool_cache.find("etcd")
            version = tool_cache.find_tool("kube-apiserver").module.version
        except UntrustedError as error:
            raise UntrustedError(f"--server asks for it, but it cannot run: {error}") from error
        if self._server is None:
            raise UntrustedError("--server asks for it, but its server was not started.")
        return evaluate_by_server(run.applied, run.schemas(), self._server, version)

    def not_checked(self, run: Run) -> Iterable[str]:
        if run.subject.server and any(manifest.group == KSERVE for manifest in run.applied):
            yield _NO_WEBHOOK
