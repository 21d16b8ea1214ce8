"""Turns a plan into the values that fill the skeleton: the only place where a plan becomes text.

The size of the volume at /tmp of a server with a read-only root: the same for a runtime and for its services.

KServe merges the two by the volume's name, and a service that names no size would keep the runtime's.
"""

from __future__ import annotations

import math
import re
from typing import Literal, TypedDict, get_type_hints

from neuroscale.catalog.settings import Settings
from neuroscale.core import yaml_io
from neuroscale.core.errors import InputError
from neuroscale.planning.plan import Plan, dump_plan
from neuroscale.planning.startup import BUSY_SECONDS, DRAIN_SECONDS, failures_for
from neuroscale.rendering import object_names
from neuroscale.rendering.object_names import application_name
from neuroscale.rendering.scaffolder.encoding import (
    EXTENDED_RESOURCE,
    LABEL,
    LABEL_NAME,
    NAMESPACE,
    SECRET,
    SECRET_KEY,
    VARIABLE,
    Encoder,
    FileText,
    NamedValue,
    Scalar,
    shown,
)
from neuroscale.repo.layout import PLAN_FILE
from neuroscale.request.service_request import Request, dump_request

TEMPORARY_GIB = 4
"""GiB, far more than vLLM's sockets, metrics and the files of its compilers take; Kubernetes ends a pod beyond it."""


class TemplateValues(TypedDict):
    """The names for `${{ values.NAME }}` in the skeleton. Flags (bool) may only be used in `{% if %}`."""

    request_yaml: FileText
    plan_yaml: FileText
    service: Scalar
    environment: Scalar
    component: Scalar
    model: Scalar
    label_selector: Scalar
    namespace: Scalar
    owner: Scalar
    cost_center: Scalar
    model_architecture: Scalar
    active_param_ratio: Scalar
    total_params: Scalar
    runtime: Scalar
    image: Scalar
    user_id: Scalar
    group_id: Scalar
    home: Scalar
    home_size: Scalar
    has_read_only_root: bool
    temporary_size: Scalar
    has_storage_uri: bool
    storage_uri: Scalar
    args: list[Scalar]
    environment_variables: list[NamedValue]
    needs_hugging_face_token: bool
    token_secret: Scalar
    token_key: Scalar
    api_key_secret: Scalar
    api_key_entry: Scalar
    client_namespaces: list[Scalar]
    has_service_account: bool
    service_account: Scalar
    metadata_servers: list[NamedValue]
    dns_networks: list[Scalar]
    has_node_local_dns: bool
    has_secret_store: bool
    secret_store: Scalar
    secret_store_kind: Scalar
    secret_store_key: Scalar
    min_replicas: Scalar
    max_replicas: Scalar
    cpu: Scalar
    memory: Scalar
    shared_memory: Scalar
    has_accelerator: bool
    accelerator_resource: Scalar
    accelerators_per_replica: Scalar
    has_node_selector: bool
    node_selector: list[NamedValue]
    highly_available: bool
    probe_period_seconds: Scalar
    startup_failure_threshold: Scalar
    liveness_failure_threshold: Scalar
    drain_seconds: Scalar
    termination_grace_seconds: Scalar
    has_rollout: bool
    max_surge: Scalar
    max_unavailable: Scalar


def unset_by(settings: Settings) -> frozenset[str]:
    """The values that no environment of the settings turns on, whatever is requested."""
    all_of = settings.environments.values()
    is_set = {
        "has_service_account": any(one.service_account is not None for one in all_of),
        "metadata_servers": any(one.workload_identity != "none" for one in all_of),
        "dns_networks": any(one.dns.addresses for one in all_of),
        "has_node_local_dns": any(one.dns.node_local for one in all_of),
        "has_secret_store": any(one.secret_store is not None for one in all_of),
    }
    return frozenset(name for name, somewhere in is_set.items() if not somewhere)


Kind = Literal["scalar", "text", "flag", "scalars", "named"]


def _kinds() -> dict[str, Kind]:
    of_type: dict[object, Kind] = {
        Scalar: "scalar",
        FileText: "text",
        bool: "flag",
        list[Scalar]: "scalars",
        list[NamedValue]: "named",
    }
    return {name: of_type[annotation] for name, annotation in get_type_hints(TemplateValues).items()}


KINDS = _kinds()
"""Each value's kind, by name."""

# Polling its own start every few seconds makes a slow machine no faster.
_PROBE_PERIOD_SECONDS = 10
# For compiled kernels, tokenizer files and the download's own bookkeeping, beside 110 % of the weights.
_HOME_HEADROOM_GIB = 10

# Stores that KServe downloads from; vLLM itself downloads from the hub (hf://), and a file:// path needs no download.
_STORES = ("gs://", "s3://", "pvc://")

