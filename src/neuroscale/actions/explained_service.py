"""Explains a service of a cluster: the logs and the state of its pod, beside its plan in Git, and what the
servers that answer count."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from neuroscale.actions.chosen_cluster import (
    Service,
    Where,
    asked_cluster,
    clone_for,
    environment_of,
    opened_service,
    services_asked,
)
from neuroscale.actions.open_repository import Repository
from neuroscale.actions.planned_help import planned_with, promise_of, question_of, with_help
from neuroscale.actions.progress import SILENT, Progress
from neuroscale.cluster.endpoint.access import PORT, pods_of
from neuroscale.cluster.endpoint.pod_loads import read_loads
from neuroscale.cluster.object_fields import condition, differences
from neuroscale.cluster.pod_state import look, server_container
from neuroscale.cluster.server_logs import server_lines
from neuroscale.cluster.services_in_git import Planned, planned_service
from neuroscale.core.errors import ASKED, InputError, NeuroscaleError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import first_of, one_line
from neuroscale.core.validation import items, part
from neuroscale.core.yaml_io import read_mapping
from neuroscale.explain import LogLine
from neuroscale.explain.explanation import OVERRIDDEN, Explanation, explain_lines
from neuroscale.explain.next_configuration import Proposal
from neuroscale.explain.server_facts import engine_values
from neuroscale.explain.slow_service import judge_serving
from neuroscale.kube.client import Cluster, Object
from neuroscale.planning.fit_question import Question, answer
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import SERVICE_FILE, ServicePath
from neuroscale.repo.services import find_service, services_of
from neuroscale.repo.snapshot import FolderSnapshot
from neuroscale.report.change_commands import next_line
from neuroscale.request.field_changes import FieldChanges
from neuroscale.vllm.argument_values import values_of, values_of_container, words_of
from neuroscale.vllm.images import image_version

_PLANNED = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Arguments that planning derives from the number of accelerators, as it sees fit."""
_LONGEST_NEXT = 1000  # characters of a next step in a comment
_KIND = ("serving.kserve.io/v1beta1", "InferenceService")


def explain_service(
    service: str,
    environment: str,
    where: Where,
    options: Question,
    opened: Repository,
    seconds: float,
    progress: Progress = SILENT,
) -> Explanation:
    """What the logs and the state of a service's pod say, and what its servers that answer count in so many seconds
    (0: they are not read). Raises InputError for a name that no service has, and KubernetesError."""
    with opened_service(service, environment, where, opened, progress) as chosen:
        cluster, target = chosen.cluster, chosen.service
        pods = pods_of(cluster, target.namespace, target.name)
        events = cluster.list("v1", "Event", target.namespace) if pods else ()
        name, lines = server_lines(cluster, target.namespace, pods, events)
        if not name:
            message = f"{target.name!r} has no pod in the namespace {target.namespace}"
            raise InputError.at(ASKED, "service", message, f"See why: neuroscale status {target.name}")
        pod = next(each for each in pods if part(each, "metadata").get("name") == name)
        live = cluster.get(*_KIND, target.name, target.namespace) or {}
        path = ServicePath(target.environment, target.name)
        planned = planned_service(path, chosen.clone.holding(path), opened)
        question = _question(pod, options, planned)
        asks = _asks(planned, opened) if planned else lambda _: True
        explained = explain_lines(lines, question, opened.catalog, _named(target), asks, FolderSnapshot(opened.root))
        explained = replace(explained, local=_is_local(target.environment, opened))
        if explained.diagnosis.verdict == "healthy" and condition(pod, "Ready").get("status") != "True":
            explained = replace(explained, unready=_unready(pod, events))
        cause, other = explained.diagnosis.cause, _other_port(pod)
        if cause is not None and cause.name == "probe_kill" and other:
            sentence = f"{explained.diagnosis.sentence} But {other}: so it could not be answered."
            explained = replace(explained, diagnosis=replace(explained.diagnosis, sentence=sentence))
        if planned is not None and (explained.diagnosis.verdict != "healthy" or explained.unready):
            explained = _restored(explained, question, live, planned, opened)
        if not seconds:
            return explained
        progress.step(f"Reading its counters for {duration(seconds)}")
        return _with_serving(explained, cluster, target, pod, planned, opened, seconds)


