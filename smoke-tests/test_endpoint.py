"""Checks that the endpoint answers, with text, as a stream."""

from __future__ import annotations

import pytest

from neuroscale.cluster.command_lines import CommandLines
from neuroscale.cluster.endpoint import chat
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError, UnreachedError
from neuroscale.smoke import model_requests
from neuroscale.smoke.expected_services import Opened, Service
from neuroscale.smoke.model_requests import garbage
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import CannotTellError, FindingError, require
from neuroscale.smoke.runner import Spec

_FEW = 16
_SOME = 32
_TRIES = 6
"""How many streams may arrive all at once: a busy client, too, reads a whole short answer in one piece.

Each further answer is twice as long, so that the client gets its turn while the server still writes. A gateway that
holds streams back holds all of them.
"""
_QUESTIONS = (
    "Describe how bread is baked.",
    "Tell a story about a lighthouse keeper who finds a letter.",
)


@pytest.mark.check("reachable")
def test_the_endpoint_can_be_reached(opened: Opened, service: Service, lines: CommandLines, note: Notes) -> None:
    """The endpoint can be reached, and its key read."""
    if opened.endpoint is None:
        way = opened.problem.way if isinstance(opened.problem, EndpointError) else ""
        if isinstance(opened.problem, UnreachedError):
            raise FindingError(opened.problem.told, opened.problem.do, way=way)
        status, key = (lines.own(f"{name} {service.name}") for name in ("status", "key"))
        do = f"{status}; if its key is missing: {key}"
        if opened.of_the_service:
            raise FindingError(str(opened.problem), do, way=way)
        raise CannotTellError(str(opened.problem), do)
    note(f"{opened.endpoint.url} by {opened.endpoint.how}")


@pytest.mark.check("health")
def test_the_pod_says_that_it_is_healthy(inside: Endpoint, spec: Spec) -> None:
    """Health: the pod answers /health."""
    status = model_requests.status(inside, "GET", "/health", None, spec.patience, key=None)
    require(status == 200, f"/health answers {status}", f"Its engine may be dead: {inside.look}")


@pytest.mark.check("models")
def test_it_names_the_model_with_the_planned_length(endpoint: Endpoint, service: Service, note: Notes) -> None:
    """/v1/models names the model with the planned length."""
    found = {model.id: model.max_model_len for model in chat.models(endpoint)}
    names = ", ".join(found) or "none"
    require(
        service.model in found,
        f"the model {service.model} is not listed; listed: {names}",
        "Clients that ask for it get 404. Compare --served-model-name of the pod with Git.",
    )
    require(
        found[service.model] == service.plan.max_model_len,
        f"{service.model} takes {found[service.model]} tokens, not the planned {service.plan.max_model_len}",
        "Compare --max-model-len of the pod with the plan.",
    )
    note(f"{service.model}, {service.plan.max_model_len:,} tokens")


@pytest.mark.check("completion")
def test_it_completes_a_text(endpoint: Endpoint, service: Service, spec: Spec, note: Notes) -> None:
    """Completion: the model continues a text, and the server counts its tokens."""
    tokens = min(_FEW, service.request.longest_answer_tokens)
    answer = chat.complete(
        endpoint, "Once upon a time", model_requests.limits(spec.patience, tokens, whole=True), stream=False
    )
    _counted(answer, tokens, endpoint)
    note(f"{answer.completion_tokens} tokens in {answer.seconds:.2f} s")


@pytest.mark.check("chat")
def test_it_answers_a_chat(endpoint: Endpoint, service: Service, spec: Spec, note: Notes) -> None:
    """Chat completion: the model answers a message, and the server counts its tokens."""
    tokens = min(_FEW, service.request.longest_answer_tokens)
    answer = chat.chat(endpoint, "Say hello.", model_requests.limits(spec.patience, tokens, whole=True), stream=False)
    _counted(answer, tokens, endpoint)
    note(f"{answer.completion_tokens} tokens in {answer.seconds:.2f} s")


def _counted(answer: chat.Completion, tokens: int, endpoint: Endpoint) -> None:
    require(
        answer.prompt_tokens > 0 and answer.completion_tokens == tokens,
        f"asked for {tokens} tokens, it counts {answer.prompt_tokens} in and {answer.completion_tokens} out",
        f"Read the server's log: {endpoint.look}",
    )


@pytest.mark.check("streaming")
def test_it_streams(endpoint: Endpoint, service: Service, spec: Spec, note: Notes) -> None:
    """Streaming: the first token comes before the last one, and tokens are counted."""
    tokens = min(_SOME, service.request.longest_answer_tokens)
    for attempt in range(_TRIES):
        if attempt:
            tokens = max(tokens, min(2 * tokens, service.plan.max_model_len // 2))
        answer = chat.complete(
            endpoint,
            "The history of the sea begins",
            model_requests.limits(spec.patience, tokens, sampled=True, whole=True),
        )
        require(
            answer.completion_tokens == tokens and answer.ttft_seconds is not None,
            f"asked for {tokens} tokens, {answer.completion_tokens} came in {answer.parts} parts",
            f"Read the server's log: {endpoint.look}",
        )
        rate = answer.tokens_per_second
        streams = (answer.parts > 1 or tokens == 1) and (rate is None or rate < model_requests.FASTEST)
        if streams:
            break
    require(
        streams,
        f"{tokens} tokens came in {answer.parts} parts all at once, {answer.seconds:.2f} s after the request",
        "Something between client and server holds the stream back: check the gateway's buffering.",
    )
    note(f"first token after {answer.ttft_seconds:.3f} s, {rate or 0:.1f} tokens/s, {tokens} tokens")


@pytest.mark.check("garbage")
def test_what_it_answers_is_text(endpoint: Endpoint, service: Service, spec: Spec, note: Notes) -> None:
    """The answers are text, not empty and not the same again and again."""
    tokens = min(_SOME, service.request.longest_answer_tokens)
    options = model_requests.limits(spec.patience, tokens, sampled=True)
    asked = [(ask, question) for ask in (chat.chat, chat.complete) for question in _QUESTIONS]
    for ask, question in asked:
        # Each is judged at once, since a later request may not be answered.
        answer = ask(endpoint, question, options, stream=False)
        text = answer.text or answer.reasoning
        wrong = garbage(text)
        if not text and answer.tool_calls:
            wrong = f"it calls {', '.join(answer.tool_calls)} and holds no text, although no tool was offered"
        require(
            wrong is None,
            f"the answer to {question!r} is garbage: {wrong}: {text[:80]!r}",
            "Check that weights, revision, dtype and KV cache of the manifest are right for this model and runtime. "
            "If earlier answers were text, revert the last change.",
        )
    note(f"{len(asked)} answers")