_RENEW = "Renew the plan: run `neuroscale replan` for this service."


def template_values(request: Request, plan: Plan) -> TemplateValues:
    """The values for a request and its plan; `POST /api/v1/plan` answers with exactly these.

    Raises InputError for a plan that cannot become a manifest.
    """
    encode = Encoder(PLAN_FILE)
    _check_plan(request, plan, encode)
    around, resources, replicas, rollout = plan.surroundings, plan.resources, plan.replicas, plan.rollout
    store, secret = around.secret_store, object_names.secret_name(plan.service)
    has_accelerator = resources.accelerator_resource != ""
    stored = plan.model_source.startswith(_STORES)
    downloaded_gib = 0 if stored else max(plan.memory_gib.weights * plan.tensor_parallel_size, 0)
    values = TemplateValues(
        request_yaml=FileText(""),
        plan_yaml=FileText(""),
        service=encode.text("service", plan.service),
        environment=encode.text("environment", plan.environment),
        component=encode.text("service", application_name(plan.environment, plan.service)),
        model=encode.text("model", plan.model),
        label_selector=encode.text("service", f"serving.kserve.io/inferenceservice={plan.service}"),
        namespace=encode.name(NAMESPACE, "tenancy.namespace", plan.tenancy.namespace),
        owner=encode.name(LABEL, "tenancy.owner", plan.tenancy.owner),
        cost_center=encode.name(LABEL, "tenancy.cost_center", plan.tenancy.cost_center),
        model_architecture=Scalar(plan.architecture.kind),
        active_param_ratio=Scalar(yaml_io.quoted(ratio_label(plan.architecture.kind, plan.architecture.active_ratio))),
        total_params=Scalar(yaml_io.quoted(parameters_label(plan.architecture.total_params))),
        runtime=encode.literal("runtime.name", plan.runtime.name),
        image=encode.literal("runtime.image", plan.runtime.image),
        user_id=encode.positive("runtime.uid", plan.runtime.uid),
        group_id=encode.positive("runtime.gid", plan.runtime.gid),
        home=encode.text("environment_variables.HOME", plan.environment_variables.get("HOME", "")),
        home_size=Scalar(_gibibytes(math.ceil(downloaded_gib * 11 / 10) + _HOME_HEADROOM_GIB)),
        has_read_only_root=plan.runtime.read_only_root,
        temporary_size=Scalar(_gibibytes(TEMPORARY_GIB)),
        has_storage_uri=stored,
        storage_uri=encode.literal("model_source", plan.model_source),
        args=[encode.literal(f"vllm_args[{index}]", argument) for index, argument in enumerate(plan.vllm_args)],
        environment_variables=[
            NamedValue(
                name=encode.name(VARIABLE, "environment_variables", name),
                value=encode.literal(f"environment_variables.{name}", value),
            )
            for name, value in sorted(plan.environment_variables.items())
        ],
        needs_hugging_face_token=plan.needs_hugging_face_token,
        token_secret=encode.name(SECRET, "surroundings.token_secret", around.token_secret),
        token_key=encode.name(SECRET_KEY, "surroundings.token_key", around.token_key),
        api_key_secret=encode.text("service", secret),
        api_key_entry=encode.text("service", object_names.ENTRY),
        client_namespaces=[
            encode.name(NAMESPACE, f"surroundings.client_namespaces[{index}]", namespace)
            for index, namespace in enumerate(around.client_namespaces)
        ],
        has_service_account=around.service_account != "",
        service_account=encode.text("surroundings.service_account", around.service_account),
        metadata_servers=[
            NamedValue(
                name=encode.text(f"surroundings.metadata_servers[{index}].address", f"{server.address}/32"),
                value=encode.positive(f"surroundings.metadata_servers[{index}].port", server.port),
            )
            for index, server in enumerate(around.metadata_servers)
        ],
        dns_networks=[
            encode.text(f"surroundings.dns_networks[{index}]", network)
            for index, network in enumerate(around.dns_networks)
        ],
        has_node_local_dns=around.node_local_dns,
        has_secret_store=store is not None,
        secret_store=encode.text("surroundings.secret_store.store", store.store if store else ""),
        secret_store_kind=encode.text("surroundings.secret_store.store_kind", store.store_kind if store else ""),
        secret_store_key=encode.text(
            "surroundings.secret_store.path", store.key(plan.tenancy.namespace, secret) if store else ""
        ),
        min_replicas=encode.positive("replicas.min", replicas.min),
        max_replicas=encode.positive("replicas.max", replicas.max),
        cpu=encode.positive("resources.cpu", resources.cpu, _count),
        memory=encode.positive("resources.memory_gib", resources.memory_gib, _gibibytes),
        shared_memory=encode.positive("resources.shared_memory_gib", resources.shared_memory_gib, _gibibytes),
        has_accelerator=has_accelerator,
        accelerator_resource=encode.name(
            EXTENDED_RESOURCE, "resources.accelerator_resource", resources.accelerator_resource
        )
        if has_accelerator
        else Scalar('""'),
        accelerators_per_replica=encode.positive("tensor_parallel_size", plan.tensor_parallel_size, _count),
        has_node_selector=bool(resources.node_selector),
        node_selector=[
            NamedValue(
                name=encode.name(LABEL_NAME, "resources.node_selector", name),
                value=encode.name(LABEL, f"resources.node_selector.{name}", value),
            )
            for name, value in sorted(resources.node_selector.items())
        ],
        highly_available=request.availability == "high",
        probe_period_seconds=Scalar(str(_PROBE_PERIOD_SECONDS)),
        startup_failure_threshold=encode.positive(
            "startup.probe_budget_seconds",
            plan.startup.probe_budget_seconds,
            lambda budget: str(failures_for(budget, _PROBE_PERIOD_SECONDS)),
        ),
        liveness_failure_threshold=Scalar(str(failures_for(BUSY_SECONDS, _PROBE_PERIOD_SECONDS))),
        drain_seconds=Scalar(str(DRAIN_SECONDS)),
        termination_grace_seconds=encode.positive(
            "startup.termination_grace_seconds", plan.startup.termination_grace_seconds
        ),
        # Folders of plans without a rollout stay as they were rendered.
        has_rollout=rollout is not None,
        max_surge=Scalar(str(rollout.max_surge if rollout else 0)),
        max_unavailable=Scalar(str(rollout.max_unavailable if rollout else 0)),
    )
    values["request_yaml"] = encode.file(lambda: dump_request(request))
    values["plan_yaml"] = encode.file(lambda: dump_plan(plan))
    if encode.problems:
        raise InputError(encode.problems)
    return values


