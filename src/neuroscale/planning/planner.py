"""Makes a plan from a request, the catalog and the settings, and finds changes of a refused request that work.

It is pure: the same three always give the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from neuroscale.catalog import Catalog, sha256
from neuroscale.catalog.settings import Environment, Settings, check_settings
from neuroscale.core.printable import noun_for, plainly_counted
from neuroscale.planning import vllm_flags
from neuroscale.planning.candidates import CHAT_TEMPLATE_TOKENS, Candidate, Case
from neuroscale.planning.choice import best as _best
from neuroscale.planning.choice import choose, confidence
from neuroscale.planning.explain import reasons
from neuroscale.planning.override_shortfalls import shortfalls
from neuroscale.planning.plan import (
    Alternative,
    AppliedOverride,
    Lock,
    Plan,
    Runtime,
    Surroundings,
    Tenancy,
    TypicalLoad,
)
from neuroscale.planning.price import cost
from neuroscale.planning.rollout import rollout_of
from neuroscale.planning.startup import drain_seconds, startup_of
from neuroscale.request.service_request import Request

PLANNER_VERSION = "2.6.0"  # raise it whenever the same request may give another plan
TEMPLATE_VERSION = "1.5.0"


_MOST = 5
_SHORTEST = 256  # tokens; a shorter prompt or answer helps nobody
_HARDWARE = frozenset({"accelerator", "accelerator_count", "kv_cache_dtype", "gpu_memory_utilization"})
_LONGEST_WAIT = 120.0  # seconds to the first token: the most that a form takes


@dataclass(frozen=True)
class _Choice:
    """A change of the request, and the candidate that the planner chooses for it."""

    candidate: Candidate
    change: str
    model: str


def alternatives(case: Case, environments: Mapping[str, Environment]) -> tuple[Alternative, ...]:
    """The nearest choices that work, cheapest first: another accelerator, more of them, a quantised copy of the same
    model, a shorter prompt, more time for the first token. If none of them works: less of everything at once, or
    another of the `environments`."""
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
    ordered = sorted(unique.values(), key=lambda choice: (choice.candidate.rank, choice.change))[:_MOST]
    return tuple(
        Alternative(
            change=choice.change,
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
        for candidate in free.tried:
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
                choices.append(_Choice(best, f"Choose the model '{model.name}' on {_on(best)}.", model.name))
    return choices


def _shorter(case: Case) -> list[_Choice]:
    """The same request with its longest prompt halved until a choice works."""
    prompt = case.request.longest_prompt_tokens
    kept = {field: value for field, value in case.overrides.items() if field != "max_model_len"}
    also = " and remove the override of max_model_len" if kept != case.overrides else ""
    limit = case.model.facts.max_position_embeddings
    while prompt > _SHORTEST:
        room = limit - case.request.longest_answer_tokens - CHAT_TEMPLATE_TOKENS
        prompt = room if 0 < room < prompt // 2 else prompt // 2
        shorter = case.request.model_copy(update={"longest_prompt_tokens": prompt})
        best = _best(replace(case, request=shorter, overrides=kept))
        if best is not None:
            change = f"Shorten the longest prompt to {prompt} tokens{also}, on {_on(best)}."
            return [_Choice(best, change, case.model.name)]
    return []


def _relaxed(case: Case) -> list[_Choice]:
    """More time for the first token, or fewer users at once, if only that prevents a plan."""
    name = case.model.name
    patient = _best(replace(case, request=case.request.model_copy(update={"p95_ttft_seconds": _LONGEST_WAIT})))
    if patient is not None and patient.speed.ttft_seconds is not None:
        change = f"Allow {patient.speed.ttft_seconds:g} s for the first token, on {_on(patient)}."
        return [_Choice(patient, change, name)]
    users = case.request.concurrent_users
    while users > 1:
        users //= 2
        best = _best(replace(case, request=case.request.model_copy(update={"concurrent_users": users})))
        if best is not None:
            return [_Choice(best, f"Serve {_users(users)} at once, on {_on(best)}.", name)]
    return []


def _less_of_everything(case: Case) -> list[_Choice]:
    """Users, prompt and answer halved together until a choice works, with the longest wait that a form allows."""
    request = case.request
    users, prompt, answer = request.concurrent_users, request.longest_prompt_tokens, request.longest_answer_tokens
    while users > 1 or prompt > _SHORTEST or answer > _SHORTEST:
        users = max(users // 2, 1)
        prompt = max(prompt // 2, min(prompt, _SHORTEST))
        answer = max(answer // 2, min(answer, _SHORTEST))
        less = request.model_copy(
            update={
                "concurrent_users": users,
                "longest_prompt_tokens": prompt,
                "longest_answer_tokens": answer,
                "p95_ttft_seconds": _LONGEST_WAIT,
            }
        )
        best = _best(replace(case, request=less, overrides={}))
        if best is None:
            continue
        seconds = best.speed.ttft_seconds
        wait = f", with {seconds:g} s for the first token" if seconds and seconds > request.p95_ttft_seconds else ""
        also = f", and remove {_overrides(list(case.overrides))}" if case.overrides else ""
        change = (
            f"Serve {_users(users)} at once with prompts up to {prompt} and answers up to {answer} tokens{wait}{also}, "
            f"on {_on(best)}."
        )
        return [_Choice(best, change, case.model.name)]
    return []


def _elsewhere(case: Case, environments: Mapping[str, Environment]) -> list[_Choice]:
    """The request as it is, in another environment."""
    choices = []
    for name, environment in environments.items():
        if name == case.environment_name:
            continue
        best = _best(replace(case, environment_name=name, environment=environment))
        if best is not None:
            choices.append(_Choice(best, f"Choose the environment '{name}', on {_on(best)}.", case.model.name))
    return choices


def _on(candidate: Candidate) -> str:
    replicas = candidate.replicas.min
    return candidate.label + (f" with {plainly_counted(replicas, 'replica')}" if replicas > 1 else "")


def _users(number: int) -> str:
    return plainly_counted(number, "user")


def _overrides(fields: list[str]) -> str:
    names = f"{', '.join(fields[:-1])} and {fields[-1]}" if len(fields) > 1 else fields[0]
    return f"the {noun_for(len(fields), 'override')} of {names}"


def plan(request: Request, catalog: Catalog, settings: Settings, template_version: str = TEMPLATE_VERSION) -> Plan:
    """The plan for a request; a request that cannot be met gets a plan with the verdict `refused`. The reader of the
    request checks that the catalog and the settings know its names (`check_request`). Raises InputError if the settings
    name an entry that the catalog lacks: the gate plans with such settings, too."""
    check_settings(settings, catalog)
    environment = settings.environments[request.environment]
    overrides = {override.field: override.value for override in request.overrides}
    model = catalog.models[request.model]
    case = Case(request, model, request.environment, environment, catalog, overrides)

    choice = choose(case)
    chosen = choice.chosen
    sure = confidence(chosen)
    start = startup_of(case, chosen)
    rollout = rollout_of(case, chosen.replicas.min, chosen.count, start)
    applied = _applied(case)
    short = (
        shortfalls(
            request,
            applied,
            max_model_len=case.max_model_len,
            replicas=chosen.replicas.min,
            each=chosen.typical_capacity,
            gap_minutes=rollout.gap_minutes,
        )
        if chosen.works
        else ()
    )
    if not chosen.works:
        verdict = "refused"
    elif chosen.tight or sure == "low" or short:
        verdict = "tight"
    else:
        verdict = "fits"
    others = alternatives(case, settings.environments) if not chosen.works else ()
    kv_cache = chosen.memory.kv_cache
    team = catalog.teams[request.team]
    return Plan(
        verdict=verdict,  # type: ignore[arg-type]
        service=request.service,
        environment=request.environment,
        model=model.name,
        model_source=vllm_flags.model_source(model, environment),
        accelerator=chosen.accelerator.name,
        accelerator_count=chosen.count,
        tensor_parallel_size=chosen.count,
        replicas=chosen.replicas,
        memory_gib=chosen.memory,
        architecture=vllm_flags.architecture(model.facts),
        max_model_len=case.max_model_len,
        max_concurrency=chosen.capacity,
        typical=_typical(case, chosen),
        vllm_args=vllm_flags.vllm_args(
            model,
            chosen.runtime,
            environment,
            chosen.arguments,
            shutdown_timeout=drain_seconds(start),
        ),
        environment_variables=vllm_flags.environment_variables(model, chosen.runtime, kv_cache),
        needs_hugging_face_token=model.weights.kind == "hub" and model.weights.gated is not False,
        startup=start,
        rollout=rollout,
        speed=chosen.speed,
        cost=cost(chosen.price, chosen.replicas),
        runtime=Runtime(
            name=chosen.runtime.name,
            image=chosen.runtime.reference,
            version=chosen.runtime.version,
            uid=chosen.runtime.uid,
            gid=chosen.runtime.gid,
            read_only_root=chosen.runtime.has_read_only_root,
        ),
        resources=chosen.resources,
        tenancy=Tenancy(team=team.name, owner=team.owner, cost_center=team.cost_center, namespace=team.namespace),
        surroundings=Surroundings(
            token_secret=environment.token_secret.name,
            token_key=environment.token_secret.key,
            client_namespaces=tuple(
                dict.fromkeys((*environment.ingress_namespaces, *environment.monitoring_namespaces))
            ),
        ),
        overrides=applied,
        alternatives=others,
        confidence=sure,
        reasons=reasons(case, choice, applied, short),
        lock=_lock(case, chosen, template_version),
    )


def request_digest(request: Request) -> str:
    """The digest of a request (`sha256:...`), as a plan's lock records it."""
    return sha256(request.model_dump(mode="json"))


