"""Finds the accelerators of an environment that can serve a model, for the example request of the form."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Environment
from neuroscale.planning.candidates import Candidate, Case, candidates
from neuroscale.planning.explain import confidence
from neuroscale.request.service_request import Request

_USERS, _PROMPT, _ANSWER = 8, 4096, 1024  # the defaults of the form
_SECONDS = 120.0  # the longest time that a form allows, so that speed refuses nothing


@dataclass(frozen=True)
class AcceleratorFit:
    """The smallest number of an accelerator that serves the model (0: no number does, for the `reason`)."""

    accelerator: str
    count: int
    tight: bool  # the free memory is less than the estimate may be off, or some figures are not known
    users: int
    """Requests at once that one replica holds."""
    context: int
    """Tokens of a request in the example."""
    reason: str


def fits_of(model: str, environment: str, catalog: Catalog, settings: Environment) -> list[AcceleratorFit]:
    """For each accelerator of the environment, whether it serves the model with the example traffic of the form. For a
    model whose context is shorter than the example's prompt and answer, the request has half that context."""
    entry = catalog.models[model]
    longest = entry.facts.max_position_embeddings
    prompt, answer = (_PROMPT, _ANSWER) if longest >= _PROMPT + _ANSWER else (longest // 4, longest // 4)
    request = Request(
        service="example",
        model=model,
        team="example",
        environment=environment,
        concurrent_users=_USERS,
        longest_prompt_tokens=max(prompt, 1),
        longest_answer_tokens=max(answer, 1),
        p95_ttft_seconds=_SECONDS,
        availability="standard",
    )
    case = Case(request, entry, environment, settings, catalog, {})
    tried = candidates(case)
    return [_of(name, case, [one for one in tried if one.accelerator.name == name]) for name in settings.accelerators]


def _of(name: str, case: Case, tried: list[Candidate]) -> AcceleratorFit:
    working = [one for one in tried if one.works]
    if not working:
        nearest = min(tried, key=lambda one: one.distance)
        return AcceleratorFit(name, 0, False, 0, case.max_model_len, nearest.failures[0].sentence)
    best = min(working, key=lambda one: (one.count, one.tight, one.kv_cache_dtype != "auto"))
    tight = best.tight or confidence(best) == "low"
    return AcceleratorFit(name, best.count, tight, best.capacity, case.max_model_len, "")
