"""Makes the statement of who pays how much: its rows add up to the bill to the cent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, get_args

from neuroscale.metering.allocation import Meter, Metered, dollars, in_cents, read_ratio, weighted
from neuroscale.metering.notes import Note, notes_on
from neuroscale.metering.services import Facts, key_of
from neuroscale.metering.window import Window

By = Literal["cost-center", "owner", "service", "model", "environment", "namespace"]
BY: Final[tuple[By, ...]] = get_args(By)

RULE: Final = "idle and shared costs are divided among the rows in proportion to what the meter charges each"
"""The rule that distributes costs which no service caused."""


@dataclass(frozen=True)
class Row:
    """The costs of one payer, in US dollars.

    `metered`: OpenCost's costs, by the requests of the pods. `weighted`: the same pools divided by active parameters.
    `idle` and `shared`: the payer's part of costs that nobody caused, by RULE. `total` and `weighted_total` add these.
    `exact`: OpenCost's costs before they were rounded to cents. `unnamed`: the pods lack the label that divides the
    rows, so `name` says that.
    """

    name: str
    gpu_hours: Decimal
    exact: Decimal
    metered: Decimal
    weighted: Decimal
    idle: Decimal
    shared: Decimal
    unnamed: bool = False

    @property
    def total(self) -> Decimal:
        return self.metered + self.idle + self.shared

    @property
    def weighted_total(self) -> Decimal:
        return self.weighted + self.idle + self.shared


@dataclass(frozen=True)
class SharedCost:
    """A cost outside all services, in US dollars, before it is distributed."""

    name: str
    amount: Decimal


@dataclass(frozen=True)
class Statement:
    """A bill and its rows, in US dollars.

    `bill` is the sum of all metered costs, rounded to cents. It is the sum of the rows' `total` (or of their
    `weighted_total`) and of what is `undistributed`, such as negative idle costs. `metered`, `idle` and `shared` are
    its parts before distribution. `idle` is None if OpenCost reports no idle costs. `pools_weighted`: the number of
    pools in which weighting moves money. `unpriced`: nodes that are known to have no price, which the bill nearly
    leaves out.
    """

    window: Window
    by: By
    rows: tuple[Row, ...]
    bill: Decimal
    metered: Decimal
    idle: Decimal | None
    shared: Decimal
    shared_parts: tuple[SharedCost, ...]
    undistributed: Decimal
    pools_weighted: int
    notes: tuple[Note, ...]
    unpriced: tuple[str, ...] = ()


def statement_of(
    meter: Meter, by: By, facts: Facts, environments: Sequence[str], notes: Sequence[Note] = ()
) -> Statement:
    """The statement of a meter.

    `facts`: the repository's facts about the services. `environments`: the environments in the settings; a cluster
    whose name in OpenCost is one of them is that environment. A pod with a cost centre, or of a service, has a payer;
    the costs of other pods and of unmounted volumes are shared. `notes` stand after those on the meter.
    """
    own, others, idle, negative = _sorted(meter.metered)
    told = _sum(idle)
    metered_cents, idle_cents, negative_cents, shared_cents = in_cents([_sum(own), told, _sum(negative), _sum(others)])
    by_weight, pools = _weighted(own, facts)
    of: dict[str, list[int]] = {}
    for index, one in enumerate(own):
        of.setdefault(_name(one, by, facts, environments), []).append(index)
    keys = sorted(of)
    exact = [_sum([own[index] for index in of[key]]) for key in keys]
    moved = [sum((by_weight[index] for index in of[key]), Fraction(0)) for key in keys]
    hours = [sum((own[index].gpu_hours for index in of[key]), Decimal(0)) for key in keys]
    basis = [max(cost, Decimal(0)) for cost in exact]
    idle_parts, idle_distributed = _distributed(idle_cents, told, basis)
    shared_parts, shared_distributed = _distributed(shared_cents, _sum(others), basis)
    columns = zip(
        keys,
        hours,
        exact,
        in_cents(exact, metered_cents),
        in_cents(moved, metered_cents),
        idle_parts,
        shared_parts,
        strict=True,
    )
    rows = [
        Row(
            name=name or f"(no {by})",
            gpu_hours=gpu,
            exact=cost,
            metered=dollars(metered),
            weighted=dollars(by_ratio),
            idle=dollars(idle_part),
            shared=dollars(shared_part),
            unnamed=not name,
        )
        for name, gpu, cost, metered, by_ratio, idle_part, shared_part in columns
    ]
    rows.sort(key=lambda row: (-row.total, row.name))
    return Statement(
        window=meter.window,
        by=by,
        rows=tuple(rows),
        bill=dollars(metered_cents + idle_cents + negative_cents + shared_cents),
        metered=dollars(metered_cents),
        idle=dollars(idle_cents + negative_cents) if idle or negative else None,
        shared=dollars(shared_cents),
        shared_parts=_parts(others, shared_cents),
        undistributed=dollars(
            negative_cents + (0 if idle_distributed else idle_cents) + (0 if shared_distributed else shared_cents)
        ),
        pools_weighted=pools,
        notes=(*notes_on(meter, own, facts), *notes),
        unpriced=meter.unpriced,
    )


def _sorted(metered: Sequence[Metered]) -> tuple[list[Metered], list[Metered], list[Metered], list[Metered]]:
    """The costs with a payer, other costs of pods and volumes, idle costs, and negative idle costs."""
    own: list[Metered] = []
    others: list[Metered] = []
    idle: list[Metered] = []
    negative: list[Metered] = []
    for one in metered:
        if one.kind == "idle":
            (negative if one.total < 0 else idle).append(one)
        elif one.kind == "pods" and (one.place.cost_center or one.place.service):
            own.append(one)
        else:
            others.append(one)
    return own, others, idle, negative


def _sum(found: Sequence[Metered]) -> Decimal:
    return sum((one.total for one in found), Decimal(0))


def _name(one: Metered, by: By, facts: Facts, environments: Sequence[str]) -> str:
    """The row that a service's cost belongs to; "" where the pods or the repository do not say it."""
    place = one.place
    known = facts.get(key_of(one))
    if by == "model":
        return known.model if known else ""
    if by == "environment":
        named = place.cluster in environments
        return place.cluster if named else known.environment if known else ""
    if by == "service":
        return f"{place.namespace}/{place.service}" if place.service else ""
    return {"cost-center": place.cost_center, "owner": place.owner, "namespace": place.namespace}[by]


