"""`neuroscale status`."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from neuroscale.cli.clusters import Where, local_state, open_cluster
from neuroscale.cli.clusters import question as services_asked
from neuroscale.cli.context import open_repository
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.kube.client import KubernetesError, RefusedError

if TYPE_CHECKING:
    from neuroscale.cluster.service_status import ServiceStatus
    from neuroscale.cluster.service_status_reader import Answer, Question, Reader
    from neuroscale.local.state import State

_BETWEEN = 1.0
_SETTLED = ("ready", "failed")


def show_status(
    service: str, environment: str, where: Where, repository: Path | None, *, wait: int | None, as_json: bool
) -> int:
    """Print the verdict on each service. Exit status 0 only where all are ready.

    `wait`: ask again until every verdict is ready or failed, for at most so many seconds. Raises KubernetesError where
    the cluster cannot be asked.
    """
    from neuroscale.cluster.service_status_reader import Reader
    from neuroscale.cluster.services_in_git import Clone

    context = open_repository(repository)
    question = services_asked(service, environment, context)
    clone = Clone(context.root, context.settings.repository.default_branch)
    state = local_state(where)
    try:
        with open_cluster(where) as cluster:
            reader = Reader(cluster, clone)
            answer = reader.ask(question) if wait is None else _wait(reader, question, wait)
            name, url = cluster.name, cluster.url
    finally:
        clone.close()
    services = tuple(with_curl(one, where, state, repository) for one in answer.services)
    answer = dataclasses.replace(answer, services=services)
    if as_json:
        found = {
            "schema_version": 1,
            "cluster": {"name": name, "url": url},
            "ready": answer.ready,
            "services": [dataclasses.asdict(one) for one in answer.services],
            "unreadable": list(answer.unreadable),
        }
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo(f"Cluster {terminal(name)} ({terminal(url)})")
        _print(answer, question, detailed=bool(question.name))
    return ExitStatus.PASSED if answer.ready else ExitStatus.FINDINGS


def with_curl(one: ServiceStatus, where: Where, state: State | None, repository: Path | None) -> ServiceStatus:
    """With a command that asks the service, where a pod of it answers and its URL has TLS."""
    from neuroscale.cluster.endpoint.curl import Way, curl_line

    answering = [pod for pod in one.pods if pod.state == "ready"]
    if not answering or not one.url:
        return one
    way = None
    if state is not None:
        from neuroscale.local.control_plane import control_plane
        from neuroscale.local.gateway import NAME
        from neuroscale.local.node.service import NODE

        if not any(pod.node == NODE for pod in answering):
            return dataclasses.replace(one, notes=(*one.notes, "Its pods are simulated: nothing answers at its URL."))
        if NAME not in state.instance.ports:
            return one
        way = Way(control_plane(state).authority_file, state.instance.ports[NAME])
    return dataclasses.replace(one, curl=curl_line(one.url, one.model, _key_command(one, where, repository), way))


def _key_command(one: ServiceStatus, where: Where, repository: Path | None) -> list[str]:
    """The command that writes the service's key, as whoever asked for the status can run it."""
    program = "neuroscale"
    if shutil.which(program) is None:
        program = str(Path(sys.executable).with_name(program))
    named = {
        "--environment": one.environment,
        "--state": where.state and where.state.absolute(),
        "--kubeconfig": where.kubeconfig and where.kubeconfig.absolute(),
        "--context": where.context,
        "--repository": repository and repository.absolute(),
    }
    return [program, "key", one.name, "--print", *(f"{name}={value}" for name, value in named.items() if value)]


def _wait(reader: Reader, question: Question, seconds: float) -> Answer:
    """Ask until every verdict is settled, or the time is over; what changes is told on the way."""
    ends = time.monotonic() + seconds
    told: dict[tuple[str, str], str] = {}
    while True:
        started = time.monotonic()
        try:
            answer = reader.ask(question)
        except KubernetesError as error:
            # What it refuses, it will refuse again; what does not answer may come back.
            refused = isinstance(error, RefusedError) and error.code < 500 and error.code not in (409, 410, 429)
            if refused or started >= ends:
                raise
            typer.echo(f"The cluster does not answer: {terminal(str(error))}", err=True)
        else:
            for one in answer.services:
                key = (one.environment, one.name)
                if told.get(key) != one.verdict:
                    typer.echo(f"{_label(one)}: {one.verdict}: {terminal(one.reason)}", err=True)
                    told[key] = one.verdict
            settled = bool(answer.services) and all(one.verdict in _SETTLED for one in answer.services)
            if settled or time.monotonic() >= ends:
                return answer
        time.sleep(max(0.0, min(max(_BETWEEN, time.monotonic() - started), ends - time.monotonic())))


def _print(answer: Answer, question: Question, *, detailed: bool) -> None:
    width = max((len(_label(one)) for one in answer.services), default=0)
    for one in answer.services:
        what = f"{one.reason}{_endpoint(one)}" if one.verdict == "ready" else f"{one.reason}. {one.next}"
        typer.echo(f"{_label(one):<{width}}  {one.verdict:<11}  {terminal(what, 4000)}")
        if detailed:
            _print_details(one)
        elif one.notes and one.verdict == "ready":
            typer.echo(f"{'':<{width}}  note: {terminal(one.notes[0], 2000)}")
    for line in answer.unreadable:
        typer.echo(f"Cannot be read: {terminal(line)}")
    if not answer.services and not answer.unreadable:
        where = f" of the environment {question.environment}" if question.environment else ""
        typer.echo(
            f"No service{where} is in this cluster, nor does this clone say that one should be. Is it the right one? "
            "Ask for a service: neuroscale request --interactive"
        )


def _print_details(one: ServiceStatus) -> None:
    rows: list[tuple[str, str]] = []
    if one.application is not None:
        application = one.application
        held = {True: "with the last change", False: "without the last change", None: "not known to this clone"}
        told = f"{application.sync}, {application.health}, at {application.revision[:10] or 'no commit'}"
        rows.append(("Argo CD", f"{application.name}: {told} ({held[application.contains_last_change]})"))
        rows += [("", application.told)] if application.told else []
    if one.generation is not None:
        old = f", {one.replicas_old} of earlier generations" if one.replicas_old else ""
        rows.append(("generation", f"{one.generation}: {one.replicas_ready} of {one.replicas_needed} pods ready{old}"))
        rows.append(("model", f"{one.transition or 'nothing told'}, newest {one.model_state or 'not told'}"))
    if one.last_failure:
        rows.append(("", f"last failure: {one.last_failure}"))
    for condition in one.conditions:
        why = ": ".join(text for text in (condition.reason, condition.message) if text)
        rows.append(("condition", f"{condition.type} {condition.status}{f': {why}' if why else ''}"))
    for pod in one.pods:
        restarts = f", {pod.restarts} restarts" if pod.restarts else ""
        rows.append(("pod", f"{pod.name} on {pod.node or 'no node'}: {pod.state}: {pod.told}{restarts}"))
    rows += [("event", text) for text in one.events]
    rows += [("note", text) for text in one.notes]
    rows += [("URL", one.url), ("address", one.address)]
    for name, text in rows:
        if text:
            typer.echo(f"  {name:<11} {terminal(text, 2000)}")
    if one.curl:
        typer.echo("\nAsk it (its key is read, and shown to nobody):\n")
        typer.echo(terminal(one.curl, 4000))


def _endpoint(one: ServiceStatus) -> str:
    return "".join(f" {url}" for url in (one.url, one.address) if url)


def _label(one: ServiceStatus) -> str:
    return terminal(f"{one.environment or '?'}/{one.name}")