def _check_plan(request: Request, plan: Plan, encode: Encoder) -> None:
    """Refuse a plan of other answers, and one that lacks what every manifest needs."""
    pairs = {field: (getattr(request, field), getattr(plan, field)) for field in ("service", "environment", "model")}
    pairs["tenancy.team"] = (request.team, plan.tenancy.team)
    for field, (asked, planned) in pairs.items():
        if asked != planned:
            encode.refuse(field, f"{shown(planned)} is not what the request asks for ({shown(asked)})", _RENEW)
    if not plan.vllm_args:
        encode.refuse("vllm_args", "is empty", _RENEW)
    if not plan.surroundings.client_namespaces:
        encode.refuse(
            "surroundings.client_namespaces", "is empty", "Name the ingress gateway's namespace in the settings."
        )
    replicas = plan.replicas
    if replicas.max < replicas.min:
        encode.refuse(
            "replicas.max", f"{replicas.max} is below replicas.min ({replicas.min})", "Raise max or lower min."
        )
    if plan.rollout is not None and {plan.rollout.max_surge, plan.rollout.max_unavailable} != {0, 1}:
        encode.refuse("rollout", "is neither one pod more nor one pod fewer", _RENEW)
    home = plan.environment_variables.get("HOME", "")
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+", home):
        encode.refuse(
            "environment_variables.HOME",
            f"{shown(home)} is not an absolute path",
            "Set HOME in the runtime's catalog entry: a user other than root needs a folder that it may write to.",
        )
    if not plan.environment_variables.get("USER"):
        encode.refuse(
            "environment_variables.USER",
            "is missing",
            "Set USER in the runtime's catalog entry: torch fails to start for a user without a name.",
        )


def _count(number: int) -> str:
    """A quantity as Kubernetes itself would write it; text, since it stores quantities as text."""
    return f'"{number // 1000}k"' if number and number % 1000 == 0 else f'"{number}"'


def _gibibytes(number: int) -> str:
    """`number` GiB as Kubernetes itself would write it, so that the live object does not differ."""
    return f"{number // 1024}Ti" if number and number % 1024 == 0 else f"{number}Gi"


def ratio_label(kind: str, ratio: float) -> str:
    """Active parameters divided by all, to two places; to more if two would give 0 or 1 for a mixture of experts.

    A dense model's is 1: it computes with every layer for every token. (Gemma's E models look up their per-layer
    embeddings instead of multiplying by them, which the plan's own ratio counts as inactive.)
    """
    if kind == "dense":
        return "1.00"
    for places in range(2, 8):
        text = f"{ratio:.{places}f}"
        if 0 < float(text) < 1:
            break
    return text


def parameters_label(number: int) -> str:
    """A number of parameters to one place: `25.2B`."""
    # The unit is chosen after rounding: 999,990,000 is 1.0B and not 1000.0M.
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if round(number / size, 1) >= 1:
            return f"{number / size:.1f}{unit}"
    return f"{max(number / 10**6, 0.1):.1f}M"
