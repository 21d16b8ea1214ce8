"""Judges why a service that runs is slow: what its servers counted for some seconds comes in, and the bound that it
hits goes out, with the numbers and with changes of its request that may help. It is a pure function.

A bound is what ends first: replicas, room in the KV cache, requests at a time, the computing of prompts, PCIe. Where
none of them is hit, the server has room, and what is slow lies before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import counted, plainly_counted

WAITS = 0.5
"""The share of the readings in which requests waited. A queue that is empty in most of them comes from requests that
arrive together."""
FULL = 0.85
"""The share of the KV cache from which it counts as full where requests wait: that of the alert
NeuroScaleKvCacheNearlyFull. vLLM lets a request in only if there are free blocks for all of its prompt."""
NOTICED = 0.5
"""Seconds in the queue that a person notices, whatever the request asks for."""
UNEVEN = 3.0
"""p95 of the time between tokens, in medians. The times of even steps lie in one bucket of vLLM's histogram, in which
p95 is at most 1.9 medians; a step with a part of a prompt takes several times as long as one without."""
LONG_PROMPT = 256
"""Tokens of a mean prompt below which its computing holds nobody up: a step takes 2048 and more."""
MOST_OF_IT = 0.5
"""The share of the time to the first token that the queue, or the prompt's computing, takes to be its reason."""
OFFLOADED = 0.3
"""The share of a step in which offloaded weights cross PCIe from which they are the bound."""

Name = Literal[
    "replicas_missing",
    "no_tokens",
    "kv_cache_full",
    "requests_waiting",
    "long_prompts",
    "weights_over_pcie",
    "more_users_than_planned",
    "slower_than_planned",
]
_ORDER: tuple[Name, ...] = (
    *("replicas_missing", "no_tokens", "kv_cache_full", "requests_waiting", "long_prompts", "weights_over_pcie"),
    *("more_users_than_planned", "slower_than_planned"),
)
"""What is hit first hides what comes after it: without a replica the others' queues grow, and so on."""


@dataclass(frozen=True)
class PodLoad:
    """What the server of a pod counted in `seconds`; None where nothing was counted.

    `running`, `waiting`: mean requests at a reading; `most_running`: the most that ran at one; `waits`: the share of
    the readings in which any waited; `most_at_once`: the most that ran and waited. `places`: its `--max-num-seqs`
    (None: unknown). `cache`: the fullest share of the KV cache, 0..1; `cache_tokens`: its size. `preemptions`: requests
    that lost their place in the cache.
    `first_tokens`: requests whose first token came. Times are in seconds: `ttft_p95`, `ttft` (mean), `itl` (mean
    between two tokens), `itl_p50`, `itl_p95`; of requests that ended: `queue`, `prefill`, `decode` (means).
    `prompt_tokens`, `answer_tokens`, `cached_tokens` (of prompts, that the prefix cache had; None: it is off).
    """

    pod: str
    seconds: float
    running: float = 0.0
    waiting: float = 0.0
    waits: float = 0.0
    most_running: float = 0.0
    most_at_once: float = 0.0
    places: int | None = None
    cache: float | None = None
    cache_tokens: float | None = None
    preemptions: float = 0.0
    first_tokens: float = 0.0
    ttft_p95: float | None = None
    ttft: float | None = None
    itl: float | None = None
    itl_p50: float | None = None
    itl_p95: float | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    prompt_tokens: float = 0.0
    answer_tokens: float = 0.0
    cached_tokens: float | None = None

    @property
    def asked(self) -> bool:
        """Whether anybody asked it."""
        return self.most_at_once > 0 or self.prompt_tokens > 0 or self.answer_tokens > 0

    @property
    def rate(self) -> float | None:
        """Tokens per second of one user's answer."""
        return 1 / self.itl if self.itl else None

    @property
    def prompt(self) -> float | None:
        """Tokens of the mean prompt that was computed: without those that the prefix cache had."""
        new = max(self.prompt_tokens - (self.cached_tokens or 0.0), 0.0)
        return new / self.first_tokens if self.first_tokens else None


