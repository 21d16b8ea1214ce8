"""A real Prometheus that scrapes every second, and pages as a vLLM server writes them, for tests."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from neuroscale.cluster.endpoint.connection import client
from neuroscale.cluster.metrics.prometheus import Prometheus
from neuroscale.core import tool_cache
from neuroscale.rendering.platform.monitoring import JOB, RULES
from roots import ROOT

NAMESPACE = "team-alpha"
INTERVAL = 1.0
_STARTS_WITHIN = 60.0
_STOPS_WITHIN = 15.0
# Buckets of vLLM 0.32: the first one, and some around the values that the tests measure.
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_LATENCY = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0)
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)


class Page:
    """A server's `/metrics`, with vLLM's names, labels and buckets, and the counts that the test sets."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = {"model_name": "tiny", "engine": "0"}

        def histogram(name: str, buckets: Sequence[float]) -> Histogram:
            made = Histogram(f"vllm:{name}", name, list(labels), buckets=buckets, registry=self.registry)
            return made.labels(**labels)

        def gauge(name: str) -> Gauge:
            return Gauge(f"vllm:{name}", name, list(labels), registry=self.registry).labels(**labels)

        def counter(name: str, **more: str) -> Counter:
            made = Counter(f"vllm:{name}", name, [*labels, *more], registry=self.registry)
            return made.labels(**labels, **more)

        self.ttft = histogram("time_to_first_token_seconds", _TTFT)
        self.e2e = histogram("e2e_request_latency_seconds", _LATENCY)
        self.itl = histogram("inter_token_latency_seconds", _ITL)
        self.queue = histogram("request_queue_time_seconds", _LATENCY)
        self.running = gauge("num_requests_running")
        self.waiting = gauge("num_requests_waiting")
        self.kv_cache = gauge("kv_cache_usage_perc")
        self.prompt_tokens = counter("prompt_tokens")
        self.generation_tokens = counter("generation_tokens")
        self.finished = counter("request_success", finished_reason="stop")
        self.started = Gauge("process_start_time_seconds", "start", registry=self.registry)
        self.started.set(1_700_000_000)
        self._restarts: Gauge | None = None

    def request(self, ttft: float, e2e: float, itl: float, prompt: int, generated: int) -> None:
        """Count one request that was answered."""
        self.ttft.observe(ttft)
        self.e2e.observe(e2e)
        self.queue.observe(0.001)
        for _ in range(generated - 1):
            self.itl.observe(itl)
        self.prompt_tokens.inc(prompt)
        self.generation_tokens.inc(generated)
        self.finished.inc()

    def tell_restarts(self, count: int) -> None:
        """Report restarts as kube-state-metrics does, with the labels that Prometheus adds."""
        if self._restarts is None:
            name = "kube_pod_container_status_restarts_total"
            self._restarts = Gauge(name, name, ["container"], registry=self.registry)
        self._restarts.labels(container="kserve-container").set(count)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


@dataclass
class Server:
    """A pod of a service that answers at `/metrics`, until it is closed."""

    service: str
    namespace: str = NAMESPACE
    page: Page = field(default_factory=Page)

    def __post_init__(self) -> None:
        page = self.page

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = page.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def pod(self) -> str:
        return f"{self.service}-predictor-1"

    @property
    def target(self) -> Mapping[str, object]:
        labels = {"namespace": self.namespace, "service": self.service, "pod": self.pod, "node": "node-1"}
        return {"targets": [f"127.0.0.1:{self._server.server_port}"], "labels": labels}

    @property
    def answers(self) -> bool:
        """Whether it was not closed yet."""
        return self._thread.is_alive()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)


@dataclass(frozen=True)
class Lab:
    """A running Prometheus and what it scrapes."""

    url: str
    http: httpx.Client
    log: Path

    @property
    def prometheus(self) -> Prometheus:
        return Prometheus(self.url, self.http)

    def value(self, query: str) -> float | None:
        """The value of an expression now; None if it has none."""
        prometheus = self.prometheus
        return prometheus.scalar(query, prometheus.now())

    def await_value(self, query: str, wanted: float, seconds: float = 60.0) -> None:
        """Return as soon as the expression has the value."""
        ends = time.monotonic() + seconds
        while (found := self.value(query)) != wanted:
            assert time.monotonic() < ends, f"{query} is {found} and not {wanted}:\n{self.log.read_text()[-2000:]}"
            time.sleep(0.2)


@contextlib.contextmanager
def running_prometheus(
    folder: Path,
    servers: Sequence[Server],
    rules: Sequence[Path] = tuple(ROOT / path for path in RULES),
    alertmanager: str = "",
) -> Iterator[Lab]:
    """Start a Prometheus that scrapes the servers and has this repository's rules; a failure shows its output.

    `alertmanager`: HOST:PORT of whom it tells alerts.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    configuration = {
        "global": {"scrape_interval": f"{INTERVAL:g}s"},
        "rule_files": [str(path) for path in rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []},
        "scrape_configs": [{"job_name": JOB, "static_configs": [server.target for server in servers]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    log = folder / "prometheus.log"
    argv = [
        str(tool_cache.find("prometheus")),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=warn",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        with client(f"http://{address}", direct=True) as http:
            ends = time.monotonic() + _STARTS_WITHIN
            while not _ready(http, f"http://{address}/-/ready"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < ends, log.read_text()
                time.sleep(0.1)
            lab = Lab(f"http://{address}", http, log)
            lab.await_value("count(up == 1)", sum(server.answers for server in servers))
            yield lab
    finally:
        process.terminate()
        try:
            process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOPS_WITHIN)


def _ready(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(url).status_code == 200
    except httpx.HTTPError:
        return False
