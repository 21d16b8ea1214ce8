"""Computes the times of a load on one rank: who waits for whom, and for how long.

In a steady state each of the `running` requests writes its answer while the prompts of the others are read beside it:
in the time between two requests of one user, every other user sends one, too. With `step` seconds of a step that writes
answers and `extra` seconds by which a prompt prolongs the steps that read it, that time is

    cycle = steps * step + running * extra,    steps = running * answer / writing,

where `writing` requests write at once on average (the others' prompts are read, or wait for it; Little's law). A first
token waits for the step under way, for prompts that came before it, and for a place if more than `slots` users ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuroscale.planning.speed.steps import Prompt, Steps

_NORMAL_95 = 1.645
"""The 95th percentile of a normal distribution in standard deviations."""

_BESIDE = 1.5
"""The steps of other groups for which one waits on average where users stay together: one or two."""

_UNEVEN = 2.0
"""The steps of other groups between the shortest such wait and the longest."""

_READING = 0.5
"""Steps under way that read prompts where these are read all the time, beside the one that Kingman's formula counts."""


@dataclass(frozen=True)
class Times:
    """Seconds of a load; `tokens_per_second` are those of all answers on one rank."""

    ttft: float
    ttft_p50: float
    ttft_p95: float
    inter_token: float
    inter_token_p50: float
    inter_token_p95: float
    tokens_per_second: float
    cycle: float  # seconds from a user's request to the next one


@dataclass(frozen=True)
class Request:
    """Tokens of a load's requests. `cached` of a prompt's are not computed; `middle` and `late`: the median and the
    95th percentile of prompts' lengths as shares of `prompt`. `in_step`: all are alike and all users began at once, so
    those whose prompts a step reads together end in the same step, and ask again together. `apart`: seconds from one
    user's first request to the next one's, where they begin together. `burstiness` of an open load: 1 if requests come
    at random (Poisson), less if they come in clusters (the shape of a gamma distribution of the times between them)."""

    prompt: float
    answer: float
    cached: float = 0.0
    middle: float = 1.0
    late: float = 1.0
    in_step: bool = False
    apart: float = 0.0
    burstiness: float = 1.0

    @property
    def varied(self) -> float:
        """The squared coefficient of variation of prompts' lengths: that of a normal distribution with their `late`."""
        return ((self.late - 1.0) / _NORMAL_95) ** 2


@dataclass(frozen=True)
class _Balance:
    """A steady state of `running` requests, as the module's text names it."""

    running: float
    others: float  # requests that one finds beside it: the other users', or as many as run on average in an open load
    writing: float
    step: float
    stall: float  # seconds by which a step that reads prompts is longer
    extra: float
    prompt: Prompt
    cycle: float
    own: float  # seconds from the first step that reads a prompt to its answer's first token, without waiting
    lag: float  # mean seconds that a prompt waits for the steps under way
    uneven: float  # seconds by which these steps differ, as they read prompts of another group or not
    waiting: float  # mean seconds that a prompt waits, for others too
    late: float  # the share of prompts that come while another is read
    held_up: float  # mean seconds that these wait for others
    longest: float  # seconds that it waits if all others come before it
    rounds: float


def closed(steps: Steps, users: float, slots: float, budget: int, request: Request, together: float) -> Times:
    """The times of a closed load of `users` on a rank that computes `slots` of their requests at once. `together`: the
    share of the requests that all users send at the same moment."""
    together = min(together, 1.0)
    balance = _balance(steps, min(users, slots), budget, request, together)
    beyond = max(users - slots, 0.0) * balance.cycle / balance.running
    return _times(steps, balance, beyond, budget, request, together)


def open_load(steps: Steps, rate: float, slots: float, budget: int, request: Request) -> Times | None:
    """The times of `rate` requests a second; None if the rank answers fewer even with all `slots` in use."""
    fullest = _balance(steps, slots, budget, request, 0.0, is_open=True)
    if rate >= 0.98 * fullest.running / fullest.cycle:
        return None
    low, high = 0.0, slots
    for _ in range(20):
        running = (low + high) / 2
        balance = _balance(steps, running, budget, request, 0.0, is_open=True)
        low, high = (running, high) if running / balance.cycle < rate else (low, running)
    balance = _balance(steps, high, budget, request, 0.0, is_open=True)
    times = _times(steps, balance, 0.0, budget, request, 0.0)
    return Times(
        *(times.ttft, times.ttft_p50, times.ttft_p95, times.inter_token, times.inter_token_p50, times.inter_token_p95),
        tokens_per_second=rate * request.answer,
        cycle=times.cycle,
    )


