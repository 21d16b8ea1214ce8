"""Estimates how fast one replica answers while several users ask at once.

The time to the first token (TTFT) counts from the client's sending of a request to the first token of its answer, with
the time that the request waits in the queue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from neuroscale.models.facts import ModelFacts
from neuroscale.planning.fit.argument_defaults import Resolved, resolve
from neuroscale.planning.fit.device import Device
from neuroscale.planning.fit.overhead import LARGEST_GRAPH
from neuroscale.planning.fit.versions import PINNED, behaviour
from neuroscale.planning.speed.coverage import Band, Coverage, Known, known
from neuroscale.planning.speed.kinds import AcceleratorClass, captures_prompts, is_earlier, model_kind, overlaps
from neuroscale.planning.speed.queue import Request, Times, closed, open_load
from neuroscale.planning.speed.rates import class_in_fit, fitted_values, rates
from neuroscale.planning.speed.steps import Steps
from neuroscale.planning.speed.work import Work, work
from neuroscale.vllm.engine_arguments import EngineArguments

MOST_USERS = 512
"""The largest number of users of one replica that is estimated."""

__all__ = ["MOST_USERS", "Coverage", "Estimate", "Load", "ReplicaSpeed", "SpeedUnderLoad"]


@dataclass(frozen=True)
class Load:
    """A closed load: `users` who each send the next request once the last one is answered. Or, with
    `requests_per_second`, an open load in which `users` is the most that are in flight. All requests of a load have the
    same number of tokens, but for `prompt_spread`: the median and the 95th percentile of prompts' lengths as shares of
    their mean. `cached_tokens` of each prompt are in vLLM's cache of prefixes.

    A benchmark that starts all users at once has `requests_per_user`: how many requests each sends before it ends
    (None: a load that goes on, in which users do not start together). `in_step`: their requests are alike to the token,
    so they stay together. `starts_per_second`: how many users begin in a second (None: all at once). `burstiness` of an
    open load: 1 for requests that come at random, less for clusters, as `vllm bench serve` has it.
    """

    users: int
    prompt_tokens: int
    answer_tokens: int
    requests_per_second: float | None = None
    requests_per_user: float | None = None
    prompt_spread: tuple[float, float] = (1.0, 1.0)
    cached_tokens: int = 0
    in_step: bool = False
    starts_per_second: float | None = None
    burstiness: float = 1.0

    @property
    def request(self) -> Request:
        """One of its requests."""
        prompt, (middle, late) = float(self.prompt_tokens), self.prompt_spread
        cached = min(float(self.cached_tokens), prompt - 1.0)
        apart = 1.0 / self.starts_per_second if self.starts_per_second else 0.0
        return Request(prompt, float(self.answer_tokens), cached, middle, late, self.in_step, apart, self.burstiness)


@dataclass(frozen=True)
class Estimate:
    """A figure with its band: most measurements lie between `low` and `high`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeedUnderLoad:
    """The speed of one replica under a load; every figure is None if `coverage` is `unknown`. Times are in seconds."""

    load: Load
    coverage: Coverage
    reasons: tuple[str, ...]  # complete sentences on the coverage
    ttft_mean: Estimate | None = None
    ttft_p50: Estimate | None = None
    ttft_p95: Estimate | None = None
    inter_token_mean: Estimate | None = None
    inter_token_p50: Estimate | None = None
    inter_token_p95: Estimate | None = None
    tokens_per_second_user: Estimate | None = None  # of one user's answer, once its first token is there
    tokens_per_second_total: Estimate | None = None  # of answers, all users of the replica together


