"""Describes the platform's own programs as a service of each environment, so that they are priced as services are.

They are charged to no team: their cost centre is `OWN`, which has no budget.
"""

from __future__ import annotations

from neuroscale.catalog.settings import Settings
from neuroscale.costs.change import Side
from neuroscale.manifests.labels import COST_CENTER
from neuroscale.manifests.workloads import Unpriced
from neuroscale.rendering.platform.chart_pods import platform_pods
from neuroscale.repo.snapshot import Snapshot

OWN = "(the platform's own)"
"""The cost centre of the platform's programs."""
NAME = "(platform)"
"""The name of the platform's programs among the services of an environment."""


def platform_side(snapshot: Snapshot, settings: Settings, environment: str) -> Side:
    """The platform's programs in an environment; empty where `neuroscale local up` runs them. Raises InputError."""
    known = settings.environments.get(environment)
    if known is None or known.cluster == "local":
        return Side(empty=True)
    pods = platform_pods(snapshot, settings, known.cluster)
    objects = tuple({**one, "metadata": {**one["metadata"], "labels": {COST_CENTER: OWN}}} for one in pods.objects)
    unknown = tuple(Unpriced(f"chart {one.name}", one.reason, True, one.content) for one in pods.unknown)
    return Side(objects=objects, unreadable=unknown)
