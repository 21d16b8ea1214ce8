"""Defines a mutant: an object or a file that must be refused, made from a policy's tests by one small change."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.yaml_io import Path, flow

Object = dict[str, Any]


@dataclass(frozen=True)
class Mutant:
    """One mutant.

    `operator`: the kind of change, with a detail behind a colon. `base`: the name of the test object. `place`: the path
    of the change in the object. `text`: the file that holds it. `value`: the object as a client would send it to a
    cluster; None if only a file can hold the change. `by_place`: a refusal counts only if it names the place.
    """

    policy: str
    operator: str
    kind: str
    base: str
    place: str
    name: str
    text: str
    value: Object | None
    by_place: bool = False

    @property
    def id(self) -> str:
        """A name that stays the same while the test object and the place stay the same."""
        return f"{self.policy}/{self.kind}/{self.base}/{self.operator}/{self.place}"


def of_value(policy: str, operator: str, base: Mapping[str, Any], place: str, value: Object, **more: Any) -> Mutant:
    """A mutant that is one changed object. The object gets a name of its own."""
    name = _name(policy, operator, base, place)
    value["metadata"]["name"] = name
    kind, of = str(base["kind"]), str(base["metadata"]["name"])
    return Mutant(policy, operator, kind, of, place, name, flow(value), value, **more)


def of_text(policy: str, operator: str, base: Mapping[str, Any], template: str) -> Mutant:
    """A mutant that only a file can hold. `template`: its text, with NAME for the name of the bad object."""
    name = _name(policy, operator, base, "")
    text = template.replace("NAME", name)
    return Mutant(policy, operator, str(base["kind"]), str(base["metadata"]["name"]), "", name, text, None)


def _name(policy: str, operator: str, base: Mapping[str, Any], place: str) -> str:
    identity = "\n".join((policy, operator, str(base["kind"]), str(base["metadata"]["name"]), place))
    return f"mutant-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def at(value: Any, path: Path) -> Any:
    """The value at a path, or None if there is none."""
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def changed(value: Mapping[str, Any], path: Path) -> tuple[Object, Any, str | int]:
    """A copy of an object, the mapping or list in it that holds the path's last part, and that part."""
    copied = copy.deepcopy(dict(value))
    holder = at(copied, path[:-1])
    return copied, holder, path[-1]


def paths(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field and list item of a value, with its path."""
    items: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        yield (*path, key), item
        yield from paths(item, (*path, key))