def explain_log_of(
    service: str, environment: str, lines: list[LogLine], options: Question, where: Where, opened: Repository
) -> Explanation:
    """What a log of a service's server says, beside the service's plan where `status` reads it. Raises InputError for a
    name that no service of it has, and for one without a plan that can be read."""
    question = services_asked(service, environment, opened)
    named = f"{question.environment}/{question.name}" if question.environment else question.name
    where = asked_cluster(where, opened.root, environment_of(question, opened.root))
    files = FolderSnapshot(opened.root)
    with contextlib.closing(clone_for(where, opened.root, opened.settings.repository.default_branch)) as clone:
        path = find_service(named, {*services_of(files), *clone.services}, opened.root)
        planned = planned_service(path, clone.holding(path), opened)
    if planned is None:
        fix = "Name the model and the accelerator instead: --model, --accelerator."
        raise InputError.at(path.folder, "", "has no request and plan that can be read", fix)
    fit_question = _question({}, options, planned)
    explained = explain_lines(lines, fit_question, opened.catalog, planned.name, _asks(planned, opened), files)
    return replace(explained, local=_is_local(path.environment, opened))


def told_of(service: str, where: Where, opened: Repository) -> tuple[str, str]:
    """The cause of a service's end, and the next configuration with the command that asks for it, each as a sentence
    for a comment; "" where it is not known, or may not be read."""
    try:
        explained = explain_service(service, "", where, Question(), opened, 0.0)
    except NeuroscaleError:
        return "", ""
    cause = explained.diagnosis.cause
    if cause is None and not explained.unready:
        return "", ""
    sentence = f"{cause.title} ({cause.name})" if cause else f"The server started, and {explained.unready}"
    if doubt := explained.diagnosis.doubt:
        sentence = f"{sentence}, not sure: {doubt}"
    if cause is not None and cause.name == "probe_kill":  # its numbers say which probe, and why
        sentence = f"{sentence}: {one_line(explained.diagnosis.sentence, _LONGEST_NEXT)}"
    if explained.next is None:
        return sentence, one_line(cause.follows, _LONGEST_NEXT) if cause else ""
    following = f"next configuration, which fits by the plan: {explained.next.sentence}"
    changed = shlex.join(words_of(explained.next.changed))
    asks = next_line(explained) or (f"Its arguments: {changed}" if changed else "")
    return sentence, one_line(f"{following} {asks}", _LONGEST_NEXT)


def _with_serving(
    explained: Explanation,
    cluster: Cluster,
    service: Service,
    pod: Object,
    planned: Planned | None,
    opened: Repository,
    seconds: float,
) -> Explanation:
    """The explanation with what the servers that answer count; as it is if none answers."""
    loads, unread = read_loads(cluster, service.namespace, service.name, seconds)
    if not loads and not unread:
        return explained
    promise = promise_of(planned, opened) if planned else None
    offload = _arguments(pod).get("cpu_offload_gb")
    if promise is not None and isinstance(offload, int | float) and offload > 0:
        takes = explained.planned.seconds_per_step if explained.planned else None
        promise = replace(promise, offload_gib=float(offload), offload_seconds=takes)
    serving = judge_serving(loads, promise, unread)
    return replace(explained, serving=with_help(serving, planned, opened, explained.until, local=explained.local))


def _asks(planned: Planned, opened: Repository) -> Callable[[Proposal], bool]:
    """Whether the service's request can ask for a configuration: its overrides give a plan that is not refused, and
    that has all of the change."""

    def asks(proposal: Proposal) -> bool:
        if not proposal.overrides:
            return False
        until = (datetime.now(UTC).date() + OVERRIDDEN).isoformat()
        changes = FieldChanges(proposal.overrides, (), "explain: the next configuration", until)
        plan = planned_with(planned, changes, opened)
        if plan is None or plan.verdict == "refused":
            return False
        before, after = (values_of(words, plan.runtime.version) for words in (planned.plan.vllm_args, plan.vllm_args))
        wanted = proposal.changed
        lacking = [name for name, value in wanted.items() if name not in _PLANNED and after.get(name) != value]
        remaining = [name for name in proposal.removed if name in before and name in after]
        return not lacking and not remaining

    return asks


