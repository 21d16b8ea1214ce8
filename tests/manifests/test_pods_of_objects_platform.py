"""The pods that are read of InferenceServices are those that the real KServe makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from admission_lab import kserve_lab, namespace, wait_until
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Object
from neuroscale.manifests.pod_resources import requests
from neuroscale.manifests.pod_sets import PodSet
from neuroscale.manifests.pods_of_objects import pods_of_objects
from pod_examples import EXAMPLES, NAMESPACE, Example

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

LIVE = [one for one in EXAMPLES if one.live]


@dataclass
class Made:
    """What KServe made, by its name. A Deployment of workers comes and goes: KServe takes it for an orphan."""

    deployments: dict[str, Object] = field(default_factory=dict)
    scalers: dict[str, Object] = field(default_factory=dict)

    def look(self, cluster: Cluster) -> Made:
        self.deployments |= {one["metadata"]["name"]: one for one in cluster.list("apps/v1", "Deployment", NAMESPACE)}
        scalers = cluster.list("autoscaling/v2", "HorizontalPodAutoscaler", NAMESPACE)
        self.scalers |= {one["spec"]["scaleTargetRef"]["name"]: one["spec"] for one in scalers}
        return self


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    """What KServe makes of every example, one beside the other."""
    found = Made()
    with kserve_lab() as cluster:
        apply_all(cluster, [namespace(NAMESPACE)])
        for example in LIVE:
            apply_all(cluster, list(example.others))
            cluster.create(example.value)
        wanted = {one.deployment for example in LIVE for one in example.expected}
        wait_until(
            lambda: not wanted - set(found.look(cluster).deployments) and bool(found.scalers),
            "not every example has its Deployments",
            120,
        )
        yield found


def told(container: Any) -> tuple[str, str, list[str], dict[str, Decimal]]:
    """What a container is called, runs and asks for."""
    return (
        container["name"],
        container["image"],
        container.get("command") or [],
        requests({"containers": [container]}),
    )


@pytest.mark.parametrize("example", LIVE, ids=lambda one: one.name)
def test_kserve_makes_the_pods_that_are_read(made: Made, example: Example) -> None:
    # All examples' runtimes are there.
    (read,) = pods_of_objects([example.value], [one for each in LIVE for one in each.others])
    for pods, expected in zip(read.found, example.expected, strict=True):
        assert isinstance(pods, PodSet)
        assert pods.bounds is not None
        deployment = made.deployments[expected.deployment]
        assert [target[2] for target in pods.targets] in ([], [expected.deployment])
        ((spec, count),) = pods.specs
        live = deployment["spec"]["template"]["spec"]
        assert count == 1
        assert [told(one) for one in live["containers"]] == [told(one) for one in spec["containers"]]
        assert live.get("nodeSelector") == spec.get("nodeSelector")
        for there, container in zip(live["containers"], spec["containers"], strict=True):
            words = container.get("args") or []
            # To those of a transformer KServe adds where the predictor is.
            live_words = there.get("args") or []
            assert (live_words[: len(words)] if pods.part == "transformer" else live_words) == words
        if scaler := made.scalers.get(expected.deployment):
            assert (scaler["minReplicas"], scaler["maxReplicas"]) == (pods.bounds.fewest, pods.bounds.most)
        else:
            assert deployment["spec"]["replicas"] == pods.bounds.fewest == pods.bounds.most


def test_kserve_makes_and_scales_nothing_else(made: Made) -> None:
    assert set(made.deployments) == {one.deployment for example in LIVE for one in example.expected}
    assert set(made.scalers) == {"topped-predictor"}
