"""Opens the Prometheus that a command's options choose, and declares these options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from neuroscale.cli.chosen_cluster import Where, configured, open_cluster
from neuroscale.core.errors import InputError, Problem

if TYPE_CHECKING:
    from neuroscale.catalog.settings import Settings
    from neuroscale.cluster.metrics.prometheus import Prometheus

PrometheusOption = Annotated[
    str,
    typer.Option(
        "--prometheus-url",
        help="The address of Prometheus. Default: the Service that the settings name, by a port-forward.",
    ),
]


@contextlib.contextmanager
def prometheus_of(
    environment: str, where: Where, url: str, settings: Settings, ambiguous: Problem
) -> Iterator[Prometheus]:
    """The Prometheus that the options choose. Raises InputError where they name two, or the cluster has none.

    `ambiguous`: the field and the fix of the error for environments that have different ones.
    """
    from neuroscale.cluster.metrics import prometheus_connection

    named = [
        option
        for option, value in (
            (prometheus_connection.OPTION, url),
            ("--state", where.state),
            ("--context", where.context or where.kubeconfig),
        )
        if value
    ]
    if len(named) > 1:
        message = f"{' and '.join(named)} name more than one Prometheus"
        raise InputError(Problem("the command line", named[0], message, "Give one of them."))
    if url:
        with prometheus_connection.by_address(url) as prometheus:
            yield prometheus
    elif where.state is not None:
        from neuroscale.local.prometheus import address_in

        with prometheus_connection.by_address(address_in(where.state)) as prometheus:
            yield prometheus
    else:
        environment, wanted = configured(environment, settings, lambda one: one.prometheus, "Prometheus", ambiguous)
        with (
            open_cluster(where) as cluster,
            prometheus_connection.in_cluster(cluster, wanted, environment) as prometheus,
        ):
            yield prometheus
