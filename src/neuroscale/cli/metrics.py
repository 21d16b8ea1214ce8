"""`neuroscale metrics`: shows a service's latency, tokens, queue and cache, for people and for programs."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Where, asked_cluster, environment_of, services_asked
from neuroscale.actions.chosen_metrics import prometheus_of
from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import (
    TO_STDERR,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    PrometheusOption,
    RepositoryOption,
    ServiceArgument,
    print_json,
)
from neuroscale.cluster.command_lines import lines_with
from neuroscale.cluster.metrics.service_metrics import namespaces, read, unseen
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import terminal
from neuroscale.repo.layout import LOCAL_STATE
from neuroscale.report.metrics_view import chart_columns, print_metrics, record

_SINCE = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NAME_IT = Problem("the command line", "SERVICE", "", "Name the environment: ENVIRONMENT/SERVICE.")
_LEAST, _MOST = 60, 30 * 86400


def show_metrics(
    service: ServiceArgument,
    environment: Annotated[str, typer.Option("--environment", help="The service's environment.")] = "",
    since: Annotated[str, typer.Option("--since", help="How far to look back: 90s, 15m, 6h, 2d.")] = "15m",
    namespace: Annotated[
        str, typer.Option("--namespace", help="The namespace, if several have a service of this name.")
    ] = "",
    prometheus_url: PrometheusOption = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show a service's latency, tokens, queue and cache, now and over time. Exit status: 0 it answers, 1 it does not
    answer or has no data, 2 Prometheus cannot be asked.
    """
    opened = open_repository(repository)
    named = services_asked(service, environment, opened)
    name = named.name
    if not name:
        raise InputError.at(
            "the command line", "SERVICE", "does not name a service", "Name it, or ENVIRONMENT/SERVICE."
        )
    seconds = _seconds(since)
    environment = environment_of(named, opened.root)
    where = Where(context, kubeconfig, state)
    if not prometheus_url:
        where = asked_cluster(where, opened.root, environment, TO_STDERR)
    local = environment and opened.settings.environments[environment].cluster == "local"
    if local and not prometheus_url and where == Where():
        where = Where(state=opened.root / LOCAL_STATE)
    with prometheus_of(environment, where, prometheus_url, opened.settings, _NAME_IT) as prometheus:
        at = prometheus.now()
        seen = namespaces(prometheus, name, at, seconds)
        if namespace:
            seen = [each for each in seen if each == namespace]
        if len(seen) > 1:
            message = f"{name!r} is in several namespaces: {', '.join(seen)}"
            raise InputError.at("the command line", "SERVICE", message, "Name one with --namespace.")
        if seen:
            metrics, why_unseen = read(prometheus, seen[0], name, at, seconds, chart_columns()), ""
        else:
            look = lines_with(where.options, None).own(f"status {name}")
            metrics, why_unseen = None, unseen(prometheus, name, at, seconds, look)
        place = prometheus.place
    if as_json:
        print_json(record(metrics, name, why_unseen, place))
    elif metrics is None:
        inside = f" in the namespace {namespace}" if namespace else ""
        typer.echo(terminal(f"{name}{inside}: no data of the last {duration(seconds)}. {why_unseen}", 2000))
    else:
        print_metrics(metrics, place)
    return ExitStatus.PASSED if metrics is not None and metrics.fresh else ExitStatus.FINDINGS


def _seconds(text: str) -> float:
    match = _SINCE.fullmatch(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not _LEAST <= seconds <= _MOST:
        message = f"{text!r} is not a time from 1m to 30d"
        raise InputError.at("the command line", "--since", message, "Write 15m, 90s, 6h or 2d.")
    return float(seconds)
