"""Turns a plan into the values that fill the skeleton: the only place where a plan becomes text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Literal, NewType, TypedDict, get_type_hints

from neuroscale.core import yaml_io
from neuroscale.core.errors import InputError, Problem
from neuroscale.planning.plan import Plan, dump_plan
from neuroscale.planning.probes import BUSY_SECONDS, DRAIN_SECONDS, failures_for
from neuroscale.rendering import api_key
from neuroscale.repo.layout import PLAN_FILE
from neuroscale.request.service_request import Request, dump_request

Scalar = NewType("Scalar", str)
"""A YAML scalar on one line, already encoded: it is substituted as it is, and never quoted in the skeleton."""

FileText = NewType("FileText", str)
"""The text of a whole file, without its last line break."""


class NamedValue(TypedDict):
    """An entry of a mapping or of a list of environment variables."""

    name: Scalar
    value: Scalar


class TemplateValues(TypedDict):
    """The names for `${{ values.NAME }}` in the skeleton. Flags (bool) may only be used in `{% if %}`."""

    request_yaml: FileText
    plan_yaml: FileText
    service: Scalar
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

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SECRET = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SECRET_KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def template_values(request: Request, plan: Plan) -> TemplateValues:
    """The values for a request and its plan; `POST /api/v1/plan` answers with exactly these.

    Raises InputError for a plan that cannot become a manifest.
    """
    problems: list[Problem] = []

    def refuse(field: str, message: str, fix: str) -> None:
        problems.append(Problem(PLAN_FILE, field, message, fix))

    def text(field: str, value: str) -> Scalar:
        try:
            return Scalar(yaml_io.scalar(value))
        except ValueError as error:
            refuse(field, str(error), "Write plain text.")
            return Scalar('""')

    def file(dump: Callable[[], str]) -> FileText:
        try:
            return FileText(dump().removesuffix("\n"))
        except ValueError as error:
            # The field's own check says more, if there is one.
            if not problems:
                refuse("", str(error), "Write plain text.")
            return FileText("")

    def literal(field: str, value: str) -> Scalar:
        # KServe fills the container as a Go template, and Kubernetes expands $(NAME) in arguments and variables.
        for opening, reader in (("{{", "KServe"), ("$(", "Kubernetes")):
            if opening in value:
                refuse(field, f"holds {opening!r}, which {reader} would replace", "Write the value itself.")
        return text(field, value)

    def matching(field: str, value: str, pattern: re.Pattern[str], what: str) -> Scalar:
        if not pattern.fullmatch(value):
            refuse(field, f"{_shown(value)} is not {what}", f"Write text that matches {pattern.pattern}.")
        return text(field, value)

    def label(field: str, value: str) -> Scalar:
        return matching(field, value, _LABEL_VALUE, "a Kubernetes label value")

    def positive(field: str, value: int, encode: Callable[[int], str] = str) -> Scalar:
        if value < 1:
            refuse(field, f"{value} is below 1", "Write a whole number of at least 1.")
        return Scalar(encode(value))

    for field in ("service", "environment", "model"):
        asked, planned = getattr(request, field), getattr(plan, field)
        if asked != planned:
            refuse(
                field,
                f"{_shown(planned)} is not what the request asks for ({_shown(asked)})",
                "Renew the plan: run `neuroscale replan` for this service.",
            )
    if request.team != plan.tenancy.team:
        refuse(
            "tenancy.team",
            f"{_shown(plan.tenancy.team)} is not what the request asks for ({_shown(request.team)})",
            "Renew the plan: run `neuroscale replan` for this service.",
        )
    if not plan.vllm_args:
        refuse("vllm_args", "is empty", "Renew the plan: run `neuroscale replan` for this service.")
    around = plan.surroundings
    if not around.client_namespaces:
        refuse("surroundings.client_namespaces", "is empty", "Name the ingress gateway's namespace in the settings.")
    resources = plan.resources
    has_accelerator = resources.accelerator_resource != ""
    replicas = plan.replicas
    if replicas.max < replicas.min:
        refuse("replicas.max", f"{replicas.max} is below replicas.min ({replicas.min})", "Raise max or lower min.")
    home = plan.environment_variables.get("HOME", "")
    if not re.fullmatch(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+", home):
        refuse(
            "environment_variables.HOME",
            f"{_shown(home)} is not an absolute path",
            "Set HOME in the runtime's catalog entry: a user other than root needs a folder that it may write to.",
        )
    if not plan.environment_variables.get("USER"):
        refuse(
            "environment_variables.USER",
            "is missing",
            "Set USER in the runtime's catalog entry: torch fails to start for a user without a name.",
        )
    stored = plan.model_source.startswith(_STORES)
    downloaded_gib = 0 if stored else max(plan.memory_gib.weights * plan.tensor_parallel_size, 0)
    values = TemplateValues(
        request_yaml=FileText(""),
        plan_yaml=FileText(""),
        service=text("service", plan.service),
        namespace=matching("tenancy.namespace", plan.tenancy.namespace, _NAMESPACE, "a namespace's name"),
        owner=label("tenancy.owner", plan.tenancy.owner),
        cost_center=label("tenancy.cost_center", plan.tenancy.cost_center),
        model_architecture=Scalar(plan.architecture.kind),
        active_param_ratio=Scalar(yaml_io.quoted(_ratio(plan.architecture.kind, plan.architecture.active_ratio))),
        total_params=Scalar(yaml_io.quoted(_parameters(plan.architecture.total_params))),
        runtime=literal("runtime.name", plan.runtime.name),
        image=literal("runtime.image", plan.runtime.image),
        user_id=positive("runtime.uid", plan.runtime.uid),
        group_id=positive("runtime.gid", plan.runtime.gid),
        home=text("environment_variables.HOME", home),
        home_size=Scalar(_gibibytes(math.ceil(downloaded_gib * 11 / 10) + _HOME_HEADROOM_GIB)),
        has_storage_uri=stored,
        storage_uri=literal("model_source", plan.model_source),
        args=[literal(f"vllm_args[{index}]", argument) for index, argument in enumerate(plan.vllm_args)],
        environment_variables=[
            NamedValue(
                name=matching("environment_variables", name, _VARIABLE, "an environment variable's name"),
                value=literal(f"environment_variables.{name}", value),
            )
            for name, value in sorted(plan.environment_variables.items())
        ],
        needs_hugging_face_token=plan.needs_hugging_face_token,
        token_secret=matching("surroundings.token_secret", around.token_secret, _SECRET, "a Secret's name"),
        token_key=matching("surroundings.token_key", around.token_key, _SECRET_KEY, "a key of a Secret"),
        api_key_secret=text("service", api_key.secret_name(plan.service)),
        api_key_entry=text("service", api_key.ENTRY),
        client_namespaces=[
            matching(f"surroundings.client_namespaces[{index}]", namespace, _NAMESPACE, "a namespace's name")
            for index, namespace in enumerate(around.client_namespaces)
        ],
        min_replicas=positive("replicas.min", replicas.min),
        max_replicas=positive("replicas.max", replicas.max),
        cpu=positive("resources.cpu", resources.cpu, _count),
        memory=positive("resources.memory_gib", resources.memory_gib, _gibibytes),
        shared_memory=positive("resources.shared_memory_gib", resources.shared_memory_gib, _gibibytes),
        has_accelerator=has_accelerator,
        accelerator_resource=matching(
            "resources.accelerator_resource", resources.accelerator_resource, _LABEL_NAME, "an extended resource"
        )
        if has_accelerator
        else Scalar('""'),
        accelerators_per_replica=positive("tensor_parallel_size", plan.tensor_parallel_size, _count),
        has_node_selector=bool(resources.node_selector),
        node_selector=[
            NamedValue(
                name=matching("resources.node_selector", name, _LABEL_NAME, "a Kubernetes label name"),
                value=label(f"resources.node_selector.{name}", value),
            )
            for name, value in sorted(resources.node_selector.items())
        ],
        highly_available=request.availability == "high",
        probe_period_seconds=Scalar(str(_PROBE_PERIOD_SECONDS)),
        startup_failure_threshold=positive(
            "startup.probe_budget_seconds",
            plan.startup.probe_budget_seconds,
            lambda budget: str(failures_for(budget, _PROBE_PERIOD_SECONDS)),
        ),
        liveness_failure_threshold=Scalar(str(failures_for(BUSY_SECONDS, _PROBE_PERIOD_SECONDS))),
        drain_seconds=Scalar(str(DRAIN_SECONDS)),
        termination_grace_seconds=positive("startup.termination_grace_seconds", plan.startup.termination_grace_seconds),
    )
    values["request_yaml"] = file(lambda: dump_request(request))
    values["plan_yaml"] = file(lambda: dump_plan(plan))
    if problems:
        raise InputError(problems)
    return values


def decoded(scalar: str) -> str | int:
    """The value of an encoded scalar, decoded without the YAML reader, which this function helps to check."""
    if scalar.startswith('"'):
        text: str = json.loads(scalar)
        return text
    return int(scalar) if scalar.isdigit() else scalar


def _shown(text: str) -> str:
    return ascii(text[:60])


def _count(number: int) -> str:
    """A quantity as Kubernetes itself would write it; text, since it stores quantities as text."""
    return f'"{number // 1000}k"' if number and number % 1000 == 0 else f'"{number}"'


def _gibibytes(number: int) -> str:
    """`number` GiB as Kubernetes itself would write it, so that the live object does not differ."""
    return f"{number // 1024}Ti" if number and number % 1024 == 0 else f"{number}Gi"


def _ratio(kind: str, ratio: float) -> str:
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


def _parameters(number: int) -> str:
    """A number of parameters to one place: `25.2B`."""
    # The unit is chosen after rounding: 999,990,000 is 1.0B and not 1000.0M.
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if round(number / size, 1) >= 1:
            return f"{number / size:.1f}{unit}"
    return f"{max(number / 10**6, 0.1):.1f}M"
