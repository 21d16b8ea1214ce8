"""Checks the service under the load that its form states."""

from __future__ import annotations

import math

import pytest

from neuroscale.cluster.endpoint import chat
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.smoke import model_requests
from neuroscale.smoke.expected_services import Service
from neuroscale.smoke.model_requests import Prompts, percentile
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import require
from neuroscale.smoke.runner import Spec

_TIMES = 20
"""The fewest requests of which the p95 is not the slowest one."""
_PROMPT, _ANSWER = 64, 32  # tokens of each of the users


@pytest.mark.check("first-token")
def test_the_first_token_comes_in_time(
    endpoint: Endpoint, service: Service, spec: Spec, prompts: Prompts, note: Notes
) -> None:
    """Time to the first token of the longest prompt, against the form's p95."""
    wanted = service.request.p95_ttft_seconds
    times: list[float] = []
    # As soon as two answers are too slow, the p95 is too slow.
    while len(times) < _TIMES and sum(one > wanted for one in times) < 2:
        prompt = prompts.of(service.request.longest_prompt_tokens)
        options = model_requests.limits(
            spec.patience, min(2, service.request.longest_answer_tokens), sampled=True, whole=True
        )
        answer = chat.complete(endpoint, prompt, options)
        times.append(answer.seconds if answer.ttft_seconds is None else answer.ttft_seconds)
    slow, usual = percentile(times, 0.95), percentile(times, 0.5)
    told = (
        f"first token after {usual:.3f} s (median) and {slow:.3f} s (p95 of {len(times)}, one at a time, "
        f"{service.request.longest_prompt_tokens:,} tokens)"
    )
    require(
        slow <= wanted,
        f"{told}; the form asks for {wanted:g} s",
        f"Check whether the replica is busy ({spec.lines.own(f'metrics {service.name}')}). If not, the plan's speed is "
        "wrong: measure it, and correct the catalog.",
    )
    note(f"{told}; asked for: {wanted:g} s")


@pytest.mark.check("concurrent-users")
def test_the_forms_users_are_all_answered_at_once(
    endpoint: Endpoint, service: Service, spec: Spec, prompts: Prompts, note: Notes
) -> None:
    """The form's users are answered, all at once."""
    users = service.request.concurrent_users
    replicas = service.plan.replicas.min
    # A port-forward leads to one of the replicas.
    at_once = math.ceil(users / replicas) if endpoint.how == "port-forward" else users
    prompt = min(_PROMPT, service.request.longest_prompt_tokens)
    tokens = min(_ANSWER, service.request.longest_answer_tokens)
    options = model_requests.limits(spec.patience, tokens, sampled=True, whole=True)
    answers, errors = model_requests.at_once(endpoint, lambda: [prompts.of(prompt) for _ in range(at_once)], options)
    cut = [one for one in answers if one.completion_tokens != tokens]
    require(
        not errors and not cut,
        f"{at_once} at once: {len(errors)} were not answered and {len(cut)} were answered only in part"
        + (f"; the first: {errors[0]}" if errors else ""),
        f"Check whether a replica crashes or refuses under load: {endpoint.look}",
    )
    first = [one.ttft_seconds for one in answers if one.ttft_seconds is not None] or [0.0]
    longest = max(one.seconds for one in answers)
    share = f" (of {users}, one of {replicas} replicas)" if at_once != users else ""
    note(
        f"{at_once} users{share}: all answered in {longest:.2f} s, first token p95 {percentile(first, 0.95):.3f} s, "
        f"{sum(one.completion_tokens for one in answers) / longest:.0f} tokens/s together"
    )