def _balance(
    steps: Steps, running: float, budget: int, request: Request, together: float, *, is_open: bool = False
) -> _Balance:
    rates = steps.rates
    queueing = 1.0 if is_open else rates.queueing
    answer, cached = request.answer, request.cached
    tokens = request.prompt - cached
    context = request.prompt + answer / 2
    writing, others = running, running - (0.0 if is_open else 1.0)
    for _ in range(6):
        arriving = running if request.in_step else writing / max(answer - 1.0, 1.0) if others > 0 else 0.0
        prompt = steps.prompt(tokens, budget, writing, arriving, cached)
        step = steps.answer(writing, context)
        stall = steps.beside(prompt, writing if others > 0 else 0.0, context, step)
        extra = prompt.chunks * stall / prompt.shared
        rounds = max(answer - 1.0, 0.0) * running / writing
        own = extra if others <= 0 else prompt.chunks * (stall + step)
        cycle = rounds * step + running * extra if others > 0 else extra + (answer - 1.0) * step
        cycle = max(cycle, 1e-9)
        turn = waiting = late = held_up = lag = uneven = 0.0
        if others > 0:
            # Prompts that wait are read together as far as a step has room.
            packed = steps.prompt(tokens, budget, writing, others, cached)
            turn = packed.chunks * (step + steps.beside(packed, writing, context, step)) / packed.shared
            lag = rates.behind * step
            if request.in_step:
                # One group follows the other, so the steps under way read the prompts of the group before.
                beside = stall * max(1.0 - prompt.shared / running, 0.0)
                lag += min(rates.behind, _BESIDE) * beside
                uneven = _UNEVEN * beside
                waiting = (1.0 - together) * lag + together * (step + max(running * turn - own, 0.0)) / 2
            else:
                # A queue of requests that each take `turn` (Kingman's formula), with no more than `others` in it.
                busy = min(others * turn / cycle, 1.0)
                if is_open:
                    # An idle server has no step under way. Prompts that come in the time of a step lengthen it.
                    lag *= 1.0 - math.exp(-running)
                    lag += (_READING * busy + min(arriving, 1.0)) * stall
                unsteady = 1.0 / request.burstiness + request.varied
                queued = queueing * busy * turn * unsteady / (2.0 * (1.0 - busy + busy / max(others, 1.0)))
                late = busy**request.burstiness
                held_up = queued / max(late, 1e-9)
                burst = others * max(turn - request.apart, 0.0)
                waiting = (1.0 - together) * (lag + queued) + together * (step + burst) / 2
        until = min(own + waiting, 0.95 * cycle)
        before, writing = writing, max(0.5 * writing + 0.5 * running * (1.0 - until / cycle), min(running, 1.0))
        if abs(writing - before) < 1e-4 * running:
            break
    # Of the prompts that come together, `own` holds those that share steps with one.
    longest = max(running * turn - own, 0.0) if request.in_step else others * turn
    longest = max(longest - others * request.apart, 0.0)
    return _Balance(
        *(running, others, writing, step, stall, extra, prompt, cycle, own),
        *(lag, uneven, waiting, late, held_up, longest, rounds),
    )


def _percentile(share: float, together: float, balance: _Balance) -> float:
    """The seconds that no more than `share` of the prompts wait. Those that come `together` wait evenly from no time to
    the longest. The others come at any time of a step, and may find other prompts there; their wait for these falls off
    exponentially, as that of an M/G/1 queue nearly does."""
    if balance.others <= 0:
        return 0.0
    burst = max(0.0, 1.0 - (1.0 - share) / together) * (balance.longest + balance.step) if together > 0 else 0.0
    queued = math.log(balance.late / (1.0 - share)) * balance.held_up if balance.late > 1.0 - share else 0.0
    early = balance.lag + (share - 0.5) * (balance.step + balance.uneven)
    return max(burst, early + min(queued, balance.longest))


def _own(steps: Steps, balance: _Balance, budget: int, request: Request, length: float) -> float:
    """The seconds from the first step that reads a prompt of `length` times the mean to its first token."""
    if length == 1.0:
        return balance.own
    tokens = max(length * request.prompt - request.cached, 1.0)
    context = request.prompt + request.answer / 2
    alone = balance.others <= 0
    prompt = steps.prompt(tokens, budget, balance.writing, 0.0, request.cached)
    stall = steps.beside(prompt, 0.0 if alone else balance.writing, context, balance.step)
    return prompt.chunks * (stall if alone else stall + balance.step)


def _times(steps: Steps, balance: _Balance, beyond: float, budget: int, request: Request, together: float) -> Times:
    rates, answer = steps.rates, request.answer
    outside = rates.first + rates.prompt_token * request.prompt + rates.user * balance.running
    # Prompts of others stall an answer, if they come while it is written.
    others = balance.others * balance.writing / balance.running
    token = balance.step + others * balance.extra / max(answer - 1.0, 1.0)
    # The share of steps in which a prompt is read beside the answers.
    reading = balance.others * balance.prompt.chunks / balance.prompt.shared
    mixed = min(1.0, reading / max(balance.rounds, 1.0))
    stalled = balance.step + balance.stall
    cycle = balance.cycle + outside
    own = _own(steps, balance, budget, request, request.middle)
    typical = own + _percentile(0.5, together, balance)
    # Long prompts and long waits are independent of each other.
    longer = _own(steps, balance, budget, request, request.late) - own
    later = own + _percentile(0.95, together, balance) - typical
    return Times(
        ttft=outside + balance.own + balance.waiting + beyond,
        ttft_p50=outside + typical + beyond,
        ttft_p95=outside + typical + math.hypot(max(longer, 0.0), later) + beyond * 1.1,
        inter_token=token,
        inter_token_p50=stalled if mixed > 0.5 else balance.step,
        inter_token_p95=stalled if mixed > 0.05 else balance.step,
        tokens_per_second=balance.running * answer / cycle,
        cycle=cycle,
    )
