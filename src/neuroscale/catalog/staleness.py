"""Finds outdated revisions, prices and images in the catalog. What could not be checked is unknown, never fresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from neuroscale.catalog.loading import Catalog
from neuroscale.catalog.measurements import is_near
from neuroscale.core.errors import InputError
from neuroscale.core.releases import release
from neuroscale.models.hub import HubOutOfReachError

OLDEST_PRICE_DAYS = 90
"""The age in days at which a price is stale: providers change theirs several times a year."""


def in_the_future(day: date, today: date) -> bool:
    """Whether a price's day has begun nowhere yet. In the east of the world it is tomorrow already."""
    return day > today + timedelta(days=1)


Newest = Callable[[str], str]
"""Finds the newest commit of a repository of the Hub, by its name. Raises InputError if the Hub does not answer."""


@dataclass(frozen=True)
class Remark:
    """A remark about one entry (`model/NAME`, `price/NAME`, `runtime/NAME`): the fault or the gap, and what to do."""

    entry: str
    state: Literal["stale", "unknown"]
    message: str
    fix: str


@dataclass(frozen=True)
class Staleness:
    """The remarks, and how many revisions (with the Hub's), price lists and images were compared."""

    remarks: tuple[Remark, ...]
    revisions: int
    prices: int
    images: int

    def of(self, state: Literal["stale", "unknown"]) -> list[Remark]:
        """The remarks of one state."""
        return [remark for remark in self.remarks if remark.state == state]


def staleness(catalog: Catalog, today: date, newest: Newest) -> Staleness:
    """Checks the whole catalog. It asks the Hub for models until the Hub is out of reach."""
    remarks, revisions = _revisions(catalog, newest)
    for price_list in catalog.prices.values():
        days = (today - price_list.oldest).days
        if in_the_future(price_list.newest, today):
            message = f"the prices are of {price_list.newest}, which is in the future: their age is unknown"
            remarks.append(Remark(f"price/{price_list.name}", "stale", message, "Correct the date."))
        elif days > OLDEST_PRICE_DAYS:
            message = f"the prices are of {price_list.oldest}, {days} days ago: more than {OLDEST_PRICE_DAYS}"
            fix = "Look them up again, and write the new date with them."
            remarks.append(Remark(f"price/{price_list.name}", "stale", message, fix))
    for runtime in catalog.runtimes.values():
        if runtime.digest is None:
            message = f"{runtime.image} is pinned by its tag alone, which may come to name another image"
            fix = f"Write `digest: sha256:...`, as `crane digest {runtime.image}` prints it."
            remarks.append(Remark(f"runtime/{runtime.name}", "stale", message, fix))
    remarks += _measurements(catalog, today)
    return Staleness(tuple(remarks), revisions, len(catalog.prices), len(catalog.runtimes))


def _measurements(catalog: Catalog, today: date) -> Iterator[Remark]:
    """The measurements that no plan uses any more: of other weights, or of a version that no runtime is near."""
    for model in catalog.models.values():
        for measurement in model.measurements:
            family = catalog.accelerators[measurement.accelerator].family
            versions = [runtime.version for runtime in catalog.runtimes.values() if runtime.family == family]
            releases = [release(version) for version in versions]
            measured = f"the measurement of the {measurement.title}"
            if in_the_future(measurement.date, today):
                message, fix = f"{measured} is of {measurement.date}, which is in the future", "Correct the date."
            elif measurement.weights != model.weights_digest:
                message = f"{measured} is of other weights than the entry's config says: plans do not use it"
                fix = "Measure again with `neuroscale bench`, or remove it."
            elif not any(is_near(measurement.release, each) for each in releases):
                message = f"{measured} is of another vLLM than the runtimes': plans do not use it"
                fix = "Measure again with `neuroscale bench`, or remove it."
            else:
                continue
            yield Remark(f"model/{model.name}", "stale", message, fix)


def _revisions(catalog: Catalog, newest: Newest) -> tuple[list[Remark], int]:
    """The remarks about models of the Hub, and how many revisions could be compared."""
    remarks: list[Remark] = []
    compared, out_of_reach = 0, ""

    def remark(state: Literal["stale", "unknown"], message: str, fix: str) -> None:
        remarks.append(Remark(f"model/{model.name}", state, message, fix))

    for model in catalog.models.values():
        if model.weights.kind != "hub":
            continue
        renew = f"Run `neuroscale catalog add {model.weights.path}`."
        if model.weights.revision is None:
            remark("stale", "names no revision: each start loads the newest one", renew)
        elif out_of_reach:
            remark("unknown", out_of_reach, "Run it again where the Hub can be reached.")
        else:
            try:
                commit = newest(model.weights.path)
            except HubOutOfReachError as error:
                out_of_reach = error.problems[0].message
                remark("unknown", out_of_reach, "Run it again where the Hub can be reached.")
            except InputError as error:
                remark("unknown", error.problems[0].message, error.problems[0].fix)
            else:
                compared += 1
                if commit != model.weights.revision:
                    message = f"the revision is {model.weights.revision[:12]}, and the Hub has {commit[:12]}"
                    remark("stale", message, renew)
    return remarks, compared
