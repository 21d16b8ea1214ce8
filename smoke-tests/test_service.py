"""Checks the InferenceService."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from neuroscale.cluster.command_lines import CommandLines
from neuroscale.cluster.endpoint.access import pods_of
from neuroscale.kube.client import Cluster
from neuroscale.smoke.expected_services import Service, Target, ended_since, status_in_cluster
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import CannotTellError, FindingError, require


@pytest.mark.check("ready")
def test_its_newest_generation_is_ready(
    cluster: Cluster, target: Target, service: Service, lines: CommandLines, ends: Mapping[str, int], note: Notes
) -> None:
    """The InferenceService is Ready at its newest generation, and no server of it ended meanwhile."""
    answer = status_in_cluster(cluster, target, service)
    found = [one for one in answer.services if one.namespace == service.namespace]
    if answer.unreadable:
        raise CannotTellError("; ".join(answer.unreadable), "Ask the platform's team for the right to read it.")
    if not found:
        raise FindingError(
            f"the namespace {service.namespace} does not hold the InferenceService {service.name}",
            f"Is its change merged, and the context right? {lines.own(f'status {service.name}')}",
        )
    (one,) = found
    # Another check looks whether Git's newest commit is deployed.
    what = one.verdict if one.generation is None else one.running
    why = one.reason if one.generation is None else one.running_reason
    require(what == "ready", f"{what}: {why}", one.next or lines.own(f"status {service.name}"))
    # Its clients saw no more than a connection that was cut.
    ended = ended_since(pods_of(cluster, service.namespace, service.name), ends)
    require(not ended, f"while it was tested, {ended}", f"Find the cause: {lines.own(f'explain {service.name}')}")
    note(f"generation {one.generation}, {one.replicas_ready} of {one.replicas_needed} pods")
