"""What a server counted between two readings of its metrics, for the judgement why it is slow."""

from __future__ import annotations

import pytest

from neuroscale.cluster.endpoint.metrics import Snapshot, parse
from neuroscale.cluster.endpoint.pod_loads import load_between


def text(*, running: float, waiting: float, requests: int, cache: float = 0.5, preempted: int = 0) -> str:
    """The metrics of a server that has answered so many requests, each in the same times."""

    def histogram(name: str, seconds: float, count: int) -> str:
        bounds = (0.01, 0.1, 1.0, 10.0)
        rows = [f'{name}_bucket{{le="{bound}"}} {count if seconds <= bound else 0}' for bound in bounds]
        rows += [f'{name}_bucket{{le="+Inf"}} {count}', f"{name}_count {count}", f"{name}_sum {seconds * count}"]
        return "\n".join((f"# TYPE {name} histogram", *rows))

    return "\n".join(
        (
            f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {running}",
            f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting {waiting}",
            f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc {cache}",
            histogram("vllm:time_to_first_token_seconds", 0.5, requests),
            histogram("vllm:inter_token_latency_seconds", 0.05, requests * 10),
            histogram("vllm:request_queue_time_seconds", 0.2, requests),
            histogram("vllm:request_prefill_time_seconds", 0.3, requests),
            histogram("vllm:request_decode_time_seconds", 0.5, requests),
            f"# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total {preempted}",
            f"# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total {requests * 600}",
            f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {requests * 11}",
            f"# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total {requests * 600}",
            f"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total {requests * 400}",
            "# TYPE vllm:cache_config_info gauge",
            'vllm:cache_config_info{kv_cache_size_tokens="4096",enable_prefix_caching="True"} 1.0\n',
        )
    )


def read(*texts: str) -> list[Snapshot]:
    return [parse(one, at=float(number)) for number, one in enumerate(texts)]


def test_only_what_was_counted_between_the_readings_is_the_load() -> None:
    first, last = text(running=2, waiting=0, requests=100), text(running=4, waiting=3, requests=120, preempted=2)
    load = load_between("a", read(first, first, last), places=4)
    assert load is not None
    assert (load.seconds, load.places, load.first_tokens, load.preemptions) == (2.0, 4, 20, 2)
    assert (load.running, load.waiting, load.waits, load.most_at_once) == pytest.approx((8 / 3, 1, 1 / 3, 7))
    assert (load.ttft, load.queue, load.prefill, load.decode, load.itl) == pytest.approx((0.5, 0.2, 0.3, 0.5, 0.05))
    assert (load.prompt_tokens, load.answer_tokens, load.cached_tokens) == (20 * 600, 20 * 11, 20 * 400)
    assert load.prompt == 200
    assert (load.cache, load.cache_tokens) == (0.5, 4096)
    assert load.rate == pytest.approx(20)


def test_a_server_that_answers_nothing_meanwhile_was_not_asked() -> None:
    idle = text(running=0, waiting=0, requests=100, cache=0.0)
    load = load_between("a", read(idle, idle))
    assert load is not None
    assert not load.asked
    assert (load.ttft, load.itl, load.rate, load.prompt) == (None, None, None, None)


def test_a_restart_between_the_readings_counts_from_the_start() -> None:
    load = load_between("a", read(text(running=1, waiting=0, requests=100), text(running=1, waiting=0, requests=3)))
    assert load is not None
    assert (load.first_tokens, load.prompt_tokens) == (3, 1800)


def test_without_counts_of_requests_nothing_is_judged() -> None:
    silent = "# TYPE python_gc counter\npython_gc_total 1\n"
    assert load_between("a", read(silent, silent)) is None
    assert load_between("a", read(text(running=1, waiting=0, requests=1))) is None
    assert load_between("a", read(text(running=1, waiting=0, requests=1), silent)) is None
