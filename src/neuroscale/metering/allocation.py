"""Holds the costs that OpenCost metered: one value for each service, and values for costs outside all services."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from neuroscale.manifests.labels import COST_CENTER, OWNER, RATIO, SERVICE
from neuroscale.metering.window import Window

LABELS: Final = (COST_CENTER, OWNER, SERVICE, RATIO)
"""The labels of a pod by which costs are divided. KServe copies them from the service's own manifest."""

STEP: Final = timedelta(minutes=5)
"""How often OpenCost looks unless its ETL_RESOLUTION_SECONDS says otherwise."""

Kind = Literal["pods", "idle", "unmounted"]


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
        return replace(
            self,
            total=self.total + other.total,
            gpu=self.gpu + other.gpu,
            cpu=self.cpu + other.cpu,
            memory=self.memory + other.memory,
            gpu_hours=self.gpu_hours + other.gpu_hours,
            cpu_core_hours=self.cpu_core_hours + other.cpu_core_hours,
            hours=self.hours + other.hours,
            start=min(filter(None, (self.start, other.start)), default=None),
            end=max(filter(None, (self.end, other.end)), default=None),
            memory_gib_hours=self.memory_gib_hours + other.memory_gib_hours,
            spans=self.spans + other.spans,
        )


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
