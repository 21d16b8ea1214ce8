"""Rounds amounts to whole cents so that they add up to their total."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

Amount = Fraction | Decimal


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
