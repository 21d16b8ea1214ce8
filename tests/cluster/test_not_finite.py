"""Numbers that are not finite: a server may send them, and no JSON, price or share is made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import httpx
import pytest

from neuroscale.cli.options import print_json
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.metrics import parse
from neuroscale.cluster.metrics.prometheus import Prometheus, PrometheusError
from neuroscale.core.json_text import json_text
from neuroscale.metering.tokens import count_tokens
from neuroscale.metering.window import Window

NOT_FINITE = ["NaN", "+Inf", "-Inf"]
START = datetime(2026, 11, 1, tzinfo=UTC)
LABELS = {"namespace": "one", "service": "chat"}
WELL = {"namespace": "one", "service": "well"}


def prometheus(answers: Mapping[str, tuple[str, object]]) -> Prometheus:
    """One that answers a query by the first of the words that it holds."""

    def answer(request: httpx.Request) -> httpx.Response:
        query = parse_qs(request.content.decode())["query"][0]
        kind, result = next(found for word, found in answers.items() if word in query)
        return httpx.Response(200, json={"status": "success", "data": {"resultType": kind, "result": result}})

    return Prometheus("http://metrics", httpx.Client(transport=httpx.MockTransport(answer)))


@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_servers_metric_that_is_not_finite_is_not_known(value: str) -> None:
    found = parse(
        f'vllm:num_requests_running{{engine="0"}} {value}\n'
        'vllm:num_requests_running{engine="1"} 2.0\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} 0.5\nvllm:kv_cache_usage_perc{{engine="1"}} {value}\n'
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 1.0\n'
        f"vllm:time_to_first_token_seconds_sum {value}\nvllm:time_to_first_token_seconds_count 1.0\n"
    )
    assert (found.running, found.kv_cache_usage, found.ttft) == (None, None, None)
    assert "vllm:num_requests_running" not in found.missing


@pytest.mark.parametrize("bucket", ["", '{le="few"}'])
def test_a_bucket_without_a_bound_is_not_read(bucket: str) -> None:
    name = "vllm:time_to_first_token_seconds"
    with pytest.raises(EndpointError, match="The metrics cannot be read"):
        parse(f"{name}_bucket{bucket} 1.0\n{name}_sum 1.0\n{name}_count 1.0\n")


@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_value_of_prometheus_that_is_not_finite_is_not_known(value: str) -> None:
    points = [[1, "1.5"], [2, value], [3, "2.5"]]
    asked = prometheus(
        {
            "one": ("vector", [{"metric": {}, "value": [1, value]}]),
            "range": ("matrix", [{"metric": {}, "values": points}]),
            "time": ("scalar", [1, value]),
        }
    )
    assert asked.scalar("one", 1.0) is None
    assert asked.over("range", 1.0, 3.0, 1.0)[0].points == ((1.0, 1.5), (3.0, 2.5))
    assert asked.samples("range", 3.0)[0].points == ((1.0, 1.5), (3.0, 2.5))
    with pytest.raises(PrometheusError, match="does not answer with its time"):
        asked.now()


@pytest.mark.parametrize("value", NOT_FINITE)
def test_no_price_is_made_of_tokens_that_are_not_finite(value: str) -> None:
    asked = prometheus(
        {
            "prompt_tokens": (
                "vector",
                [{"metric": LABELS, "value": [1, value]}, {"metric": WELL, "value": [1, "7"]}],
            ),
            "generation_tokens": (
                "vector",
                [{"metric": LABELS, "value": [1, "5"]}, {"metric": WELL, "value": [1, "5"]}],
            ),
            "avg_over_time": ("vector", [{"metric": WELL, "value": [1, value]}]),
            "up": ("matrix", [{"metric": one, "values": [[1, "1"], [2, value]]} for one in (LABELS, WELL)]),
        }
    )
    counted = count_tokens(asked, Window(START, START + timedelta(hours=1)))
    assert list(counted) == [("one", "well")]
    well = counted["one", "well"]
    assert (well.prompt == 7, well.batch, well.hours.is_finite()) == (True, None, True)


def test_json_has_null_where_a_number_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a": [math.nan, {"b": (math.inf, 1.5)}], "c": -math.inf, "d": "NaN"}
    print_json(value)
    expected = {"a": [None, {"b": [None, 1.5]}], "c": None, "d": "NaN"}

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == expected
    assert json.loads(json_text(value, None), parse_constant=refuse) == expected
