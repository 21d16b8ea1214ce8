"""A client that stands in for guidellm, with a report as guidellm 0.8.1 writes it, and an endpoint to ask."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broken_model_server import BrokenServer, broken_server
from neuroscale.bench.cells import Cell, PlannedCell
from neuroscale.bench.guidellm import REPORT, Progress, Target
from neuroscale.bench.reading import CellError
from neuroscale.cluster.endpoint.connection import Endpoint

RECORDED = Path(__file__).resolve().parents[1] / "bench" / "guidellm-report.json"
"""Of a run against a tiny model on this machine's processor, with the fields that this project reads."""


def recorded() -> Any:
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def report_of(cell: Cell, ttft_ms: float = 30.0) -> Any:
    """A report of that cell, in which the first tokens take `ttft_ms` on the mean and twice as long at the p95."""
    report = recorded()
    benchmark = report["benchmarks"][0]
    benchmark["config"]["strategy"]["streams"] = cell.users
    metrics = benchmark["metrics"]
    metrics["prompt_token_count"]["successful"]["mean"] = float(cell.prompt_tokens)
    metrics["output_token_count"]["successful"]["mean"] = float(cell.answer_tokens)
    each = 1000 / metrics["inter_token_latency_ms"]["successful"]["mean"]
    metrics["output_tokens_per_second"]["successful"]["mean"] = 0.8 * cell.users * each
    ttft = metrics["time_to_first_token_ms"]["successful"]
    ttft["mean"], ttft["percentiles"] = ttft_ms, {"p50": ttft_ms, "p95": 2 * ttft_ms}
    requests = benchmark["requests"]["successful"]
    for request in requests:
        request["time_to_first_token_ms"] = ttft_ms
    requests[-1]["time_to_first_token_ms"] = 2 * ttft_ms
    return report


@dataclass
class FakeClient:
    """Writes a report for each cell. `ttft_ms`: of so many users. `fails`: names of cells that fail."""

    version: str = "0.8.1"
    ttft_ms: Callable[[int], float] = lambda users: 10.0 * users
    fails: set[str] = field(default_factory=set)
    change: Callable[[Any], None] = lambda report: None
    ran: list[str] = field(default_factory=list)
    exported: list[Path] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def run(self, target: Target, planned: PlannedCell, folder: Path, progress: Progress) -> None:
        self.ran.append(planned.cell.name)
        self.targets.append(target)
        progress(1, 0, 1.0)
        if planned.cell.name in self.fails:
            raise CellError("the server is gone")
        report = report_of(planned.cell, self.ttft_ms(planned.cell.users))
        self.change(report)
        (folder / REPORT).write_text(json.dumps(report), encoding="utf-8")

    def export(self, report: Path) -> None:
        self.exported.append(report)
        for suffix in (".html", ".csv"):
            report.with_suffix(suffix).write_text("", encoding="utf-8")


_METRICS = """\
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0"}} {asked}
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{enable_prefix_caching="True",engine="0",kv_cache_size_tokens="{cache}"}} 1.0
"""


@contextlib.contextmanager
def model_endpoint(*, cache_tokens: int = 4096, hits: float = 0.0) -> Iterator[tuple[BrokenServer, Endpoint]]:
    """A server that says that it serves `tiny-llama`, and counts. `hits`: of a hundred tokens of prompts."""
    with broken_server() as (server, endpoint):
        looks = [0]

        def reply(connection: socket.socket) -> None:
            line, status = server.asked[-1].line, "200 OK"
            if "/v1/models" in line:
                row = {"id": "tiny-llama", "root": "/mnt/models/tiny-llama", "max_model_len": 2048}
                text = json.dumps({"data": [row]})
            elif "/version" in line:
                text = '{"version": "0.32.0"}'
            elif "/metrics" in line:
                looks[0] += 1
                text = _METRICS.format(asked=100.0 * looks[0], hits=hits * looks[0], cache=cache_tokens)
            else:
                status, text = "404 Not Found", "{}"
            body = text.encode()
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + body)

        server.reply = reply
        yield server, endpoint
