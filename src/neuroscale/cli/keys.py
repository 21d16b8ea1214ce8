"""`neuroscale keys`: makes the API keys that an environment's services lack, after a merge."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Where, asked_cluster, clone_for, open_cluster
from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import TO_STDERR, ClusterStateOption, ContextOption, KubeconfigOption, RepositoryOption
from neuroscale.cluster.endpoint import key
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import plainly_counted, terminal
from neuroscale.kube.client import Cluster
from neuroscale.rendering.object_names import secret_name
from neuroscale.smoke.expected_services import Service, Target, load_target

_BETWEEN = 1.0


def make_keys(
    environment: Annotated[str, typer.Option("--environment", help="The environment whose services get their keys.")],
    wait: Annotated[
        int, typer.Option("--wait", help="Seconds to wait for services that are not deployed yet.", min=0, max=3600)
    ] = 0,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    repository: RepositoryOption = None,
) -> int:
    """Make the API keys that an environment's services lack, without showing them. Where External Secrets writes a
    service's key from the environment's secret store, it makes none."""
    opened = open_repository(repository)
    where = asked_cluster(Where(context, kubeconfig, state), opened.root, environment, TO_STDERR)
    target = _target(where, opened.root, opened.settings.repository.default_branch, environment)
    keyed = [service for service in target.services if key.reference(service.wanted) is not None]
    wanted = [service for service in keyed if not service.has_stored_key]
    if stored := len(keyed) - len(wanted):
        typer.echo(
            f"{environment}: External Secrets writes the keys of {plainly_counted(stored, 'service')}; none is made"
        )
    problems = []
    # A Secret is deleted with its service only if it was made after the service, so this waits up to `wait` seconds for
    # services.
    with open_cluster(where) as cluster:
        for service in _in_time(cluster, wanted, time.monotonic() + wait):
            try:
                outcome = key.ensure(cluster, service.namespace, service.name, labels=service.labels)
            except InputError as error:
                problems.append(f"{environment}/{service.name}: {error}")
                continue
            if outcome.created:
                typer.echo(f"{environment}/{service.name}: made a key")
    if wanted or not stored:
        typer.echo(f"{environment}: {len(wanted) - len(problems)} of {len(wanted)} services have a key")
    for problem in problems:
        typer.echo(terminal(problem), err=True)
    return ExitStatus.FINDINGS if problems else ExitStatus.PASSED


def _target(where: Where, root: Path, branch: str, environment: str) -> Target:
    """The services of the default branch: of its newest commit in this clone, or on the local platform's forge."""
    with contextlib.closing(clone_for(where, root, branch)) as clone:
        if clone.tip is None:
            raise InputError.at(str(root), "", "is not a clone with a commit", "Run it in a clone of the repository.")
        return load_target(root, environment, clone.tip, fetch=clone.fetch_line)


def _in_time(cluster: Cluster, services: list[Service], ends: float) -> Iterator[Service]:
    """The services, each as soon as it or its Secret is in the cluster; the others when the time is over."""
    waiting = services
    while waiting:
        over = time.monotonic() >= ends
        present = [service for service in waiting if over or _is_there(cluster, service)]
        yield from present
        waiting = [service for service in waiting if service not in present]
        if waiting:
            time.sleep(_BETWEEN)


def _is_there(cluster: Cluster, service: Service) -> bool:
    if cluster.get("serving.kserve.io/v1beta1", "InferenceService", service.name, service.namespace) is not None:
        return True
    return cluster.get("v1", "Secret", secret_name(service.name), service.namespace) is not None
