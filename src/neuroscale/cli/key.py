"""`neuroscale key`."""

from __future__ import annotations

from pathlib import Path

import typer

from neuroscale.cli.clusters import Where, open_cluster, question
from neuroscale.cli.context import open_repository
from neuroscale.cli.services import Service, one_service
from neuroscale.cluster.endpoint import key
from neuroscale.cluster.endpoint.rotation import rotate
from neuroscale.cluster.service_status_reader import Reader
from neuroscale.cluster.services_in_git import Clone
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal
from neuroscale.kube.client import Cluster
from neuroscale.rendering.api_key import secret_name


def manage_key(
    service: str,
    environment: str,
    where: Where,
    repository: Path | None,
    *,
    replace: bool,
    show: bool,
    seconds: float | None,
) -> int:
    """Make a service's API key where it is missing, or replace it. Only `show` writes it, to standard output.

    Exit status 1 where a new key could not be proven. Raises InputError, EndpointError, KubernetesError.
    """
    context = open_repository(repository)
    asked = question(service, environment, context)
    clone = Clone(context.root, context.settings.repository.default_branch)
    status = ExitStatus.PASSED
    try:
        with open_cluster(where) as cluster:
            found = one_service(Reader(cluster, clone).ask(asked).services, asked.name)
            if replace and key.get(cluster, found.namespace, secret_name(found.name)) is not None:
                status = _replace(cluster, found, seconds)
            else:
                made = key.ensure(cluster, found.namespace, found.name).created
                place = f"{found.namespace}/{secret_name(found.name)}"
                _tell(f"The Secret {place} holds {'a new key' if made else 'its key already'}.")
                if not found.live:
                    _tell("The service itself is not in the cluster yet.")
            if show:
                typer.echo(key.read(cluster, found.namespace, found.name).secret)
    finally:
        clone.close()
    return status


def _replace(cluster: Cluster, found: Service, seconds: float | None) -> ExitStatus:
    rotation = rotate(cluster, found.namespace, found.name, _tell, seconds=seconds)
    if rotation.proven:
        _tell("Every pod that is ready takes the new key, and refuses the earlier one and none at all.")
        return ExitStatus.PASSED
    _tell(f"Not proven: {rotation.unproven}")
    return ExitStatus.FINDINGS


def _tell(text: str) -> None:
    """On standard error: standard output is the key's alone."""
    typer.echo(terminal(text, 2000), err=True)
