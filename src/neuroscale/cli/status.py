"""`neuroscale status`: says which services of the repository are ready in the cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import (
    Where,
    asked_cluster,
    clone_for,
    environment_of,
    local_state,
    open_cluster,
    services_asked,
    with_curl,
)
from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    RepositoryOption,
    print_json,
)
from neuroscale.cluster.service_status import ServiceStatus
from neuroscale.cluster.service_status_reader import Question, Reader, ServiceStatuses
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.kube.client import KubernetesError, RefusedError


def print_status(answer: ServiceStatuses, question: Question, *, detailed: bool) -> None:
    """Print a line for each service, and all its facts if `detailed`."""
    width = max((len(label(one)) for one in answer.services), default=0)
    for one in answer.services:
        what = f"{one.reason}{_endpoint(one)}" if one.verdict == "ready" else f"{one.reason}. {one.next}"
        typer.echo(f"{label(one):<{width}}  {one.verdict:<11}  {terminal(what, 4000)}")
        if detailed:
            _print_details(one)
        elif one.notes and one.verdict == "ready":
            typer.echo(f"{'':<{width}}  note: {terminal(one.notes[0], 2000)}")
    for line in answer.unreadable:
        typer.echo(f"Cannot be read: {terminal(line)}")
    if not answer.services and not answer.unreadable:
        where = f" of the environment {question.environment}" if question.environment else ""
        typer.echo(
            f"No service{where} is in this cluster, and this clone does not hold one for it. Check that the cluster "
            f"is right. Ask for a service: neuroscale request --interactive"
        )


def _print_details(one: ServiceStatus) -> None:
    rows: list[tuple[str, str]] = []
    if one.application is not None:
        application = one.application
        held = {True: "with the last change", False: "without the last change", None: "not known to this clone"}
        told = f"{application.sync}, {application.health}, at {application.revision[:10] or 'no commit'}"
        if one.verdict != "removing":  # a service that Git does not hold any more has no last change
            told += f" ({held[application.contains_last_change]})"
        rows.append(("Argo CD", f"{application.name}: {told}"))
        rows += [("", application.told)] if application.told else []
    if one.generation is not None:
        old = f", {one.replicas_old} of earlier generations" if one.replicas_old else ""
        rows.append(("generation", f"{one.generation}: {one.replicas_ready} of {one.replicas_needed} pods ready{old}"))
        rows.append(("model", f"{one.transition or 'not reported'}, newest {one.model_state or 'not reported'}"))
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
        typer.echo("\nAsk it (the command reads its key without showing it):\n")
        typer.echo(terminal(one.curl, 4000))


def _endpoint(one: ServiceStatus) -> str:
    return "".join(f" {url}" for url in (one.url, one.address) if url)


def label(one: ServiceStatus) -> str:
    """A service's name, with its environment's."""
    return terminal(f"{one.environment or '?'}/{one.name}")


_BETWEEN = 1.0  # seconds
_FETCH_EVERY = 30.0
_SETTLED = ("ready", "failed", "removing")


def show_status(
    service: Annotated[str, typer.Argument(help="A service, for its details. Default: all services, in short.")] = "",
    environment: Annotated[str, typer.Option("--environment", help="Only services of this environment.")] = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    wait: Annotated[
        int | None,
        typer.Option("--wait", help="Ask again until all are ready or failed, for so many seconds.", min=0, max=86400),
    ] = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Judge a cluster's services, and print their addresses. Exit status: 0 all are ready, 1 not, 2 the cluster cannot
    be asked.
    """
    opened = open_repository(repository)
    question = services_asked(service, environment, opened)
    where = asked_cluster(
        Where(context, kubeconfig, state), opened.root, environment_of(question, opened.root), TO_STDERR
    )
    clone = clone_for(where, opened.root, opened.settings.repository.default_branch)
    platform = local_state(where)
    with contextlib.closing(clone), open_cluster(where) as cluster:
        reader = Reader(cluster, clone, opened.settings)
        answer = reader.ask(question) if wait is None else _wait(reader, clone, question, wait)
        name, url = cluster.name, cluster.url
    services = tuple(with_curl(one, where, platform, repository) for one in answer.services)
    answer = dataclasses.replace(answer, services=services)
    if as_json:
        found = {
            "schema_version": 1,
            "cluster": {"name": name, "url": url},
            "ready": answer.ready,
            "services": [dataclasses.asdict(one) for one in answer.services],
            "unreadable": list(answer.unreadable),
        }
        print_json(found)
    else:
        typer.echo(f"Cluster {terminal(name)} ({terminal(url)})")
        print_status(answer, question, detailed=bool(question.name))
    return ExitStatus.PASSED if answer.ready else ExitStatus.FINDINGS


def _wait(reader: Reader, clone: Clone, question: Question, seconds: float) -> ServiceStatuses:
    """Ask until every verdict is settled, or the time is over. Prints each change on the way.

    The clone is fetched first, so that a version from before the last merge does not count as the newest. While a
    service is missing, it is fetched from time to time: a service whose removal was merged meanwhile is not waited for.
    """
    clone.fetch()
    fetched = time.monotonic()
    ends = fetched + seconds
    told: dict[tuple[str, str], tuple[str, str]] = {}
    while True:
        started = time.monotonic()
        try:
            answer = reader.ask(question)
        except KubernetesError as error:
            # A cluster that refuses will refuse again; one that does not answer may come back.
            refused = isinstance(error, RefusedError) and error.code < 500 and error.code not in (409, 410, 429)
            if refused or started >= ends:
                raise
            typer.echo(f"The cluster does not answer: {terminal(str(error))}", err=True)
        else:
            for one in answer.services:
                key, now = (one.environment, one.name), (one.verdict, one.waits_for)
                if told.get(key) != now:
                    typer.echo(f"{label(one)}: {one.verdict}: {terminal(one.reason)}", err=True)
                    told[key] = now
            removed = told.keys() - {(one.environment, one.name) for one in answer.services}
            for key in [("", one.name) for one in answer.services if one.environment]:
                # A service that was in no environment yet has come.
                if key in removed:
                    removed.discard(key)
                    del told[key]
            for environment, name in sorted(removed):
                typer.echo(f"{environment}/{name}: it was removed meanwhile", err=True)
                del told[environment, name]
            settled = bool(answer.services or removed) and all(one.verdict in _SETTLED for one in answer.services)
            if settled or time.monotonic() >= ends:
                return answer
            if time.monotonic() >= fetched + _FETCH_EVERY and any(one.verdict == "missing" for one in answer.services):
                clone.fetch()
                fetched = time.monotonic()
        time.sleep(max(0.0, min(max(_BETWEEN, time.monotonic() - started), ends - time.monotonic())))
