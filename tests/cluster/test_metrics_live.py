"""`neuroscale metrics` of a service that a real vLLM answers."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from cluster_lab import run
from live_lab import Live
from neuroscale.cluster.endpoint import metrics as endpoint
from neuroscale.cluster.endpoint.access import open_endpoint
from neuroscale.cluster.endpoint.chat import Options, complete
from waiting import wait_for

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.live, pytest.mark.slow]

ASKED = Options(max_tokens=8, extra={"ignore_eos": True})


def metrics(live: Live) -> Any:
    said = run(
        "metrics", f"{live.environment}/{live.service}", "--state", live.folder, "--repository", live.checkout, "--json"
    )
    assert said.status == 0, said.out + said.err + live.logs()
    return said.json


def test_prometheus_shows_what_the_server_itself_counted(live: Live) -> None:
    with live.cluster() as cluster, open_endpoint(cluster, live.namespace, live.service) as served:
        before = endpoint.read(served)
        for number in range(3):
            complete(served, f"Tell me something about the number {number}.", ASKED)

        # Others ask it too, so what was counted when Prometheus looked lies between two looks around it; where nobody
        # asked meanwhile, all three are equal.
        first, looked = endpoint.read(served), time.time()
        found: dict[str, Any] = {}

        def scraped() -> bool:
            found.update(metrics(live))
            taken = datetime.fromisoformat(found["at"]).timestamp() - found["newest_sample_age_seconds"]
            return bool(taken > looked)

        wait_for(scraped, 60, "Prometheus has looked after the requests")
        after = endpoint.read(served)
        for name in ("prompt_tokens", "generation_tokens"):
            assert getattr(first, name) <= found["counted"][name] <= getattr(after, name)
        assert after.missing == ()
        assert (after.generation_tokens or 0) >= (before.generation_tokens or 0) + 3 * 8
    assert [pod["node"] for pod in found["pods"]] == ["this-machine"]
    shown = {row["name"]: row for row in found["rows"]}
    assert after.ttft is not None
    for name in ("time_to_first_token_p95", "end_to_end_latency_p95", "inter_token_latency_p95"):
        value = shown[name]["whole"]
        assert value["above"] < value["seconds"]
    assert 0 <= shown["kv_cache_usage"]["now"] <= 1
    assert found["scrape_interval_seconds"] == pytest.approx(5, abs=3)


def test_the_metrics_that_rules_use_are_the_servers(live: Live) -> None:
    """A rename in vLLM would leave every alert silent."""
    from neuroscale.cluster.metrics.prometheus import by_address
    from neuroscale.local.prometheus import address_in

    with by_address(address_in(live.folder)) as prometheus:
        wanted = {"namespace": live.namespace, "service": live.service}

        def recorded() -> bool:
            found = prometheus.vector('{__name__=~"service:.+"}', prometheus.now())
            names = {one.labels["__name__"] for one in found if one.labels.items() >= wanted.items()}
            return names >= {
                "service:up:sum",
                "service:vllm_num_requests_running:sum",
                "service:vllm_num_requests_waiting:sum",
                "service:vllm_kv_cache_usage_perc:max",
                "service:vllm_prompt_tokens:rate5m",
                "service:vllm_generation_tokens:rate5m",
                "service:vllm_request_success:rate5m",
                "service:process_start_time_seconds:changes15m",
            }

        wait_for(recorded, 60, "every rule that needs no request has a value")
