"""The meter of real clusters: what the rendered applications set is what `showback` needs to divide the bill."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from neuroscale.catalog.cluster_settings import OpenCost
from neuroscale.costs.difference import platform_side
from neuroscale.metering.allocation import LABELS
from neuroscale.metering.window import read_window
from neuroscale.rendering.platform.files import SOURCES
from platform_repository import SETTINGS, SNAPSHOT
from roots import ROOT

METERED = sorted({one.cluster for one in SETTINGS.environments.values()} - {"local"} | {"eks"})
DOCUMENTS = ("README.md", "docs/showback.md", "docs/operations.md", ".github/workflows/reconcile.yaml")
# At the end of August and of December, last month began 62 days ago.
MOMENTS = [datetime(2026, month, 31, 23, 59, tzinfo=UTC) for month in (3, 8, 12)]


def objects(path: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((ROOT / path).read_text()) if one]


def application(cluster: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in objects(f"platform/clusters/{cluster}/{name}.yaml") if one["kind"] == "Application"]
    spec: dict[str, Any] = found["spec"]
    return spec


def values(cluster: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = application(cluster, name)["source"]["helm"]["valuesObject"]
    return found


@pytest.mark.parametrize("cluster", METERED)
def test_prometheus_takes_the_samples_of_opencost_and_of_everything_here(cluster: str) -> None:
    opencost = values(cluster, "opencost")["opencost"]
    assert opencost["metrics"]["serviceMonitor"]["enabled"]
    prometheus = values(cluster, "kube-prometheus-stack")["prometheus"]["prometheusSpec"]
    for kind in ("serviceMonitor", "podMonitor", "rule"):
        # Otherwise the chart demands its own release's label, which nothing outside of it has.
        assert prometheus[f"{kind}SelectorNilUsesHelmValues"] is False, kind
    asked = opencost["prometheus"]["internal"]
    # The Operator names the Service of every Prometheus like this.
    assert asked == {
        "enabled": True,
        "namespaceName": application(cluster, "kube-prometheus-stack")["destination"]["namespace"],
        "serviceName": "prometheus-operated",
        "port": 9090,
    }


@pytest.mark.parametrize("cluster", METERED)
def test_every_label_that_divides_the_bill_is_exported(cluster: str) -> None:
    allowed = values(cluster, "kube-prometheus-stack")["kube-state-metrics"]["metricLabelsAllowlist"]
    listed = {one.partition("=")[0]: one.partition("=")[2].strip("[]") for one in allowed}
    names = listed["pods"].split(",")
    assert "*" in names or set(LABELS) <= set(names)
    assert {"nodes", "namespaces"} <= set(listed)


@pytest.mark.parametrize("cluster", METERED)
def test_prometheus_keeps_samples_for_the_longest_window_of_the_documents(cluster: str) -> None:
    windows = {one for path in DOCUMENTS for one in re.findall(r"--window (\S+)", (ROOT / path).read_text())}
    assert {"lastmonth", "7d"} <= windows
    # A day or month that somebody names is asked for when it has passed, and so not later than the last month's.
    lengths = [now - read_window(text, now).start for text in windows if text[:2] != "20" for now in MOMENTS]
    prometheus = values(cluster, "kube-prometheus-stack")["prometheus"]["prometheusSpec"]
    assert timedelta(days=int(prometheus["retention"].removesuffix("d"))) >= max(lengths)
    # The samples outlive the pod.
    assert prometheus["storageSpec"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"]


def test_the_meter_knows_which_environment_its_cluster_is() -> None:
    for name, environment in SETTINGS.environments.items():
        if environment.cluster == "local":
            continue
        reference = values(environment.cluster, "opencost")["opencost"]["exporter"]["clusterIdConfigmap"]
        (found,) = objects(f"platform/monitoring/{name}/cluster-name.yaml")
        metadata = found["metadata"]
        where = application(environment.cluster, "opencost")["destination"]["namespace"]
        assert (metadata["name"], metadata["namespace"], found["data"]) == (reference, where, {"CLUSTER_ID": name})
        root = (ROOT / f"platform/argocd/{name}/root.yaml").read_text()
        assert f"path: platform/monitoring/{name}\n" in root


@pytest.mark.parametrize("cluster", METERED)
def test_the_commands_find_the_service_that_the_application_makes(cluster: str) -> None:
    found = application(cluster, "opencost")
    named = OpenCost()
    # The chart calls its Service like its release.
    assert (named.namespace, named.service) == (
        found["destination"]["namespace"],
        found["source"]["helm"]["releaseName"],
    )
    assert values(cluster, "opencost")["opencost"]["customPricing"] == {"enabled": False}


def test_the_meter_s_files_are_sources_of_rendered_ones_and_its_pods_are_priced() -> None:
    assert "platform/cost" in SOURCES
    side = platform_side(SNAPSHOT, SETTINGS, "dev")
    assert "opencost" in {one["metadata"]["name"] for one in side.objects}
    assert side.unreadable == ()
