"""Checks the longest prompt, the longest answer, and that longer ones are refused."""

from __future__ import annotations

import pytest

from neuroscale.cluster.endpoint import chat
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.smoke import model_requests
from neuroscale.smoke.expected_services import Service
from neuroscale.smoke.model_requests import Prompts
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import FindingError, require
from neuroscale.smoke.runner import Spec


@pytest.mark.check("longest-prompt")
def test_the_longest_prompt_leaves_room_for_the_longest_answer(
    endpoint: Endpoint, service: Service, spec: Spec, prompts: Prompts, note: Notes
) -> None:
    """The longest prompt leaves room for the longest answer."""
    prompt, answer = service.request.longest_prompt_tokens, service.request.longest_answer_tokens
    options = model_requests.limits(spec.patience, answer, sampled=True, whole=True)
    most = service.plan.max_model_len
    short = f"The plan gives it {most:,} tokens, and they need {prompt + answer:,}: plan it again, neuroscale replan."
    found = chat.complete(endpoint, prompts.of(prompt), options)
    require(
        (found.prompt_tokens, found.completion_tokens) == (prompt, answer),
        f"asked for {answer:,} tokens after {prompt:,}, it gave {found.completion_tokens:,} after "
        f"{found.prompt_tokens:,} (finish reason {found.finish_reason or 'none'})",
        short
        if most < prompt + answer
        else "Compare --max-model-len of the pod with the plan, and check whether a proxy changes the request.",
    )
    note(f"{prompt:,} tokens in, {answer:,} out in {found.seconds:.1f} s")


@pytest.mark.check("too-long-prompt")
def test_a_prompt_that_is_too_long_is_refused_clearly(
    endpoint: Endpoint, service: Service, spec: Spec, prompts: Prompts, note: Notes
) -> None:
    """One token more than the model takes is refused clearly, and the server goes on."""
    most = service.plan.max_model_len
    see = f"Read the server's log: {endpoint.look}"
    try:
        found = chat.complete(endpoint, prompts.of(most + 1), model_requests.limits(spec.patience, 1), stream=False)
    except EndpointError as error:
        require(error.status == 400, f"{most + 1:,} tokens are answered with {error.status or 'nothing'}: {error}", see)
        require(
            str(most) in error.said,
            f"{most + 1:,} tokens are refused, but the message does not say that {most:,} are the most: {error.said!r}",
            "Clients do not learn what is wrong with their prompt. Check whether a proxy replaces the server's "
            "message.",
        )
        note(error.said)
    else:
        raise FindingError(
            f"{most + 1:,} tokens are taken, one more than planned ({found.prompt_tokens:,} counted)",
            "Compare --max-model-len of the pod with the plan, and check whether the prompt is cut off silently.",
        )
    chat.complete(endpoint, prompts.of(4), model_requests.limits(spec.patience, 1), stream=False)
