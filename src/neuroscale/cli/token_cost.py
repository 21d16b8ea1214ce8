"""`neuroscale token-cost`: shows the measured price of a million tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.chosen_cluster import Where
from neuroscale.actions.chosen_metrics import COMMAND_LINE, costs_and_plans, or_local, prometheus_of
from neuroscale.actions.open_repository import open_repository
from neuroscale.catalog import Catalog
from neuroscale.cli.options import (
    AskedEnvironmentOption,
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    OpenCostOption,
    PrometheusOption,
    RepositoryOption,
    WindowOption,
    plain_console,
    print_json,
)
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.metering.notes import notes_on_history, notes_on_prices
from neuroscale.metering.opencost import OpenCost
from neuroscale.metering.opencost_answer import OpenCostError
from neuroscale.metering.tokens import count_tokens, token_costs
from neuroscale.metering.window import Window, read_window
from neuroscale.report.token_cost_view import Own, as_mapping, print_token_costs

_NAME_IT = Problem(COMMAND_LINE, "--environment", "", "Name the one to ask with --environment.")
_WEIGHT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4})?")


def show_token_costs(
    window: WindowOption,
    output_weight: Annotated[
        str,
        typer.Option(
            "--output-weight", help="Price input and output apart: an output token costs so many times an input token."
        ),
    ] = "",
    environment: AskedEnvironmentOption = "",
    opencost_url: OpenCostOption = "",
    prometheus_url: PrometheusOption = "",
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the price of each model into this file (.svg or .png).")
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show what a million tokens of each service cost: OpenCost's cost over the tokens that its servers counted.
    Exit status: 0 each service has a price, 1 a service has none and the report says why, 2 OpenCost or Prometheus
    cannot be asked."""
    weight = _weight(output_weight)
    opened = open_repository(repository)
    span = read_window(window, datetime.now(UTC))
    # An address names only one of the two servers; the cluster's options then reach the other.
    cluster = or_local(Where(context, kubeconfig, state), opencost_url or prometheus_url, environment, opened.root)
    with costs_and_plans(opened, span, environment, Where() if opencost_url else cluster, opencost_url) as known:
        meter, place = known.meter, known.opencost.place
        own = _own(known.opencost, meter.window)
    where = Where() if prometheus_url else cluster
    with prometheus_of(environment, where, prometheus_url, opened.settings, _NAME_IT) as prometheus:
        counted = count_tokens(prometheus, meter.window)
    rows = token_costs(meter, known.facts, counted, weight)
    notes = (*notes_on_prices(meter), *notes_on_history(known.history, "note"))
    experts = _experts(opened.catalog, {row.model for row in rows})
    if picture is not None:
        from neuroscale.report.token_cost_view import write_token_cost_picture

        write_token_cost_picture(rows, meter.window, picture)
    if as_json:
        print_json(as_mapping(rows, meter.window, place, weight, experts, own, notes))
    else:
        console = plain_console(140)
        print_token_costs(rows, meter.window, place, weight, experts, console, own, notes)
    return ExitStatus.FINDINGS if any(row.why_unknown for row in rows) else ExitStatus.PASSED


def _own(opencost: OpenCost, window: Window) -> Own:
    """OpenCost's own cost of tokens. It stands beside the prices, so what is wrong with it is told and ends nothing."""
    try:
        return Own(opencost.inference(window))
    except OpenCostError as error:
        return Own(None, str(error))


def _experts(catalog: Catalog, models: Iterable[str]) -> dict[str, tuple[int, int]]:
    """For models of the catalog with experts: the number of routed experts, and how many a token takes."""
    known = {name: catalog.models[name].facts for name in models if name in catalog.models}
    return {name: (facts.experts, facts.experts_per_token) for name, facts in known.items() if facts.experts}


def _weight(text: str) -> Decimal | None:
    if not text:
        return None
    if not _WEIGHT.fullmatch(text) or not Decimal(text):
        raise InputError.at(COMMAND_LINE, "--output-weight", f"{text!r} is not a number above 0", "Write 4 or 2.5.")
    return Decimal(text)
