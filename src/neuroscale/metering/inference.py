"""Asks OpenCost for its own cost of tokens, which it has from release 1.121 on where INFERENCE_COST_ENABLED is true.

The shape is that of `InferenceCostSet` in OpenCost's pkg/inferencecost/apitypes.go. Its cost basis `allocation` holds a
share of idle costs and of the programs before the servers, which the prices of `metering.tokens` leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from neuroscale.core.printable import one_line
from neuroscale.metering.allocation import price_of
from neuroscale.metering.opencost_answer import OpenCostError, check_time, number
from neuroscale.metering.window import Window, joined

PATH = "/inferenceCost/total"

_MILLION = 10**6
_SUMMED = ("cost", "prompt", "generation", "input_cost", "output_cost")
PARAMETERS = {"aggregate": "model_name,namespace", "costBasis": "allocation"}
NOT_THERE = (404, 501)  # no such path before 1.121 or while it is off; 501: switched on, and not ready


@dataclass(frozen=True)
class InferenceCost:
    """The cost of one model in a namespace in US dollars, its tokens, and OpenCost's division among input and output.

    `method`: how OpenCost divides ("" if it does not say, or in several ways). `partly`: whether OpenCost charged
    nothing for tokens of a part of the window, so `cost` lacks that part.
    """

    namespace: str
    model: str
    cost: Decimal
    prompt: Decimal
    generation: Decimal
    input_cost: Decimal
    output_cost: Decimal
    method: str
    partly: bool = False

    def plus(self, other: InferenceCost) -> InferenceCost:
        """The sum of both, for one model."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        method = self.method if self.method == other.method else ""
        return replace(self, **sums, method=method, partly=self.partly or other.partly)

    @property
    def each(self) -> Decimal | None:
        """US dollars per million tokens, prompt and generation together; None if it is not known."""
        return _price(self.cost, self.prompt + self.generation, self.known)

    @property
    def input(self) -> Decimal | None:
        """US dollars per million prompt tokens."""
        return _price(self.input_cost, self.prompt, self.known)

    @property
    def output(self) -> Decimal | None:
        """US dollars per million generated tokens."""
        return _price(self.output_cost, self.generation, self.known)

    @property
    def known(self) -> bool:
        """Whether OpenCost found the model's pods: it charges nothing where their label does not name the model."""
        return self.cost > 0 and not self.partly


@dataclass(frozen=True)
class InferenceCosts:
    """The costs of all models in a window. `empty`: the parts of the window for which OpenCost names no model."""

    models: tuple[InferenceCost, ...]
    empty: tuple[Window, ...] = ()


def _price(cost: Decimal, tokens: Decimal, known: bool) -> Decimal | None:
    return price_of(Fraction(cost), Fraction(tokens) / _MILLION) if known and tokens > 0 else None


def inference_costs(window: Window, place: str, ask: Callable[[Window], tuple[Any, int]]) -> InferenceCosts | None:
    """The models' costs in a window; None if this OpenCost does not compute them. Raises OpenCostError.

    `ask`: the data of OpenCost's answer about a step of the window, and its HTTP status. `place` names OpenCost.
    Long windows are asked for in steps, whose costs and tokens are added, as OpenCost itself does.
    """
    found: list[InferenceCost] = []
    empty: list[Window] = []
    for step in window.steps():
        data, status = ask(step)
        if status in NOT_THERE:
            return None
        costs = _costs(data, place, step)
        if not costs:
            empty.append(step)
        found += costs
    return InferenceCosts(_added(found), joined(empty))


def _costs(data: Any, place: str, window: Window) -> list[InferenceCost]:
    who = f"OpenCost at {place}"
    models = data.get("inferenceCosts") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(models, dict | None):
        raise OpenCostError(f"{who} answers about its cost of tokens with something else than `inferenceCosts`.")
    check_time(data.get("window"), "its cost of tokens", who, window)
    return [_cost(one_line(str(name), 120), row, who, window) for name, row in (models or {}).items()]


def _cost(name: str, row: Any, who: str, window: Window) -> InferenceCost:
    properties = row.get("properties") if isinstance(row, dict) else None
    if not isinstance(properties, dict):
        raise OpenCostError(f"{who} names {name!r} in {window} without its model and namespace.")

    def amount(field: str) -> Decimal:
        found = number(row, field, name, who, window)
        if found < 0:
            raise OpenCostError(f"{who} gives {found} as {field} of {name!r} in {window}, which cannot be.")
        return found

    return InferenceCost(
        namespace=str(properties.get("namespace") or ""),
        model=str(properties.get("modelName") or ""),
        cost=amount("totalCost"),
        prompt=amount("promptTokens"),
        generation=amount("generationTokens"),
        input_cost=amount("inputCost"),
        output_cost=amount("outputCost"),
        method=one_line(str(row.get("allocationMethod") or ""), 60),
    )


def _added(found: Iterable[InferenceCost]) -> tuple[InferenceCost, ...]:
    """One row for each model and namespace, sorted by them."""
    rows: dict[tuple[str, str], InferenceCost] = {}
    for one in found:
        row = replace(one, partly=one.cost == 0 and one.prompt + one.generation > 0)
        before = rows.get((one.namespace, one.model))
        rows[one.namespace, one.model] = row if before is None else before.plus(row)
    return tuple(rows[key] for key in sorted(rows))
