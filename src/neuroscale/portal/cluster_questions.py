"""Tells the pages of `neuroscale serve` what a cluster and its Prometheus say, as `status` and `metrics` ask them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.actions.chosen_cluster import Where, asked_cluster, local_state, services_asked, statuses_in, with_curl
from neuroscale.actions.progress import SILENT
from neuroscale.actions.promotion import Proofs, evidence_of
from neuroscale.actions.retirement import removal_sentences
from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.core.money_and_time import duration
from neuroscale.portal.services import Evidence, Figure, Measured, RemovalSentences, chart

if TYPE_CHECKING:
    from neuroscale.forge.rest import Forge
    from neuroscale.rendering.planning_inputs import PlanningInputs

_SINCE = 900.0  # seconds
_COLUMNS = 30


@dataclasses.dataclass(frozen=True)
class ClusterQuestions:
    """The cluster that the options name, else the one that `status` would ask. Every method raises NeuroscaleError."""

    where: Where
    root: Path
    local: bool = False

    def statuses(self, inputs: PlanningInputs, environment: str, service: str) -> Sequence[ServiceStatus]:
        """The services of an environment, or one of them ("": all), as the cluster has them."""
        question = services_asked(service, environment, inputs)
        where = asked_cluster(self.where, self.root, environment)
        platform = local_state(where)
        return [with_curl(status, where, platform, None) for status in statuses_in(where, self.root, inputs, question)]

    def metrics(self, inputs: PlanningInputs, environment: str, service: str) -> Measured:
        """A service's metrics of the last minutes."""
        from neuroscale.actions.chosen_metrics import prometheus_of
        from neuroscale.cluster.metrics.line_chart import Gap
        from neuroscale.cluster.metrics.service_metrics import Row, read
        from neuroscale.core.errors import Problem
        from neuroscale.report.metrics_view import cell, state_of

        where = asked_cluster(self.where, self.root, environment)
        ambiguous = Problem("the server", "", "", "Start it with --context.")
        statuses = self.statuses(inputs, environment, service)
        namespace = next((status.namespace for status in statuses if status.namespace), "")
        with prometheus_of(environment, where, "", inputs.settings, ambiguous) as prometheus:
            seen = read(prometheus, namespace, service, prometheus.now(), _SINCE, _COLUMNS)
        span = duration(seen.since)

        def figure(row: Row) -> Figure:
            now, whole, highest = (cell(row, value, seen) for value in (row.now, row.whole, row.highest))
            points = [None if isinstance(point, Gap) else point for point in row.points]
            return Figure(row.title, now, whole, highest, chart(points, span, lambda value: cell(row, value, seen)))

        rows = tuple(figure(row) for row in seen.rows if row.now is not None or row.highest is not None)
        return Measured(state_of(seen), span, rows)

    def retiring(self, reason: str) -> RemovalSentences:
        """Makes the sentences that the pull request of a removal begins with."""
        return removal_sentences(self.where, "", self.root, reason, SILENT, local=self.local)

    def evidence(self, forge: Forge, reason: str, to: str) -> Evidence:
        """Makes the sentences that say why a service may be promoted."""
        return evidence_of(Proofs(forge, self.where, self.root, local=self.local), reason, to)
