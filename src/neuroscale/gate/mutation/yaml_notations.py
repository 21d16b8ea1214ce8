"""Writes a bad object's switches and numbers in other notations of YAML.

Parsers of YAML 1.1 and 1.2 read some of them as the same value, and others as a text: a file with one of them must
not pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuroscale.core.yaml_io import dotted, flow
from neuroscale.gate.mutation.mutant import Mutant, Object, changed, of_text, paths

_HERE = "mutant-value"
_SWITCHES = {
    True: ("True", "TRUE", "yes", "on", "y", '!!bool "true"', '"true"'),
    False: ("False", "FALSE", "no", "off", "n", '!!bool "false"', '"false"'),
}


def in_other_notations(policy: str, bad: Sequence[Object], good: Sequence[Object]) -> Iterator[Mutant]:
    """Each switch and number that only bad objects have at its place, once for each field, in each notation."""
    harmless = {(one["kind"], _form(path), str(value)) for one in good for path, value in paths(one)}
    seen: set[tuple[str, str]] = set()
    for one in bad:
        for path, value in paths(one):
            if not isinstance(value, bool | int) or (one["kind"], _form(path), str(value)) in harmless:
                continue
            key = (str(path[-1]), str(value))
            if key in seen:
                continue
            seen.add(key)
            copied, holder, last = changed(one, path)
            copied["metadata"]["name"] = "NAME"
            holder[last] = _HERE
            text = flow(copied)
            for notation in _SWITCHES[value] if isinstance(value, bool) else _numbers(value):
                yield of_text(
                    policy, f"notation:{notation} at {dotted(path)}", one, text.replace(f'"{_HERE}"', notation)
                )


def _form(path: Sequence[str | int]) -> tuple[str, ...]:
    return tuple("*" if isinstance(part, int) else part for part in path)


def _numbers(value: int) -> tuple[str, ...]:
    return (
        *(
            f"+{value}",
            f"{value:#x}",
            f"{value:#o}",
            f"0{value:o}",
            f"{value}.0",
            f"{value}e0",
            f"{value}_0"[:-2] + "_",
        ),
        *(f'"{value}"', f'!!int "{value}"'),
    )
