"""Compares the merged plans' estimates with metered costs, service by service, and finds the causes of differences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from neuroscale.metering.allocation import Meter, Metered, dollars, hours_together, in_cents, rounded
from neuroscale.metering.notes import Note, notes_on
from neuroscale.metering.services import Estimate, Facts, Named, Promise, key_of, why_unpriced
from neuroscale.metering.window import Window

CAUSES: Final = ("hours", "replicas", "price", "idle")
NOTHING: Final = dollars(0)


@dataclass(frozen=True)
class Compared:
    """One service in US dollars. `estimate` is the cost of the fewest replicas of each plan that it had, over the
    measured hours in which it had that plan.

    `difference` is `metered` + idle - `estimate`. Its causes add up to it: `hours` (pods did not run all the time),
    `replicas` (more or fewer than the fewest), `price` (an hour of a replica had another price), `idle` (the service's
    part of node costs beyond requests). They are None if it cannot be compared; `why_unknown` gives the reason.
    `changes`: what was merged or removed within the window.
    """

    environment: str
    namespace: str
    service: str
    estimate: Decimal | None
    metered: Decimal
    idle: Decimal
    difference: Decimal | None
    causes: Mapping[str, Decimal] | None
    why_unknown: str = ""
    changes: tuple[str, ...] = ()

    @property
    def percent(self) -> Decimal | None:
        """The difference as a share of the estimate, in percent; None if there is no estimate to compare with."""
        if self.difference is None or not self.estimate:
            return None
        return (self.difference / self.estimate * 100).quantize(Decimal("0.1"))


@dataclass(frozen=True)
class Threshold:
    """A difference counts if it is more than both: US dollars in the window, and percent of the estimate."""

    usd: Decimal
    percent: Decimal

    def passed_by(self, one: Compared) -> bool:
        """Whether a service's difference counts. False for a service that cannot be compared: see `unknown`."""
        if one.difference is None or abs(one.difference) <= self.usd:
            return False
        return not one.estimate or abs(one.difference) * 100 > self.percent * one.estimate


@dataclass(frozen=True)
class Comparison:
    """All services of a window, the largest difference first. `measured_hours`: the hours of the window with data."""

    meter: Meter
    measured_hours: Decimal
    services: tuple[Compared, ...]
    notes: tuple[Note, ...]

    def beyond(self, threshold: Threshold) -> tuple[Compared, ...]:
        """The services whose difference counts."""
        return tuple(one for one in self.services if threshold.passed_by(one))

    @property
    def unknown(self) -> tuple[Compared, ...]:
        """The services that cannot be compared."""
        return tuple(one for one in self.services if one.difference is None)


def compare(
    meter: Meter,
    facts: Facts,
    promises: Mapping[Named, Promise],
    environments: Collection[str] | None = None,
    notes: Sequence[Note] = (),
) -> Comparison:
    """Compares each service that was metered or had a plan; those known to be of other `environments` are left out.

    Idle costs are divided as in a showback: in proportion to the metered costs, over all costs with a cost centre or a
    service, without negative idle costs. `notes` stand before those on the meter.
    """
    own = [one for one in meter.metered if one.kind == "pods" and (one.place.cost_center or one.place.service)]
    idle = sum((max(one.total, NOTHING) for one in meter.metered if one.kind == "idle"), NOTHING)
    charged = sum((max(one.total, NOTHING) for one in own), NOTHING)
    found: dict[Named, list[Metered]] = {name: [] for name in promises}
    for one in own:
        if one.place.service:
            known = facts.get(key_of(one))
            if known and environments is not None and known.environment not in environments:
                continue
            name = (known.environment if known else "", one.place.namespace, one.place.service)
            found.setdefault(name, []).append(one)
    measured = measured_times(meter)
    rows = [
        _compared(name, of, promises.get(name), facts, meter, measured, _share(of, idle, charged))
        for name, of in found.items()
    ]
    rows.sort(key=lambda row: (-abs(row.difference or NOTHING), row.environment, row.namespace, row.service))
    hours = sum((_hours(one) for one in measured), Fraction(0))
    return Comparison(meter, Decimal(f"{float(hours):.2f}"), tuple(rows), (*notes, *notes_on(meter, own, facts)))


def measured_times(meter: Meter) -> tuple[Window, ...]:
    """The times of the window for which OpenCost has samples."""
    return tuple(meter.window.without(meter.empty))


