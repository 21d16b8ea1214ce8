"""Sets the best choices for a request side by side: accelerators, quantised copies, smaller models of the family."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.catalog.parser_families import heading_of
from neuroscale.catalog.settings import Settings
from neuroscale.core.money_and_time import duration, usd
from neuroscale.core.printable import plainly_counted
from neuroscale.planning import replica_memory
from neuroscale.planning.candidates import Candidate
from neuroscale.planning.case import Case
from neuroscale.planning.choice import choose, risks
from neuroscale.planning.load_choice import Judge, all_judged, planned_load, with_spare
from neuroscale.planning.plan import PlannedLoad
from neuroscale.planning.price import cost
from neuroscale.request.service_request import Request

By = Literal["price", "latency", "throughput"]
"""How choices are sorted: by US dollars a month, by the time to the first token at p95, or by tokens a second of all
replicas together."""

_FORCED = frozenset({"accelerator", "accelerator_count", "kv_cache_dtype"})
_ON_A_LAPTOP = ("google/gemma-4-E2B-it-qat-w4a16-ct", "google/gemma-4-E4B-it-qat-w4a16-ct")


@dataclass(frozen=True)
class Advised:
    """A choice with its figures. `kind`: the model that was asked for, a copy of it with other weights, or a smaller
    one of its family. `hourly` and `monthly` are US dollars of all replicas. `against`: what speaks against it beside
    the first, as a sentence ("": nothing); `works` tells whether it could be served."""

    kind: Literal["asked", "copy", "smaller"]
    model: str
    weights: str  # the type of the weights, as the catalog names it
    accelerator: str
    count: int  # accelerators of a replica, which is its tensor parallelism
    kv_cache_dtype: str
    replicas: int
    context: int
    hourly: Decimal | None
    monthly: Decimal | None
    load: PlannedLoad | None
    works: bool
    chosen: bool  # the plan takes it
    risks: tuple[str, ...]
    against: str

    @property
    def tokens_per_second(self) -> float | None:
        """Of all replicas together at the asked load."""
        rates = self.load.tokens_per_second if self.load else None
        return rates.replica.value * self.replicas if rates else None

    @property
    def ttft_seconds(self) -> float | None:
        """To the first token at p95 of the asked load."""
        first = self.load.ttft_seconds if self.load else None
        return first.p95.value if first else None


@dataclass(frozen=True)
class Advice:
    """The choices, best first, those that do not work last; and whether a laptop would do, in a sentence."""

    by: By
    choices: tuple[Advised, ...]
    laptop: str


def advise(request: Request, catalog: Catalog, settings: Settings, by: By = "price") -> Advice:
    """The best choice of each accelerator for the model that is asked for, and the best one of each copy and of each
    smaller model of its family. Overrides of hardware do not count here."""
    environment = settings.environments[request.environment]
    overrides = {one.field: one.value for one in request.overrides if one.field not in _FORCED}
    asked = catalog.models[request.model]
    found: list[Advised] = []
    for kind, model in _models(asked, catalog):
        case = Case(request, model, request.environment, environment, catalog, overrides)
        planned = choose(case).chosen if kind == "asked" else None
        if kind == "asked":
            by_name: dict[str, list[Candidate]] = {}
            for one in all_judged(case):
                by_name.setdefault(one.accelerator.name, []).append(one)
            groups = list(by_name.values())
        else:
            groups = [_cheapest(case) if by == "price" else all_judged(case)]
        for group in groups:
            best = _best(case, group, by)
            found.append(_of(case, kind, best, chosen=planned is not None and _same(best, planned)))
        if planned is not None and planned.works and not any(one.chosen for one in found):
            found.append(_of(case, kind, planned, chosen=True))
    found.sort(key=lambda one: (not one.works, _key(one, by)))
    first = found[0]
    choices = tuple(replace(one, against=_against(one, first, by)) for one in found)
    return Advice(by, choices, _laptop(request, catalog, settings))


def _models(asked: ModelEntry, catalog: Catalog) -> Iterator[tuple[Literal["asked", "copy", "smaller"], ModelEntry]]:
    """The model, its copies, and the smaller models of its family with theirs."""
    root = catalog.models[asked.variant_of] if asked.variant_of else asked
    family = root.family or heading_of(root.name)
    yield "asked", asked
    for model in catalog.models.values():
        other = catalog.models[model.variant_of] if model.variant_of else model
        if model is asked:
            continue
        if other is root:
            yield "copy", model
        elif (other.family or heading_of(other.name)) == family and other.facts.total_params < root.facts.total_params:
            yield "smaller", model


def _cheapest(case: Case) -> list[Candidate]:
    """The choices that may be the cheapest one that works; all of them if none does."""
    judge = Judge(case)
    return judge.find(lambda one: not one.unchecked) or judge.find() or judge.found


def _best(case: Case, group: list[Candidate], by: By) -> Candidate:
    working = [with_spare(case, one) for one in group if one.works]
    if not working:
        return min(group, key=lambda one: one.distance)
    return min(working, key=lambda one: _key(_of(case, "asked", one, chosen=False), by))


def _same(one: Candidate, other: Candidate) -> bool:
    sides = (
        (each.accelerator.name, each.count, each.arguments.kv_cache_dtype, each.replicas.min) for each in (one, other)
    )
    return other.works and len(set(sides)) == 1


def _of(case: Case, kind: Literal["asked", "copy", "smaller"], one: Candidate, *, chosen: bool) -> Advised:
    paid = cost(one.price, one.replicas)
    return Advised(
        kind=kind,
        model=case.model.name,
        weights=case.model.checkpoint.quantization,
        accelerator=one.accelerator.name,
        count=one.count,
        kv_cache_dtype=one.arguments.kv_cache_dtype,
        replicas=one.replicas.min,
        context=case.max_model_len,
        hourly=paid.hourly,
        monthly=paid.monthly_min,
        load=planned_load(case, one) if one.works else None,
        works=one.works,
        chosen=chosen,
        risks=risks(one) if one.works else (),
        against=one.failures[0].sentence if one.failures else "",
    )


def _key(one: Advised, by: By) -> tuple[bool, float, float, int, str, str]:
    """Sorts the best first; what is not known comes last, and at equal figures the cheaper one first. What nothing is
    known about the speed of comes after all others, as in a plan."""
    price = math.inf if one.monthly is None else float(one.monthly)
    figure = price
    if by == "latency":
        figure = math.inf if one.ttft_seconds is None else one.ttft_seconds
    elif by == "throughput":
        figure = math.inf if one.tokens_per_second is None else -one.tokens_per_second
    return _unchecked(one), figure, price, one.count * one.replicas, one.model, one.accelerator


def _unchecked(one: Advised) -> bool:
    """Whether nothing says that the choice keeps what is asked for while all users ask."""
    return one.load is not None and one.load.coverage == "unknown"


def _against(one: Advised, first: Advised, by: By) -> str:
    """What speaks against a choice: what the first does better, and what its answers may lack."""
    if not one.works:
        return one.against
    told = []
    if _unchecked(one) and not _unchecked(first):
        told.append("has no known speed, so nothing says that it keeps what is asked for")
    elif by == "price":
        if one.monthly is None or first.monthly is None:
            told.append("has no known price")
        elif one.monthly > first.monthly:
            told.append(f"costs {usd(one.monthly - first.monthly)} a month more")
    elif by == "latency":
        if one.ttft_seconds is None or first.ttft_seconds is None:
            told.append("has no known time to the first token")
        elif one.ttft_seconds > first.ttft_seconds:
            told.append(f"gives the first token {duration(one.ttft_seconds - first.ttft_seconds)} later at p95")
    elif one.tokens_per_second is None or first.tokens_per_second is None:
        told.append("has no known speed")
    elif one.tokens_per_second < first.tokens_per_second:
        told.append(f"writes {first.tokens_per_second - one.tokens_per_second:,.0f} tokens a second less")
    if one.kind == "smaller":
        told.append("is a smaller model, so check its answers")
    elif one.kind == "copy" and one.weights != "none":
        told.append(f"has {one.weights} weights, so check its answers")
    if told:
        return f"It {', and it '.join(told)}."
    return "" if one is first else "It does as well."


def _laptop(request: Request, catalog: Catalog, settings: Settings) -> str:
    """Whether one person's own machine would do, in a sentence or two."""
    small = [catalog.models[name] for name in _ON_A_LAPTOP if name in catalog.models]
    sizes = " or ".join(f"{one.name} ({replica_memory.weights(one).gib:.1f} GiB of weights)" for one in small)
    who = sizes or "a small model"
    what = f"On a laptop, {who} answers one person, without review, record, budget or a second replica"
    needs = [
        text
        for text, true in (
            (f"{plainly_counted(request.concurrent_users, 'user')} at once", request.concurrent_users > 1),
            ("high availability", request.availability == "high"),
            ("production", request.environment in settings.production.environments),
        )
        if true
    ]
    if needs:
        return f"{what}: that would not do here, since the form asks for {', '.join(needs)}."
    return f"{what}: try it first if that is enough for you, for it needs no platform."
