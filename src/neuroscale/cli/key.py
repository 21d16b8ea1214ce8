"""`neuroscale key`: makes the Secret with a service's API key in the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Service, Where, opened_service
from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    KubeconfigOption,
    RepositoryOption,
    ServiceArgument,
    ServiceEnvironmentOption,
)
from neuroscale.cluster.endpoint import key
from neuroscale.cluster.endpoint.key_rotation import rotate
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.kube.client import Cluster
from neuroscale.rendering.object_names import secret_name
from neuroscale.repo.layout import KEY_FILE, ServicePath
from neuroscale.repo.services import has_stored_key


def manage_key(
    service: ServiceArgument,
    environment: ServiceEnvironmentOption = "",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Replace the key, and the pods that take the earlier one, one by one.")
    ] = False,
    with_outage: Annotated[
        bool,
        typer.Option(
            "--with-outage",
            help="With --rotate: also where a single pod answers, and requests fail until the next one has started.",
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Write the key to standard output.")] = False,
    wait: Annotated[
        int | None,
        typer.Option(
            "--wait",
            help="Seconds for each pod's replacement. Default: the time that the pod's startup probe allows.",
            min=1,
        ),
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    repository: RepositoryOption = None,
) -> int:
    """Make a service's API key if it is missing, or replace it. Exit status 1: a pod does not accept the new key."""
    opened = open_repository(repository)
    status = ExitStatus.PASSED
    with opened_service(service, environment, Where(context, kubeconfig, state), opened, TO_STDERR) as chosen:
        cluster, target = chosen.cluster, chosen.service
        if rotate and key.get(cluster, target.namespace, secret_name(target.name)) is not None:
            status = _replace(cluster, target, wait, with_outage)
        else:
            path = ServicePath(target.environment, target.name)
            if has_stored_key(opened.files, path):
                key.check_stored(cluster, target.namespace, target.name, f"{path.folder}/{KEY_FILE}")
            is_new = key.ensure(cluster, target.namespace, target.name).created
            place = f"{target.namespace}/{secret_name(target.name)}"
            _tell(f"The Secret {place} holds {'a new key' if is_new else 'its key already'}.")
            if not target.live:
                _tell("The service itself is not in the cluster yet.")
        if show:
            typer.echo(key.read(cluster, target.namespace, target.name).secret)
    return status


def _replace(cluster: Cluster, service: Service, seconds: float | None, with_outage: bool) -> ExitStatus:
    rotation = rotate(cluster, service.namespace, service.name, _tell, seconds=seconds, with_outage=with_outage)
    if rotation.proven:
        _tell("Every ready pod takes the new key, and refuses the earlier one and requests without a key.")
        return ExitStatus.PASSED
    _tell(f"Not proven: {rotation.unproven}")
    return ExitStatus.FINDINGS


def _tell(text: str) -> None:
    """Print to standard error: standard output is only for the key."""
    typer.echo(terminal(text, 2000), err=True)