def _question(pod: Object, options: Question, planned: Planned | None) -> Question:
    """What is given, and where nothing is, the pod's own command and the service's plan. An empty pod is that of
    the plan."""
    base = question_of(planned.plan, options) if planned else options
    container = server_container(pod)
    variables = dict(planned.plan.environment_variables) if planned else {}
    for variable in items(container, "env"):
        if (name := str(variable.get("name"))) in variables and "value" in variable:
            variables[name] = str(variable["value"])
    return replace(
        base,
        model=options.model or base.model,
        accelerator=options.accelerator or base.accelerator,
        count=options.count or base.count,
        words=options.words or (_engine_words(container) if pod else base.words),
        vllm_version=options.vllm_version
        or (image_version(str(container.get("image") or "")) if pod else base.vllm_version),
        environment=tuple(f"{name}={value}" for name, value in variables.items()),
    )


def _unready(pod: Object, events: Sequence[Object]) -> str:
    """Why a pod is not ready whose server started: another port than its probes ask, or what its state says."""
    return _other_port(pod) or look(pod, datetime.now(UTC), tuple(events)).told or "its probe has not been answered"


def _other_port(pod: Object) -> str:
    """That the server listens on another port than a probe asks, as a clause; "" if it does not."""
    server = server_container(pod)
    listens = values_of_container(server).get("port", PORT)
    named = {each.get("name"): each.get("containerPort") for each in items(server, "ports")}
    for kind in ("startupProbe", "readinessProbe"):
        port = part(server, kind, "httpGet").get("port", listens)
        if named.get(port, port) != listens:
            return f"the server listens on port {listens}, and its {kind} asks port {named.get(port, port)}"
    return ""


def _engine_words(container: Mapping[str, Any]) -> tuple[str, ...]:
    version = image_version(str(container.get("image") or ""))
    return words_of(engine_values(values_of_container(container)), version)


def _arguments(pod: Object) -> dict[str, Any]:
    return values_of_container(server_container(pod))


def _restored(
    explained: Explanation, question: Question, live: Object, planned: Planned, opened: Repository
) -> Explanation:
    """The explanation with the plan as the next configuration, where the service is not what its plan renders and that
    plan fits; else as it is."""
    edited = _edited(live, planned, opened)
    if not edited:
        return explained
    rendered = question_of(planned.plan)
    try:
        fit = answer(replace(question, words=rendered.words, environment=rendered.environment), opened.catalog)
    except InputError:
        return explained
    if fit.verdict == "refused":
        return explained
    before, after = (values_of(words, question.vllm_version) for words in (question.words, rendered.words))
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    removed = {name: value for name, value in before.items() if after.get(name) != value}
    restore = f"Serve it as its plan in Git renders it: it differs in {edited}."
    proposal = Proposal(rendered.words, changed, removed, {}, restore, fit)
    return replace(explained, next=proposal, no_next="", edited=edited)


def _edited(live: Object, planned: Planned, opened: Repository) -> str:
    """In which fields the cluster's InferenceService is not what its plan renders; "" if in none."""
    try:
        rendered = render(planned.request, planned.plan, opened.template)[SERVICE_FILE]
        wanted = read_mapping(rendered, SERVICE_FILE).value
    except InputError:
        return ""
    return first_of(differences({"spec": wanted.get("spec")}, live), 3)


def _is_local(environment: str, opened: Repository) -> bool:
    known = opened.settings.environments
    return environment in known and known[environment].cluster == "local"


def _named(service: Service) -> str:
    return f"{service.environment}/{service.name}" if service.environment else service.name