def settings_key(environment: str) -> str:
    """The name of the lock's entry for the settings of an environment."""
    return f"settings/{environment}"


def _settings_digest(environment: Environment) -> str:
    """The digest of an environment's settings, whatever the order of its accelerators."""
    planned_with = environment.model_dump(mode="json", exclude={"cluster"})
    return sha256({**planned_with, "accelerators": sorted(environment.accelerators)})


def _typical(case: Case, chosen: Candidate) -> TypicalLoad | None:
    if case.typical_len is None:
        return None
    prompt, answer = case.typical
    return TypicalLoad(prompt_tokens=prompt, answer_tokens=answer, max_concurrency=chosen.typical_capacity)


def _lock(case: Case, chosen: Candidate, template_version: str) -> Lock:
    catalog = case.catalog
    keys = [
        f"model/{case.model.name}",
        f"accelerator/{chosen.accelerator.name}",
        f"runtime/{chosen.runtime.name}",
        f"team/{case.request.team}",
    ]
    if chosen.price is not None:
        keys.append(f"price/{chosen.price.price_list}")
    return Lock(
        catalog_digest=catalog.digest,
        entries={
            **{key: catalog.entry_digest(key) for key in sorted(keys)},
            settings_key(case.environment_name): _settings_digest(case.environment),
        },
        request_digest=request_digest(case.request),
        planner_version=PLANNER_VERSION,
        template_version=template_version,
    )


