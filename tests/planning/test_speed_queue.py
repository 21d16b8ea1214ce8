"""The formulas of a load beside a simulation of vLLM's scheduler, which takes the same seconds for each step."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean, quantiles

import pytest

from neuroscale.planning.fit import device
from neuroscale.planning.replica_memory import served_facts
from neuroscale.planning.speed import Load, ReplicaSpeed
from neuroscale.planning.speed.steps import Prompt, Steps
from neuroscale.vllm.engine_arguments import EngineArguments
from platform_repository import CATALOG

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
AHEAD = 2
"""Steps that are scheduled already when a request comes, as the scheduler works while the accelerator computes."""


@dataclass
class _Request:
    comes: float  # seconds
    prompt: int  # tokens still to read
    answer: int  # tokens still to write


def _server(budget: int) -> tuple[ReplicaSpeed, Steps]:
    """A replica on an L4, and its steps without the time outside the engine."""
    arguments = EngineArguments(model=LLAMA, max_num_batched_tokens=budget, max_num_seqs=512)
    server = ReplicaSpeed(served_facts(CATALOG.models[LLAMA]), device(CATALOG.accelerators["nvidia-l4"]), arguments)
    rates = replace(server.steps.rates, first=0.0, prompt_token=0.0, user=0.0, behind=AHEAD - 0.5)
    return server, replace(server.steps, rates=rates)


def _first_tokens(steps: Steps, load: Load, budget: int, requests: int) -> Iterator[tuple[int, float]]:
    """The number of each request that is answered, and the seconds to its first token. The users of a closed load begin
    together and ask again at once."""
    dice = random.Random(7)
    whole = steps.prompt(load.prompt_tokens, 1_000_000, 0.0, 0.0)
    now, number, rate = 0.0, 0, load.requests_per_second
    longest = load.prompt_spread[1]

    def fresh(comes: float) -> _Request:
        drawn = dice.uniform(2.0 - longest, longest) if longest > 1 else 1.0
        return _Request(comes, max(1, int(load.prompt_tokens * drawn)), load.answer_tokens)

    coming: deque[_Request] = deque()
    if rate is None:
        coming.extend(fresh(0.0) for _ in range(load.users))
    else:
        comes = 0.0
        for _ in range(requests):
            comes += dice.expovariate(rate)
            coming.append(fresh(comes))
    queue: deque[_Request] = deque()
    running: list[_Request] = []
    scheduled = deque([0.0] * AHEAD)
    while number < requests:
        seen = scheduled.popleft()
        while coming and coming[0].comes <= seen:
            queue.append(coming.popleft())
        writing = [each for each in running if each.prompt == 0]
        left, reading = budget - len(writing), 0
        while queue and left > 0 and sum(each.prompt for each in running) < left:
            running.append(queue.popleft())
        firsts = []
        for each in running:
            part = min(each.prompt, left)
            if part:
                each.prompt, left, reading = each.prompt - part, left - part, reading + part
                firsts += [each] if each.prompt == 0 else []
        if not writing and not reading:
            now = max(now, coming[0].comes)
            scheduled = deque([now] * AHEAD)
            continue
        context = load.prompt_tokens + load.answer_tokens / 2
        answer = steps.answer(len(writing), context) if writing else 0.0
        prompt = Prompt(reading, 1, whole.attention * reading / whole.tokens, max(len(firsts), 1))
        now += answer + (steps.beside(prompt, len(writing), context, answer) if reading else 0.0)
        scheduled.append(now)
        for each in (*writing, *firsts):
            each.answer -= 1
            if each.answer == 0:
                running.remove(each)
                if rate is None:
                    coming.append(fresh(now + 1e-3))
        for each in firsts:
            yield number, now - each.comes
            number += 1


def _simulated(steps: Steps, load: Load, budget: int, requests: int) -> tuple[float, float]:
    """Mean and 95th percentile of the seconds to the first token, once the load is steady."""
    found = [seconds for number, seconds in _first_tokens(steps, load, budget, requests) if number > requests / 4]
    return fmean(found), quantiles(found, n=20)[-1]


@pytest.mark.parametrize(
    ("prompt", "answer", "rate", "longest", "budget"),
    [
        (4000, 200, 0.05, 1.8, 8192),  # less than one request runs on average
        (4000, 200, 0.3, 1.8, 8192),
        (4000, 200, 0.3, 1.8, 2048),
        (1000, 200, 1.0, 1.0, 2048),
    ],
)
def test_an_open_load_waits_as_long_as_in_a_simulation(
    prompt: int, answer: int, rate: float, longest: float, budget: int
) -> None:
    server, steps = _server(budget)
    load = Load(512, prompt, answer, rate, prompt_spread=(1.0, 0.05 + 0.95 * longest))
    times = server.times(load, steps)
    assert times is not None
    mean, late = _simulated(steps, replace(load, prompt_spread=(1.0, longest)), budget, 3000)
    assert times.ttft == pytest.approx(mean, rel=0.06)
    assert times.ttft_p95 == pytest.approx(late, rel=0.09)


@pytest.mark.parametrize(("prompt", "users"), [(10_000, 8), (5_000, 32)])
def test_users_who_stay_in_step_wait_for_the_prompts_of_the_others(prompt: int, users: int) -> None:
    server, steps = _server(8192)
    load = Load(users, prompt, 256, requests_per_user=24, in_step=True)
    times = server.times(load, steps)
    assert times is not None
    mean, late = _simulated(steps, load, 8192, 24 * users)
    assert times.ttft == pytest.approx(mean, rel=0.15)
    assert times.ttft_p95 == pytest.approx(late, rel=0.12)
