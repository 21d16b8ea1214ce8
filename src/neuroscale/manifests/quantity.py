"""Reads Kubernetes quantities (`500m`, `1.5Gi`, `2e3`) as exact decimals."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from typing import Any

_QUANTITY = re.compile(
    r"([+-]?)([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST = Decimal(2**63 - 1)
_SMALLEST = Decimal("1e-9")
_EXACT = Context(prec=120, Emax=5000, Emin=-5000)


def quantity(value: Any) -> Decimal:
    """The amount in base units: cores, bytes, pieces.

    As in Kubernetes, a fraction finer than a billionth is rounded up, and an amount above 2^63-1 becomes 2^63-1. Raises
    ValueError for a value that is not a quantity, and for a negative one, which no pod can ask for.
    """
    # A number of YAML or JSON is read by its shortest spelling, as the file has it.
    text = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{value!r:.60} is not a quantity")
    sign, number, suffix = match[1], match[2], match[3] or ""
    with localcontext(_EXACT):
        amount = Decimal(number.strip(".") if number.endswith(".") else number)
        if suffix in _BINARY:
            amount *= 2 ** _BINARY[suffix]
        else:
            amount = amount.scaleb(
                int(suffix[1:]) if suffix[:1] in ("e", "E") and len(suffix) > 1 else _DECIMAL[suffix]
            )
        if sign == "-" and amount:
            raise ValueError(f"{value!r:.60} is negative")
        if amount >= _LARGEST:
            return _LARGEST
        exponent = amount.as_tuple().exponent
        if isinstance(exponent, int) and exponent < -9:
            amount = amount.quantize(_SMALLEST, ROUND_CEILING)
        return amount


def whole(value: Any) -> int:
    """A count. Raises ValueError if it is not a whole number from 0 to 2^31-1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{value!r:.60} is not a count")
    return value
