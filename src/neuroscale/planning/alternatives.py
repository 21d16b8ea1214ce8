"""Finds the changes of a refused request that work, and says what each of them costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neuroscale.catalog.settings import Environment
from neuroscale.core.printable import noun_for, plainly_counted
from neuroscale.planning.candidates import Candidate, candidates
from neuroscale.planning.case import CHAT_TEMPLATE_TOKENS, Case
from neuroscale.planning.choice import best as _best
from neuroscale.planning.choice import choose
from neuroscale.planning.load_choice import all_judged, with_most_replicas
from neuroscale.planning.plan import Alternative
from neuroscale.planning.price import cost

_MOST = 5
_MOST_LENGTHS = 3
_SHORTEST = 256  # tokens; a shorter prompt or answer helps nobody
_HARDWARE = frozenset({"accelerator", "accelerator_count", "kv_cache_dtype", "gpu_memory_utilization"})
_LONGEST_WAIT = 120.0  # seconds to the first token: the most that a form takes
_SLOWEST = 0.1  # tokens per second for each user: the least that a form takes


@dataclass(frozen=True)
class _Choice:
    """A change of the request, and the candidate that the planner chooses for it. `answers`: see `Alternative`."""

    candidate: Candidate
    change: str
    model: str
    answers: dict[str, str | int | float] = field(default_factory=dict)


def alternatives(case: Case, environments: Mapping[str, Environment]) -> tuple[Alternative, ...]:
    """The nearest choices that work, cheapest first, those of unknown speed last: another accelerator, more of them, a
    quantised copy of the same model, a shorter prompt, more time for the first token. If none of them works: less of
    everything at once, or another of the `environments`."""
    choices = _without_overrides(case) + _same_family(case)
    if not choices:
        choices += _relaxed(case)
    if not choices or "max_model_len" not in case.overrides:
        choices += _shorter(case)
    if not choices:
        choices = _less_of_everything(case)
    if not choices:
        choices = _elsewhere(case, environments)
    unique: dict[tuple[str, str, str, int], _Choice] = {}
    for choice in choices:
        candidate = choice.candidate
        unique.setdefault((choice.change, choice.model, candidate.accelerator.name, candidate.count), choice)
    ordered = sorted(
        unique.values(), key=lambda choice: (choice.candidate.unchecked, choice.candidate.rank, choice.change)
    )[:_MOST]
    return tuple(
        Alternative(
            change=choice.change,
            answers=choice.answers,
            model=choice.model,
            accelerator=choice.candidate.accelerator.name,
            accelerator_count=choice.candidate.count,
            hourly=cost(choice.candidate.price, choice.candidate.replicas).hourly,
        )
        for choice in ordered
    )


def _without_overrides(case: Case) -> list[_Choice]:
    """The request without its overrides; the override of the context stays if that works. The first choice is the
    planner's own. If the overrides force hardware, the cheapest choice of each other accelerator follows, with the
    overrides that it needs."""
    if not case.overrides:
        return []
    kept = {field: value for field, value in case.overrides.items() if field == "max_model_len"}
    for remaining in (kept, {}) if 0 < len(kept) < len(case.overrides) else ({},):
        free = choose(replace(case, overrides=dict(remaining)))
        if not free.chosen.works:
            continue
        cheapest = {free.chosen.accelerator.name: free.chosen}
        for candidate in all_judged(replace(case, overrides=dict(remaining))):
            if candidate.works:
                cheapest.setdefault(candidate.accelerator.name, candidate)
        removed = [field for field in case.overrides if field not in remaining]
        chosen, *others = cheapest.values()
        choices = [_Choice(chosen, f"Remove {_overrides(removed)}: the plan is then {_on(chosen)}.", case.model.name)]
        if not _HARDWARE & set(removed):
            return choices
        removed = [field for field in removed if field not in ("accelerator", "accelerator_count")]
        rest = f", and remove {_overrides(removed)}" if removed else ""
        return choices + [
            _Choice(
                candidate,
                f"Use {_on(candidate)}: override accelerator with {candidate.accelerator.name} and accelerator_count "
                f"with {candidate.count}{rest}.",
                case.model.name,
            )
            for candidate in others
        ]
    return []


def _same_family(case: Case) -> list[_Choice]:
    """Quantised copies of the same model (or the model that this one is a copy of), for the same request."""
    root = case.model.variant_of or case.model.name
    choices = []
    for model in case.catalog.models.values():
        if model.name != case.model.name and root in (model.name, model.variant_of):
            best = _best(replace(case, model=model))
            if best is not None:
                change = f"Choose the model '{model.name}' on {_on(best)}."
                choices.append(_Choice(best, change, model.name, {"model": model.name}))
    return choices


def _shorter(case: Case) -> list[_Choice]:
    """The same request with its longest prompt halved until a choice works, and on, where that halves the price."""
    prompt = case.request.longest_prompt_tokens
    kept = {field: value for field, value in case.overrides.items() if field != "max_model_len"}
    also = " and remove the override of max_model_len" if kept != case.overrides else ""
    limit = case.model.facts.max_position_embeddings
    choices: list[_Choice] = []
    while prompt > _SHORTEST and len(choices) < _MOST_LENGTHS:
        room = limit - case.request.longest_answer_tokens - CHAT_TEMPLATE_TOKENS
        prompt = room if 0 < room < prompt // 2 else prompt // 2
        shorter = case.request.model_copy(update={"longest_prompt_tokens": prompt})
        best = _best(replace(case, request=shorter, overrides=kept))
        if best is not None and (not choices or _is_half(best, choices[-1].candidate)):
            change = f"Shorten the longest prompt to {prompt} tokens{also}, on {_on(best)}."
            answers = {} if also else _lengths(case, longest_prompt_tokens=prompt)
            choices.append(_Choice(best, change, case.model.name, answers))
    return choices


def _is_half(candidate: Candidate, other: Candidate) -> bool:
    """Whether a candidate costs half of another, or less."""
    return candidate.hourly is not None and other.hourly is not None and 2 * candidate.hourly <= other.hourly


def _relaxed(case: Case) -> list[_Choice]:
    """More time for the first token, fewer tokens per second, or fewer users at once, where one of them is enough."""
    request, found = case.request, []

    def tried(change: str, **answers: float) -> None:
        best = _best(replace(case, request=request.model_copy(update=answers)))
        if best is not None:
            found.append(_Choice(best, f"{change}, on {_on(best)}.", case.model.name, {**answers}))

    seconds, rate, users = request.p95_ttft_seconds, case.tokens_per_second_per_user, request.concurrent_users
    patient = {"p95_ttft_seconds": _LONGEST_WAIT, "tokens_per_second_per_user": _SLOWEST}
    spread = [
        with_most_replicas(case, one)
        for one in candidates(replace(case, request=request.model_copy(update=patient)))
        if one.works
    ]
    spread = [one for one in spread if not one.unchecked]
    waits = [_wait(one) for one in spread if _rate(one) >= rate]
    if waits and seconds < (least := min(waits)) < _LONGEST_WAIT:
        tried(f"Allow {least:g} s for the first token", p95_ttft_seconds=least)
    rates = [_rate(one) for one in spread if _wait(one) <= seconds]
    if rates and _SLOWEST < (most := max(rates)) < rate:
        tried(f"Accept {most:g} tokens per second for each user", tokens_per_second_per_user=most)
    # The attempts say how many users they keep.
    kept = [one.load.kept or 0 for one in choose(case).tried if one.load is not None]
    fewer = case.environment.max_replicas * max(kept, default=0)
    while users > 1:
        users = fewer if 0 < fewer < users else users // 2
        tried(f"Serve {_users(users)} at once", concurrent_users=users)
        if found and found[-1].change.startswith("Serve"):
            break
    return found


def _wait(candidate: Candidate) -> float:
    """Seconds to the first token that the candidate keeps: under the load, and alone with the longest prompt."""
    load = candidate.load
    times = (load.alone.ttft_p95, load.speed.ttft_p95) if load else ()
    seconds = max((one.value for one in times if one is not None), default=0.0)
    return min(math.ceil(seconds * 100) / 100, _LONGEST_WAIT)


def _rate(candidate: Candidate) -> float:
    """Tokens per second that the candidate keeps for each user."""
    load = candidate.load.speed.tokens_per_second_user if candidate.load else None
    return max(math.floor(load.value * 10) / 10, _SLOWEST) if load else _SLOWEST


def _less_of_everything(case: Case) -> list[_Choice]:
    """Users, prompt and answer halved together until a choice works, with the longest wait and the slowest answers that
    a form allows."""
    request = case.request
    users, prompt, answer = request.concurrent_users, request.longest_prompt_tokens, request.longest_answer_tokens
    while users > 1 or prompt > _SHORTEST or answer > _SHORTEST:
        users = max(users // 2, 1)
        prompt = max(prompt // 2, min(prompt, _SHORTEST))
        answer = max(answer // 2, min(answer, _SHORTEST))
        lengths = _lengths(case, longest_prompt_tokens=prompt, longest_answer_tokens=answer)
        patient = {"p95_ttft_seconds": _LONGEST_WAIT, "tokens_per_second_per_user": _SLOWEST}
        less = request.model_copy(update={"concurrent_users": users, **lengths, **patient})
        best = _best(replace(case, request=less, overrides={}))
        if best is None:
            continue
        seconds, rate = _wait(best), _rate(best)
        promised = max(seconds, request.p95_ttft_seconds)
        slow = rate < case.tokens_per_second_per_user
        slower = f" and {rate:g} tokens per second for each user" if slow else ""
        late = seconds > request.p95_ttft_seconds or slower
        # With the promise that is told, another choice may be the best.
        told = {
            "p95_ttft_seconds": promised,
            "tokens_per_second_per_user": rate if slow else request.tokens_per_second_per_user,
        }
        best = _best(replace(case, request=less.model_copy(update=told), overrides={})) or best
        wait = f", with {seconds:g} s for the first token{slower}" if late else ""
        also = f", and remove {_overrides(list(case.overrides))}" if case.overrides else ""
        change = (
            f"Serve {_users(users)} at once with prompts up to {prompt} and answers up to {answer} tokens{wait}{also}, "
            f"on {_on(best)}."
        )
        answers = {"concurrent_users": users, **lengths}
        if late:
            answers["p95_ttft_seconds"] = promised
        if slow:
            answers["tokens_per_second_per_user"] = rate
        return [_Choice(best, change, case.model.name, {} if also else answers)]
    return []


def _lengths(case: Case, **longest: int) -> dict[str, str | int | float]:
    """The answers of these longest lengths, with typical lengths that are not longer."""
    answers: dict[str, str | int | float] = dict(longest)
    for name, most in longest.items():
        typical = name.replace("longest", "typical")
        if (getattr(case.request, typical) or 0) > most:
            answers[typical] = most
    return answers


def _elsewhere(case: Case, environments: Mapping[str, Environment]) -> list[_Choice]:
    """The request as it is, in another environment."""
    choices = []
    for name, environment in environments.items():
        if name == case.environment_name:
            continue
        best = _best(replace(case, environment_name=name, environment=environment))
        if best is not None:
            change = f"Choose the environment '{name}', on {_on(best)}."
            choices.append(_Choice(best, change, case.model.name, {"environment": name}))
    return choices


def _on(candidate: Candidate) -> str:
    replicas = candidate.replicas.min
    pods = f" with {plainly_counted(replicas, 'replica')}" if replicas > 1 else ""
    return f"{candidate.label}{pods}{' (its speed is not known)' if candidate.unchecked else ''}"


def _users(number: int) -> str:
    return plainly_counted(number, "user")


def _overrides(fields: list[str]) -> str:
    names = f"{', '.join(fields[:-1])} and {fields[-1]}" if len(fields) > 1 else fields[0]
    return f"the {noun_for(len(fields), 'override')} of {names}"
