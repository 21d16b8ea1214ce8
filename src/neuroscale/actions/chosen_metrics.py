"""Opens the OpenCost and the Prometheus that a caller chooses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neuroscale.actions.chosen_cluster import Where, configured, local_state, open_cluster, or_running
from neuroscale.actions.open_repository import Repository
from neuroscale.catalog.settings import Settings
from neuroscale.cluster.metrics import prometheus
from neuroscale.cluster.metrics.prometheus import Prometheus
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.local.opencost import STEP, address_in, runs_in, unpriced_in
from neuroscale.local.prometheus import address_in as prometheus_address_in
from neuroscale.metering import opencost
from neuroscale.metering.allocation import Meter
from neuroscale.metering.opencost import OpenCost
from neuroscale.metering.plan_history import PlanHistory, plan_history
from neuroscale.metering.services import Facts, service_facts
from neuroscale.metering.window import Window


@contextlib.contextmanager
def prometheus_of(
    environment: str, where: Where, url: str, settings: Settings, ambiguous: Problem
) -> Iterator[Prometheus]:
    """The Prometheus that the options choose. Raises InputError where they name two, or the cluster has none.

    `ambiguous`: the field and the fix of the error for environments that have different ones.
    """
    named = [
        option
        for option, value in (
            (prometheus.OPTION, url),
            ("--state", where.state),
            ("--context", where.context or where.kubeconfig),
        )
        if value
    ]
    if len(named) > 1:
        message = f"{' and '.join(named)} name more than one Prometheus"
        raise InputError.at("the command line", named[0], message, "Give one of them.")
    if url:
        with prometheus.by_address(url) as answering:
            yield answering
    elif where.state is not None:
        with prometheus.by_address(prometheus_address_in(where.state)) as answering:
            yield answering
    else:
        environment, wanted = configured(environment, settings, lambda named: named.prometheus, "Prometheus", ambiguous)
        with open_cluster(where) as cluster, prometheus.in_cluster(cluster, wanted, environment) as answering:
            yield answering


COMMAND_LINE = "the command line"


def or_local(where: Where, url: str, environment: str, repository: Path) -> Where:
    """`where`, or the repository's own local platform if no place is named and its OpenCost runs."""
    return where if url or environment else or_running(where, repository, runs_in)


@contextlib.contextmanager
def opencost_of(environment: str, where: Where, url: str, settings: Settings) -> Iterator[OpenCost]:
    """The OpenCost that the options choose. Raises InputError where they name none or two, or the cluster has none."""
    if environment and environment not in settings.environments:
        message = f"{environment!r} is not an environment of the settings"
        raise InputError.at(COMMAND_LINE, "--environment", message, suggest(environment, settings.environments))
    if url and (where.context or where.kubeconfig or where.state):
        message = "stands beside a cluster, so two places are named"
        raise InputError.at(COMMAND_LINE, opencost.OPTION, message, "Give one of them.")
    if url:
        with opencost.by_address(url) as answering:
            yield answering
        return
    if where.state is not None:
        local_state(where)
        with opencost.of_local_platform(address_in(where.state), STEP, unpriced_in(where.state)) as answering:
            yield answering
        return
    ambiguous = Problem(COMMAND_LINE, "--environment", "", "Name the one to ask with --environment.")
    environment, wanted = configured(environment, settings, lambda named: named.opencost, "OpenCost", ambiguous)
    with open_cluster(where) as cluster, opencost.in_cluster(cluster, wanted, environment) as answering:
        yield answering


@dataclass(frozen=True)
class CostsAndPlans:
    """The costs of a window, the plans that services had in it, and the facts of the services by these plans."""

    opencost: OpenCost
    meter: Meter
    history: PlanHistory
    facts: Facts


@contextlib.contextmanager
def costs_and_plans(
    repository: Repository, window: Window, environment: str, where: Where, url: str
) -> Iterator[CostsAndPlans]:
    """What the OpenCost that the options choose measured in a window, beside the repository's own plans.

    Raises InputError, GitError, and OpenCostError if OpenCost has no figures.
    """
    environments = repository.settings.environments
    branch = repository.settings.repository.default_branch
    with (
        opencost_of(environment, where, url, repository.settings) as opencost,
        plan_history(repository.root, branch, opencost.exact(window)) as history,
    ):
        meter = opencost.meter(window, history.cuts([environment] if environment else environments))
        yield CostsAndPlans(opencost, meter, history, service_facts(meter, history, environments))
