"""Defines price lists: the content of the files in `platform/catalog/prices/`. Amounts are US dollars, decimals."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from neuroscale.core.frozen import Frozen, Label, Source
from neuroscale.core.validation import Money, wrong

OPENCOST_DEFAULTS = {"GPU": Decimal("0.95"), "CPU": Decimal("0.031611"), "RAM": Decimal("0.004237")}
"""US dollars for an hour of any GPU, of a core and of a GiB in OpenCost's configs/default.json."""

HOST_DEFAULTS = frozenset((OPENCOST_DEFAULTS["CPU"], OPENCOST_DEFAULTS["RAM"]))
"""Those of a core and of a GiB. They are also what Google asks for on its N1 and A2 machines in us-central1."""

PLACEHOLDER_PRICES = frozenset((*OPENCOST_DEFAULTS.values(), Decimal("700")))
"""Amounts by which other tools mean 'no price': OpenCost's defaults for GPU, CPU and RAM, SkyPilot's 'unavailable'."""


# Up to which size (vCPUs, GiB) a node keeps which share of that part of it for itself, and what it never fills (GiB).
_CPU_KEPT = (("1", "0.06"), ("2", "0.01"), ("4", "0.005"), ("Infinity", "0.0025"))
_MEMORY_KEPT = (("4", "0.25"), ("8", "0.20"), ("16", "0.10"), ("128", "0.06"), ("Infinity", "0.02"))
_EVICTION_GIB = Decimal("0.1")


