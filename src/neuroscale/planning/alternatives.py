"""What to change about a refused request: every choice named here was planned and works."""

from __future__ import annotations

from dataclasses import replace

from neuroscale.planning.choose import CHAT_TEMPLATE_TOKENS, Candidate, Case, candidates
from neuroscale.planning.cost import cost
from neuroscale.planning.plan import Alternative

_MOST = 5
_SHORTEST_PROMPT = 256


def alternatives(case: Case) -> tuple[Alternative, ...]:
    """The nearest choices that work, cheapest first: another accelerator, more of them, a quantised copy of the same
    model, a shorter prompt, more patience for the first token."""
    found: list[tuple[Candidate, str]] = []
    found += _other_hardware(case)
    found += _same_family(case)
    if not found:
        found += _relaxed(case)
    found += _shorter(case)
    unique: dict[tuple[str, str, str, int], tuple[Candidate, str, str]] = {}
    for candidate, change in found:
        model = change.split("'")[1] if change.startswith("Choose the model") else case.model.name
        key = (change, model, candidate.accelerator.name, candidate.count)
        unique.setdefault(key, (candidate, change, model))
    ordered = sorted(unique.values(), key=lambda entry: (entry[0].rank, entry[1]))[:_MOST]
    return tuple(
        Alternative(
            change=change,
            model=model,
            accelerator=candidate.accelerator.name,
            accelerator_count=candidate.count,
            hourly=cost(candidate.price, candidate.replicas).hourly,
        )
        for candidate, change, model in ordered
    )


def _best(case: Case) -> Candidate | None:
    return next((candidate for candidate in candidates(case) if candidate.works), None)


def _other_hardware(case: Case) -> list[tuple[Candidate, str]]:
    """Without the forced hardware: the cheapest that works of each accelerator."""
    if not {"accelerator", "accelerator_count", "kv_cache_dtype", "gpu_memory_utilization"} & set(case.overrides):
        return []
    kept = {field: value for field, value in case.overrides.items() if field in ("max_model_len",)}
    best: dict[str, Candidate] = {}
    for candidate in candidates(replace(case, overrides=kept)):
        if candidate.works:
            best.setdefault(candidate.accelerator.name, candidate)
    return [
        (candidate, f"Use {candidate.label}{_replicas(candidate)}: remove the overrides of the hardware.")
        for candidate in best.values()
    ]


def _same_family(case: Case) -> list[tuple[Candidate, str]]:
    """Quantised copies of the same model (or the model that this one is a copy of), as asked."""
    root = case.model.variant_of or case.model.name
    found = []
    for model in case.catalog.models.values():
        if model.name != case.model.name and root in (model.name, model.variant_of):
            best = _best(replace(case, model=model))
            if best is not None:
                found.append((best, f"Choose the model '{model.name}' on {best.label}{_replicas(best)}."))
    return found


def _shorter(case: Case) -> list[tuple[Candidate, str]]:
    """The longest prompt, halved until something works."""
    prompt = case.request.longest_prompt_tokens
    kept = {field: value for field, value in case.overrides.items() if field != "max_model_len"}
    limit = case.model.config.max_position_embeddings
    while prompt > _SHORTEST_PROMPT:
        room = limit - case.request.longest_answer_tokens - CHAT_TEMPLATE_TOKENS
        prompt = room if 0 < room < prompt // 2 else prompt // 2
        shorter = case.request.model_copy(update={"longest_prompt_tokens": prompt})
        best = _best(replace(case, request=shorter, overrides=kept))
        if best is not None:
            change = f"Shorten the longest prompt to {prompt} tokens, on {best.label}{_replicas(best)}."
            return [(best, change)]
    return []


def _relaxed(case: Case) -> list[tuple[Candidate, str]]:
    """More time for the first token, or fewer users at once, where only that stands in the way."""
    found = []
    patient = _best(replace(case, request=case.request.model_copy(update={"p95_ttft_seconds": 120.0})))
    if patient is not None and patient.speed.ttft_seconds is not None:
        found.append(
            (
                patient,
                f"Allow {patient.speed.ttft_seconds:g} s for the first token, on {patient.label}{_replicas(patient)}.",
            )
        )
    users = case.request.concurrent_users
    while users > 1 and not found:
        users //= 2
        best = _best(replace(case, request=case.request.model_copy(update={"concurrent_users": users})))
        if best is not None:
            found.append((best, f"Serve {users} users at once, on {best.label}{_replicas(best)}."))
    return found


def _replicas(candidate: Candidate) -> str:
    return f" with {candidate.replicas.min} replicas" if candidate.replicas.min > 1 else ""
