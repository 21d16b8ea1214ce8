"""Makes a plan from a request, the catalog and the settings, and finds changes of a refused request that work.

It is pure: the same three always give the same plan.
"""

from __future__ import annotations

from neuroscale.catalog import Catalog
from neuroscale.catalog.cluster_settings import METADATA_SERVERS, Dns
from neuroscale.catalog.settings import Environment, Settings, check_settings
from neuroscale.core.yaml_io import sha256_of
from neuroscale.planning import vllm_flags
from neuroscale.planning.alternatives import alternatives
from neuroscale.planning.candidates import Candidate
from neuroscale.planning.case import Case
from neuroscale.planning.choice import best as _best
from neuroscale.planning.choice import choose, confidence
from neuroscale.planning.explain import reasons
from neuroscale.planning.load_choice import idle_speed, missed, planned_load
from neuroscale.planning.override_shortfalls import shortfalls
from neuroscale.planning.plan import (
    AppliedOverride,
    Lock,
    MetadataServer,
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

PLANNER_VERSION = "3.1.1"  # raise it whenever the same request may give another plan
TEMPLATE_VERSION = "1.6.0"


def plan(request: Request, catalog: Catalog, settings: Settings, template_version: str = TEMPLATE_VERSION) -> Plan:
    """The plan for a request; a request that cannot be met gets a plan with the verdict `refused`. The reader of the
    request checks that the catalog and the settings know its names (`check_request`). Raises InputError if the settings
    name an entry that the catalog lacks: the gate plans with such settings, too."""
    check_settings(settings, catalog)
    case = _case(request, catalog, settings)
    environment, model = case.environment, case.model
    choice = choose(case)
    chosen = choice.chosen
    sure = confidence(chosen)
    start = startup_of(case, chosen)
    rollout = rollout_of(case, chosen.replicas.min, chosen.count, start)
    load = planned_load(case, chosen)
    applied = _applied(case)
    short = (
        shortfalls(
            request,
            applied,
            max_model_len=case.max_model_len,
            replicas=chosen.replicas.min,
            each=chosen.typical_capacity,
            gap_minutes=rollout.gap_minutes,
            kept=None if load is None or load.head_room_users is None else load.users + load.head_room_users,
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
            revision=request.model_revision,
        ),
        environment_variables=vllm_flags.environment_variables(model, chosen.runtime, kv_cache),
        needs_hugging_face_token=model.weights.kind == "hub" and model.weights.gated is not False,
        startup=start,
        rollout=rollout,
        speed=idle_speed(chosen),
        load=load,
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
        surroundings=_surroundings(environment, vllm_flags.model_source(model, environment)),
        overrides=applied,
        alternatives=others,
        confidence=sure,
        reasons=reasons(case, choice, applied, short),
        lock=_lock(case, chosen, template_version),
    )


_STORES = ("gs://", "s3://", "pvc://")
"""Where the environment's store lies if KServe copies a model from it, or mounts it."""


def _surroundings(environment: Environment, source: str) -> Surroundings:
    stored, account = source.startswith(_STORES), environment.service_account
    servers = METADATA_SERVERS[environment.workload_identity] if stored else ()
    return Surroundings(
        token_secret=environment.token_secret.name,
        token_key=environment.token_secret.key,
        client_namespaces=tuple(dict.fromkeys((*environment.ingress_namespaces, *environment.monitoring_namespaces))),
        service_account=account.name if account is not None and stored else "",
        metadata_servers=tuple(MetadataServer(address=address, port=port) for address, port in servers),
        dns_networks=environment.dns.networks,
        node_local_dns=environment.dns.node_local,
        secret_store=environment.secret_store,
    )


def _case(request: Request, catalog: Catalog, settings: Settings) -> Case:
    overrides = {override.field: override.value for override in request.overrides}
    environment = settings.environments[request.environment]
    return Case(request, catalog.models[request.model], request.environment, environment, catalog, overrides)


def missed_promises(request: Request, made: Plan, catalog: Catalog, settings: Settings) -> tuple[str, ...]:
    """What an earlier plan for the same request does not keep under the load, by the estimate of today, as clauses."""
    return missed(_case(request, catalog, settings), made)


def request_digest(request: Request) -> str:
    """The digest of a request (`sha256:...`), as a plan's lock records it."""
    return sha256_of(request.model_dump(mode="json"))


def settings_key(environment: str) -> str:
    """The name of the lock's entry for the settings of an environment."""
    return f"settings/{environment}"


_NOT_PLANNED = {"alerting", "cluster", "domain", "certificate", "charts", "service_account"}


def _settings_digest(environment: Environment) -> str:
    """The digest of an environment's settings, whatever the order of its accelerators.

    What it says of its cluster counts as far as a plan holds it, and only if it is set.
    """
    empty = {"workload_identity": "none", "dns": Dns(), "secret_store": None}
    unset = {name for name, value in empty.items() if getattr(environment, name) == value}
    planned_with = environment.model_dump(mode="json", exclude=_NOT_PLANNED | unset)
    if environment.service_account is not None:
        planned_with["service_account"] = environment.service_account.name
    return sha256_of({**planned_with, "accelerators": sorted(environment.accelerators)})


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
    if case.model.measurements:
        keys.append(f"measurements/{case.model.name}")
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
