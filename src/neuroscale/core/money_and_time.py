"""Spells money, time and speed for people: the same on pages, in commands, comments, descriptions and messages.

Money is an amount, its currency, and what it pays for: `1,234.50 USD`, `0.7034 USD an hour`, `518.30 to 1,554.90 USD a
month`. It has cents, and more decimals if it needs them: below 100 as many as four, below 0.1 as many as six or four
digits. A table or an axis that names the currency holds amounts alone.

Time has three digits below two minutes, and then the two largest units: `4.35 ms`, `0.5 ms`, `1.23 s`, `45 s`, `12 min
30 s`, `6 h 5 min`, `3 d`. A unit is used from two of it on. The value of a field in seconds (the form's longest wait,
`periodSeconds`) stays in seconds where somebody is to write it, or to find it in a file.
"""

from __future__ import annotations

from decimal import Decimal

_LONGEST = 1e9  # seconds; a longer time cannot have been measured
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def usd(low: Decimal, high: Decimal | None = None, *, signed: bool = False) -> str:
    """`518.30 to 1,554.90 USD`, or one amount if there is one, or if the two are the same."""
    return f"{amounts(low, low if high is None else high, signed=signed)} USD"


def amounts(low: Decimal, high: Decimal, *, signed: bool = False) -> str:
    """As `usd`, without the currency."""
    both = amount(low, signed=signed), amount(high, signed=signed)
    return both[0] if low == high else " to ".join(both)


def amount(value: Decimal, *, signed: bool = False) -> str:
    """One amount without its currency: `1,234.50`, `0.7034`, `0.00001234`; `+1.50` if it is to be `signed`."""
    sign = "+" if signed and value else ""
    cents = f"{value:{sign},.2f}"
    if abs(value) >= 100 or not value:
        return cents
    places = 4 if abs(value) >= Decimal("0.1") else min(max(6, 3 - value.adjusted()), 12)
    exact = f"{value:{sign},.{places}f}".rstrip("0")
    return exact if len(exact) > len(cents) else cents


def duration(seconds: float) -> str:
    """A time: `420 ms`, `1.23 s`, `12 min 30 s`."""
    seconds = min(max(seconds, 0.0), _LONGEST)
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    left = round(seconds)
    place = next(place for place, (_, size) in enumerate(_UNITS) if left >= 2 * size)
    (unit, size), (smaller, part) = _UNITS[place : place + 2]
    count, rest = divmod(round(left / part), size // part)
    return f"{count:,} {unit} {rest} {smaller}" if rest else f"{count:,} {unit}"


def pace(tokens_per_second: Decimal | float) -> str:
    """Tokens a second, without their unit: `41.3`, `1,240`."""
    return f"{tokens_per_second:.3g}" if tokens_per_second < 100 else f"{tokens_per_second:,.0f}"