@dataclass(frozen=True)
class Promise:
    """What the service's files say: `users` for which it is planned, `replica_users` of them on one replica, `replicas`
    at least. `ttft_p95`, `rate`: the plan's estimates under that load (seconds, tokens per second of one user;
    `slowest`: the low end of the rate's band), and `asked_ttft`, `asked_rate`: what the request asks for. None:
    unknown.

    `overridden`: the fields that overrides set. `offload_gib` of weights in the host's memory take `offload_seconds` of
    each step.
    """

    users: int
    replica_users: int
    replicas: int
    ttft_p95: float | None = None
    rate: float | None = None
    slowest: float | None = None
    asked_ttft: float | None = None
    asked_rate: float | None = None
    overridden: frozenset[str] = frozenset()
    offload_gib: float = 0.0
    offload_seconds: float | None = None


@dataclass(frozen=True)
class Try:
    """A change of the request that may help, as `update` takes it: values by field, and fields to leave out."""

    values: Mapping[str, int | str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bound:
    """What a service hits: `sentence` with the numbers, `do` in words, and `tries`, the one with the least effect
    first."""

    name: Name
    title: str
    sentence: str
    do: str
    tries: tuple[Try, ...] = ()


@dataclass(frozen=True)
class Serving:
    """How a service serves now. `verdict`: `idle` (nobody asks it), `bound` (it hits the first of `bounds`), `client`
    (the servers have room, so what is slow lies before them) or `unknown` (no bound was seen, and not every server
    could be read). `unread`: why servers could not be read."""

    verdict: Literal["idle", "bound", "client", "unknown"]
    sentence: str
    bounds: tuple[Bound, ...]
    pods: tuple[PodLoad, ...]
    promise: Promise | None
    unread: tuple[str, ...] = ()


def judge_serving(pods: Sequence[PodLoad], promise: Promise | None, unread: Sequence[str] = ()) -> Serving:
    """The bound that a service hits, by what the servers of its ready pods counted. `promise`: None if no plan is
    known. `unread`: why those of further ready pods could not be read."""
    seen, unread = tuple(pods), tuple(unread)
    by_name: dict[Name, Bound] = {bound.name: bound for bound in _missing(len(seen) + len(unread), promise)}
    for pod in sorted(seen, key=lambda each: -(each.running + each.waiting)):
        if pod.asked:
            for bound in _of_pod(pod, seen, promise):
                by_name.setdefault(bound.name, bound)
    bounds = tuple(sorted(by_name.values(), key=lambda bound: _ORDER.index(bound.name)))
    if not any(pod.asked for pod in seen):
        if unread:
            message = "Not every server could be read, and nobody asks the others: nothing can be judged."
            return Serving("unknown", message, bounds, seen, promise, unread)
        return Serving("idle", "Nobody asks it now: nothing can be judged.", bounds, seen, promise)
    if bounds:
        return Serving("bound", bounds[0].sentence, bounds, seen, promise, unread)
    if unread:
        message = "Not every server could be read, and the others hit no bound: nothing can be judged."
        return Serving("unknown", message, (), seen, promise, unread)
    return Serving("client", _room(seen), (), seen, promise)


def _missing(ready: int, promise: Promise | None) -> Iterator[Bound]:
    if promise is not None and ready < promise.replicas:
        message = f"{ready} of {plainly_counted(promise.replicas, 'replica')} {'answers' if ready == 1 else 'answer'}"
        yield Bound(
            "replicas_missing",
            "Replicas are missing",
            f"{message}: each takes the load of {promise.replicas / max(ready, 1):.3g}.",
            "Find out why the others do not: the cause above, or `neuroscale status`.",
        )


def _of_pod(pod: PodLoad, pods: Sequence[PodLoad], promise: Promise | None) -> list[Bound]:
    """What the server of one pod hits."""
    late = promise is not None and promise.asked_ttft is not None and (pod.ttft_p95 or 0.0) > promise.asked_ttft
    # Answers end and places are free for a moment, so that the mean may be lower where requests wait all the time.
    at_most = pod.places is not None and max(pod.most_running, pod.running) >= pod.places
    in_queue = pod.queue or 0.0
    waited = in_queue >= MOST_OF_IT * (pod.ttft or 0.0) > 0 and (late or in_queue >= NOTICED)
    queue = pod.waits >= WAITS or waited
    little = bool(
        pod.cache is not None and pod.cache_tokens and pod.prompt and (1 - pod.cache) * pod.cache_tokens < pod.prompt
    )
    full = pod.preemptions > 0 or (queue and not at_most and ((pod.cache or 0.0) >= FULL or little))
    more = tuple(_more_room(pods, promise))
    bounds = []
    if pod.running >= WAITS and not pod.answer_tokens:
        bounds.append(
            Bound(
                "no_tokens",
                "No token comes",
                f"{_requests(pod.running)} run, and no token came within {duration(pod.seconds)}.",
                "Read for longer (--seconds 60): a long prompt may still be computed. If none comes then, its engine "
                "hangs: the end of its log says where, and its pod must be made anew.",
            )
        )
    if full:
        bounds.append(_cache_is_full(pod, more))
    free = pod.waits >= WAITS and not full and pod.places is not None and not at_most
    prompts = _prompts(pod, more, late=late, free=free)
    if queue and not full and not (free and prompts):
        bounds.append(_queue(pod, more))
    if prompts:
        bounds.append(prompts)
    if promise is not None:
        bounds += _against(pod, more, promise, late=late and not bounds)
    where = f"{pod.pod}: " if len(pods) > 1 else ""
    return [replace(bound, sentence=f"{where}{bound.sentence}") for bound in bounds]


def _waits(pod: PodLoad) -> str:
    return f"{_requests(pod.waiting)} {'waits' if f'{pod.waiting:.3g}' == '1' else 'wait'} while {pod.running:.3g} run"


def _cache_is_full(pod: PodLoad, more: tuple[Try, ...]) -> Bound:
    lost = ""
    if pod.preemptions:
        number = round(pod.preemptions)
        lost = (
            f" {counted(number, 'request')} lost {'its' if number == 1 else 'their'} place in it within "
            f"{duration(pod.seconds)}, to be computed again."
        )
    return Bound(
        "kv_cache_full",
        "The KV cache is full",
        f"{_used(pod)} of the KV cache is used; {_waits(pod)}.{lost}",
        "Give it more cache (a further replica, an 8-bit cache), or let shorter or fewer requests in.",
        (*more, Try({"overrides.kv_cache_dtype": "fp8"})),
    )


def _queue(pod: PodLoad, more: tuple[Try, ...]) -> Bound:
    of = f", of {pod.places} at a time (--max-num-seqs)" if pod.places else ""
    waited = f" A request waited {seconds_text(pod.queue)} on average." if pod.queue else ""
    return Bound(
        "requests_waiting",
        "Requests wait for a place",
        f"{_waits(pod)}{of}, in {pod.waits:.0%} of the readings.{waited} {_used(pod)} of the KV cache is used.",
        "Let it compute more at a time, or give it a further replica.",
        more,
    )


def _prompts(pod: PodLoad, more: tuple[Try, ...], *, late: bool, free: bool) -> Bound | None:
    """Whether the computing of prompts holds others up. `free`: requests wait though there are places and cache."""
    if pod.prompt is None or pod.prompt < LONG_PROMPT:
        return None
    signs = [f"{_waits(pod)}, though places and cache are free"] if free else []
    if pod.itl_p50 and pod.itl_p95 and pod.itl_p95 >= UNEVEN * pod.itl_p50:
        signs.append(f"p95 between two tokens is {seconds_text(pod.itl_p95)}, the median {seconds_text(pod.itl_p50)}")
    computing = pod.prefill if pod.prefill is not None else None if pod.queue else pod.ttft
    if late and computing and computing >= MOST_OF_IT * (pod.ttft or 0.0):
        first = f"the first token comes after {seconds_text(pod.ttft_p95)} at p95"
        signs.append(f"{first}, and {seconds_text(computing)} of the mean {seconds_text(pod.ttft)} compute the prompt")
    if not signs:
        return None
    share = ""
    if pod.prefill is not None and pod.decode is not None and pod.prefill + pod.decode > 0:
        share = f" Prompts take {pod.prefill / (pod.prefill + pod.decode):.0%} of the time of a request that runs."
    return Bound(
        "long_prompts",
        "Long prompts hold others up",
        f"{'; '.join(signs)}. A prompt has {pod.prompt:,.0f} tokens to compute.{share}{_cached(pod)}",
        "Let prompts begin alike, so that the prefix cache has that part, ask for shorter ones, or give it a further "
        "replica.",
        more,
    )


def _against(pod: PodLoad, more: tuple[Try, ...], promise: Promise, *, late: bool) -> Iterator[Bound]:
    """Whether it answers more slowly than the plan says. `late`: so does its first token, and no bound says why."""
    offload = promise.offload_seconds
    if promise.offload_gib and pod.itl and offload and offload >= OFFLOADED * pod.itl:
        yield Bound(
            "weights_over_pcie",
            "Weights cross PCIe in each step",
            f"{promise.offload_gib:.3g} GiB of weights lie in the host's memory (--cpu-offload-gb): they take "
            f"{seconds_text(offload)} of the {seconds_text(pod.itl)} between two tokens.",
            "Leave out --cpu-offload-gb: `neuroscale fit` says what fits without it.",
        )
    slowest = promise.slowest if promise.slowest is not None else promise.asked_rate
    signs = []
    if pod.rate is not None and slowest is not None and pod.rate < slowest:
        signs.append(f"an answer has {pod.rate:.3g} tokens/s, and the plan says {slowest:.3g} at least")
    if late:
        signs.append(
            f"the first token comes after {seconds_text(pod.ttft_p95)} at p95, and "
            f"{seconds_text(promise.asked_ttft)} are asked for"
        )
    if not signs:
        return
    text = "; ".join(signs)
    if pod.running + pod.waiting > promise.replica_users:
        yield Bound(
            "more_users_than_planned",
            "More users than planned",
            f"{text}: {_requests(pod.running)} run at a time, and the plan has {promise.replica_users} a replica.",
            "Ask for the users that there are.",
            more,
        )
    else:
        yield Bound(
            "slower_than_planned",
            "Slower than planned",
            f"{text}, with {_requests(pod.running)} at a time, of {promise.replica_users} that the plan has a replica.",
            "Compare the log's figures with the plan's: the estimate may be wrong, or the card shared, throttled or "
            "another one.",
        )


def _more_room(pods: Sequence[PodLoad], promise: Promise | None) -> Iterator[Try]:
    """Changes that give more room by what is seen."""
    if promise is None:
        return
    if "max_num_seqs" in promise.overridden:
        yield Try(removed=("overrides.max_num_seqs",))
    users = math.ceil(sum(pod.most_at_once for pod in pods))
    if users > promise.users:
        yield Try({"concurrent_users": users})
    yield Try({"overrides.replicas.min": promise.replicas + 1})


def _room(pods: Sequence[PodLoad]) -> str:
    running, waiting = sum(pod.running for pod in pods), sum(pod.waiting for pod in pods)
    places = [pod.places for pod in pods]
    of = f" of {sum(count or 0 for count in places)} at a time" if None not in places else ""
    late = max((pod.ttft_p95 or 0.0 for pod in pods), default=0.0)
    rate = min((pod.rate for pod in pods if pod.rate), default=None)
    sentence = f"The server has room: {running:.3g} requests run{of}, {waiting:.3g} wait"
    sentence += f", the first token comes after {seconds_text(late)} at p95" if late else ""
    sentence += f", and an answer has {rate:.3g} tokens/s" if rate else ""
    return (
        f"{sentence}. What is slow lies before it: a client that sends one request after the other, its network, the "
        "gateway, or longer answers than needed."
    )


def _cached(pod: PodLoad) -> str:
    if pod.cached_tokens is None or not pod.prompt_tokens:
        return ""
    return f" The prefix cache had {pod.cached_tokens / pod.prompt_tokens:.0%} of the prompts' tokens."


def _used(pod: PodLoad) -> str:
    return "An unknown part" if pod.cache is None else f"{pod.cache:.0%}"


def _requests(number: float) -> str:
    """A mean number of them."""
    return f"{number:.3g} request{'' if f'{number:.3g}' == '1' else 's'}"


def seconds_text(value: float | None) -> str:
    """A time, or that it is not known."""
    return "an unknown time" if value is None else duration(value)
