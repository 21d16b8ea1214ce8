"""Computes the price of a workload, by the price lists of its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from neuroscale.catalog import Catalog, PriceList
from neuroscale.catalog.settings import Environment
from neuroscale.costs.bill import Range, WorkloadCost
from neuroscale.manifests.accelerators import find_accelerator
from neuroscale.manifests.pod_resources import Pod
from neuroscale.manifests.workloads import Unpriced, Workload
from neuroscale.planning.price import HOURS_PER_MONTH, PodPrice, pod_price

NO_COST_CENTER = "(no cost centre)"

_LARGEST = 10**8  # US dollars a month, cores or GiB of one workload; a larger number is a typing error


@dataclass(frozen=True)
class Prices:
    """The catalog and the settings that give prices; the catalog has every price list that an environment names.

    `base`: the prices before a change, if the change could make its own services cheap. Then the dearer price of both
    counts, and the only one where one side has none. What a service cost before the change is by the base alone:
    otherwise a change could make dear what it replaces.
    """

    catalog: Catalog
    environments: Mapping[str, Environment]
    base: Prices | None = None

    @property
    def sides(self) -> tuple[Prices, ...]:
        """The prices that count: those of the base first, so that they hold where both are equal."""
        alone = replace(self, base=None)
        return (alone,) if self.base is None else (self.base, alone)

    @property
    def free(self) -> frozenset[str]:
        """The environments without a price list on each side, in which nothing has a price by intention."""
        sides = [{name for name, one in side.environments.items() if not one.price_lists} for side in self.sides]
        return frozenset.intersection(*map(frozenset, sides))

    def price_list(self, name: str) -> PriceList:
        """The price list of that name. Raises KeyError where no side has it."""
        return next(side.catalog.prices[name] for side in reversed(self.sides) if name in side.catalog.prices)

    def same_as(self, other: Prices) -> bool:
        """Whether both give the same price to everything."""
        return self._basis() == other._basis()

    def _basis(self) -> tuple[object, ...]:
        keys = [key for key in sorted(self.catalog.keys()) if key.startswith(("price/", "accelerator/"))]
        lists = {name: (one.price_lists, sorted(one.accelerators)) for name, one in self.environments.items()}
        return {key: self.catalog.entry_digest(key) for key in keys}, lists


class Used(NamedTuple):
    """A price that an amount comes from: its list, its date and its source."""

    price_list: str
    date: date
    source: str


def price_workload(
    workload: Workload, environment: str, prices: Prices
) -> tuple[WorkloadCost, list[Unpriced], frozenset[Used]]:
    """The workload's price, its parts without one, and the prices used; with the prices of two sides, the dearer price.

    The base's catalog says which cost centre pays for a namespace that it knows. Raises ValueError, with the reason, if
    no part has a price on either side.
    """
    centers = [_team_center(workload.namespace, side.catalog) for side in prices.sides]
    center = workload.cost_center or next((name for name in centers if name != NO_COST_CENTER), NO_COST_CENTER)
    priced: list[tuple[WorkloadCost, list[Unpriced], frozenset[Used]]] = []
    reasons: list[ValueError] = []
    for side in prices.sides:
        try:
            priced.append(_price_at(workload, center, environment, side))
        except ValueError as error:
            reasons.append(error)
    if not priced:
        raise reasons[-1]
    cost, missing, _ = max(priced, key=lambda one: (one[0].monthly.max, one[0].monthly.min, one[0].hourly))
    return cost, missing, frozenset().union(*(used for *_, used in priced))


def _price_at(
    workload: Workload, center: str, environment: str, prices: Prices
) -> tuple[WorkloadCost, list[Unpriced], frozenset[Used]]:
    """What `price_workload` gives, by the prices of one side, for the cost centre `center`."""
    if environment not in prices.environments:
        where = f"manifests/{environment}" if environment else "its folder"
        raise ValueError(f"the settings do not name {where} as an environment, so no price list applies to it")
    named = prices.environments[environment]
    pods = [(pod, count, *_pod_price(pod, named, environment, prices.catalog)) for pod, count in workload.pods if count]
    hourly = sum((price.hourly * count for _, count, price, _, _ in pods), Decimal(0))
    cpu = sum((pod.cpu * count for pod, count, _, _, _ in pods), Decimal(0))
    memory_gib = sum((pod.memory_gib * count for pod, count, _, _, _ in pods), Decimal(0))
    fewest, most = (hourly * count * HOURS_PER_MONTH for count in (workload.bounds.fewest, workload.bounds.most))
    if max(fewest, most, hourly, cpu, memory_gib) > _LARGEST:
        raise ValueError(f"its numbers are beyond {_LARGEST:,}, so they cannot be meant")
    cost = WorkloadCost(
        subject=workload.subject,
        cost_center=center,
        replicas_min=workload.bounds.fewest,
        replicas_max=workload.bounds.most,
        accelerator=", ".join(sorted({name for _, _, _, name, _ in pods if name})),
        accelerators=sum(held * count for _, count, _, _, held in pods),
        cpu=_rounded(cpu, "0.001"),
        memory_gib=_rounded(memory_gib, "0.001"),
        hourly=_rounded(hourly, "0.0001"),
        monthly=Range(min=_rounded(fewest, "0.01"), max=_rounded(most, "0.01")),
        price_lists=tuple(sorted({price.price_list for _, _, price, _, _ in pods})),
    )
    used = frozenset(Used(price.price_list, price.date, price.told) for _, _, price, _, _ in pods)
    missing = sorted({name for pod, *_ in pods for name in pod.missing})
    if not missing:
        return cost, [], used
    instances = sorted({price.instance for pod, _, price, _, _ in pods if pod.missing and price.instance})
    reason = f"a container does not request {' or '.join(missing)}, " + (
        f"so the cheapest instance that holds the rest is assumed ({', '.join(instances)})"
        if instances
        else "which the price leaves out"
    )
    return cost, [Unpriced(workload.subject, reason, decisive=False)], used


def _pod_price(pod: Pod, named: Environment, environment: str, catalog: Catalog) -> tuple[PodPrice, str, int]:
    accelerator, count = find_accelerator(pod, catalog, named.accelerators)
    if not accelerator and not pod.cpu and not pod.memory:
        raise ValueError("it asks for no resources, so what it takes is not known")
    if not named.price_lists:
        raise ValueError(f"the environment {environment} has no price list")
    price = pod_price(catalog, named.price_lists, accelerator, count, pod.cpu, pod.memory_gib)
    if price is None:
        what = f"{count} x {accelerator}" if accelerator else "CPU and memory alone"
        raise ValueError(f"no price list of the environment {environment} has a price for {what}")
    return price, accelerator, count


def _team_center(namespace: str, catalog: Catalog) -> str:
    for team in catalog.teams.values():
        if team.namespace == namespace:
            return team.cost_center
    return NO_COST_CENTER


def _rounded(amount: Decimal, step: str) -> Decimal:
    return amount.quantize(Decimal(step), ROUND_HALF_UP)
