"""Rounds amounts to whole cents so that they add up to their total, and prices to what can be read in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

Amount = Fraction | Decimal

_MOST_PLACES = 12


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


def price_of(cost: Amount, units: Fraction) -> Decimal:
    """US dollars of one unit, to four significant digits and at least to the cent; half is rounded up.

    Many prices of a million tokens are a few cents, of which whole cents would lose a third.
    """
    exact = Fraction(cost) / units
    places = 2
    while exact and abs(exact) * 10**places < 1000 and places < _MOST_PLACES:
        places += 1
    price = Decimal(math.floor(exact * 10**places + Fraction(1, 2))).scaleb(-places)
    shortest = price.normalize()
    return price.quantize(Decimal(1).scaleb(min(-2, int(shortest.as_tuple().exponent))))
