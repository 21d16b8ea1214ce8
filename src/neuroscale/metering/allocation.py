"""Holds the costs that OpenCost metered: one value for each service, and values for costs outside all services."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

from neuroscale.metering.window import Window

COST_CENTER: Final = "cost-center"
OWNER: Final = "app.kubernetes.io/owner"
SERVICE: Final = "serving.kserve.io/inferenceservice"
RATIO: Final = "active-param-ratio"
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
    `total` includes `gpu`, `cpu` and `memory`, and the costs of volumes and of the network. `hours`: how long any of
    these existed. `start` and `end`: the first and the last sample.
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
        )


@dataclass(frozen=True)
class Meter:
    """OpenCost's costs of a window: one value for each kind and place.

    `empty`: the parts of the window for which OpenCost has no data. `idle_known`: whether OpenCost reported idle costs
    for each part with data. `warnings`: OpenCost's own warnings, in its words. `step`: how often OpenCost looks whether
    a pod is there, so how exact its hours are. `unpriced`: nodes that cost next to nothing there, because no price list
    has a price of them. `local`: whether it is the meter of the local platform, whose nodes are simulated, and whose
    prices keep the idle costs of short windows right.
    """

    window: Window
    metered: tuple[Metered, ...]
    empty: tuple[Window, ...] = ()
    idle_known: bool = True
    warnings: tuple[str, ...] = ()
    step: timedelta = STEP
    unpriced: tuple[str, ...] = ()
    local: bool = False

    @property
    def first_sample(self) -> datetime | None:
        """The first sample within the window; None if that is not known."""
        return min((one.start for one in self.metered if one.start is not None), default=None)


def together(found: Iterable[Metered]) -> tuple[Metered, ...]:
    """The sums by kind and place, in a fixed order."""
    sums: dict[tuple[Kind, Place], Metered] = {}
    for one in found:
        key = (one.kind, one.place)
        sums[key] = sums[key].plus(one) if key in sums else one
    return tuple(sums[key] for key in sorted(sums, key=lambda key: (key[0], tuple(vars(key[1]).values()))))
