"""The platform's own programs: their pods as upstream's charts render, their price, and what of it is not known."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

import platform_workloads
from neuroscale.core.errors import InputError
from neuroscale.costs.difference import OWN, Priced, platform_side, priced
from neuroscale.costs.pricing import Prices
from neuroscale.manifests.objects import read_manifests
from neuroscale.manifests.workloads import read_workloads
from neuroscale.rendering.platform.chart_pods import WORKLOADS_FILE as FILE
from neuroscale.rendering.platform.chart_pods import load_record
from neuroscale.rendering.platform.charts import load_charts
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot
from platform_repository import CATALOG, SETTINGS, SNAPSHOT, copy_platform, edit
from roots import ROOT

PLATFORM = ROOT / "platform"
VCPU, GIB = Decimal("0.0864"), Decimal("0.009")  # google-cloud's, in US dollars an hour


def of(root: Path, environment: str = "dev") -> Priced:
    side = platform_side(FolderSnapshot(root), SETTINGS, environment)
    return priced(side, environment, Prices(CATALOG, SETTINGS.environments))


def test_the_platform_s_programs_cost_what_their_pods_request() -> None:
    found = of(ROOT)
    costs = {one.subject: one for one in found.workloads}
    admission = costs["Deployment kyverno/kyverno-admission-controller"]
    # Three replicas of 100m and 256 Mi for 730 hours; its init container requests less than that.
    hourly = VCPU * Decimal("0.1") + GIB * Decimal("0.25")
    assert admission.monthly.min == admission.monthly.max == round(3 * hourly * 730, 2) == Decimal("23.85")
    # Two containers of 100m and 300 Mi.
    controller = costs["Deployment kserve/kserve-controller-manager"]
    assert controller.monthly.max == round((VCPU * Decimal("0.2") + GIB * Decimal(600) / 1024) * 730, 2)
    assert {one.cost_center for one in found.workloads} == {OWN}


def test_what_has_no_price_is_named_with_the_reason() -> None:
    reasons: dict[str, list[str]] = {}
    for one in of(ROOT).unpriced:
        reasons.setdefault(one.reason, []).append(one.subject)
    nothing = reasons["it asks for no resources, so what it takes is not known"]
    assert {
        "Deployment argocd/argocd-server",
        "Deployment cert-manager/cert-manager",
        "Prometheus monitoring/kube-prometheus-stack-prometheus",
        "Alertmanager monitoring/kube-prometheus-stack-alertmanager",
    } <= set(nothing)
    assert reasons["the price lists have no load balancers"] == ["Service envoy-gateway-system/envoy-of-gateway-models"]
    assert [one.subject for one in of(ROOT, "local").workloads] == []


@pytest.mark.parametrize("objects", ["[{kind: Deployment}]", "[{metadata: [a]}]", "[{metadata: {name: 1}}]"])
def test_a_record_of_objects_without_a_name_is_refused(objects: str) -> None:
    chart = f"{{chart: a, version: 1.0.0, clusters: [gke], source: somewhere, objects: {objects}}}"
    with pytest.raises(InputError, match="each object needs metadata with a name"):
        load_record(MemorySnapshot({FILE: f"schema_version: 1\ncharts: [{chart}]\n".encode()}))


def test_every_program_of_a_cluster_is_priced_or_named() -> None:
    recorded = {one.chart for one in load_record(SNAPSHOT).charts}
    assert {chart.name for chart in load_charts(SNAPSHOT)} - recorded == {"nvidia-device-plugin"}
    eks = SETTINGS.model_copy(
        update={"environments": {"dev": SETTINGS.environments["dev"].model_copy(update={"cluster": "eks"})}}
    )
    side = platform_side(SNAPSHOT, eks, "dev")
    assert [one.subject for one in side.unreadable] == ["chart nvidia-device-plugin"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("platform/serving/kyverno.yaml", "replicas: 3", "replicas: 5"),
        ("platform/clusters/charts.yaml", "version: 3.9.1", "version: 3.9.2"),
    ],
)
def test_a_chart_that_changed_after_the_record_is_named_and_not_priced(
    file: str, old: str, new: str, tmp_path: Path
) -> None:
    root = copy_platform(tmp_path)
    edit(root, file, old, new)
    found = of(root)
    assert not [one.subject for one in found.workloads if "kyverno" in one.subject]
    (named,) = [one for one in found.unpriced if one.subject == "chart kyverno"]
    assert "scripts/platform_workloads.py" in named.reason
    assert named.decisive


def test_the_domain_of_a_fork_leaves_the_record_as_it_is(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"domain": "models.other.example"})
    assert platform_side(SNAPSHOT, settings, "dev") == platform_side(SNAPSHOT, SETTINGS, "dev")


def test_prometheus_with_requests_is_priced_as_its_operator_runs_it() -> None:
    value: dict[str, Any] = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "main", "namespace": "monitoring"},
        "spec": {"replicas": 2, "shards": 3, "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}},
    }
    (found,) = read_workloads([value]).priced
    ((pod, count),) = found.pods
    assert (pod.cpu, pod.memory_gib, count, found.bounds.most) == (Decimal("0.5"), Decimal(2), 1, 6)
    assert pod.missing == ("cpu", "memory")  # those of the reloader, which the Operator sets


def test_the_platform_s_files_describe_no_other_pods() -> None:
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
    charts = {chart.name for chart in load_charts(SNAPSHOT)}
    assert {one.subject.removeprefix("Application argocd/") for one in found.unpriced} <= charts


def test_the_gateway_s_proxies_are_those_of_the_chart_s_version() -> None:
    record = {one.chart: one for one in load_record(SNAPSHOT).charts}
    assert record["envoy-proxies"].version == record["envoy-gateway"].version
    gateways = yaml.safe_load_all((PLATFORM / "clusters/gke/gateway.yaml").read_text())
    assert "EnvoyProxy" not in {one["kind"] for one in gateways}  # it would set other requests than the defaults


@pytest.mark.tools
def test_the_record_is_what_the_charts_render_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """KServe, Kyverno and Argo CD, whose charts lie in the modules of their tools."""
    root = copy_platform(tmp_path)
    (root / FILE).write_text((root / FILE).read_text().replace('cpu: "100m"', 'cpu: "101m"'))
    platform_workloads.write(root, {})
    written = {one.chart: one for one in load_record(FolderSnapshot(root)).charts}
    for one in load_record(SNAPSHOT).charts:
        if one.chart in ("kserve", "kserve-crd", "kyverno", "argo-cd"):
            assert written[one.chart] == one, f"run {platform_workloads.__file__}"
    assert "nvidia-device-plugin: no record" in capsys.readouterr().out