def _weighted(own: Sequence[Metered], facts: Facts) -> tuple[list[Fraction], int]:
    """The cost of each by active parameters, and the number of pools in which that moves money."""
    result = [Fraction(one.total) for one in own]
    pools: dict[tuple[str, str, int], list[int]] = {}
    for index, one in enumerate(own):
        known = facts.get(key_of(one))
        if known is not None and one.total > 0 and read_ratio(one.place.ratio) is not None:
            pools.setdefault((one.place.cluster, known.accelerator, one.part), []).append(index)
    changed = set()
    for (cluster, accelerator, _), members in pools.items():
        ratios = [ratio for index in members if (ratio := read_ratio(own[index].place.ratio)) is not None]
        costs = weighted([own[index].total for index in members], ratios)
        if len(set(ratios)) > 1:
            changed.add((cluster, accelerator))
        for index, cost in zip(members, costs, strict=True):
            result[index] = cost
    return result, len(changed)


def _distributed(cents: int, exact: Decimal, basis: Sequence[Decimal]) -> tuple[list[int], bool]:
    """A cost's cents by row, in proportion to `basis`; and whether it could be distributed.

    A negative cost is not distributed: a credit that nobody can explain would make somebody's bill look too low.
    """
    whole = sum(map(Fraction, basis), Fraction(0))
    if exact < 0 or not whole:
        return [0] * len(basis), not cents
    return in_cents([Fraction(exact) * Fraction(one) / whole for one in basis], cents), True


def _parts(others: Sequence[Metered], cents: int) -> tuple[SharedCost, ...]:
    """Shared costs by their source."""
    sums: dict[str, Decimal] = {}
    for one in others:
        name = "unmounted volumes and load balancers" if one.kind == "unmounted" else _pods_of(one.place.namespace)
        sums[name] = sums.get(name, Decimal(0)) + one.total
    amounts = in_cents(list(sums.values()), cents)
    parts = [SharedCost(name, dollars(amount)) for name, amount in zip(sums, amounts, strict=True)]
    return tuple(sorted(parts, key=lambda part: (-part.amount, part.name)))


def _pods_of(namespace: str) -> str:
    return f"pods without a cost centre in {namespace}" if namespace else "pods whose namespace OpenCost does not know"
