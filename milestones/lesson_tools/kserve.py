"""Runs KServe's controller on the API server of a lesson's program, with the configuration that KServe ships."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from lesson_tools.model_server import free_port
from lesson_tools.program import Program
from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK, Authority
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local.cluster_parts import definitions, namespace
from neuroscale.local.kserve import GROUP, KINDS, NAME, NAMESPACE
from neuroscale.local.start_and_stop import last_lines

CONFIG = "config/configmap/inferenceservice.yaml"
"""The configuration that KServe ships, in its source."""
_SECONDS = 120.0  # until the controller has acted; ten on an idle core


def shipped_configuration() -> Object:
    """The ConfigMap with KServe's own defaults. Raises UntrustedError if set-up has not built KServe."""
    found: Object = yaml.safe_load((tool_cache.find_tool(NAME).files / CONFIG).read_text(encoding="utf-8"))
    return {**found, "metadata": {**found["metadata"], "namespace": NAMESPACE}}


class Kserve:
    """A running controller."""

    def __init__(self, cluster: Cluster, process: subprocess.Popen[bytes], log: Path) -> None:
        self._cluster = cluster
        self._process = process
        self._log = log

    def warnings(self, name: str, enough: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """The messages of the warnings about an InferenceService by their reason, once they are `enough`.

        Raises UntrustedError with the controller's log if they never are.
        """
        for _ in attempts(_SECONDS, pause=0.2):
            if self._process.poll() is not None:
                break
            found = {
                one["reason"]: one["message"]
                for one in self._cluster.list("v1", "Event")
                if one["type"] == "Warning" and one["involvedObject"]["name"] == name
            }
            if enough(found):
                return found
        said = " / ".join(last_lines(self._log, 3))
        raise UntrustedError(f"KServe's controller did not act on {name}. It printed: {said[-600:]}")

    def make_available(self, deployment: str) -> None:
        """Write into the status of a Deployment that its pods are available, as its controller would."""
        condition = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "written"}
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        status = {"observedGeneration": 1, **counts, "conditions": [condition]}
        self._cluster.merge(Identity("apps/v1", "Deployment", "default", deployment), {"status": status}, "status")


@contextlib.contextmanager
def kserve(program: Program, cluster: Cluster) -> Iterator[Kserve]:
    """Run the controller, without its webhooks, on `cluster` of `program` with KServe's shipped configuration."""
    apply_all(cluster, [namespace(NAMESPACE), *definitions((GROUP,), KINDS), shipped_configuration()])
    folder = program.folder / "kserve"
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True)
    pair = Authority.create("lesson").server("kserve-webhooks")
    (certificates / "tls.crt").write_text(pair.certificate, encoding="utf-8")
    (certificates / "tls.key").write_text(pair.key, encoding="utf-8")
    log = program.folder / "kserve.log"
    environment: dict[str, Any] = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "KUBECONFIG": str(program.kubeconfig),
        "POD_NAMESPACE": NAMESPACE,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(tool_cache.find(NAME)),
                "--leader-elect=false",
                "--metrics-addr=0",
                f"--health-probe-addr={LOOPBACK}:{free_port()}",
                f"--webhook-port={free_port()}",
            ],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Kserve(cluster, process, log)
    finally:
        process.terminate()
        process.wait()