@dataclass(frozen=True)
class ReplicaSpeed:
    """One replica: a model on an accelerator with vLLM's arguments. `held`: how many requests of the load its KV cache
    holds at once (None: any number); more wait. `measured`: figures of this model on this accelerator, by name:
    `users`, `prompt_tokens`, `answer_tokens`, `ttft_seconds` and `inter_token_seconds`, means of one closed load, and
    `ttft_p95_seconds`. `like`: the server that was measured, if its arguments are others."""

    facts: ModelFacts
    device: Device
    arguments: EngineArguments
    version: str = PINNED
    held: int | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    like: ReplicaSpeed | None = None

    def under(self, load: Load) -> SpeedUnderLoad:
        """The speed under a load of 1 to MOST_USERS users."""
        covered = self._known
        times = None if covered.coverage == "unknown" else self._times(load)
        if times is None:
            return SpeedUnderLoad(load, "unknown", covered.reasons or (_UNSTABLE.format(load.requests_per_second),))

        def around(value: float, figure: Band) -> Estimate:
            low, high = covered.band(figure)
            return Estimate(value, low * value, high * value)

        token = times.inter_token
        return SpeedUnderLoad(
            load,
            covered.coverage,
            covered.reasons,
            ttft_mean=around(times.ttft, "ttft"),
            ttft_p50=around(times.ttft_p50, "ttft"),
            ttft_p95=around(self._late * times.ttft_p95, "ttft_p95"),
            inter_token_mean=around(token, "inter_token"),
            inter_token_p50=around(times.inter_token_p50, "inter_token"),
            inter_token_p95=around(times.inter_token_p95, "inter_token_p95"),
            tokens_per_second_user=_rate(around(token, "inter_token")),
            tokens_per_second_total=around(times.tokens_per_second, "tokens_per_second"),
        )

    def largest_users(
        self,
        prompt_tokens: int,
        answer_tokens: int,
        *,
        p95_ttft_seconds: float | None = None,
        tokens_per_second_per_user: float | None = None,
        most: int = MOST_USERS,
    ) -> int | None:
        """The most users of a closed load, up to `most`, with whom the values of TTFT p95 and of a user's tokens per
        second keep these promises (0: not even one user); None if the speed is unknown."""
        if self._known.coverage == "unknown":
            return None
        fewest, highest = 0, most
        while fewest < highest:
            middle = (fewest + highest + 1) // 2
            times = self._times(Load(middle, prompt_tokens, answer_tokens))
            if times is None:
                return None
            late = p95_ttft_seconds is not None and self._late * times.ttft_p95 > p95_ttft_seconds
            slow = tokens_per_second_per_user is not None and times.inter_token * tokens_per_second_per_user > 1
            fewest, highest = (fewest, middle - 1) if late or slow else (middle, highest)
        return fewest

    @cached_property
    def _known(self) -> Known:
        return known(self.facts, self.device, self.arguments, self.measured)

    @cached_property
    def _resolved(self) -> Resolved:
        return resolve(self.facts, self.device, self.arguments, behaviour(self.version))

    @cached_property
    def work(self) -> Work:
        """The work of one rank."""
        return work(self.facts, self.arguments, self._resolved)

    @cached_property
    def steps(self) -> Steps:
        """The seconds of steps, corrected by the measurement if there is one."""
        fit = self._fit
        if self.like is not None:
            corrected = self.like.steps
            rates = replace(fit.rates, first=corrected.rates.first)
            return replace(fit, answering=corrected.answering, prompting=corrected.prompting, rates=rates)
        return _corrected(self, fit) if self.measured else fit

    @cached_property
    def _fit(self) -> Steps:
        return self.fitted_steps(fitted_values(), class_in_fit(self.device))

    @cached_property
    def _late(self) -> float:
        """The factor by which the slowest first tokens of the measured load came later than estimated; 1.0 at least,
        since a short run does not show how slow the slowest ones are."""
        if self.like is not None:
            return self.like._late
        last = self.measured.get("ttft_p95_seconds")
        times = self._times(_measured_load(self.measured)) if last else None
        return max(1.0, last / times.ttft_p95) if last and times else 1.0

    def fitted_steps(self, values: Mapping[str, float], of_class: AcceleratorClass | None) -> Steps:
        """The seconds of steps by values of a fit for a class of accelerators."""
        serial = not overlaps(self.version) and self.arguments.async_scheduling is not True
        eager = not self._resolved.graphs
        kind = model_kind(self.facts)
        earlier = is_earlier(self.version)
        found = rates(values, self.work, self.device, of_class, kind, serial=serial, eager=eager, earlier=earlier)
        return Steps(self.work, found, eager, self._captured)

    @property
    def _captured(self) -> int:
        """The tokens of the largest step with prompts that runs as CUDA graphs."""
        if not captures_prompts(self.version):
            return 0
        said = self.arguments.largest_graph
        return min(2 * self._resolved.max_num_seqs, LARGEST_GRAPH) if said is None else said

    def _times(self, load: Load) -> Times | None:
        return self.times(load, self.steps)

    def _slots(self, load: Load, held: float) -> float:
        """How many requests of a load the cache holds at once, which holds `held` whole ones. vLLM takes one in as soon
        as there is room for its prompt. Where some wait, the others' answers are evenly far along, half written on
        average, and there must be room for the standard deviation of what they keep together."""
        whole = float(load.prompt_tokens + load.answer_tokens)
        kept, most = self.work.kept(whole - load.answer_tokens / 2), self.work.kept(whole)
        if kept <= 0.0:
            return held
        varies = _SPREAD * (most - self.work.kept(float(load.prompt_tokens))) / math.sqrt(12)
        # The most requests for which requests * kept + sqrt(requests) * varies is no more than the cache.
        root = (math.sqrt(varies**2 + 4 * kept * held * most) - varies) / (2 * kept)
        return max(root**2, held)

    def times(self, load: Load, steps: Steps) -> Times | None:
        """The times under a load by the seconds of steps; None if more requests come than the replica answers."""
        shares = self.work.shares
        slots = float(self._resolved.max_num_seqs)
        if self.held and self.held < load.users:
            slots = min(slots, self._slots(load, self.held) / shares)
        budget = self._resolved.max_num_batched_tokens
        found: Times | None
        users, request = load.users / shares, load.request
        if load.requests_per_second is None:
            together = 1 / load.requests_per_user if load.requests_per_user else steps.rates.burst
            found = closed(steps, max(users, 1.0), max(slots, 1.0), budget, request, together)
        else:
            rate = load.requests_per_second / shares
            found = open_load(steps, rate, max(min(slots, users), 1.0), budget, request)
        if found is None or shares == 1:
            return found
        # A load with fewer users than ranks leaves some without work.
        return replace(found, tokens_per_second=found.tokens_per_second * min(shares, load.users))


