"""Reads a model server's `/metrics`, once or again and again while something runs.

The names are those of vLLM 0.32. Counts of several engines of one server are added up; their cache usage is the
fullest's.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from neuroscale.cluster.endpoint.connection import Endpoint, bounded, refused, unreachable
from neuroscale.cluster.endpoint.errors import EndpointError

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
KV_CACHE: Final = "vllm:kv_cache_usage_perc"
TTFT: Final = "vllm:time_to_first_token_seconds"
END_TO_END: Final = "vllm:e2e_request_latency_seconds"
ITL: Final = "vllm:inter_token_latency_seconds"
QUEUE: Final = "vllm:request_queue_time_seconds"
PROMPT_TOKENS: Final = "vllm:prompt_tokens_total"
GENERATION_TOKENS: Final = "vllm:generation_tokens_total"
PREFILL: Final = "vllm:request_prefill_time_seconds"
DECODE: Final = "vllm:request_decode_time_seconds"
PREEMPTIONS: Final = "vllm:num_preemptions_total"
PREFIX_QUERIES: Final = "vllm:prefix_cache_queries_total"
PREFIX_HITS: Final = "vllm:prefix_cache_hits_total"
CACHE_CONFIG: Final = "vllm:cache_config_info"

NAMES: Final = (*(RUNNING, WAITING, KV_CACHE), *(TTFT, END_TO_END, ITL, QUEUE), *(PROMPT_TOKENS, GENERATION_TOKENS))
"""The metrics that autoscaling, alerts and charts use; a histogram by its name without `_bucket`."""

_HISTOGRAMS: Final = (TTFT, END_TO_END, ITL, QUEUE, PREFILL, DECODE)
_Samples = dict[str, list[tuple[Mapping[str, str], float]]]


@dataclass(frozen=True)
class Histogram:
    """A histogram of seconds in Prometheus' format.

    `buckets`: pairs of an upper bound in seconds and the count up to it; the bounds rise, and the last one is infinite.
    """

    sum: float
    count: float
    buckets: tuple[tuple[float, float], ...] = ()

    def since(self, earlier: Histogram) -> Histogram:
        """The counts since an earlier snapshot of the same server; all counts if the server was restarted."""
        before = dict(earlier.buckets)
        if self.count < earlier.count or before.keys() != dict(self.buckets).keys():
            return self
        buckets = tuple((bound, max(0.0, count - before[bound])) for bound, count in self.buckets)
        return Histogram(self.sum - earlier.sum, self.count - earlier.count, buckets)

    @property
    def mean(self) -> float | None:
        """Mean seconds; None if nothing was counted."""
        return self.sum / self.count if self.count > 0 else None

    def quantile(self, share: float) -> float | None:
        """Seconds below which a share (0..1) lies, as by Prometheus' `histogram_quantile`; None if nothing was
        counted."""
        total = self.buckets[-1][1] if self.buckets else 0.0
        if total <= 0:
            return None
        rank = share * total
        low, below = 0.0, 0.0
        for bound, count in self.buckets:
            if count >= rank:
                if math.isinf(bound):
                    return low
                inside = count - below
                return low + (bound - low) * ((rank - below) / inside if inside > 0 else 1.0)
            low, below = bound, count
        return low


@dataclass(frozen=True)
class Snapshot:
    """One look at `/metrics`. None: the server has no such metric (see `missing`), or its value is not finite.

    `running` and `waiting`: requests. `kv_cache_usage`: the filled share of the KV cache, 0..1. `prompt_tokens` and
    `generation_tokens`: since the server's start. `prefix_queries`: tokens of prompts that its prefix cache was asked
    for, and `prefix_hits`: those that it had, since the start. `cache_tokens`: the tokens that its KV cache holds.
    `prefix_caching`: whether it keeps prefixes. `prefill` and `decode`: a request's time up to its first token and from
    there, without the queue. `preemptions`: requests that lost their place in the cache, since the start. `at`: the
    time of the reading, by `time.monotonic`.
    """

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    ttft: Histogram | None = None
    e2e: Histogram | None = None
    itl: Histogram | None = None
    queue: Histogram | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    cache_tokens: int | None = None
    prefix_caching: bool | None = None
    prefill: Histogram | None = None
    decode: Histogram | None = None
    preemptions: float | None = None
    names: frozenset[str] = frozenset()
    at: float = 0.0

    @property
    def missing(self) -> tuple[str, ...]:
        """The metrics of NAMES that the server lacks."""
        return tuple(name for name in NAMES if name not in self.names)


def parse(text: str, at: float = 0.0) -> Snapshot:
    """The snapshot in a text of Prometheus' format. Raises EndpointError if the text has another format."""
    samples: _Samples = {}
    names: set[str] = set()
    try:
        for family in text_string_to_metric_families(text):
            if family.type == "histogram":
                names.add(family.name)
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
                names.add(sample.name)
        histograms = {name: _histogram(name, samples) for name in _HISTOGRAMS}
    except (ValueError, KeyError, IndexError) as error:
        raise EndpointError(f"The metrics cannot be read: {type(error).__name__}. Is it vLLM?") from error
    return Snapshot(
        running=_sum(RUNNING, samples),
        waiting=_sum(WAITING, samples),
        kv_cache_usage=_of_all(KV_CACHE, samples, max),
        ttft=histograms[TTFT],
        e2e=histograms[END_TO_END],
        itl=histograms[ITL],
        queue=histograms[QUEUE],
        prompt_tokens=_sum(PROMPT_TOKENS, samples),
        generation_tokens=_sum(GENERATION_TOKENS, samples),
        prefix_queries=_sum(PREFIX_QUERIES, samples),
        prefix_hits=_sum(PREFIX_HITS, samples),
        cache_tokens=_cache_tokens(samples),
        prefix_caching=_prefix_caching(samples),
        prefill=histograms[PREFILL],
        decode=histograms[DECODE],
        preemptions=_sum(PREEMPTIONS, samples),
        names=frozenset(names),
        at=at,
    )


