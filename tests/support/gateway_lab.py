"""A gateway as the local platform runs it, before servers that a test controls, on a real control plane."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import queue
import secrets
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from local_processes import Running, local_state, running
from neuroscale.kube.apply import apply_all
from neuroscale.kube.client import Cluster, Identity, Object
from neuroscale.local import control_plane, gateway, kserve
from neuroscale.local.cluster_parts import definitions
from neuroscale.local.gateway import Gateway
from neuroscale.local.node.service import NODE
from waiting import wait_for

DOMAIN = "models.example.com"
NAMESPACE = "team-alpha"
PORT = 8080
DIES = "dies"
REFUSED = b'{"error":"Unauthorized"}'
OTHER = "simulated-cpu-1"
"""A node whose pods are not processes of this machine."""
_PARTS = (control_plane.ETCD, control_plane.API_SERVER, control_plane.CONTROLLER_MANAGER)
# Other controllers would miss the heartbeats of nodes that do not exist.
_CONTROLLERS = "--controllers=endpointslice-controller,serviceaccount-controller"
_numbers = itertools.count()


class Server(ThreadingHTTPServer):
    """Stands for vLLM's server in a pod: it asks for a key, and the test decides when a stream ends."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, key: str) -> None:
        super().__init__((address, PORT), _Handler)
        self.address = address
        self.key = key
        self.asked: list[str] = []
        self.chunks: queue.Queue[str | None] = queue.Queue()
        """The queue of parts that a stream sends at once; None ends the stream well, and DIES breaks it off."""

    @property
    def pod_address(self) -> str:
        return f"10.{self.address.removeprefix('127.')}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path.startswith("/v1/") and self._refused():
            return
        self._say(200, {"path": self.path, "address": self.server.address})

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if self._refused(length):
            return
        body = self.rfile.read(length)
        asked = json.loads(body)
        if not asked.get("stream"):
            words = {"message": {"role": "assistant", "content": f"You said {len(body)} bytes."}}
            self._say(200, {"address": self.server.address, "model": asked.get("model"), "choices": [words]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while (chunk := self.server.chunks.get(timeout=60)) != DIES:
            data = b"" if chunk is None else f"data: {chunk}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
            if chunk is None:
                return
        self.close_connection = True

    def _refused(self, length: int = 0) -> bool:
        """As vLLM, it refuses at the headers; here, the body of the refusal waits for the whole of the request."""
        if self.headers.get("Authorization") == f"Bearer {self.server.key}":
            return False
        self._begin(401, len(REFUSED))
        self.rfile.read(length)
        self.wfile.write(REFUSED)
        return True

    def _say(self, status: int, found: object) -> None:
        body = json.dumps(found).encode()
        self._begin(status, len(body))
        self.wfile.write(body)

    def _begin(self, status: int, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: pytest would mix it into a failure's output."""


@dataclass
class Service:
    """An InferenceService with the Kubernetes Service that KServe makes of it."""

    lab: GatewayLab
    name: str
    key: str
    servers: dict[str, Server] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return f"{self.name}-{NAMESPACE}.{DOMAIN}"

    @property
    def url(self) -> str:
        return f"https://{self.host}"

    def pod(self, *, ready: bool = True, node: str = NODE, serves: bool = True) -> str:
        """A pod on a node, whose process is a server of this test's (or nothing); its name."""
        name = f"{self.name}-{next(_numbers)}"
        server = self.lab.server(self.key)
        self.servers[name] = server
        if not serves:
            self.lab.end(server)
        self.lab.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": self.name}},
                "spec": {
                    "nodeName": node,
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "kserve-container", "image": "vllm:1", "ports": [{"containerPort": PORT}]}],
                },
            }
        )
        self.lab.cluster.merge(
            Identity("v1", "Pod", NAMESPACE, name),
            {"status": {"phase": "Running", "podIPs": [{"ip": server.pod_address}], "podIP": server.pod_address}},
            "status",
        )
        self.set_ready(name, ready)
        return name

    def set_ready(self, pod: str, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        self.lab.cluster.merge(Identity("v1", "Pod", NAMESPACE, pod), {"status": {"conditions": [condition]}}, "status")

    def delete(self, pod: str) -> None:
        self.lab.cluster.delete(Identity("v1", "Pod", NAMESPACE, pod))

    def get(self, path: str = "/v1/models", key: str | None = None) -> httpx.Response:
        return self.lab.request("GET", self.host, path, headers=self.headers(key))

    def headers(self, key: str | None = None) -> dict[str, str]:
        """The headers with a key: the service's own, another, or ("") none."""
        shown = self.key if key is None else key
        return {"Authorization": f"Bearer {shown}"} if shown else {}

    def awaits(self, status: int, path: str = "/v1/models") -> None:
        """Wait until the gateway answers so."""
        wait_for(lambda: self.get(path).status_code == status, 30, f"{self.host}{path} does not answer {status}")

    @contextlib.contextmanager
    def stream(self) -> Iterator[Iterator[str]]:
        """The lines of a stream that is being answered."""
        request = self.lab.client.build_request(
            "POST",
            f"https://127.0.0.1:{self.lab.port}/v1/chat/completions",
            headers={"Host": self.host, **self.headers()},
            json={"model": "m", "stream": True},
            extensions={"sni_hostname": self.host},
        )
        response = self.lab.client.send(request, stream=True)
        try:
            assert response.status_code == 200
            yield (line for line in response.iter_lines() if line)
        finally:
            response.close()


@dataclass
class GatewayLab:
    """The running gateway. Tests share it, so each makes services of its own."""

    processes: Running
    cluster: Cluster
    client: httpx.Client
    servers: list[Server] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.processes.state.instance.ports[gateway.NAME]

    @property
    def redirect_port(self) -> int:
        return self.processes.state.instance.ports[gateway.REDIRECT]

    @property
    def authority(self) -> Path:
        return control_plane.control_plane(self.processes.state).authority_file

    def put(self, wanted: Object) -> None:
        self.cluster.apply(wanted)

    def service(self, name: str = "", host: str = "") -> Service:
        """A new service, with the URL that KServe gives it."""
        made = Service(self, name or f"chat-{next(_numbers)}", secrets.token_urlsafe(16))
        identity = Identity("serving.kserve.io/v1beta1", "InferenceService", NAMESPACE, made.name)
        metadata = {"name": made.name, "namespace": NAMESPACE}
        model = {"modelFormat": {"name": "vLLM"}}
        self.put(
            {
                "apiVersion": identity.group_version,
                "kind": identity.kind,
                "metadata": metadata,
                "spec": {"predictor": {"model": model}},
            }
        )
        self.cluster.merge(identity, {"status": {"url": f"https://{host or made.host}"}}, "status")
        self.put(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"{made.name}-predictor", "namespace": NAMESPACE},
                "spec": {"selector": {"app": made.name}, "ports": [{"name": "http", "port": 80, "targetPort": PORT}]},
            }
        )
        return made

    def server(self, key: str) -> Server:
        """A new server at an address that nobody else has."""
        while True:
            address = f"127.127.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}"
            try:
                made = Server(address, key)
            except OSError:  # taken by another worker
                continue
            threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers.append(made)
            return made

    def end(self, server: Server) -> None:
        self.servers.remove(server)
        server.shutdown()
        server.server_close()

    def request(self, method: str, host: str, path: str, **more: object) -> httpx.Response:
        """The gateway's answer for a host that is not in DNS."""
        headers = {**dict(more.pop("headers", {})), "Host": host}  # type: ignore[call-overload]
        raw = {"raw_path": path.encode()}
        url = httpx.URL(f"https://127.0.0.1:{self.port}").copy_with(**raw)
        return self.client.request(method, url, headers=headers, extensions={"sni_hostname": host}, **more)  # type: ignore[arg-type]


