"""Runs KServe's controller with its webhooks, which makes Deployments of InferenceServices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from neuroscale.core.files import write_public
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, KubernetesError, Object
from neuroscale.kube.control_plane import ControlPlane
from neuroscale.local.charts import WEBHOOK_KINDS, Chart, at_port, program_of, render, settings_of
from neuroscale.local.cluster_parts import add_service_account, definitions, namespace
from neuroscale.local.control_plane import CONTROLLER_MANAGER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copy_tool
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State, read_json

NAME: Final = "kserve-controller"
NAMESPACE = "kserve"
METRICS: Final = "kserve-metrics"
PORTS = (NAME, "kserve-health", METRICS)
GROUP = "serving.kserve.io"
KINDS = (
    *("ClusterServingRuntime", "ClusterStorageContainer", "InferenceGraph"),
    *("InferenceService", "ServingRuntime", "TrainedModel"),
)
"""The kinds of upstream's chart of definitions that are used here. No program acts on the others, and large ones take
seconds."""
MODE = f"{GROUP}/deploymentMode"

CHART = Chart(NAME, "kserve-resources", "kserve", NAMESPACE)
_CERTIFICATE = "kserve-webhooks"


@dataclass(frozen=True)
class Kserve:
    """KServe of a local platform: its files and its process. The ports must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        return self.state.run / "kserve"

    @property
    def wanted(self) -> Path:
        """The rendered chart: arguments, environment, and the objects for the cluster."""
        return self.folder / "chart.json"

    @property
    def _plane(self) -> ControlPlane:
        return control_plane(self.state)

    def prepare(self, values: Sequence[Path], settings: Mapping[str, str] | None = None) -> None:
        """Write its program, its certificates and the chart's settings.

        `values`: files of the chart's values; `settings`: single ones on top, by their path.
        """
        copy_tool(self.state, NAME)
        self.state.make_folder(self.folder, None, PASSABLE)
        chart = render(CHART, values, settings)
        program = program_of(chart, "kserve-controller-manager", "manager")
        port = self.state.instance.ports[NAME]
        authority = self._plane.authority().pair.certificate
        objects = [namespace(NAMESPACE)]
        for found in settings_of(chart):
            objects.append(at_port(found, port, authority) if found["kind"] in WEBHOOK_KINDS else found)
        add_service_account(self._plane, NAME, NAMESPACE, program.service_account)
        self._link_certificates()
        facts = {"arguments": program.arguments, "environment": program.environment, "objects": objects}
        write_public(self.wanted, json.dumps(facts, indent=1) + "\n")

    def _link_certificates(self) -> None:
        """Link the certificates to the one place where KServe looks, below its folder for temporary files."""
        place = self.folder / "k8s-webhook-server" / "serving-certs"
        for folder in (place.parent, place):
            self.state.make_folder(folder, None, PASSABLE)
        for name, target in zip(("tls.crt", "tls.key"), self._plane.server_certificate(_CERTIFICATE), strict=True):
            (place / name).unlink(missing_ok=True)
            (place / name).symlink_to(target)

    def process(self) -> Process:
        """The process for the supervisor."""
        facts: dict[str, Any] = read_json(self.wanted)
        ports = self.state.instance.ports
        health = f"{LOOPBACK}:{ports['kserve-health']}"
        return Process(
            name=NAME,
            argv=(
                str(self._plane.program(NAME)),
                # Of a repeated option the last one counts.
                *facts.get("arguments", ()),
                "--leader-elect=false",
                f"--metrics-addr={LOOPBACK}:{ports[METRICS]}",
                f"--health-probe-addr={health}",
                f"--webhook-port={ports[NAME]}",
            ),
            environment={
                **environment(self._plane.folder),
                **facts.get("environment", {}),
                "KUBECONFIG": str(self._plane.kubeconfig_of(NAME)),
                "TMPDIR": str(self.folder),
            },
            folder=self._plane.folder,
            user=self.state.cluster_user,
            ready=lambda: answers(f"http://{health}/readyz") or self._problem(),
            port=ports[NAME],
            # The controller manager fills in roles that aggregate others.
            needs=(CONTROLLER_MANAGER,),
            settings=json.dumps(facts.get("objects", [])),
            prepare=self._apply,
        )

    def _apply(self) -> None:
        objects: Any = read_json(self.wanted).get("objects", [])
        with cluster(self.state) as found:
            apply_all(found, [*definitions((GROUP,), KINDS), *objects])

    def _problem(self) -> str | None:
        with cluster(self.state) as found:
            return defaulting_problem(found)


def defaulting_problem(found: Cluster) -> str | None:
    """Why KServe's webhooks do not work, or None: they must change an InferenceService in a dry-run.

    It is tried in KServe's own namespace, where no policy applies.
    """
    probe: Object = {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "readiness", "namespace": NAMESPACE, "annotations": {MODE: "RawDeployment"}},
        "spec": {"predictor": {"model": {"modelFormat": {"name": "vLLM"}, "storageUri": "hf://org/model"}}},
    }
    try:
        answer = found.create(probe, dry_run=True)
    except (KubernetesError, httpx.HTTPError) as error:
        return f"the API server could not ask KServe's webhooks: {error}"
    if answer["metadata"].get("annotations", {}).get(MODE) != "Standard":
        return "KServe's webhook did not fill in an InferenceService"
    return None