def _sum(name: str, samples: _Samples) -> float | None:
    return _of_all(name, samples, sum)


def _of_all(name: str, samples: _Samples, join: Callable[[list[float]], float]) -> float | None:
    """The values of all engines, joined; None without a value, or if one of them is not finite."""
    values = [value for _, value in samples.get(name, ())]
    return join(values) if values and all(map(math.isfinite, values)) else None


def _cache_tokens(samples: _Samples) -> int | None:
    """The tokens that the KV caches of all engines hold, as vLLM itself counts them for layers of several kinds."""
    told = [labels.get("kv_cache_size_tokens", "") for labels, _ in samples.get(CACHE_CONFIG, ())]
    return sum(map(int, told)) if told and all(each.isdecimal() for each in told) else None


def _prefix_caching(samples: _Samples) -> bool | None:
    told = {labels.get("enable_prefix_caching") for labels, _ in samples.get(CACHE_CONFIG, ())}
    return told != {"False"} if told and told <= {"True", "False"} else None


def _histogram(name: str, samples: _Samples) -> Histogram | None:
    total, count = _sum(f"{name}_sum", samples), _sum(f"{name}_count", samples)
    if total is None or count is None:
        return None
    buckets: dict[float, float] = {}
    for labels, value in samples.get(f"{name}_bucket", ()):
        bound = float(labels["le"])
        buckets[bound] = buckets.get(bound, 0.0) + value
    if not all(map(math.isfinite, buckets.values())):
        return None
    return Histogram(total, count, tuple(sorted(buckets.items())))


def read(endpoint: Endpoint, *, seconds: float = 10.0) -> Snapshot:
    """Look at the endpoint's `/metrics` now. Raises EndpointError."""
    return endpoint.asking(lambda: _read(endpoint, seconds))


def _read(endpoint: Endpoint, seconds: float) -> Snapshot:
    try:
        with endpoint.http.stream("GET", "/metrics", headers=endpoint.headers(), timeout=seconds) as response:
            bounded(response, time.monotonic() + seconds)
            if response.status_code == 404 and endpoint.how == "url":
                told = f"{endpoint.url} does not pass /metrics on (404), as a gateway should. Leave the address out."
                raise EndpointError(told, 404)
            if not response.is_success:
                raise refused(endpoint, response)
            response.read()
    except httpx.HTTPError as error:
        raise unreachable(endpoint, "/metrics", error) from error
    return parse(response.text, time.monotonic())


@dataclass
class Sampler:
    """Looks at `/metrics` again and again while something runs: `with Sampler(endpoint) as sampler: ...`.

    It reads once before and once after. `snapshots`: the readings, in order. `problem`: why it stopped reading, or "".
    `every`: seconds between two readings.
    """

    endpoint: Endpoint
    every: float = 0.1
    snapshots: list[Snapshot] = field(default_factory=list)
    problem: str = ""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def __enter__(self) -> Sampler:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(30.0)
        if kind is None and not self.problem:
            self._look()

    def _run(self) -> None:
        while not self._stop.wait(self.every) and not self.problem:
            self._look()

    def _look(self) -> None:
        try:
            self.snapshots.append(read(self.endpoint, seconds=5.0))
        except EndpointError as error:
            self.problem = str(error)
