"""What a server's /metrics say, also where engines are several, names are missing, or the text is none."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broken_model_server import BrokenServer, broken_server, error
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.metrics import NAMES, Histogram, Sampler, parse, read

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="tiny"} 0.75
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="tiny"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="tiny"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="tiny"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="tiny"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="1.0",model_name="tiny"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="tiny"} 1.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 4.0
vllm:time_to_first_token_seconds_count{engine="1",model_name="tiny"} 1.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="tiny"} 4.5
vllm:time_to_first_token_seconds_sum{engine="1",model_name="tiny"} 0.5
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 70.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 512.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 128.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{enable_prefix_caching="True",engine="0",kv_cache_size_tokens="1024"} 1.0
vllm:cache_config_info{enable_prefix_caching="True",engine="1",kv_cache_size_tokens="1040"} 1.0
"""


def test_counts_of_engines_are_added_up_and_the_fullest_cache_counts() -> None:
    found = parse(TEXT)
    assert (found.running, found.waiting, found.kv_cache_usage) == (4.0, 2.0, 0.75)
    assert found.generation_tokens == 70.0
    assert found.ttft == Histogram(5.0, 5.0, ((0.1, 1.0), (1.0, 4.0), (math.inf, 5.0)))


def test_what_the_caches_hold_is_read_from_the_labels_of_every_engine() -> None:
    found = parse(TEXT)
    assert (found.prefix_queries, found.prefix_hits) == (512.0, 128.0)
    assert (found.cache_tokens, found.prefix_caching) == (2064, True)
    unknown = parse(TEXT.replace('kv_cache_size_tokens="1040"', 'kv_cache_size_tokens="None"'))
    assert unknown.cache_tokens is None
    assert (parse("").cache_tokens, parse("").prefix_caching) == (None, None)
    assert parse(TEXT.replace('caching="True"', 'caching="False"')).prefix_caching is False


def test_what_is_missing_is_none_and_named_and_never_zero() -> None:
    found = parse(TEXT)
    assert (found.queue, found.e2e, found.itl, found.prompt_tokens) == (None, None, None, None)
    assert set(found.missing) == set(NAMES) - {
        *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
        *("vllm:time_to_first_token_seconds", "vllm:generation_tokens_total"),
    }
    assert parse("").missing == NAMES


def test_a_histogram_whose_buckets_alone_are_there_counts_as_missing_its_sum() -> None:
    assert parse("# TYPE vllm:request_queue_time_seconds histogram\n").queue is None


@pytest.mark.parametrize("text", ["<html><b>no</b></html>", "a b c d e", 'x{le="} 1'])
def test_a_text_that_is_no_metrics_is_refused(text: str) -> None:
    with pytest.raises(EndpointError, match="cannot be read"):
        parse(text)


# Histograms -----------------------------------------------------------------------------------------------------------


def test_a_quantile_is_interpolated_as_prometheus_does() -> None:
    found = Histogram(0, 10, ((1.0, 2.0), (2.0, 8.0), (4.0, 10.0), (math.inf, 10.0)))
    assert found.quantile(0.5) == pytest.approx(1.5)
    assert found.quantile(0.1) == pytest.approx(0.5)
    assert found.quantile(0.9) == pytest.approx(3.0)
    assert found.quantile(1.0) == pytest.approx(4.0)


def test_a_quantile_above_the_last_bound_is_that_bound_and_of_nothing_is_none() -> None:
    assert Histogram(0, 2, ((1.0, 0.0), (math.inf, 2.0))).quantile(0.5) == 1.0
    assert Histogram(0, 0, ((1.0, 0.0), (math.inf, 0.0))).quantile(0.5) is None
    assert Histogram(0, 0).quantile(0.5) is None
    assert Histogram(0, 0).mean is None


@given(st.lists(st.floats(0.001, 20), min_size=1, max_size=50), st.floats(0.01, 0.99))
def test_a_quantile_lies_in_the_bucket_that_the_true_one_is_in(values: list[float], share: float) -> None:
    bounds = (0.01, 0.1, 0.5, 1.0, 5.0, 20.0, math.inf)
    buckets = tuple((bound, float(sum(value <= bound for value in values))) for bound in bounds)
    found = Histogram(sum(values), len(values), buckets).quantile(share)
    assert found is not None
    true = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    assert max(bound for bound in (0.0, *bounds) if bound < true) <= found <= min(b for b in bounds if b >= true)


def test_what_came_since_is_the_difference_and_after_a_restart_all() -> None:
    before = Histogram(1.0, 2.0, ((1.0, 1.0), (math.inf, 2.0)))
    after = Histogram(4.0, 5.0, ((1.0, 3.0), (math.inf, 5.0)))
    assert after.since(before) == Histogram(3.0, 3.0, ((1.0, 2.0), (math.inf, 3.0)))
    assert before.since(after) == before


# Looking again and again ----------------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[BrokenServer, Endpoint]]:
    with broken_server() as found:
        yield found


def page(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def test_a_sampler_looks_before_while_and_after(pair: tuple[BrokenServer, Endpoint]) -> None:
    server, endpoint = pair
    server.says(page(TEXT))
    with Sampler(endpoint, every=0.02) as sampler:
        while len(sampler.snapshots) < 3:
            time.sleep(0.01)
        seen = len(sampler.snapshots)
    assert len(sampler.snapshots) > seen
    assert sampler.problem == ""
    assert [one.at for one in sampler.snapshots] == sorted(one.at for one in sampler.snapshots)
    assert not any(thread.name == "metrics" for thread in threading.enumerate())


def test_a_sampler_that_sees_nothing_says_why_and_disturbs_nothing(pair: tuple[BrokenServer, Endpoint]) -> None:
    server, endpoint = pair
    server.says(error(404, b"{}"))
    with Sampler(endpoint, every=0.01) as sampler:
        pass
    assert sampler.snapshots == []
    assert "404" in sampler.problem
    with pytest.raises(EndpointError, match="404"):
        read(endpoint)
