"""Compares the merged plans' estimates with metered costs, service by service, and finds the causes of differences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from neuroscale.metering.allocation import Meter, Metered
from neuroscale.metering.cents import dollars, in_cents, rounded
from neuroscale.metering.notes import Note, notes_on
from neuroscale.metering.services import Estimate, Facts, Named, key_of

CAUSES: Final = ("hours", "replicas", "price", "idle")
NOTHING: Final = dollars(0)


@dataclass(frozen=True)
class Compared:
    """One service in US dollars. `estimate` is the cost of the plan's fewest replicas over the measured hours.

    `difference` is `metered` + idle - `estimate`. Its causes add up to it: `hours` (pods did not run all the time),
    `replicas` (more or fewer than the fewest), `price` (an hour of a replica had another price), `idle` (the service's
    part of node costs beyond requests). They are None if the plan has no price or the repository no plan.
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
    meter: Meter, facts: Facts, estimates: Mapping[Named, Estimate], environments: Collection[str] | None = None
) -> Comparison:
    """Compares each service that was metered or has a plan; those known to be of other `environments` are left out.

    Idle costs are divided as in a showback: in proportion to the metered costs, over all costs with a cost centre or a
    service.
    """
    own = [one for one in meter.metered if one.kind == "pods" and (one.place.cost_center or one.place.service)]
    idle = sum((one.total for one in meter.metered if one.kind == "idle"), NOTHING)
    charged = sum((max(one.total, NOTHING) for one in own), NOTHING)
    hours = measured_hours(meter)
    found: dict[Named, list[Metered]] = {name: [] for name in estimates}
    for one in own:
        if one.place.service:
            known = facts.get(key_of(one))
            if known and environments is not None and known.environment not in environments:
                continue
            name = (known.environment if known else "", one.place.namespace, one.place.service)
            found.setdefault(name, []).append(one)
    rows = [_compared(name, of, estimates.get(name), hours, _share(of, idle, charged)) for name, of in found.items()]
    rows.sort(key=lambda row: (-abs(row.difference or NOTHING), row.environment, row.namespace, row.service))
    return Comparison(meter, Decimal(f"{float(hours):.2f}"), tuple(rows), notes_on(meter, own, facts))


def measured_hours(meter: Meter) -> Fraction:
    """The hours of the window for which OpenCost has data: without empty parts, and from the first sample on."""
    window = meter.window
    left = (window.end - window.start) - sum((one.end - one.start for one in meter.empty), timedelta())
    begins = meter.empty[0].end if meter.empty and meter.empty[0].start == window.start else window.start
    if meter.first_sample is not None and meter.first_sample - begins > meter.step:
        left -= meter.first_sample - begins
    return Fraction(max(left, timedelta()) // timedelta(seconds=1), 3600)


def _share(of: Sequence[Metered], idle: Decimal, charged: Decimal) -> Fraction:
    if idle <= 0 or charged <= 0:
        return Fraction(0)
    return Fraction(idle) * sum((Fraction(max(one.total, NOTHING)) for one in of), Fraction(0)) / Fraction(charged)


def _compared(name: Named, of: Sequence[Metered], plan: Estimate | None, hours: Fraction, idle: Fraction) -> Compared:
    environment, namespace, service = name
    metered = sum((Fraction(one.total) for one in of), Fraction(0))
    if plan is None or plan.hourly is None:
        why = "the repository has no plan of it" if plan is None else "its plan has no price"
        paid, idle_paid = in_cents([metered, idle])
        return Compared(environment, namespace, service, None, dollars(paid), dollars(idle_paid), None, None, why)
    hourly = Fraction(plan.hourly)
    promised = hourly * plan.replicas * hours
    replica_hours = _replica_hours(of, plan)
    there = min(sum((Fraction(one.hours) for one in of), Fraction(0)), hours)
    exact = [
        hourly * plan.replicas * (there - hours),
        hourly * (replica_hours - plan.replicas * there),
        metered - hourly * replica_hours,
        idle,
    ]
    # In cents, the causes add up to the difference, and the difference fits the two amounts beside it.
    estimate, paid, idle_paid = rounded(promised), rounded(metered), rounded(idle)
    causes = _settled(exact, paid + idle_paid - estimate)
    return Compared(
        environment,
        namespace,
        service,
        dollars(estimate),
        dollars(paid),
        dollars(idle_paid),
        dollars(paid + idle_paid - estimate),
        dict(zip(CAUSES, map(dollars, causes), strict=True)),
    )


def _settled(exact: Sequence[Fraction], total: int) -> list[int]:
    """Amounts in cents that add up to `total`, which rounding may have changed: the largest amount takes the rest."""
    cents = [rounded(one) for one in exact]
    largest = max(range(len(cents)), key=lambda index: (abs(exact[index]), -index))
    cents[largest] += total - sum(cents)
    return cents


def _replica_hours(of: Iterable[Metered], plan: Estimate) -> Fraction:
    """The metered hours of replicas: by their GPUs, or by their CPU if OpenCost does not count their accelerators."""
    if plan.gpus:
        return sum((Fraction(one.gpu_hours) for one in of), Fraction(0)) / plan.gpus
    return sum((Fraction(one.cpu_core_hours) for one in of), Fraction(0)) / Fraction(plan.cpu)
