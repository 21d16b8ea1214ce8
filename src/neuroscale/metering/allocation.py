"""Holds the costs that OpenCost metered, divides them by active parameters, and rounds them so that they add up.

A cost belongs to one service, or to none. Amounts are whole cents that add up to their total.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from neuroscale.manifests.objects import COST_CENTER, OWNER, RATIO, SERVICE
from neuroscale.metering.window import Window

Amount = Fraction | Decimal

_MOST_PLACES = 12


def in_cents(amounts: Sequence[Amount], total: int | None = None) -> list[int]:
    """The amounts (US dollars) in cents, each rounded up or down so that they add up to `total` cents.

    The largest remainder rule: each amount is rounded down, and the missing cents go to the amounts that lost most by
    that; of equal amounts, the first one comes first. `total` must be the sum of the amounts, rounded up or down to a
    cent; without it, the total is that sum rounded half up. Raises ValueError for any other total.
    """
    exact = [Fraction(amount) * 100 for amount in amounts]
    wanted = rounded(sum(exact, Fraction(0)) / 100) if total is None else total
    whole = [math.floor(one) for one in exact]
    missing = wanted - sum(whole)
    lost = [index for index, one in enumerate(exact) if one != whole[index]]
    lost.sort(key=lambda index: (whole[index] - exact[index], index))
    if not 0 <= missing <= len(lost):
        raise ValueError(f"{wanted} cents are not the sum of these amounts")
    for index in lost[:missing]:
        whole[index] += 1
    return whole


def rounded(amount: Amount) -> int:
    """An amount (US dollars) in cents; half a cent is rounded up."""
    return math.floor(Fraction(amount) * 100 + Fraction(1, 2))


def dollars(cents: int) -> Decimal:
    """Cents as US dollars with two decimals."""
    return Decimal(cents).scaleb(-2)


def price_of(cost: Amount, units: Fraction) -> Decimal:
    """US dollars of one unit, to four significant digits and at least to the cent; half is rounded up.

    Many prices of a million tokens are a few cents, of which whole cents would lose a third.
    """
    exact = Fraction(cost) / units
    places = 2
    while exact and abs(exact) * 10**places < 1000 and places < _MOST_PLACES:
        places += 1
    price = Decimal(math.floor(exact * 10**places + Fraction(1, 2))).scaleb(-places)
    shortest = price.normalize()
    return price.quantize(Decimal(1).scaleb(min(-2, int(shortest.as_tuple().exponent))))


_RATIO = re.compile(r"[01](\.[0-9]{1,9})?")


def read_ratio(label: str) -> Decimal | None:
    """The share of its parameters that a model computes a token with, from a pod's label; None without such a share.

    1 is a dense model, 0.15 a mixture of experts that computes with 15 % of its parameters.
    """
    found = Decimal(label) if _RATIO.fullmatch(label) else None
    return found if found is not None and 0 < found <= 1 else None


def weighted(costs: Sequence[Decimal], ratios: Sequence[Decimal]) -> list[Fraction]:
    """The same cost, divided in proportion to cost x ratio: c_i r_i / sum(c_j r_j) of the sum of all c.

    `costs` are those of a pool's services (US dollars), `ratios` those of their models. The sum stays exactly the same,
    so nothing changes in a pool of one service or of only dense models. Raises ValueError for a cost below 0 or a ratio
    that is not above 0.
    """
    if any(cost < 0 for cost in costs) or any(ratio <= 0 for ratio in ratios):
        raise ValueError("a cost is below 0, or a ratio is not above 0")
    pool = sum(map(Fraction, costs), Fraction(0))
    keys = [Fraction(cost) * Fraction(ratio) for cost, ratio in zip(costs, ratios, strict=True)]
    whole = sum(keys, Fraction(0))
    return [pool * key / whole if whole else Fraction(0) for key in keys]


def experts_touched(experts: int, per_token: int, batch: float) -> float:
    """The share of the routed experts that one decode step reads: 1 - (1 - k/E)^B.

    E: experts; k: experts of each token; B: tokens that are decoded together. The formula assumes that the router
    chooses evenly. With 8 of 128 experts: 6 % at 1 token, 40 % at 8, 87 % at 32. Raises ValueError for numbers that no
    model can have.
    """
    if not 0 < per_token <= experts or batch < 1:
        raise ValueError("experts must be at least per_token, and both and the batch at least 1")
    return float(1 - (1 - per_token / experts) ** batch)


LABELS: Final = (COST_CENTER, OWNER, SERVICE, RATIO)
"""The labels of a pod by which costs are divided. KServe copies them from the service's own manifest."""

