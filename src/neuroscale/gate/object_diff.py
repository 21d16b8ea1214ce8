"""Compares two versions of a Kubernetes object field by field, in few words."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from neuroscale.core.yaml_io import Path, dotted, flow

_LONGEST = 200  # characters of a value that is shown
_LEAD = 20  # characters shown before the first that differs, if a value is cut

# Text that YAML reads as another type without its quotes.
_OTHERWISE = re.compile(r"|null|true|false|-?\d+(\.\d+)?")

_Named = Mapping[str, Any]
Difference = tuple[Path, Any, Any]

ABSENT: Final = object()
"""Stands for a field that an object lacks: null is a value."""


@dataclass(frozen=True)
class FieldChange:
    """One field with its value before and after as text; None if the object does not have the field.

    `field` names items of a list and arguments by their names: `spec.containers.vllm.args.--port`.
    """

    field: str
    before: str | None
    after: str | None


def field_changes(before: Any, after: Any) -> Iterator[FieldChange]:
    """Every field that differs, in the order of names; nothing if both objects are the same."""
    for path, one, other in raw_changes(before, after):
        yield in_words(path, one, other)


def raw_changes(before: Any, after: Any) -> Iterator[Difference]:
    """As `field_changes`: each field's path and its values, which are `ABSENT` where the object lacks the field."""
    yield from _compared(before, after, ())


def _compared(before: Any, after: Any, path: Path) -> Iterator[Difference]:
    if _same(before, after):
        return
    if isinstance(before, list) and isinstance(after, list):
        pair = _by_name(before), _by_name(after)
        if pair[0] is None or pair[1] is None:
            yield from _lists(before, after, path)
            return
        if list(pair[0]) != list(pair[1]) and pair[0].keys() == pair[1].keys():
            yield (*path, "(order)"), list(pair[0]), list(pair[1])
        before, after = pair
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            if key in before and key in after:
                yield from _compared(before[key], after[key], (*path, key))
            else:
                yield (*path, key), before.get(key, ABSENT), after.get(key, ABSENT)
        return
    yield path, before, after


def _lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    if all(isinstance(item, str) for item in (*before, *after)):
        gone, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
        if not gone and not new:
            yield (*path, "(order)"), before, after
        for name in sorted({_argument(item) for item in (*gone, *new)}):
            pair = ([item for item in side.elements() if _argument(item) == name] for side in (gone, new))
            for one, other in itertools.zip_longest(*pair, fillvalue=ABSENT):
                yield ((*path, name) if name else path), one, other
        return
    lost, added = _without(before, after), _without(after, before)
    if not lost and not added:
        yield (*path, "(order)"), before, after
    for (index, one), (other_index, other) in itertools.zip_longest(lost, added, fillvalue=(None, ABSENT)):
        place = (*path, index if index is not None else other_index if other_index is not None else 0)
        if one is ABSENT or other is ABSENT:
            yield place, one, other
        else:
            yield from _compared(one, other, place)


def _without(items: list[Any], others: list[Any]) -> list[tuple[int | None, Any]]:
    """The items that the other list lacks, with their places."""
    left = Counter(flow(item) for item in others)
    found: list[tuple[int | None, Any]] = []
    for index, item in enumerate(items):
        text = flow(item)
        if left[text] > 0:
            left[text] -= 1
        else:
            found.append((index, item))
    return found


def _same(before: Any, after: Any) -> bool:
    """Equal and of one type: to Python, 1 is True."""
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_same(value, after[key]) for key, value in before.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(itertools.starmap(_same, zip(before, after, strict=True)))
    return bool(before == after)


def _by_name(items: list[Any]) -> _Named | None:
    """Containers, variables, ports, volumes by their names; None for a list whose items have none of their own."""
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        return None
    return dict(zip(map(str, names), items, strict=True))


def _argument(item: str) -> str:
    """The name of an argument (`--port` of `--port=8080`), "" for any other text."""
    return item.partition("=")[0] if item.startswith("--") else ""


def in_words(path: Path, before: Any, after: Any) -> FieldChange:
    """A difference as text, in which the part that differs is visible."""
    sides = [_text(before), _text(after)]
    start = 0
    if sides[0] is not None and sides[1] is not None:
        pairs = enumerate(zip(sides[0], sides[1], strict=False))
        same = next((index for index, (one, other) in pairs if one != other), min(len(sides[0]), len(sides[1])))
        start = same - _LEAD if same > _LONGEST - _LEAD else 0
    return FieldChange(dotted(path), *(_shown(side, start) for side in sides))


def _text(value: Any) -> str | None:
    if value is ABSENT:
        return None
    return value if isinstance(value, str) and not _OTHERWISE.fullmatch(value) else flow(value)


def _shown(text: str | None, start: int) -> str | None:
    if text is None or len(text) <= _LONGEST:
        return text
    lead = "..." if start else ""
    cut = text[start : start + _LONGEST]
    return f"{lead}{cut}{'...' if start + _LONGEST < len(text) else ''} ({len(text)} characters)"
