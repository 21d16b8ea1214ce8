"""Pods of a service in a real API server that KWOK keeps ready, each of them with a real HTTP server behind its port.

The HTTP server stands for vLLM where only its key counts: it asks for the key in its pod's Secret at its start.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from api_server import ApiServer
from neuroscale.core import tool_cache
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Identity, Object
from waiting import wait_for

NODE = "endpoint-lab"
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)


class _Model(http.server.BaseHTTPRequestHandler):
    """Answers /v1/models as vLLM does, and streams slowly on another path."""

    protocol_version = "HTTP/1.1"
    key: str

    def do_GET(self) -> None:
        if self.path.startswith("/v1") and self.headers.get("Authorization") != f"Bearer {self.key}":
            self._answer(401, {"error": "Unauthorized"})
        elif self.path == "/v1/models":
            self._answer(200, {"data": [{"id": "tiny", "max_model_len": 16}]})
        elif self.path == "/slow":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(OSError):
                for number in range(20):
                    self.wfile.write(b"3\r\n%02d\n\r\n" % number)
                    time.sleep(0.05)
                self.wfile.write(b"0\r\n\r\n")
        else:
            self._answer(404, {"detail": "Not Found"})

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@dataclass
class Pods:
    """The pods of one service, in a namespace of its own."""

    server: ApiServer
    namespace: str
    service: str = "chat"
    arguments: tuple[str, ...] = ("--model=x", "--served-model-name=tiny")
    models: dict[str, http.server.ThreadingHTTPServer] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        return self.server.cluster

    def put_service(self) -> Object:
        """Make the InferenceService, with the labels that its Secret shall have."""
        labels = {"app.kubernetes.io/managed-by": "neuroscale", "app.kubernetes.io/owner": "team-alpha"}
        return self.cluster.apply(
            {
                "apiVersion": "serving.kserve.io/v1beta1",
                "kind": "InferenceService",
                "metadata": {
                    "name": self.service,
                    "namespace": self.namespace,
                    "labels": {**labels, "cost-center": "cc-1", "total-params": "1.0B"},
                },
                "spec": {"predictor": {"model": {"modelFormat": {"name": "vLLM"}, "env": [self._variable()]}}},
            }
        )

    def add(self, name: str, *, key: str | None = None) -> None:
        """Add a pod and its server, with the key that the Secret holds now; wait until it is ready."""
        secret = self.cluster.get("v1", "Secret", f"{self.service}-api-key", self.namespace) or {"data": {}}
        held = base64.b64decode(secret["data"].get("api-key", "")).decode()
        handler = type("Model", (_Model,), {"key": held if key is None else key})
        model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=model.serve_forever, daemon=True).start()
        self.models[name] = model
        self.add_server(name, model.server_port)

    def add_server(self, name: str, port: int) -> None:
        """Add a pod whose server listens on a port of this machine already; wait until it is ready."""
        self.put_forward(name, port)
        self._put_pod(name, NODE)
        wait_for(lambda: self.is_ready(name), what=f"{name} is ready")

    def add_waiting(self, name: str) -> None:
        """Add a pod that no node takes."""
        self._put_pod(name)
        refused = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
        pod = Identity("v1", "Pod", self.namespace, name)
        self.cluster.merge(pod, {"status": {"conditions": [refused]}}, subresource="status")

    def _put_pod(self, name: str, node: str = "") -> None:
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": {"serving.kserve.io/inferenceservice": self.service},
                },
                "spec": {
                    **({"nodeName": node} if node else {}),
                    "terminationGracePeriodSeconds": 1,
                    "containers": [
                        {
                            "name": "kserve-container",
                            "image": "vllm",
                            "args": list(self.arguments),
                            "env": [self._variable()],
                            "ports": [{"name": "http", "containerPort": 8080}],
                        }
                    ],
                },
            }
        )

    def put_forward(self, name: str, port: int) -> None:
        """Set the target of a port-forward to the pod's port."""
        forward = {"ports": [8080], "target": {"address": "127.0.0.1", "port": port}}
        self.cluster.apply(
            {
                "apiVersion": "kwok.x-k8s.io/v1alpha1",
                "kind": "PortForward",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"forwards": [forward]},
            }
        )

    def is_ready(self, name: str) -> bool:
        pod = self.cluster.get("v1", "Pod", name, self.namespace) or {}
        conditions: list[dict[str, Any]] = pod.get("status", {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.cluster.list("v1", "Pod", self.namespace)}

    def stop(self, name: str) -> None:
        """End the server behind a pod, which stays ready."""
        model = self.models.pop(name)
        model.shutdown()
        model.server_close()

    @contextlib.contextmanager
    def replaced(self) -> Iterator[list[str]]:
        """Within it, a deleted pod is replaced, as by a ReplicaSet; yields the names in order."""
        over = threading.Event()
        wanted = len(self.names())
        made: list[str] = []

        def replace() -> None:
            while not over.wait(0.1):
                if len(self.names()) < wanted:
                    made.append(f"new-{len(made)}")
                    self.add(made[-1])

        thread = threading.Thread(target=replace)
        thread.start()
        try:
            yield made
        finally:
            over.set()
            thread.join()

    def _variable(self) -> dict[str, Any]:
        reference = {"secretKeyRef": {"name": f"{self.service}-api-key", "key": "api-key"}}
        return {"name": "VLLM_API_KEY", "valueFrom": reference}


@contextlib.contextmanager
def running_kwok(server: ApiServer) -> Iterator[Path]:
    """KWOK beside the API server, with one node; gives its log."""
    tool = tool_cache.find_tool("kwok")
    kustomize = tool.files / "kustomize"
    definitions = [yaml.safe_load(path.read_text()) for path in (kustomize / "crd" / "bases").glob("*.yaml")]
    apply_all(server.cluster, [one for one in definitions if one["spec"]["names"]["kind"] == "PortForward"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    certificate, key = server.plane.server_certificate("kwok-server")
    folder = Path(tempfile.mkdtemp(prefix="neuroscale-kwok-"))
    log = folder / "kwok.log"
    argv = [
        str(tool.binary),
        f"--kubeconfig={server.plane.add_user('kwok', 'kwok', ('system:masters',))}",
        *(f"--config={kustomize / 'stage' / stage}" for stage in _STAGES),
        "--enable-crds=PortForward",
        f"--manage-nodes-with-label-selector=neuroscale.test/kwok={NODE}",
        "--node-ip=127.0.0.1",
        f"--node-port={port}",
        f"--server-address=127.0.0.1:{port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        "--node-lease-duration-seconds=40",
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"neuroscale.test/kwok": NODE}}}
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        server.cluster.apply(node)
        yield log
    finally:
        process.terminate()
        process.wait(15)
        server.cluster.request("DELETE", f"/api/v1/nodes/{NODE}")
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def pods(server: ApiServer, namespace: str) -> Iterator[Pods]:
    """A namespace for the pods of one service, emptied at the end."""
    server.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    found = Pods(server, namespace)
    try:
        yield found
    finally:
        for name in found.names():
            # No controller is there to wait for.
            server.cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": "0"})
        for name in list(found.models):
            found.stop(name)