def _hours(window: Window) -> Fraction:
    return Fraction((window.end - window.start) // timedelta(seconds=1), 3600)


def _share(of: Sequence[Metered], idle: Decimal, charged: Decimal) -> Fraction:
    if idle <= 0 or charged <= 0:
        return Fraction(0)
    return Fraction(idle) * sum((Fraction(max(one.total, NOTHING)) for one in of), Fraction(0)) / Fraction(charged)


def _compared(
    name: Named,
    of: Sequence[Metered],
    promise: Promise | None,
    facts: Facts,
    meter: Meter,
    measured: Sequence[Window],
    idle: Fraction,
) -> Compared:
    metered = sum((Fraction(one.total) for one in of), Fraction(0))
    changes = promise.changes if promise else ()
    why = _why_unknown(of, promise, facts)
    if why or promise is None:
        paid, idle_paid = in_cents([metered, idle])
        return Compared(*name, None, dollars(paid), dollars(idle_paid), None, None, why, changes)
    promised = Fraction(0)
    causes = [Fraction(0)] * 3
    for number, part in enumerate(meter.parts):
        there = [one.within(part) for one in measured]
        rows = [one for one in of if one.part == number]
        owed, added = _part(rows, promise, facts, there)
        promised += owed
        causes = [sum(pair, Fraction(0)) for pair in zip(causes, added, strict=True)]
    exact = [*causes, idle]
    # In cents, the causes add up to the difference, and the difference fits the two amounts beside it.
    estimate, paid, idle_paid = rounded(promised), rounded(metered), rounded(idle)
    difference = paid + idle_paid - estimate
    return Compared(
        *name,
        dollars(estimate),
        dollars(paid),
        dollars(idle_paid),
        dollars(difference),
        dict(zip(CAUSES, map(dollars, _settled(exact, difference)), strict=True)),
        changes=changes,
    )


def _why_unknown(of: Sequence[Metered], promise: Promise | None, facts: Facts) -> str:
    """Why a service cannot be compared; "" if it can be."""
    if promise is None:
        return "the repository has no plan of it"
    if any(plan.estimate.hourly is None for plan in promise.plans):
        return "its plan has no price"
    return why_unpriced((one, facts.get(key_of(one))) for one in of)


def _part(
    of: Sequence[Metered], promise: Promise, facts: Facts, measured: Sequence[Window]
) -> tuple[Fraction, list[Fraction]]:
    """What the plans promised in one part of the window, and its causes without idle: hours, replicas and price."""
    time = promised_hours = promised = Fraction(0)
    for plan in promise.plans:
        hours = sum((_hours(one.within(plan.window)) for one in measured), Fraction(0))
        time += hours
        promised_hours += plan.estimate.replicas * hours
        promised += Fraction(plan.estimate.hourly or 0) * plan.estimate.replicas * hours
    estimate = _estimate(of, promise, facts, measured)
    hourly = Fraction(estimate.hourly or 0)
    replicas = promised_hours / time if time else Fraction(estimate.replicas)
    price = promised / promised_hours if promised_hours else hourly
    replica_hours = estimate.replica_hours(of)
    # At least one replica is there in each hour in which the service runs.
    there = min(hours_together(of), replica_hours, sum((_hours(one) for one in measured), Fraction(0)))
    metered = sum((Fraction(one.total) for one in of), Fraction(0))
    causes = [
        price * replicas * (there - time),
        price * (replica_hours - replicas * there),
        metered - price * replica_hours,
    ]
    return promised, causes


def _estimate(of: Sequence[Metered], promise: Promise, facts: Facts, measured: Sequence[Window]) -> Estimate:
    """The estimate that counts for the costs of a part: that of their facts, or the last plan that began before its
    end."""
    for one in of:
        found = facts.get(key_of(one))
        if found is not None and found.estimate is not None:
            return found.estimate
    end = max((one.end for one in measured), default=promise.plans[0].window.end)
    return next((one.estimate for one in reversed(promise.plans) if one.window.start < end), promise.plans[0].estimate)


def _settled(exact: Sequence[Fraction], total: int) -> list[int]:
    """Amounts in cents that add up to `total`, which rounding may have changed: the largest amount takes the rest."""
    cents = [rounded(one) for one in exact]
    largest = max(range(len(cents)), key=lambda index: (abs(exact[index]), -index))
    cents[largest] += total - sum(cents)
    return cents
