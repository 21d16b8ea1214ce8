"""What kube-state-metrics exports of services, applications and certificates, by the values that every cluster gets."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from api_server import ApiServer
from neuroscale.core.tool_cache import find
from neuroscale.kube.apply import apply_all, await_served
from neuroscale.kube.client import Object
from neuroscale.local.cluster_parts import definitions, rights
from neuroscale.local.opencost import METRICS, VALUES
from roots import ROOT
from waiting import wait_for

pytestmark = pytest.mark.tools

SETTINGS = yaml.safe_load((ROOT / VALUES).read_text())[METRICS]
TEAM = "exported"


def of_kind(api_version: str, kind: str, name: str, **parts: object) -> Object:
    metadata = {"name": name, "namespace": TEAM, **(parts.pop("metadata", None) or {})}  # type: ignore[dict-item]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def service(name: str, annotations: dict[str, str]) -> Object:
    model = {"modelFormat": {"name": "huggingface"}}
    metadata = {"annotations": annotations}
    return of_kind(
        "serving.kserve.io/v1beta1", "InferenceService", name, metadata=metadata, spec={"predictor": {"model": model}}
    )


def application(name: str, phase: str) -> Object:
    # As the ApplicationSet of services makes them: each object names its own namespace.
    destination = {"server": "https://kubernetes.default.svc"}
    source = {"repoURL": "https://example.com/a.git"}
    state: Object = {"phase": phase, "operation": {"sync": {}}, "startedAt": "2026-11-30T00:00:00Z"}
    spec = {"project": "a", "destination": destination, "source": source}
    resources = [{"kind": "NetworkPolicy", "namespace": "team-alpha"}, {"kind": "Other"}]
    status = {"operationState": state, "resources": resources}
    metadata = {"labels": {"neuroscale.dev/service": name.partition(".")[0]}}
    return of_kind("argoproj.io/v1alpha1", "Application", name, metadata=metadata, spec=spec, status=status)


@contextlib.contextmanager
def exporting(server: ApiServer, folder: Path) -> Iterator[str]:
    """The address of a kube-state-metrics that may read what the values let it read, and nothing else."""
    apply_all(server.cluster, rights("exporter", "exporter", SETTINGS["rbac"]["extraRules"]))
    config = folder / "custom-resources.json"
    config.write_text(json.dumps(SETTINGS["customResourceState"]["config"]))
    ports = []
    with contextlib.ExitStack() as held:
        for _ in range(2):
            free = held.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    argv = [
        str(find(METRICS)),
        f"--kubeconfig={server.kubeconfig_of('exporter')}",
        *("--host=127.0.0.1", f"--port={ports[0]}", "--telemetry-host=127.0.0.1", f"--telemetry-port={ports[1]}"),
        "--custom-resource-state-only",
        f"--custom-resource-state-config-file={config}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{ports[0]}/metrics"
    finally:
        process.terminate()
        process.wait(15)


def samples(page: str) -> set[tuple[str, float]]:
    """The series of the page without the labels that kube-state-metrics adds to each, with their values."""
    found = re.findall(r"^(neuroscale_\w+)\{(.*)\} (\S+)$", page, re.MULTILINE)
    return {
        (f"{name}{{{','.join(one for one in labels.split(',') if 'customresource_' not in one)}}}", float(value))
        for name, labels, value in found
    }


def test_targets_syncs_and_certificates_become_series(api_server: ApiServer, tmp_path: Path) -> None:
    cluster = api_server.cluster
    kinds = definitions(("serving.kserve.io", "argoproj.io"), ("InferenceService", "Application"))
    # No schema of cert-manager is pinned; its controller writes this field.
    names = {"kind": "Certificate", "plural": "certificates", "singular": "certificate", "listKind": "CertificateList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "cert-manager.io", "names": names, "scope": "Namespaced", "versions": [version]}
    crd = "apiextensions.k8s.io/v1"
    metadata = {"name": "certificates.cert-manager.io"}
    kinds.append({"apiVersion": crd, "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec})
    apply_all(cluster, kinds)
    await_served(cluster, kinds, 60)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    for wanted in (
        service("with-target", {"neuroscale.dev/p95-ttft-seconds": "2.5"}),
        service("without", {}),
        application("good.dev", "Succeeded"),
        application("bad.dev", "Failed"),
        of_kind("cert-manager.io/v1", "Certificate", "models", status={"notAfter": "2026-12-01T00:00:00Z"}),
    ):
        cluster.apply(wanted)
    with exporting(api_server, tmp_path) as url:

        def seen() -> set[tuple[str, float]]:
            try:
                return samples(httpx.get(url, timeout=10).text)
            except httpx.HTTPError:
                return set()

        owner = 'of_namespace="team-alpha",of_service='
        phases = {
            (
                f'neuroscale_application_operation{{application="{name}.dev",{owner}"{name}",phase="{phase}"}}',
                float(phase == now),
            )
            for name, now in (("good", "Succeeded"), ("bad", "Failed"))
            for phase in ("Running", "Terminating", "Succeeded", "Failed", "Error")
        }
        wanted_samples = phases | {
            (f'neuroscale_target_time_to_first_token_seconds{{namespace="{TEAM}",service="with-target"}}', 2.5),
            (f'neuroscale_certificate_end_timestamp_seconds{{certificate="models",namespace="{TEAM}"}}', 1796083200.0),
        }
        wait_for(lambda: seen() == wanted_samples, 60, f"{url} has the series of the objects, and no other")
