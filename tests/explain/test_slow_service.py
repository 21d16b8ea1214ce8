"""The bound that a slow service hits, by what its servers counted: each bound, and what must not be called one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from neuroscale.explain.slow_service import Bound, Name, PodLoad, Promise, Serving, Try, judge_serving
from roots import CHECKOUT

BUSY = PodLoad(
    pod="chat-1",
    seconds=10,
    running=8,
    most_at_once=8,
    places=32,
    cache=0.3,
    cache_tokens=100_000,
    first_tokens=40,
    ttft_p95=0.4,
    ttft=0.2,
    itl=0.02,
    itl_p50=0.02,
    itl_p95=0.024,
    queue=0.001,
    prefill=0.15,
    decode=2.0,
    prompt_tokens=40 * 600,
    answer_tokens=4_000,
    cached_tokens=0,
)
"""A server that keeps what its plan promises."""
PROMISE = Promise(
    users=16, replica_users=16, replicas=1, ttft_p95=0.5, rate=45, slowest=35, asked_ttft=1, asked_rate=10
)


def judged(promise: Promise | None = PROMISE, **changes: Any) -> Serving:
    return judge_serving([replace(BUSY, **changes)], promise)


def names(serving: Serving) -> list[str]:
    return [bound.name for bound in serving.bounds]


@pytest.mark.parametrize(
    ("bound", "changes", "told"),
    [
        (
            "no_tokens",
            {"answer_tokens": 0, "first_tokens": 0, "itl": None},
            "8 requests run, and no token came within 10",
        ),
        ("kv_cache_full", {"preemptions": 3.0}, "3 requests lost their place"),
        ("kv_cache_full", {"waits": 0.9, "waiting": 4.0, "cache": 0.97}, "97% of the KV cache"),
        # The next prompt has 20,000 tokens, and a fifth of the cache is free: the server cannot let it in.
        ("kv_cache_full", {"waits": 1, "waiting": 2, "cache": 0.81, "prompt_tokens": 40 * 20_000}, "2 requests wait"),
        ("requests_waiting", {"waits": 1.0, "waiting": 9.0, "running": 32}, "of 32 at a time (--max-num-seqs)"),
        # As a real server counted it: requests that came in waves, so that places were free in some readings.
        (
            "requests_waiting",
            {"waits": 0.83, "waiting": 10.2, "running": 6.7, "most_running": 8, "places": 8, "prompt_tokens": 40 * 8},
            "10.2 requests wait while 6.7 run, of 8 at a time",
        ),
        ("requests_waiting", {"waits": 0.83, "waiting": 3, "prompt_tokens": 40 * 8}, "3 requests wait"),
        ("requests_waiting", {"waits": 0.4, "waiting": 3, "queue": 0.6, "ttft": 0.8}, "A request waited 600 ms"),
        ("requests_waiting", {"waits": 1.0, "waiting": 9.0, "places": None}, "9 requests wait while 8 run"),
        # They come together, so that the queue is empty in most readings, and still each waits in it.
        ("requests_waiting", {"waits": 0.2, "waiting": 1, "ttft": 2, "ttft_p95": 4, "queue": 1.7}, "waited 1.7 s"),
        ("long_prompts", {"itl_p50": 0.02, "itl_p95": 0.3}, "p95 between two tokens is 300 ms, the median 20 ms"),
        (
            "long_prompts",
            {"waits": 0.8, "waiting": 3.0},
            "3 requests wait while 8 run, though places and cache are free",
        ),
        ("long_prompts", {"ttft": 1.2, "ttft_p95": 2.0, "prefill": 1.1}, "1.1 s of the mean 1.2 s compute the prompt"),
        (
            "more_users_than_planned",
            {"running": 30, "most_at_once": 30, "itl": 0.05},
            "20 tokens/s, and the plan says 35",
        ),
        ("slower_than_planned", {"itl": 0.05}, "8 requests at a time, of 16"),
        ("slower_than_planned", {"ttft_p95": 2.0, "ttft": 1.5, "prefill": 0.2, "queue": 0.1}, "1 s are asked for"),
    ],
)
def test_each_bound_is_named_with_its_numbers(bound: str, changes: dict[str, Any], told: str) -> None:
    found = judged(**changes)
    assert found.verdict == "bound"
    assert names(found)[0] == bound
    assert told in found.sentence
    assert found.bounds[0].do


def test_a_server_that_keeps_its_promise_has_room_and_the_client_is_slow() -> None:
    found = judged()
    assert (found.verdict, found.bounds) == ("client", ())
    assert "8 requests run of 32 at a time" in found.sentence
    assert "a client that sends one request after the other" in found.sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"waits": 0.3, "waiting": 0.5},  # a queue that empties
        {"cache": 0.99},  # full, and nobody waits: the cache keeps prefixes, and fills by itself
        {"itl_p95": 0.038},  # one bucket of the histogram
        {"itl_p95": 0.3, "prompt_tokens": 40 * 100},  # a step takes such prompts along
        {"itl_p95": 0.3, "cached_tokens": 40 * 590},  # the prefix cache has nearly all of each
    ],
)
def test_what_is_no_bound(changes: dict[str, Any]) -> None:
    assert judged(**changes).verdict == "client"


def test_nobody_asks_it() -> None:
    idle = PodLoad("chat-1", 10.0, places=32, cache=0.0)
    found = judge_serving([idle], PROMISE)
    assert (found.verdict, found.sentence) == ("idle", "Nobody asks it now: nothing can be judged.")


def test_a_replica_that_does_not_answer_comes_first() -> None:
    promise = replace(PROMISE, replicas=2)
    found = judge_serving([replace(BUSY, waits=1.0, waiting=9.0, running=32)], promise)
    assert names(found) == ["replicas_missing", "requests_waiting"]
    assert found.sentence == "1 of 2 replicas answers: each takes the load of 2."
    assert names(judge_serving([PodLoad("chat-1", 10.0)], promise)) == ["replicas_missing"]
    assert judge_serving([BUSY, replace(BUSY, pod="chat-2")], promise).verdict == "client"


def test_the_busy_pod_of_two_is_named() -> None:
    calm = replace(BUSY, pod="chat-2", running=1)
    found = judge_serving([calm, replace(BUSY, waits=1.0, waiting=9.0, running=32)], replace(PROMISE, replicas=2))
    assert found.sentence.startswith("chat-1: 9 requests wait while 32 run")


def test_what_could_not_be_read_is_no_room() -> None:
    found = judge_serving([BUSY], replace(PROMISE, replicas=2), ["chat-2: it does not answer"])
    assert (found.verdict, found.bounds) == ("unknown", ())
    assert judge_serving([], PROMISE, ["chat-1: it does not answer"]).verdict == "unknown"
    assert names(judge_serving([replace(BUSY, preemptions=1)], PROMISE, ["chat-2: no"])) == ["kv_cache_full"]


def test_weights_that_cross_pcie() -> None:
    promise = replace(PROMISE, offload_gib=12, offload_seconds=0.4)
    found = judge_serving([replace(BUSY, itl=0.5, itl_p50=0.5, itl_p95=0.55)], promise)
    assert names(found) == ["weights_over_pcie", "slower_than_planned"]
    assert "12 GiB of weights lie in the host's memory" in found.sentence
    assert "400 ms of the 500 ms" in found.sentence
    assert names(judge_serving([replace(BUSY, itl=0.02)], replace(promise, offload_seconds=0.001))) == []


def test_without_a_plan_the_counters_alone_are_judged() -> None:
    assert judged(None, waits=1.0, waiting=3.0, running=32).verdict == "bound"
    assert judged(None, itl=9.0).verdict == "client"


def tries(bound: Bound) -> list[Try]:
    return list(bound.tries)


def test_what_helps_begins_with_the_users_that_are_there() -> None:
    (bound,) = judged(waits=1.0, waiting=24.0, running=32, most_at_once=56).bounds
    assert tries(bound) == [Try({"concurrent_users": 56}), Try({"overrides.replicas.min": 2})]
    (limited,) = judged(
        replace(PROMISE, overridden=frozenset({"max_num_seqs"})), waits=1.0, waiting=2.0, running=4, places=4
    ).bounds
    assert tries(limited)[0] == Try(removed=("overrides.max_num_seqs",))
    (full,) = judged(preemptions=2).bounds
    assert Try({"overrides.kv_cache_dtype": "fp8"}) in tries(full)


def test_the_documents_name_each_bound() -> None:
    text = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    assert [name for name in get_args(Name) if f"`{name}`" not in text] == []