def _applied(case: Case) -> tuple[AppliedOverride, ...]:
    """Each override with the value that the planner would have chosen without overrides."""
    if not case.request.overrides:
        return ()
    free = Case(case.request, case.model, case.environment_name, case.environment, case.catalog, {})
    chosen = _best(free)
    return tuple(
        AppliedOverride(
            field=override.field,
            value=override.value,
            planned=_planned(free, chosen, override.field),
            reason=override.reason,
            expires=override.expires,
        )
        for override in case.request.overrides
    )


def _planned(case: Case, chosen: Candidate | None, field: str) -> str:
    if field == "max_model_len":
        return str(case.max_model_len)
    if chosen is None:
        return "nothing that works"
    share = chosen.arguments.gpu_memory_utilization
    return {
        "accelerator": chosen.accelerator.name,
        "accelerator_count": str(chosen.count),
        "replicas.min": str(chosen.replicas.min),
        "replicas.max": str(chosen.replicas.max),
        "max_num_seqs": str(chosen.sequences),
        "gpu_memory_utilization": "not set" if share is None else f"{share:g}",
        "kv_cache_dtype": chosen.arguments.kv_cache_dtype,
        "rollout": rollout_of(case, chosen.replicas.min, chosen.count, startup_of(case, chosen)).kind,
    }[field]
