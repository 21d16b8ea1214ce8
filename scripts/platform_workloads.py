"""Writes platform/clusters/workloads.yaml: what the pods of the platform's own programs request.

    scripts/platform_workloads.py [NAME=FOLDER ...]

It renders the charts of platform/clusters/charts.yaml by helm with the repository's values. The charts of KServe and
Kyverno lie in the modules of their built tools. Give the folder of each other chart that changed, from
`helm pull CHART --repo URL --version VERSION --untar`; without a folder, its record stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from neuroscale.catalog.settings import Settings, load_settings
from neuroscale.core.files import write_public
from neuroscale.core.tool_cache import ToolName, find_tool
from neuroscale.core.yaml_io import dump
from neuroscale.local.charts import render_folder
from neuroscale.rendering.platform.chart_pods import WORKLOADS_FILE as FILE
from neuroscale.rendering.platform.chart_pods import RecordedPods, RecordFile, load_record, values_digest
from neuroscale.rendering.platform.charts import CLUSTERS, Chart, chart_values, load_charts
from neuroscale.repo.layout import find_root
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot

_HEADER = """\
# What the pods of the platform's own programs request, as upstream's charts render with the values of this repository.
# Written by scripts/platform_workloads.py, which keeps those that no chart of charts.yaml brings (they name clusters).
# `neuroscale platform cost` prices them.
"""
_MODULES: dict[str, tuple[ToolName, str]] = {
    "kserve": ("kserve-controller", "kserve-resources"),
    "kserve-crd": ("kserve-controller", "kserve-crd"),
    "kyverno": ("kyverno-controller", "kyverno"),
}
_ARGOCD = "argo-cd"
_PODS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod", "Alertmanager", "Prometheus")
_SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
# Argo CD runs no hook of these kinds.
_UNUSED_HOOKS = {"pre-delete", "post-delete", "pre-rollback", "post-rollback", "test", "test-success"}


def main(arguments: list[str]) -> None:
    """Write the file of this repository. `arguments`: folders of charts, NAME=FOLDER."""
    given = {name: Path(folder).resolve() for name, _, folder in (text.partition("=") for text in arguments)}
    write(find_root(Path(__file__).resolve().parent), given)


def write(root: Path, folders: Mapping[str, Path]) -> None:
    """Write the file of the repository at `root`. `folders`: the charts that no module holds, by their names."""
    snapshot = FolderSnapshot(root)
    settings = load_settings(snapshot)
    given = dict(folders)
    for name, (tool, folder) in _MODULES.items():
        given.setdefault(name, find_tool(tool).files / "charts" / folder)
    known = load_record(snapshot).charts if (root / FILE).is_file() else ()
    record: list[RecordedPods] = []
    for chart in load_charts(snapshot):
        if chart.name in given:
            # A chart has the values of its kind of cluster, and others where an environment changes them.
            own = [name for name, one in settings.environments.items() if chart.name in one.charts]
            made = [rendered(chart, given[chart.name], snapshot, settings, name) for name in (None, *own)]
            record += {one.values: one for one in made}.values()
        elif old := [one for one in known if one.chart == chart.name]:
            record += old
        else:
            print(f"{chart.name}: no record; give its folder as {chart.name}=FOLDER")
    names = {chart.name for chart in load_charts(snapshot)}
    record += [one for one in known if one.chart not in (*names, _ARGOCD)]
    record.append(argocd())
    found = RecordFile(schema_version=1, charts=tuple(record))
    write_public(root / FILE, _HEADER + dump(found.model_dump(mode="json", exclude_defaults=True)))
    print(f"{FILE}: {len(record)} programs")


def rendered(
    chart: Chart, folder: Path, snapshot: Snapshot, settings: Settings, environment: str | None = None
) -> RecordedPods:
    """What a chart in a folder makes with the repository's values for every cluster, or for an environment's."""
    with tempfile.TemporaryDirectory() as scratch:
        values = Path(scratch) / "values.yaml"
        values.write_text(dump(chart_values(chart, snapshot, settings, environment)), encoding="utf-8")
        objects = render_folder(folder, chart.name, chart.namespace, [values])
    kept = [_reduced(one, chart.namespace) for one in objects if _makes_pods(one)]
    return RecordedPods(
        chart=chart.name,
        version=chart.version,
        values=values_digest(chart, snapshot, settings, environment),
        source=f"helm template of {chart.repository}, chart {chart.chart} {chart.version}",
        objects=tuple(sorted(kept, key=lambda one: (one["kind"], one["metadata"]["name"]))),
    )


def argocd() -> RecordedPods:
    """What upstream's installation of Argo CD makes, which `neuroscale platform install` demands."""
    tool = find_tool("argocd")
    text = (tool.files / "manifests" / "install.yaml").read_text(encoding="utf-8")
    objects = [one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one and _makes_pods(one)]
    return RecordedPods(
        chart=_ARGOCD,
        version=tool.module.version,
        clusters=CLUSTERS,
        source="upstream's manifests/install.yaml",
        objects=tuple(_reduced(one, "argocd") for one in objects),
    )


def _makes_pods(value: Mapping[str, Any]) -> bool:
    annotations = value["metadata"].get("annotations") or {}
    hooks = {one.strip() for one in annotations.get("helm.sh/hook", "").split(",") if one.strip()}
    balancer = value["kind"] == "Service" and value["spec"].get("type") == "LoadBalancer"
    return (value["kind"] in (*_PODS, *_SCALERS) or balancer) and not (hooks and hooks <= _UNUSED_HOOKS)


def _reduced(value: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """An object without the fields that say nothing of the number and the requests of its pods."""
    name, place = value["metadata"]["name"], value["metadata"].get("namespace", namespace)
    spec = value["spec"]
    kept: dict[str, Any]
    if value["kind"] in _SCALERS:
        kept = dict(spec)
    elif value["kind"] == "Pod":
        kept = _pod(spec)
    else:
        names = ("replicas", "shards", "resources", "parallelism", "type")
        kept = {key: spec[key] for key in names if spec.get(key) is not None}
        if "template" in spec:
            kept["template"] = {"spec": _pod(spec["template"]["spec"])}
        if "jobTemplate" in spec:
            kept["jobTemplate"] = {
                "spec": {"template": {"spec": _pod(spec["jobTemplate"]["spec"]["template"]["spec"])}}
            }
    metadata = {"name": name, "namespace": place}
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, "spec": kept}


def _pod(spec: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("name", "restartPolicy", "resources")
    pod = {
        key: [{field: one[field] for field in fields if one.get(field)} for one in spec[key]]
        for key in ("initContainers", "containers")
        if spec.get(key)
    }
    return pod | {key: spec[key] for key in ("nodeSelector", "overhead") if spec.get(key)}


if __name__ == "__main__":
    main(sys.argv[1:])
