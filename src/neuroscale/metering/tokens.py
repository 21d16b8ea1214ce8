"""Computes the cost of a million tokens: OpenCost's cost of a service over the tokens that its servers counted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from neuroscale.cluster.endpoint.metrics import GENERATION_TOKENS, PROMPT_TOKENS, RUNNING
from neuroscale.cluster.metrics.prometheus import Prometheus, duration, selector
from neuroscale.metering.allocation import Meter, Metered, hours_together, price_of
from neuroscale.metering.services import Facts, ServiceFacts, key_of, why_unpriced
from neuroscale.metering.window import Window
from neuroscale.rendering.platform.monitoring import JOB

_MILLION = 10**6
_COLUMNS = 500  # moments of the window at which the samples of each server are counted
_LEAST_STEP = 60.0  # seconds
_ENOUGH = Fraction(9, 10)  # the share of each other's hours that OpenCost and Prometheus must cover for a price
_NEXT_TO_NOTHING = Fraction(1, 1000)  # US dollars an hour, which no machine for models costs

Service = tuple[str, str]
"""Namespace and name of a service."""


@dataclass(frozen=True)
class Counted:
    """Tokens that the servers of a service counted in a window, and the hours in which Prometheus scraped them.

    `hours`: the sum over all servers, so two servers that both answered for an hour count two; a server that did not
    answer (`up` 0) counts nothing. `batch`: the mean number of requests at once on one server, over the moments in
    which any ran (None: never).
    """

    prompt: Decimal
    generation: Decimal
    hours: Decimal
    batch: float | None = None


@dataclass(frozen=True)
class TokenCost:
    """A service's cost in a window, without idle costs, in US dollars, and the price of a million of its tokens.

    Costs are as OpenCost gives them, with five decimals; prices have four significant digits or whole cents.
    `each`: the price of prompt and generation tokens together. `prompt` and `generation`: separate prices, if the
    command says how many times the price of an input token an output token costs. A price is None if it is not known;
    `why_unknown` gives the reason.
    """

    namespace: str
    service: str
    model: str
    cost: Decimal
    counted: Counted | None
    each: Decimal | None
    prompt: Decimal | None
    generation: Decimal | None
    why_unknown: str = ""


def count_tokens(prometheus: Prometheus, window: Window) -> dict[Service, Counted]:
    """The tokens of each service in Prometheus. Raises PrometheusError.

    They are the `increase` of counters, which handles restarts and extrapolates to the ends of the window. Services of
    which a count is not finite are left out: no price can be computed of it.
    """
    end, seconds = window.end.timestamp(), window.hours * 3600
    found: dict[str, dict[Service, Decimal]] = {}
    unusable: set[Service] = set()
    for metric in (PROMPT_TOKENS, GENERATION_TOKENS):
        query = f"sum by (namespace, service) (increase({selector(metric, {'job': JOB}, seconds)}))"
        rows = prometheus.vector(query, end)
        found[metric] = {_service(row.labels): Decimal(repr(row.value)) for row in rows if math.isfinite(row.value)}
        unusable |= {_service(row.labels) for row in rows if not math.isfinite(row.value)}
    step = max(_LEAST_STEP, seconds / _COLUMNS)
    looked = prometheus.over(
        f"sum by (namespace, service) ({selector('up', {'job': JOB})})", end - seconds + step, end, step
    )
    hours = {_service(one.labels): Decimal(repr(sum(value for _, value in one.points) * step / 3600)) for one in looked}
    busy = f"avg_over_time(({selector(RUNNING, {'job': JOB})} > 0)[{duration(seconds)}:{duration(step)}])"
    running = prometheus.vector(f"avg by (namespace, service) ({busy})", end)
    batches = {_service(row.labels): row.value for row in running if math.isfinite(row.value)}
    return {
        service: _counted(service, found, time, batches.get(service))
        for service, time in hours.items()
        if service not in unusable
    }


def _counted(
    service: Service, tokens: Mapping[str, Mapping[Service, Decimal]], hours: Decimal, batch: float | None
) -> Counted:
    prompt, generation = (tokens[metric].get(service, Decimal(0)) for metric in (PROMPT_TOKENS, GENERATION_TOKENS))
    return Counted(prompt, generation, hours, batch)


def token_costs(
    meter: Meter, facts: Facts, counted: Mapping[Service, Counted], output_weight: Decimal | None = None
) -> tuple[TokenCost, ...]:
    """The price of a million tokens of each metered service, the dearest service first.

    `output_weight`: how many times the price of an input token an output token costs. With a cost C, I input tokens, O
    output tokens and the weight w, an input token costs C / (I + w O), and an output token w times that; together
    they cost C.
    """
    costs: dict[Service, list[tuple[Metered, ServiceFacts | None]]] = {}
    for one in meter.metered:
        if one.kind == "pods" and one.place.service:
            found = (one, facts.get(key_of(one)))
            costs.setdefault((one.place.namespace, one.place.service), []).append(found)
    rows = []
    for service, of in costs.items():
        tokens = counted.get(service)
        cost = sum((one.total for one, _ in of), Decimal(0))
        models = list(
            dict.fromkeys(known.model for _, known in sorted(of, key=lambda row: row[0].part) if known is not None)
        )
        why = _uncounted(tokens) or _unpriced(of) or _partly(tokens, of) or _several(models)
        each = prompt = generation = None
        if tokens is not None and not why:
            each = _price(cost, tokens.prompt + tokens.generation)
            if output_weight is not None:
                prompt = _price(cost, tokens.prompt + output_weight * tokens.generation)
                generation = _price(cost * output_weight, tokens.prompt + output_weight * tokens.generation)
        rows.append(TokenCost(*service, models[-1] if models else "", cost, tokens, each, prompt, generation, why))
    return tuple(sorted(rows, key=lambda row: (-row.cost, row.namespace, row.service)))


_Costs = Sequence[tuple[Metered, ServiceFacts | None]]


def _uncounted(tokens: Counted | None) -> str:
    if tokens is None:
        return "Prometheus has no usable samples of its servers"
    return "its servers counted no tokens" if tokens.prompt + tokens.generation <= 0 else ""


def _partly(tokens: Counted | None, of: _Costs) -> str:
    """Why the cost and the tokens are not those of the same replicas and times."""
    if tokens is None:
        return ""
    if any(known is None and not one.gpu_hours for one, known in of):
        return "no plan in the repository says how many replicas its CPU hours are"
    charged = sum((_replica_hours(one, known) for one, known in of), Fraction(0))
    if Fraction(tokens.hours) < _ENOUGH * charged:
        return (
            f"Prometheus got samples for {tokens.hours:.1f} of the {float(charged):.1f} hours of replicas that "
            "OpenCost charged, so tokens may not be counted (a server that loads its model does not answer yet)"
        )
    if charged < _ENOUGH * Fraction(tokens.hours):
        return (
            f"OpenCost charged {float(charged):.1f} of the {tokens.hours:.1f} hours of replicas for which Prometheus "
            "got samples, so a part of the cost is missing"
        )
    return ""


def _replica_hours(one: Metered, known: ServiceFacts | None) -> Fraction:
    """The hours of replicas that OpenCost charged.

    Without a plan, a replica counts as one GPU: of replicas with more, fewer servers were scraped than that, so that
    their tokens have no price.
    """
    if known is not None and known.estimate is not None:
        return known.estimate.replica_hours([one])
    return Fraction(one.gpu_hours)


def _unpriced(of: _Costs) -> str:
    """Why a cost is not that of the machines on which the service ran."""
    cost = sum((one.total for one, _ in of), Decimal(0))
    if Fraction(cost) < _NEXT_TO_NOTHING * hours_together(one for one, _ in of):
        return "OpenCost charges next to nothing for it, so its nodes have no price"
    return why_unpriced(of)


def _several(models: Sequence[str]) -> str:
    """Why a price would not be that of one model."""
    if len(models) < 2:
        return ""
    return f"its model changed within the window ({', then '.join(models)}): ask about the time since"


def _price(cost: Decimal, tokens: Decimal) -> Decimal:
    return price_of(cost, Fraction(tokens) / _MILLION)


def _service(labels: Mapping[str, str]) -> Service:
    return labels.get("namespace", ""), labels.get("service", "")
