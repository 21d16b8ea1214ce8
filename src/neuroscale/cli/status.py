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
    width = max((len(label(status)) for status in answer.services), default=0)
    for status in answer.services:
        what = f"{status.reason}{_endpoint(status)}" if status.verdict == "ready" else f"{status.reason}. {status.next}"
        typer.echo(f"{label(status):<{width}}  {status.verdict:<11}  {terminal(what, 4000)}")
        if detailed:
            _print_details(status)
        elif status.notes and status.verdict == "ready":
            typer.echo(f"{'':<{width}}  note: {terminal(status.notes[0], 2000)}")
    for line in answer.unreadable:
        typer.echo(f"Cannot be read: {terminal(line)}")
    if not answer.services and not answer.unreadable:
        where = f" of the environment {question.environment}" if question.environment else ""
        typer.echo(
            f"No service{where} is in this cluster, and this clone does not hold one for it. Check that the cluster "
            f"is right. Ask for a service: neuroscale request --interactive"
        )


def _print_details(status: ServiceStatus) -> None:
    rows: list[tuple[str, str]] = []
    if status.application is not None:
        application = status.application
        held = {True: "with the last change", False: "without the last change", None: "not known to this clone"}
        state = f"{application.sync}, {application.health}, at {application.revision[:10] or 'no commit'}"
        if status.verdict != "removing":  # a service that Git does not hold any more has no last change
            state += f" ({held[application.contains_last_change]})"
        rows.append(("Argo CD", f"{application.name}: {state}"))
        rows += [("", application.told)] if application.told else []
    if status.generation is not None:
        old = f", {status.replicas_old} of earlier generations" if status.replicas_old else ""
        ready = f"{status.replicas_ready} of {status.replicas_needed} pods ready"
        rows.append(("generation", f"{status.generation}: {ready}{old}"))
        rows.append(("model", f"{status.transition or 'not reported'}, newest {status.model_state or 'not reported'}"))
    if status.last_failure:
        rows.append(("", f"last failure: {status.last_failure}"))
    for condition in status.conditions:
        why = ": ".join(text for text in (condition.reason, condition.message) if text)
        rows.append(("condition", f"{condition.type} {condition.status}{f': {why}' if why else ''}"))
    for pod in status.pods:
        restarts = f", {pod.restarts} restarts" if pod.restarts else ""
        rows.append(("pod", f"{pod.name} on {pod.node or 'no node'}: {pod.state}: {pod.told}{restarts}"))
    rows += [("event", text) for text in status.events]
    rows += [("note", text) for text in status.notes]
    rows += [("URL", status.url), ("address", status.address)]
    for name, text in rows:
        if text:
            typer.echo(f"  {name:<11} {terminal(text, 2000)}")
    if status.curl:
        typer.echo("\nAsk it (the command reads its key without showing it):\n")
        typer.echo(terminal(status.curl, 4000))


def _endpoint(status: ServiceStatus) -> str:
    return "".join(f" {url}" for url in (status.url, status.address) if url)


def label(status: ServiceStatus) -> str:
    """A service's name, with its environment's."""
    return terminal(f"{status.environment or '?'}/{status.name}")


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
    services = tuple(with_curl(status, where, platform, repository) for status in answer.services)
    answer = dataclasses.replace(answer, services=services)
    if as_json:
        facts = {
            "schema_version": 1,
            "cluster": {"name": name, "url": url},
            "ready": answer.ready,
            "services": [dataclasses.asdict(status) for status in answer.services],
            "unreadable": list(answer.unreadable),
        }
        print_json(facts)
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
    printed: dict[tuple[str, str], tuple[str, str]] = {}
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
            for status in answer.services:
                key, now = (status.environment, status.name), (status.verdict, status.waits_for)
                if printed.get(key) != now:
                    typer.echo(f"{label(status)}: {status.verdict}: {terminal(status.reason)}", err=True)
                    printed[key] = now
            removed = printed.keys() - {(status.environment, status.name) for status in answer.services}
            for key in [("", status.name) for status in answer.services if status.environment]:
                # A service that was in no environment yet has come.
                if key in removed:
                    removed.discard(key)
                    del printed[key]
            for environment, name in sorted(removed):
                typer.echo(f"{environment}/{name}: it was removed meanwhile", err=True)
                del printed[environment, name]
            settled = bool(answer.services or removed) and all(status.verdict in _SETTLED for status in answer.services)
            if settled or time.monotonic() >= ends:
                return answer
            missing = any(status.verdict == "missing" for status in answer.services)
            if missing and time.monotonic() >= fetched + _FETCH_EVERY:
                clone.fetch()
                fetched = time.monotonic()
        time.sleep(max(0.0, min(max(_BETWEEN, time.monotonic() - started), ends - time.monotonic())))
