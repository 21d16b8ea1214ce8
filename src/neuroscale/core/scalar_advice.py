"""Says what to write in place of a plain scalar that YAML parsers read differently."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

LARGEST_MODE = 0o777
_MODES = frozenset({"defaultMode", "mode"})
_OCTAL = re.compile(r"0[oO]?[0-7]+")
_SWITCHES = {
    **dict.fromkeys(("y", "yes", "on"), "true"),
    **dict.fromkeys(("n", "no", "off"), "false"),
}
_MERGE = "<<"


def instead_of(text: str, path: Sequence[str | int]) -> str:
    """What to write for the plain scalar `text` at the field `path`: one sentence, which ends well if followed.

    A number is written out as the one that was most likely meant: 0755 is octal to Kubernetes.
    """
    if path and path[-1] in _MODES and (mode := octal_mode(text)) is not None:
        return f"Write {mode} ({text} in octal)."
    if text == _MERGE:
        return f"Write out the fields that {_MERGE} would merge."
    quoted = f'uote it ("{text}")'
    if (switch := _SWITCHES.get(text.lower())) is not None:
        return f"Q{quoted} if it is text, or write {switch}."
    number = _number(text)
    if number is None:
        return f"Q{quoted}."
    if math.isfinite(number):
        whole = int(number) if number == int(number) else number
        octal = " (it is octal)" if _OCTAL.fullmatch(text) else ""
        return f"Q{quoted} if it is text, or write {whole}{octal}."
    return f"Write a finite number, since JSON has no other, or q{quoted} if it is text."


def instead_of_key(text: str) -> str:
    """What to write for the plain scalar `text` as a key."""
    return instead_of(text, ()) if text == _MERGE else f'Quote it: "{text}".'


def octal_mode(text: str) -> int | None:
    """The mode of a file that `text` spells in octal digits, such as 0755, 0o755 or 755; None for anything else."""
    digits = re.sub(r"^0[oO]", "", text)
    if not re.fullmatch(r"[0-7]{1,5}", digits):
        return None
    return mode if (mode := int(digits, 8)) <= LARGEST_MODE else None


def _number(text: str) -> float | None:
    """The number that a person means by a spelling that is not plain; None for text such as 12:30 or 2026-01-31."""
    plain = text.replace("_", "").lower()
    sign, digits = (-1 if plain.startswith("-") else 1), plain.lstrip("+-")
    for pattern, base in ((r"0o?[0-7]+", 8), (r"0x[0-9a-f]+", 16), (r"0b[01]+", 2), (r"[0-9]+", 10)):
        if re.fullmatch(pattern, digits):
            return sign * int(digits.removeprefix("0o"), base) if len(digits) <= 17 else None
    try:
        # YAML writes a point before these; float() knows them without it.
        return sign * float(digits.removeprefix(".") if digits in (".inf", ".nan") else digits)
    except ValueError:
        return None
