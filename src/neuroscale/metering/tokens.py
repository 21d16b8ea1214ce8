"""Computes the cost of a million tokens: OpenCost's cost of a service over the tokens that its servers counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from neuroscale.cluster.endpoint.metrics import GENERATION_TOKENS, PROMPT_TOKENS, RUNNING
from neuroscale.cluster.metrics.prometheus import Prometheus
from neuroscale.cluster.metrics.promql import duration, selector
from neuroscale.metering.allocation import Meter
from neuroscale.metering.cents import dollars, rounded
from neuroscale.metering.services import Facts, key_of
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

    `batch`: the mean number of requests at once on one server, over the moments in which any ran (None: never).
    """

    prompt: Decimal
    generation: Decimal
    hours: Decimal
    batch: float | None = None


@dataclass(frozen=True)
class TokenCost:
    """A service's cost in a window, without idle costs, in US dollars, and the price of a million of its tokens.

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

    They are the `increase` of counters, which handles restarts and extrapolates to the ends of the window.
    """
    end, seconds = window.end.timestamp(), window.hours * 3600
    found: dict[str, dict[Service, Decimal]] = {}
    for metric in (PROMPT_TOKENS, GENERATION_TOKENS):
        query = f"sum by (namespace, service) (increase({selector(metric, {'job': JOB}, seconds)}))"
        rows = prometheus.vector(query, end)
        found[metric] = {_service(row.labels): Decimal(repr(row.value)) for row in rows if row.value == row.value}
    step = max(_LEAST_STEP, seconds / _COLUMNS)
    looked = prometheus.over(
        f"count by (namespace, service) ({selector('up', {'job': JOB})})", end - seconds + step, end, step
    )
    hours = {_service(one.labels): Decimal(repr(len(one.points) * step / 3600)) for one in looked}
    busy = f"avg_over_time(({selector(RUNNING, {'job': JOB})} > 0)[{duration(seconds)}:{duration(step)}])"
    running = prometheus.vector(f"avg by (namespace, service) ({busy})", end)
    batches = {_service(row.labels): row.value for row in running if row.value == row.value}
    return {service: _counted(service, found, time, batches.get(service)) for service, time in hours.items()}


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
    costs: dict[Service, tuple[Decimal, Decimal, str]] = {}
    for one in meter.metered:
        if one.kind == "pods" and one.place.service:
            service = (one.place.namespace, one.place.service)
            known = facts.get(key_of(one))
            cost, hours, model = costs.get(service, (Decimal(0), Decimal(0), ""))
            costs[service] = (cost + one.total, hours + one.hours, known.model if known else model)
    rows = []
    for service, (cost, hours, model) in costs.items():
        tokens = counted.get(service)
        why = _why_unknown(tokens, hours) or _unpriced(cost, hours)
        each = prompt = generation = None
        if tokens is not None and not why:
            each = _price(cost, tokens.prompt + tokens.generation)
            if output_weight is not None:
                prompt = _price(cost, tokens.prompt + output_weight * tokens.generation)
                generation = _price(cost * output_weight, tokens.prompt + output_weight * tokens.generation)
        rows.append(TokenCost(*service, model, dollars(rounded(cost)), tokens, each, prompt, generation, why))
    return tuple(sorted(rows, key=lambda row: (-row.cost, row.namespace, row.service)))


def _why_unknown(tokens: Counted | None, paid: Decimal) -> str:
    if tokens is None:
        return "Prometheus has no samples of its servers"
    if Fraction(tokens.hours) < _ENOUGH * Fraction(paid):
        return f"Prometheus has samples for {tokens.hours:.1f} of the {paid:.1f} hours that OpenCost charged"
    if Fraction(paid) < _ENOUGH * Fraction(tokens.hours):
        return f"OpenCost charged {paid:.1f} of the {tokens.hours:.1f} hours for which Prometheus has samples"
    if tokens.prompt + tokens.generation <= 0:
        return "its servers counted no tokens"
    return ""


def _unpriced(cost: Decimal, hours: Decimal) -> str:
    """Why a cost is too small to be that of a machine."""
    if Fraction(cost) < _NEXT_TO_NOTHING * Fraction(hours):
        return "OpenCost charges next to nothing for it, so its nodes have no price"
    return ""


def _price(cost: Decimal, tokens: Decimal) -> Decimal:
    return dollars(rounded(Fraction(cost) * _MILLION / Fraction(tokens)))


def _service(labels: Mapping[str, str]) -> Service:
    return labels.get("namespace", ""), labels.get("service", "")