_SPREAD = 2.0
"""Standard deviations of what requests keep in the cache together for which there must be room."""

_UNSTABLE = "The replica answers fewer than {} requests a second, so the queue grows without end."


def _rate(seconds: Estimate) -> Estimate:
    return Estimate(1 / seconds.value, 1 / seconds.high, 1 / seconds.low)


_OUTSIDE = 0.25
"""The largest share of a measured TTFT that may pass outside the engine."""
_SLOWER = 3.0
"""How many times as slow as answers a measurement may make prompts, against the estimate: with short answers, one load
does not tell the two apart, and all the time would go to prompts, so that an answer cost nothing."""


def _measured_load(figures: Mapping[str, float]) -> Load:
    return Load(int(figures["users"]), int(figures["prompt_tokens"]), int(figures["answer_tokens"]))


def _corrected(replica: ReplicaSpeed, steps: Steps) -> Steps:
    """The steps, slowed or quickened so that the estimate meets the measurement: one factor for the steps that write
    answers, from the inter-token time, and one for prompts, from the TTFT. What neither explains of the TTFT passes
    outside the engine."""
    figures = replica.measured
    load = _measured_load(figures)
    token, first = figures.get("inter_token_seconds"), figures.get("ttft_seconds")
    if first:
        # Most of a first token's time is its prompt's, however fast the client and the server's front are.
        outside = min(steps.rates.first, _OUTSIDE * first)
        steps = replace(steps, rates=replace(steps.rates, first=outside))
    for _ in range(12):
        times = replica.times(load, steps)
        if times is None:
            return steps
        answering = steps.answering * (token / times.inter_token if token else 1.0)
        prompting = steps.prompting * (first / times.ttft if first else answering / steps.answering)
        prompting = min(max(prompting, 1e-3), 1e3, _SLOWER * answering)
        steps = replace(steps, answering=answering, prompting=prompting)
    times = replica.times(load, steps)
    if first and times is not None and times.ttft < first:
        steps = replace(steps, rates=replace(steps.rates, first=steps.rates.first + first - times.ttft))
    return steps
