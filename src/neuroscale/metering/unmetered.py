"""Finds metered costs that lack a real price: accelerators that OpenCost does not count, and its placeholder prices."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Final

from neuroscale.catalog.price_list import OPENCOST_DEFAULTS
from neuroscale.metering.allocation import Metered
from neuroscale.metering.services import ServiceFacts

_WHOLE = Fraction(3, 4)
"""The share of a plan's hourly price from which on the CPU and memory of a replica must hold its accelerator's price.

Some price lists give a node one price for CPU and memory together, of which a replica pays what it requests of both.
"""
_ROUNDED = Decimal("0.00002")  # US dollars: OpenCost rounds costs to five decimals, and hours, too
_CLOSE = Decimal("0.0002")
_LEAST = Decimal("0.002")  # US dollars, below which rounding hides what the price is

_UNITS: Final = {"GPU": "a GPU", "CPU": "a CPU core", "RAM": "a GiB of memory"}


def without_accelerator(one: Metered, known: ServiceFacts) -> bool:
    """Whether OpenCost charges a service's pods without the accelerator in its plan.

    OpenCost 1.108 counts hours of `nvidia.com/gpu` alone. What holds a TPU, an AMD GPU or a part of a GPU (MIG) has no
    hours, so its cost is that of CPU and memory, which rarely hold the accelerator's price.
    """
    if one.kind != "pods" or not known.resource or one.gpu_hours > 0:
        return False
    plan = known.estimate
    if plan is None or plan.hourly is None or one.cpu_core_hours <= 0:
        return True
    replica_hours = Fraction(one.cpu_core_hours) / Fraction(plan.cpu)
    return Fraction(one.total) < _WHOLE * Fraction(plan.hourly) * replica_hours


def costs_nothing(one: Metered) -> bool:
    """Whether OpenCost charges nothing for the accelerators or the CPU of pods, whose node then has no price."""
    return (one.gpu_hours > 0 and one.gpu <= 0) or (one.cpu_core_hours > 0 and one.cpu <= 0 and one.total <= 0)


def placeholders(one: Metered) -> tuple[str, ...]:
    """The parts (GPU, CPU, RAM) of pods for which OpenCost charges its placeholder."""
    parts = (
        ("GPU", one.gpu, one.gpu_hours),
        ("CPU", one.cpu, one.cpu_core_hours),
        ("RAM", one.memory, one.memory_gib_hours),
    )
    return tuple(part for part, cost, hours in parts if _is_placeholder(cost, OPENCOST_DEFAULTS[part] * hours))


def at_placeholders_alone(one: Metered) -> bool:
    """Whether no accelerator with a price of its own stands beside the placeholders that pods are charged by."""
    found = placeholders(one)
    return "GPU" in found or (bool(found) and one.gpu <= 0)


def why_unpriced(costs: Iterable[tuple[Metered, ServiceFacts | None]]) -> str:
    """Why the costs of a service, with what is known of it, are not those of its machines; "" if they may be."""
    found = list(costs)
    bare = sorted({known.resource for one, known in found if known is not None and without_accelerator(one, known)})
    if bare:
        return f"OpenCost counts no hours of {', '.join(bare)}, and charges CPU and memory without the accelerator"
    if any(at_placeholders_alone(one) for one, _ in found):
        return "OpenCost charges its placeholder prices for it"
    return "OpenCost charges nothing for a part of it" if any(costs_nothing(one) for one, _ in found) else ""


def shown(part: str) -> str:
    """`0.95 USD for an hour of a GPU`."""
    return f"{OPENCOST_DEFAULTS[part]} USD for an hour of {_UNITS[part]}"


def _is_placeholder(cost: Decimal, expected: Decimal) -> bool:
    return expected > _LEAST and abs(cost - expected) <= _ROUNDED + _CLOSE * expected
