"""Reads the fields and times of an API object; a field may be missing or of another kind.

Compares a live object with the wanted one, to which API servers and controllers add fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from neuroscale.core.validation import items, part
from neuroscale.kube.client import Object
from neuroscale.manifests.pod_resources import quantity

# Fields in which `4` and `4000m` are equal.
_QUANTITIES = ("limits", "requests", "sizeLimit")


def differences(wanted: Any, actual: Any, path: str = "") -> list[str]:
    """The dotted fields of `wanted` that `actual` lacks or holds with another value; other fields of `actual` are
    ignored.

    Each item of a list of mappings must be held by some item; other lists must be equal.
    """
    if wanted is None or wanted == "" or (isinstance(wanted, Mapping | list) and not wanted):
        return []
    if isinstance(wanted, Mapping):
        if not isinstance(actual, Mapping):
            return [path]
        return [
            field
            for key, value in wanted.items()
            for field in differences(value, actual.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(wanted, list) and all(isinstance(item, Mapping) for item in wanted):
        there = actual if isinstance(actual, list) else []
        return [
            f"{path}[{item.get('name', index)}]"
            for index, item in enumerate(wanted)
            if not any(not differences(item, other, path) for other in there)
        ]
    return [] if _same(wanted, actual, path) else [path]


def _same(wanted: Any, actual: Any, path: str) -> bool:
    if wanted == actual and isinstance(wanted, bool) == isinstance(actual, bool):
        return True
    if not any(part in _QUANTITIES for part in path.split(".")):
        return False
    try:
        return quantity(wanted) == quantity(actual)
    except ValueError:
        return False


def served_model_name(arguments: Any) -> str:
    """The name by which a server's requests name its model, by the `args` of its container; empty if they set none.
    vLLM takes the last one."""
    words = [str(word) for word in arguments] if isinstance(arguments, list) else []
    name = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        flag, equals, value = word.partition("=")
        if flag == "--served-model-name":
            name = value if equals else following
    return name


def moment(text: Any) -> datetime | None:
    """A time of the API (`2026-01-31T12:00:00Z`); None for any other value."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def seconds_since(text: Any, now: datetime) -> int | None:
    """Whole seconds from a time of the API until now, at least 0 (clocks differ); None without a time."""
    then = moment(text)
    return None if then is None else max(0, int((now - then).total_seconds()))


def condition(value: Any, kind: str) -> dict[str, Any]:
    """A condition of an object's status by its type; {} if it is missing."""
    return next((found for found in items(value, "status", "conditions") if found.get("type") == kind), {})


def sentence(*parts: Any) -> str:
    """Reason and message as `reason: message`; an empty one is left out."""
    return ": ".join(str(one).strip().rstrip(".") for one in parts if one not in (None, ""))


def name_of(found: Object) -> str:
    """The object's name; empty if it has none."""
    return str(part(found, "metadata").get("name") or "")


def uid_of(found: Object) -> str:
    """The object's uid; empty if it has none."""
    return str(part(found, "metadata").get("uid") or "")


def owners_of(found: Object) -> set[str]:
    """The uids of the object's owners."""
    return {str(one["uid"]) for one in items(found, "metadata", "ownerReferences") if one.get("uid")}


def is_owned_by(found: Object, owner: Object) -> bool:
    """Whether the object names the other one among its owners."""
    return bool(uid_of(owner)) and uid_of(owner) in owners_of(found)


def written_at(found: Object, subresource: str = "") -> datetime | None:
    """The time at which a field of the spec, or of a subresource, was last written."""
    times = [
        when
        for entry in items(found, "metadata", "managedFields")
        if (entry.get("subresource") or "") == subresource
        if subresource or "f:spec" in part(entry, "fieldsV1")
        if (when := moment(entry.get("time"))) is not None
    ]
    return max(times, default=None)
