"""Uses upstream's own charts on this machine: their settings go to the cluster, their programs run as processes.

A chart is rendered by helm with the same values as for a real cluster. Objects that need a kubelet or a pod network
(Deployments, Services) are left out, and a process gets the arguments and the environment that its container would
get. Webhooks lead to the process.
"""

from __future__ import annotations

import base64
import copy
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from neuroscale.core.tool_cache import ToolName, find, find_tool
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local.process import run_once
from neuroscale.local.state import LocalError

# Kinds that only nodes and pods use.
_FOR_PODS = frozenset(
    (
        *("CronJob", "DaemonSet", "Deployment", "HorizontalPodAutoscaler", "Job", "NetworkPolicy"),
        *("Pod", "PodDisruptionBudget", "Service", "StatefulSet"),
    )
)
# The platform's own authority signs what cert-manager would.
_GROUPS_ELSEWHERE = frozenset(("cert-manager.io", "monitoring.coreos.com"))


@dataclass(frozen=True)
class Chart:
    """A chart in the module of a tool: `folder` below its `charts`, and its release name."""

    tool: ToolName
    folder: str
    release: str
    namespace: str


@dataclass(frozen=True)
class Program:
    """The program of a chart's container: its arguments, its environment, and its service account."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    service_account: str


def render(chart: Chart, values: Sequence[Path], settings: Mapping[str, str] | None = None) -> list[Object]:
    """The chart as helm renders it with files of values, and settings on top. Raises LocalError, UntrustedError."""
    options = [f"--set={key}={value}" for key, value in (settings or {}).items()]
    folder = find_tool(chart.tool).files / "charts" / chart.folder
    return render_folder(folder, chart.release, chart.namespace, values, options)


def render_folder(
    chart: Path, release: str, namespace: str, values: Sequence[Path], options: Sequence[str] = ()
) -> list[Object]:
    """The chart in a folder as helm renders it with files of values. Raises LocalError."""
    given = [*(f"--values={path}" for path in values), *options]
    with tempfile.TemporaryDirectory(prefix="neuroscale-chart-") as scratch:
        folder = _usable(chart, Path(scratch))
        environment = {"PATH": os.defpath, "HOME": scratch, "LANG": "C.UTF-8"}
        argv = [find("helm"), "template", release, folder, f"--namespace={namespace}", *given]
        text = run_once(argv, environment, Path(scratch), None)
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def settings_of(objects: Iterable[Object]) -> list[Object]:
    """The objects that a cluster without nodes needs: all but those that run programs or lead to them.

    The custom resource definitions are left out too: they come complete from the modules.
    """
    return [
        _without_nulls(found)
        for found in objects
        if found["kind"] not in _FOR_PODS
        and found["kind"] != "CustomResourceDefinition"
        and found["apiVersion"].partition("/")[0] not in _GROUPS_ELSEWHERE
        and "helm.sh/hook" not in (found["metadata"].get("annotations") or {})
    ]


def program_of(objects: Iterable[Object], deployment: str, container: str) -> Program:
    """The program that a container of a Deployment runs. Raises LocalError if the chart lacks it."""
    for found in objects:
        if (found["kind"], found["metadata"]["name"]) != ("Deployment", deployment):
            continue
        pod = found["spec"]["template"]["spec"]
        for one in pod["containers"]:
            if one["name"] == container:
                fields = {"metadata.namespace": found["metadata"]["namespace"], "metadata.name": deployment}
                environment = {row["name"]: _value(row, fields) for row in one.get("env", [])}
                return Program(tuple(one.get("args", [])), environment, pod["serviceAccountName"])
    raise LocalError(f"The chart has no container {container} in a Deployment {deployment}.")


def _value(row: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    if "value" in row:
        return str(row["value"])
    try:
        return fields[row["valueFrom"]["fieldRef"]["fieldPath"]]
    except KeyError as error:
        raise LocalError(f"The environment variable {row['name']} has no value outside a pod.") from error


def _usable(chart: Path, scratch: Path) -> Path:
    """The chart, or a copy without references to charts that its module does not hold: helm would download these.

    Nothing needed is lost: definitions come from the modules, and upstream switches the rest off.
    """
    facts = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    needed = facts.get("dependencies", [])
    there = [one for one in needed if (chart / "charts" / one["name"]).is_dir()]
    if there == needed:
        return chart
    copy = scratch / "chart"
    shutil.copytree(chart, copy, copy_function=shutil.copyfile)
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        folder.chmod(0o700)  # a module's folders are read-only
    (copy / "Chart.lock").unlink(missing_ok=True)
    (copy / "Chart.yaml").write_text(yaml.safe_dump({**facts, "dependencies": there}), encoding="utf-8")
    return copy


def _without_nulls(value: Any) -> Any:
    """The value without fields that are null, which charts leave behind."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
GROUP_VERSION = "admissionregistration.k8s.io/v1"
# Only root may listen there, so a webhook that points there fails, open or closed by its own failure policy.
_NOWHERE = 1


def at_port(configuration: Object, port: int, authority: str) -> Object:
    """The configuration with a loopback port in place of its Services; `authority` (PEM) signed the port's certificate.

    All other fields, such as the failure policy, stay as upstream sets them.
    """
    found = copy.deepcopy(configuration)
    bundle = base64.b64encode(authority.encode()).decode()
    for webhook in found["webhooks"]:
        path = webhook["clientConfig"]["service"].get("path", "")
        webhook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
    # This annotation lets cert-manager fill in the authority.
    found["metadata"].get("annotations", {}).pop("cert-manager.io/inject-ca-from", None)
    return found


def hold(cluster: Cluster, labels: str) -> None:
    """Point the webhooks that a program registered itself to nowhere until it registers them again.

    A program that has just started may answer before it has read its policies, and then allows everything. Until it has
    registered itself, the API server refuses objects that must not pass unjudged.
    """
    for kind in WEBHOOK_KINDS:
        for found in cluster.list(GROUP_VERSION, kind, labels=labels):
            webhooks = found.get("webhooks", [])
            for webhook in webhooks:
                address = webhook["clientConfig"].get("url")
                if address:
                    webhook["clientConfig"]["url"] = f"https://{LOOPBACK}:{_NOWHERE}{urlsplit(address).path}"
            if webhooks:
                cluster.merge(Identity.of(found), {"webhooks": webhooks})


def registered(cluster: Cluster, kind: str, name: str) -> list[tuple[str, str, str]]:
    """The name and address of each webhook of a configuration, and the authority (PEM) that must have signed it."""
    found = cluster.get(GROUP_VERSION, kind, name) or {}
    return [
        (
            webhook["name"],
            webhook["clientConfig"].get("url", ""),
            base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode(),
        )
        for webhook in found.get("webhooks", [])
    ]
