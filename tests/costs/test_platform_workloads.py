"""The platform's own files: none describes pods of its own, and the charts that make some are named."""

from __future__ import annotations

from pathlib import Path

from neuroscale.core.errors import InputError
from neuroscale.manifests.objects import read_manifests
from neuroscale.manifests.workloads import read_workloads

PLATFORM = Path(__file__).resolve().parents[2] / "platform"


def test_the_platform_s_pods_come_from_charts_which_are_named_as_without_a_price() -> None:
    """The cost of a change counts `manifests/`. Programs of a cluster come from charts, whose pods OpenCost meters."""
    objects = []
    for path in sorted(PLATFORM.rglob("*.yaml")):
        if "catalog" in path.parts:
            continue
        try:
            objects += [one.value for one in read_manifests(path.read_bytes(), str(path))]
        except InputError:
            continue  # values of a chart, settings, or a patch: not objects
    assert len(objects) > 50
    found = read_workloads(objects)
    assert [one.subject for one in found.priced] == []
    assert {one.subject for one in found.unpriced} == {"Application argocd/kserve", "Application argocd/kyverno"}
    assert all("runs containers, and the number of pods" in one.reason for one in found.unpriced)