STEP: Final = timedelta(minutes=5)
"""How often OpenCost looks unless its ETL_RESOLUTION_SECONDS says otherwise."""

Kind = Literal["pods", "idle", "unmounted"]
_SUMMED = ("total", "gpu", "cpu", "memory", "gpu_hours", "cpu_core_hours", "hours", "memory_gib_hours", "spans")


@dataclass(frozen=True)
class Place:
    """The place that costs belong to, by the labels of its pods; "" if OpenCost does not know a label.

    `ratio`: the text of the label with the share of its parameters that a model computes a token with.
    """

    cluster: str = ""
    namespace: str = ""
    cost_center: str = ""
    owner: str = ""
    service: str = ""
    ratio: str = ""


@dataclass(frozen=True)
class Metered:
    """Costs in US dollars, as OpenCost rounds them (to five decimals).

    Kinds: `pods` are costs of pods, by their requests; `idle` are costs of nodes beyond the requests of pods, which can
    be negative while Prometheus has few samples; `unmounted` are costs of volumes and load balancers that no pod uses.
    `total` includes `gpu`, `cpu` and `memory`, and the costs of volumes and of the network. `hours`: from the first to
    the last sample in each answer, which is more than the time in which pods ran if they paused between (OpenCost's
    `minutes` is End - Start of the sum). `start` and `end`: the first and the last sample. `spans`: the same times,
    those of each answer. `memory_gib_hours`: GiB (2^30 bytes) times hours. `part`: which of the meter's parts they are
    costs of.
    """

    kind: Kind
    place: Place
    total: Decimal
    gpu: Decimal
    cpu: Decimal
    memory: Decimal
    gpu_hours: Decimal
    cpu_core_hours: Decimal
    hours: Decimal = Decimal(0)
    start: datetime | None = None
    end: datetime | None = None
    memory_gib_hours: Decimal = Decimal(0)
    spans: tuple[tuple[datetime, datetime], ...] = ()
    part: int = 0

    def plus(self, other: Metered) -> Metered:
        """The sum of both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        start = min(filter(None, (self.start, other.start)), default=None)
        end = max(filter(None, (self.end, other.end)), default=None)
        return replace(self, start=start, end=end, **sums)


@dataclass(frozen=True)
class Meter:
    """OpenCost's costs of a window: one value for each kind and place in each part of the window.

    Negative idle costs of one answer stand apart from what is idle in the others, which would hide them.
    `empty`: the times of the window for which OpenCost has no samples, in their order. `idle_known`: whether OpenCost
    reported idle costs in each answer with data. `warnings`: OpenCost's own warnings, in its words. `step`: how often
    OpenCost looks whether a pod is there, so how exact its hours are. `unpriced`: nodes that cost next to nothing
    there, because no price list has a price of them. `local`: whether it is the meter of the local platform, whose
    nodes are simulated, and whose prices keep the idle costs of short windows right. `cuts`: the times at which one
    part of the window ends and the next begins.
    """

    window: Window
    metered: tuple[Metered, ...]
    empty: tuple[Window, ...] = ()
    idle_known: bool = True
    warnings: tuple[str, ...] = ()
    step: timedelta = STEP
    unpriced: tuple[str, ...] = ()
    local: bool = False
    cuts: tuple[datetime, ...] = ()

    @property
    def parts(self) -> tuple[Window, ...]:
        """The parts of the window, in their order."""
        bounds = (self.window.start, *self.cuts, self.window.end)
        return tuple(Window(start, end) for start, end in itertools.pairwise(bounds))


def together(found: Iterable[Metered]) -> tuple[Metered, ...]:
    """The sums by kind, place and part, in a fixed order. Negative idle costs are a sum of their own."""
    sums: dict[tuple[Kind, Place, int, bool], Metered] = {}
    for one in found:
        key = (one.kind, one.place, one.part, one.kind == "idle" and one.total < 0)
        sums[key] = sums[key].plus(one) if key in sums else one
    return tuple(sums[key] for key in sorted(sums, key=lambda key: (key[0], tuple(vars(key[1]).values()), *key[2:])))


def hours_together(found: Iterable[Metered]) -> Fraction:
    """How long at least one of these was there, in hours: times that overlap count once.

    Costs whose times are not known count their own hours.
    """
    rows = list(found)
    whole = sum((Fraction(one.hours) for one in rows if not one.spans), Fraction(0))
    last: datetime | None = None
    for start, end in sorted(span for one in rows for span in one.spans):
        begin = start if last is None else max(start, last)
        if end > begin:
            whole += Fraction((end - begin) // timedelta(seconds=1), 3600)
            last = end
    return whole
