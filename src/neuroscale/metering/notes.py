"""Writes the notes that a reader of a statement needs: the gaps of the meter, and missing labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from neuroscale.core.money_and_time import usd
from neuroscale.core.printable import counted
from neuroscale.manifests.objects import COST_CENTER, RATIO
from neuroscale.metering.allocation import Meter, Metered, read_ratio
from neuroscale.metering.plan_history import PlanHistory
from neuroscale.metering.services import (
    Facts,
    at_placeholders_alone,
    costs_nothing,
    key_of,
    placeholders,
    shown,
    without_accelerator,
)

Level = Literal["warning", "note"]

_SHORT = 12
"""In windows of fewer steps of OpenCost, a pod's first and last step can change the bill by some percent."""
_NAMED = 5  # the most names in one sentence

WEIGHTING = (
    "The weighted column divides what a pool (the services of one accelerator in one cluster) costs in proportion to "
    "cost x active-parameter ratio, and adds up to the same bill. The ratio says what a token computes with. It "
    "misleads where many requests run at once: a step that decodes B tokens reads 1 - (1 - k/E)^B of a layer's E "
    "experts (8 of 128: 6 % at 1, 40 % at 8, 87 % at 32), and all experts hold memory all the time. It also moves "
    "money between services that never shared a device. The metered column is what each one's requests cost."
)


@dataclass(frozen=True)
class Note:
    """One sentence. `warning`: a figure of the statement is incomplete or misleading.

    `first`: it is about the bill as a whole, so it stands beside the bill.
    """

    level: Level
    text: str
    first: bool = False


def notes_on_history(history: PlanHistory, level: Level) -> tuple[Note, ...]:
    """The note on plans of the past that are not known; `level`: how much the figures depend on them."""
    until = history.unknown_until
    if until is None:
        return ()
    text = (
        f"Which plans were merged before {until:%Y-%m-%d %H:%M} UTC is not known here: the repository is a shallow "
        "clone, or no clone. The oldest known plans stand for that time. Fetch the whole history (git fetch "
        "--unshallow)."
    )
    return (Note(level, text),)


def notes_on(meter: Meter, own: Sequence[Metered], facts: Facts) -> tuple[Note, ...]:
    """The notes on a meter; `own`: the costs with a cost centre or a service."""
    return (
        *_time(meter),
        *_idle(meter),
        *_labels(meter, own),
        *_pools(own, facts),
        *_changes(own, facts),
        *_prices(meter, own),
        *([] if meter.local else _accelerators(own, facts)),
        *_local(meter),
        *(Note("warning", f"OpenCost warns: {text}") for text in meter.warnings),
    )


def notes_on_prices(meter: Meter) -> tuple[Note, ...]:
    """The notes that the price of tokens needs beside the reasons why a service has none."""
    mixed = (
        f"No price list has a price of {listed(meter.unpriced)}: the price of tokens is too low for a service "
        "whose replicas ran there and elsewhere."
    )
    return (*([Note("note", mixed)] if meter.unpriced else []), *_local(meter))


def _time(meter: Meter) -> Iterator[Note]:
    if meter.empty:
        times = listed(tuple(map(str, meter.empty)))
        yield Note(
            "warning", f"OpenCost has no samples of {times}: nothing ran, or nobody measured. The bill lacks that time."
        )
    if meter.window.end - meter.window.start < _SHORT * meter.step:
        minutes = meter.step // timedelta(minutes=1)
        often, most = ("minute", "a minute") if minutes == 1 else (f"{minutes} minutes", f"{minutes} minutes")
        yield Note(
            "note",
            f"OpenCost looks every {often}: a pod that began or ended within this short "
            f"window may be charged for up to {most} less than it ran.",
        )


def _idle(meter: Meter) -> Iterator[Note]:
    if not meter.idle_known:
        yield Note(
            "warning",
            "OpenCost gives no idle costs for a part of the window, so the bill lacks what nodes cost there beyond "
            "their pods' requests.",
        )
    idle = [one for one in meter.metered if one.kind == "idle"]
    amounts = [one.total for one in idle]
    negative = sum((amount for amount in amounts if amount < 0), Decimal(0))
    if sum(amounts, Decimal(0)) > 0 and meter.window.hours < 1 and not meter.local:
        yield Note(
            "warning",
            "Idle costs may be too high: in a window below an hour, OpenCost 1.108 charges a whole hour of nodes "
            "whose CPU or memory has the price 0. Ask about an hour or more.",
        )
    below = [
        f"{title} {usd(amount)}"
        for title, field in (("accelerators", "gpu"), ("CPU", "cpu"), ("memory", "memory"))
        if (amount := sum((min(getattr(one, field), Decimal(0)) for one in idle if one.total >= 0), Decimal(0))) < 0
    ]
    if below:
        yield Note(
            "warning",
            f"A part of the idle costs is negative ({', '.join(below)}), so they are too low: OpenCost charged pods "
            "for more of it than it saw on their nodes.",
        )
    if negative < 0:
        part = " for a part of the window" if len(amounts) > 1 else ""
        yield Note(
            "warning",
            f"Idle costs are negative ({usd(negative)}){part}: OpenCost charged pods for more than it saw of "
            "their nodes, as it does while Prometheus has few samples, and for virtual GPUs. They are not distributed; "
            "ask again about a longer window.",
        )