@contextlib.contextmanager
def gateway_lab() -> Iterator[GatewayLab]:
    """Start a control plane, the gateway, and the controllers that report pods to it."""
    with local_state((*control_plane.PORTS, *gateway.PORTS)) as state, running(state) as processes:
        control_plane.prepare(state)
        Gateway(state).prepare(DOMAIN)
        kinds = definitions((kserve.GROUP,), ("InferenceService",))
        for process in control_plane.processes(state, lambda: kinds):
            if process.name in _PARTS:
                more = (_CONTROLLERS,) if process.name == control_plane.CONTROLLER_MANAGER else ()
                processes.start(dataclasses.replace(process, argv=(*process.argv, *more)))
        with control_plane.cluster(state) as cluster:
            namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            # Kubernetes does not report a pod's address before its node exists.
            nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in (NODE, OTHER)]
            apply_all(cluster, [*kinds, namespace, *nodes])
            account = Identity("v1", "ServiceAccount", NAMESPACE, "default")
            wait_for(
                lambda: cluster.get(account.group_version, account.kind, account.name, account.namespace),
                30,
                processes.log(control_plane.CONTROLLER_MANAGER),
            )
            for process in Gateway(state).processes():
                processes.start(process)
            context = ssl.create_default_context(cafile=str(control_plane.control_plane(state).authority_file))
            with httpx.Client(verify=context, trust_env=False, timeout=20.0) as client:
                found = GatewayLab(processes, cluster, client)
                try:
                    yield found
                finally:
                    for server in list(found.servers):
                        found.end(server)
