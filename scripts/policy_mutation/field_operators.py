"""Changes one field in every way in which a person or a program gets a value, a key or a place slightly wrong.

It also writes a bad object's switches and numbers in other notations of YAML: parsers of YAML 1.1 and 1.2 read some of
them as the same value, and others as a text, so a file with one of them must not pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from neuroscale.core.yaml_io import Path, dotted, flow
from policy_mutation.mutant import Mutant, Object, at, changed, of_text, paths

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
            for notation in _SWITCHES[value] if isinstance(value, bool) else _notations_of_number(value):
                yield of_text(
                    policy, f"notation:{notation} at {dotted(path)}", one, text.replace(f'"{_HERE}"', notation)
                )


def _form(path: Sequence[str | int]) -> tuple[str, ...]:
    return tuple("*" if isinstance(part, int) else part for part in path)


def _notations_of_number(value: int) -> tuple[str, ...]:
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


# Letters of other alphabets that look like Latin ones (Unicode's list of confusable characters, UTS #39).
_LOOK_ALIKE = str.maketrans("aceiopsxy", "\u0430\u0441\u0435\u0456\u043e\u0440\u0455\u0445\u0443")
_FULL_WIDTH = {digit: digit + 0xFEE0 for digit in range(ord("0"), ord("9") + 1)}
_NOT_QUANTITIES = ("0", "0.0", "0Gi", "-1", "1 Gi", "1GiB", "one", "0x10", "1,5", "\uff11", "")
_NOTATIONS = ("500m", "1e0", "1000m", "0m", "2k")
"""Kubernetes reads these as quantities: of memory bytes or less, and not how people write a number of devices."""
_OF = {"cpu": ("0m", "0e0"), "memory": (*_NOTATIONS, "16")}
_AMOUNTS = {"requests": "limits", "limits": "requests"}
_METADATA = {"labels": "annotations", "annotations": "labels"}


def field_changes(value: Object, path: Path) -> Iterator[tuple[str, Object]]:
    """Every change of the field at a path: the operator's name, and the changed object."""
    now = at(value, path)
    yield "removed", _removed(value, path)
    yield "null", _with(value, path, None)
    for detail, other in _values(now):
        yield detail, _with(value, path, other)
    if isinstance(now, str | int) and not isinstance(now, bool) and {"requests", "limits"} & set(path[-2:-1]):
        for text in (*_NOT_QUANTITIES, *_OF.get(str(path[-1]), _NOTATIONS)):
            if text != str(now):
                yield f"quantity:{text!r}", _with(value, path, text)
    if isinstance(path[-1], str):
        for detail, key in _keys(path[-1]):
            yield f"key {detail}", _renamed(value, path, key)
        yield from _moved(value, path)


def _values(now: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(now, bool):
        yield "negated", not now
        yield "quoted", str(now).lower()
        yield "wrong type:number", int(now)
        yield "wrong type:list", [now]
        return
    yield "emptied", {} if isinstance(now, dict) else [] if isinstance(now, list) else 0 if _number(now) else ""
    yield "wrong type:list", {} if isinstance(now, list) else [now]
    yield "wrong type:mapping", {"value": now} if not isinstance(now, dict) else [now]
    if _number(now):
        yield "wrong type:text", "many"
        return
    yield "wrong type:number", 7
    yield "wrong type:boolean", False
    if not isinstance(now, str):
        yield "wrong type:text", "text"
        return
    for detail, other in spellings(now):
        if other != now:
            yield detail, other


def spellings(now: str) -> Iterator[tuple[str, str]]:
    """Other spellings of a text, with the names of the changes."""
    middle = len(now) // 2
    yield "case:swapped", now.swapcase()
    yield "case:title", now.title()
    yield "white space:before", f" {now}"
    yield "white space:behind", f"{now} "
    yield "white space:inside", f"{now[:middle]} {now[middle:]}"
    yield "white space:line end", f"{now}\n"
    yield "white space:no-break", f"{now}\u00a0"
    yield "white space:alone", " "
    yield "look-alike:letter", now.translate(_LOOK_ALIKE)
    yield "look-alike:digit", now.translate(_FULL_WIDTH)
    yield "look-alike:zero width", f"{now[:middle]}\u200b{now[middle:]}"


def _keys(key: str) -> Iterator[tuple[str, str]]:
    names = {
        "case:swapped": key.swapcase(),
        "white space:behind": f"{key} ",
        "look-alike:letter": key.translate(_LOOK_ALIKE),
        "look-alike:dash": key.replace("-", "\u2010"),
        "plural": f"{key}s",
    }
    for detail, other in names.items():
        if other != key:
            yield detail, other


def _moved(value: Object, path: Path) -> Iterator[tuple[str, Object]]:
    """The field with its value in another place, where a policy must not take it for the right one."""
    for index, part in enumerate(path[:-1]):
        other = (_AMOUNTS | _METADATA).get(str(part))
        if other is not None:
            yield (
                f"moved:to {other}",
                _placed(_removed(value, path), (*path[:index], other, *path[index + 1 :]), value, path),
            )
    if len(path) > 2 and isinstance(path[-2], str):
        yield "moved:up", _placed(_removed(value, path), (*path[:-2], path[-1]), value, path)
    yield "moved:down", _placed(_removed(value, path), (*path[:-1], "mutant", path[-1]), value, path)


def _placed(copied: Object, to: Path, value: Object, path: Path) -> Object:
    holder: Any = copied
    for part in to[:-1]:
        if isinstance(holder, list):
            holder = holder[part]  # type: ignore[index]
            continue
        if not isinstance(holder.get(part), dict | list):
            holder[part] = {}
        holder = holder[part]
    holder[to[-1]] = copy.deepcopy(at(value, path))
    return copied


def _removed(value: Object, path: Path) -> Object:
    copied, holder, last = changed(value, path)
    del holder[last]
    return copied


def _with(value: Object, path: Path, other: Any) -> Object:
    copied, holder, last = changed(value, path)
    holder[last] = other
    return copied


def _renamed(value: Object, path: Path, key: str) -> Object:
    copied, holder, last = changed(value, path)
    holder[key] = holder.pop(last)
    return copied


def _number(now: Any) -> bool:
    return isinstance(now, int | float) and not isinstance(now, bool)
