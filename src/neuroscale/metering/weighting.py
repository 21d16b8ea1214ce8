"""Divides the cost of a pool by the active parameters of its models, instead of by the requests of their pods."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

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
