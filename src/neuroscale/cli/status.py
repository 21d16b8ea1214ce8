"""`neuroscale status`: says which services of the repository are ready in the cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.chosen_cluster import Where, gateway_way, local_state, open_cluster
from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import (
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    RepositoryOption,
)
from neuroscale.core.errors import ExitStatus

if TYPE_CHECKING:
    from neuroscale.cluster.service_status import ServiceStatus
    from neuroscale.cluster.service_status_reader import Question, Reader, ServiceStatuses
    from neuroscale.cluster.services_in_git import Clone
    from neuroscale.local.state import State

_BETWEEN = 1.0  # seconds
_FETCH_EVERY = 30.0
_SETTLED = ("ready", "failed")


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
    from neuroscale.cli.chosen_service import services_asked
    from neuroscale.cli.open_repository import open_repository
    from neuroscale.cluster.service_status_reader import Reader
    from neuroscale.cluster.services_in_git import Clone

    opened = open_repository(repository)
    where = Where(context, kubeconfig, state)
    question = services_asked(service, environment, opened)
    clone = Clone(opened.root, opened.settings.repository.default_branch)
    platform = local_state(where)
    with contextlib.closing(clone), open_cluster(where) as cluster:
        reader = Reader(cluster, clone)
        answer = reader.ask(question) if wait is None else _wait(reader, clone, question, wait)
        name, url = cluster.name, cluster.url
    services = tuple(_with_curl(one, where, platform, repository) for one in answer.services)
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
        from neuroscale.cli.status_view import print_status
        from neuroscale.core.printable import terminal

        typer.echo(f"Cluster {terminal(name)} ({terminal(url)})")
        print_status(answer, question, detailed=bool(question.name))
    return ExitStatus.PASSED if answer.ready else ExitStatus.FINDINGS


def _with_curl(one: ServiceStatus, where: Where, state: State | None, repository: Path | None) -> ServiceStatus:
    """Add a command that asks the service, if one of its pods answers and its URL has TLS."""
    from neuroscale.cluster.endpoint.curl import curl_line

    answering = [pod for pod in one.pods if pod.state == "ready"]
    if not answering or not one.url:
        return one
    way = None
    if state is not None:
        from neuroscale.local.node.service import NODE

        if not any(pod.node == NODE for pod in answering):
            return dataclasses.replace(one, notes=(*one.notes, "Its pods are simulated: no server answers at its URL."))
        way = gateway_way(state)
        if way is None:
            return one
    return dataclasses.replace(one, curl=curl_line(one.url, one.model, _key_command(one, where, repository), way))


def _key_command(one: ServiceStatus, where: Where, repository: Path | None) -> list[str]:
    """The command that writes the service's key, with the options of this command."""
    from neuroscale.cluster.command_lines import own_program

    environment = [f"--environment={one.environment}"] if one.environment else []
    place = [f"--repository={repository.absolute()}"] if repository else []
    return [own_program(), "key", one.name, "--print", *environment, *where.options, *place]


def _wait(reader: Reader, clone: Clone, question: Question, seconds: float) -> ServiceStatuses:
    """Ask until every verdict is settled, or the time is over. Prints each change on the way.

    While a service is missing, the clone is fetched from time to time: a service whose removal was merged meanwhile is
    not waited for.
    """
    from neuroscale.cli.status_view import label
    from neuroscale.core.printable import terminal
    from neuroscale.kube.client import KubernetesError, RefusedError

    fetched = time.monotonic()
    ends = fetched + seconds
    told: dict[tuple[str, str], str] = {}
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
                key = (one.environment, one.name)
                if told.get(key) != one.verdict:
                    typer.echo(f"{label(one)}: {one.verdict}: {terminal(one.reason)}", err=True)
                    told[key] = one.verdict
            removed = told.keys() - {(one.environment, one.name) for one in answer.services}
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