class Instance(Frozen):
    """The machine that a price per instance-hour is for. `name` as the provider names it; vCPUs, and memory in GiB."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    vcpu: Annotated[int, Field(ge=1)]
    memory_gib: Annotated[Money, Field(gt=0)]

    def holds(self, cpu: Decimal | int, memory_gib: Decimal | int) -> bool:
        """Whether a pod with these requests fits beside what a node keeps for itself.

        Providers keep different amounts; these are GKE's, which are among the largest:
        https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes. DaemonSets are not counted.
        """
        memory = self.memory_gib - _kept(self.memory_gib, _MEMORY_KEPT) - _EVICTION_GIB
        return cpu <= self.vcpu - _kept(Decimal(self.vcpu), _CPU_KEPT) and memory_gib <= memory


def _kept(size: Decimal, steps: tuple[tuple[str, str], ...]) -> Decimal:
    kept, below = Decimal(0), Decimal(0)
    for end, share in steps:
        kept += max(Decimal(0), min(size, Decimal(end)) - below) * Decimal(share)
        below = Decimal(end)
    return kept


class Price(Frozen):
    """US dollars per hour of `count` accelerators.

    `includes` names the parts in the price; vCPU and memory that are not included cost `vcpu_hour` and
    `memory_gib_hour` (US dollars per vCPU-hour and per GiB-hour; None: the list's own rates). `instance`: the machine,
    which only pods of exactly `count` accelerators that fit on it get (None: the price is for a pod of any size).
    `date` and `source`: those of this price, where they are not the list's.
    """

    accelerator: Label
    count: Annotated[int, Field(ge=1)]
    unit: Literal["accelerator-hour", "instance-hour"]
    usd: Money
    includes: tuple[Literal["cpu", "memory"], ...]
    instance: Instance | None = None
    vcpu_hour: Money | None = None
    memory_gib_hour: Money | None = None
    date: datetime.date | None = None
    source: Source | None = None

    @field_validator("usd", "vcpu_hour", "memory_gib_hour")
    @classmethod
    def _real(cls, usd: Decimal | None, field: ValidationInfo) -> Decimal | None:
        where_unknown = "Leave an accelerator without a known price out of the list."
        if usd is None or (field.field_name != "usd" and usd in HOST_DEFAULTS):
            return usd
        return _real_price(usd, where_unknown)

    @model_validator(mode="after")
    def _host_rates(self) -> Price:
        # OpenCost's defaults are Google's rates of N1 and A2 in us-central1, so a source makes them a price.
        if self.source is None and HOST_DEFAULTS & {self.vcpu_hour, self.memory_gib_hour}:
            raise wrong(
                "vcpu_hour or memory_gib_hour is OpenCost's placeholder",
                "Write the provider's rate, or the `source` of this price.",
            )
        return self

    @model_validator(mode="after")
    def _unit(self) -> Price:
        if self.unit == "accelerator-hour" and self.count != 1:
            raise wrong("a price per accelerator-hour is for one", "Write `count: 1`, or `unit: instance-hour`.")
        if self.instance is not None and self.unit != "instance-hour":
            raise wrong("an instance has a price per instance-hour", "Write `unit: instance-hour`.")
        return self

    @property
    def key(self) -> tuple[str, int, str]:
        """What the price is for: the accelerator, how many of them, and the instance ("" for a pod of any size)."""
        return self.accelerator, self.count, self.instance.name if self.instance else ""

    def fits(self, accelerator: str, count: int, cpu: Decimal | int, memory_gib: Decimal | int) -> bool:
        """Whether a pod that asks for these gets this price."""
        if self.accelerator != accelerator:
            return False
        if self.instance is None:
            return count % self.count == 0
        return count == self.count and self.instance.holds(cpu, memory_gib)


def _real_price(usd: Decimal, where_unknown: str) -> Decimal:
    if usd <= 0:
        raise wrong(f"{usd} is not a price", where_unknown)
    if usd in PLACEHOLDER_PRICES:
        raise wrong(
            f"{usd} is a placeholder of another tool, not a price", "Write the provider's price, with its source."
        )
    return usd


class PriceList(Frozen):
    """Prices of one provider at one date, in US dollars. `region` and `tier` as the provider names them."""

    name: Label
    source: Source
    date: datetime.date
    region: str
    tier: str
    vcpu_hour: Money | None
    memory_gib_hour: Money | None
    prices: Annotated[tuple[Price, ...], Field(min_length=1)]

    @field_validator("vcpu_hour", "memory_gib_hour")
    @classmethod
    def _real(cls, usd: Decimal | None) -> Decimal | None:
        return None if usd is None else _real_price(usd, "Write null where it is not known.")

    @model_validator(mode="after")
    def _once(self) -> PriceList:
        seen = [price.key for price in self.prices]
        for key in seen:
            if seen.count(key) > 1:
                raise wrong(f"{key[0]} x {key[1]} has two prices in one list", "Keep one of the two.")
        for price in self.prices:
            if "cpu" not in price.includes and self.vcpu_hour is None and price.vcpu_hour is None:
                raise wrong(
                    f"{price.accelerator} does not include cpu, and the list has no vcpu_hour", "Write vcpu_hour."
                )
            if "memory" not in price.includes and self.memory_gib_hour is None and price.memory_gib_hour is None:
                raise wrong(
                    f"{price.accelerator} does not include memory, and the list has no memory_gib_hour",
                    "Write memory_gib_hour.",
                )
        return self

    def hourly(self, price: Price, count: int, cpu: Decimal | int, memory_gib: Decimal | int) -> Decimal:
        """US dollars an hour of a pod by one of the list's prices: its `count` accelerators, and the vCPUs and memory
        (GiB) that the price does not include."""
        total = price.usd * (count // price.count)
        vcpu_hour = self.vcpu_hour if price.vcpu_hour is None else price.vcpu_hour
        memory_gib_hour = self.memory_gib_hour if price.memory_gib_hour is None else price.memory_gib_hour
        if "cpu" not in price.includes and vcpu_hour is not None:
            total += vcpu_hour * cpu
        if "memory" not in price.includes and memory_gib_hour is not None:
            total += memory_gib_hour * memory_gib
        return total

    @property
    def oldest(self) -> datetime.date:
        """The date of the oldest price in the list."""
        return min(self._dates)

    @property
    def newest(self) -> datetime.date:
        """The date of the newest price in the list."""
        return max(self._dates)

    @property
    def _dates(self) -> list[datetime.date]:
        return [self.date, *(price.date for price in self.prices if price.date is not None)]
