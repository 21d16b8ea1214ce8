"""Checks the labels by which the costs of pods are charged."""

from __future__ import annotations

import pytest

from neuroscale.cluster.command_lines import CommandLines
from neuroscale.core.validation import part
from neuroscale.kube.client import Object
from neuroscale.manifests.objects import COST_LABELS
from neuroscale.smoke.expected_services import Service
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import require


@pytest.mark.check("cost-labels")
def test_every_pod_carries_the_labels_that_costs_are_charged_by(
    pods: list[Object], service: Service, lines: CommandLines, note: Notes
) -> None:
    """Cost labels reach the pods."""
    absent = [name for name in COST_LABELS if not service.labels.get(name)]
    require(
        not absent,
        f"Git's manifest lacks {', '.join(absent)}",
        f"Render it again: neuroscale replan {service.path.folder}",
    )
    wrong = []
    for pod in pods:
        labels = part(pod, "metadata", "labels")
        wrong += [
            f"{pod['metadata']['name']}: {name} is {labels.get(name)!r}, not {service.labels[name]!r}"
            for name in COST_LABELS
            if labels.get(name) != str(service.labels[name])
        ]
    require(
        not wrong,
        "; ".join(wrong[:5]),
        f"Its costs are charged to another team. Delete the pod, and KServe makes a new one: {lines.kubectl} -n "
        f"{service.namespace} delete pod {wrong[0].partition(':')[0] if wrong else 'NAME'}",
    )
    note(", ".join(f"{name}={service.labels[name]}" for name in COST_LABELS[:2]))