def _labels(meter: Meter, own: Sequence[Metered]) -> Iterator[Note]:
    if not own and any(one.kind == "pods" for one in meter.metered):
        yield Note(
            "warning",
            "OpenCost knows no label of any pod (all is __unallocated__). Either no service ran, or "
            "kube-state-metrics does not export pods' labels: start it with --metric-labels-allowlist=pods=[*].",
        )
    if own and not any(one.place.cost_center for one in own):
        yield Note("warning", f"No service's pods carry the label {COST_CENTER}, so nobody can be charged.")


def _pools(own: Sequence[Metered], facts: Facts) -> Iterator[Note]:
    if unknown := sorted({_service(one) for one in own if one.place.service and key_of(one) not in facts}):
        yield Note(
            "note",
            f"The plan of {listed(unknown)} is not known: the repository has no service of that name and namespace, or "
            "has one in several environments, and OpenCost's CLUSTER_ID is the name of none. The weighted cost of such "
            "a service is its metered cost.",
        )
    if wrong := sorted({_service(one) for one in own if one.place.service and read_ratio(one.place.ratio) is None}):
        yield Note("note", f"The pods of {listed(wrong)} have no usable label {RATIO}, so their cost is not weighted.")


def _prices(meter: Meter, own: Sequence[Metered]) -> Iterator[Note]:
    """Nodes without a price. Those of the local platform are known; elsewhere a cost of nothing shows them."""
    if meter.unpriced:
        text = (
            f"No price list has a price of {listed(meter.unpriced)}: what runs there is charged next to nothing, so "
            "the bill is too low."
        )
        yield Note("note", text, first=True)
    if meter.local:
        return
    if free := sorted({_service(one) for one in own if costs_nothing(one)}):
        text = (
            f"OpenCost charges nothing for accelerators or CPU of {listed(free)}: a node there has no price, so the "
            "bill is too low."
        )
        yield Note("warning", text, first=True)
    if guessed := sorted({_service(one) for one in own if "GPU" in placeholders(one)}):
        text = (
            f"OpenCost charges {listed(guessed)} {shown('GPU')}, which is its placeholder for "
            "any GPU and not a price. Give it a price list (platform/cost/README.md)."
        )
        yield Note("warning", text, first=True)
    yield from _host_placeholders(own)


def _host_placeholders(own: Sequence[Metered]) -> Iterator[Note]:
    """Placeholders of CPU and memory. They are a warning unless an accelerator beside them has a price of its own."""
    found = [(one, parts) for one in own if (parts := [part for part in placeholders(one) if part != "GPU"])]
    if not found:
        return
    names = sorted({_service(one) for one, _ in found})
    amounts = " and ".join(shown(part) for part in ("CPU", "RAM") if any(part in parts for _, parts in found))
    text = (
        f"OpenCost charges {listed(names)} {amounts}: its placeholder, which it took from Google's list price of N1 "
        "machines in us-central1. Unless the pods run on these, give it a price list (platform/cost/README.md)."
    )
    warned = any(at_placeholders_alone(one) for one, _ in found)
    yield Note("warning" if warned else "note", text, first=warned)


def _accelerators(own: Sequence[Metered], facts: Facts) -> list[Note]:
    """Accelerators that the bill leaves out, because OpenCost does not count them."""
    bare: dict[str, set[str]] = {}
    for one in own:
        known = facts.get(key_of(one))
        if known is not None and without_accelerator(one, known):
            bare.setdefault(known.resource, set()).add(f"{_service(one)} ({known.accelerator})")
    return [
        Note(
            "warning",
            f"OpenCost counts no hours of {resource} for {listed(sorted(names))}, and charges CPU and memory alone: "
            "the bill lacks the accelerators, so it is too low.",
            first=True,
        )
        for resource, names in sorted(bare.items())
    ]


def _changes(own: Sequence[Metered], facts: Facts) -> list[Note]:
    """Services whose model or accelerator was another one in a part of the window."""
    plans: dict[str, dict[str, None]] = {}
    for one in sorted(own, key=lambda one: one.part):
        known = facts.get(key_of(one))
        if known is not None:
            of = plans.setdefault(f"{known.environment}/{one.place.service}", {})
            of[f"{known.model} on {known.accelerator}"] = None
    changed = [f"{name} ({', then '.join(of)})" for name, of in sorted(plans.items()) if len(of) > 1]
    if not changed:
        return []
    text = (
        f"The plan of {listed(changed)} changed within the window. Costs count by the plan of their time, from the "
        "full hour nearest to the merge. After that hour, costs of pods of the old plan count under the new one."
    )
    return [Note("note", text)]


def _service(one: Metered) -> str:
    return f"{one.place.namespace}/{one.place.service or '(no service)'}"


def _local(meter: Meter) -> list[Note]:
    text = (
        "OpenCost here is the local platform's: its nodes with accelerators are simulated, and nobody pays this bill."
    )
    return [Note("note", text)] if meter.local else []


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {counted(left, 'other')}" if left > 0 else "")
