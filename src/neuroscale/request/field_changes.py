"""Changes single fields of a request: the form's answers by their names, and overrides as `overrides.FIELD`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import Document
from neuroscale.request.service_request import OVERRIDE_FIELDS, KnownNames, Request, fault_of, request_in

OVERRIDES = "overrides."
IDENTITY = ("service", "team", "environment")
"""The answers that say which service it is: with other ones it is another service."""
FIELDS = tuple(name for name in Request.model_fields if name not in ("schema_version", "overrides"))
_TEXTS = tuple(name for name in FIELDS if Request.model_fields[name].annotation is str)
_OPTIONAL = tuple(name for name in FIELDS if not Request.model_fields[name].is_required())
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_DECIMAL = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}")
COMMAND_LINE = "the command line"


@dataclass(frozen=True)
class FieldChanges:
    """New values by field, and the fields that are to be left out. `reason` and `until` are those of the overrides that
    are set ("": those that the override has)."""

    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    removed: tuple[str, ...] = ()
    reason: str = ""
    until: str = ""

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides that are set."""
        return tuple(name.removeprefix(OVERRIDES) for name in self.values if name.startswith(OVERRIDES))


def read_changes(given: Sequence[str], removed: Sequence[str], reason: str, until: str) -> FieldChanges:
    """The changes as `--set FIELD=VALUE` and `--unset FIELD` name them. Raises InputError with every mistake."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            problems.append(Problem(COMMAND_LINE, "--set", f"{text!r} has no value", "Write FIELD=VALUE."))
        elif (problem := _unknown(name, "--set")) is not None:
            problems.append(problem)
        elif name in values or name in removed:
            problems.append(Problem(COMMAND_LINE, name, "is named twice", "Name it once."))
        else:
            values[name] = _typed(name, value)
    for name in removed:
        if (problem := _unknown(name, "--unset")) is not None:
            problems.append(problem)
        elif not name.startswith(OVERRIDES) and name not in _OPTIONAL:
            problems.append(Problem(COMMAND_LINE, name, "cannot be left out", f"Give another value: --set {name}=..."))
    changes = FieldChanges(values, tuple(removed), reason, until)
    if until and not changes.overrides:
        told = "is the last day of an override, and none is set"
        problems.append(Problem(COMMAND_LINE, "--until", told, f"Add --set {OVERRIDES}FIELD=VALUE."))
    if problems:
        raise InputError(problems)
    return changes


def changed(request: Request, changes: FieldChanges, known: KnownNames) -> Request:
    """The request with the changes. Raises InputError with every mistake, by the fields of the command line."""
    values = request.model_dump(mode="json")
    overrides = {one["field"]: one for one in values.get("overrides", ())}
    for name in changes.removed:
        if name.startswith(OVERRIDES):
            overrides.pop(name.removeprefix(OVERRIDES), None)
        else:
            values.pop(name, None)
    for name, value in changes.values.items():
        if name.startswith(OVERRIDES):
            short = name.removeprefix(OVERRIDES)
            overrides[short] = _override(short, value, overrides.get(short), changes)
        else:
            values[name] = value
    if values["model"] != request.model and "model_revision" not in changes.values:
        values.pop("model_revision", None)  # a commit of the other model
    values["overrides"] = list(overrides.values())
    names = list(overrides)
    try:
        request = request_in(Document(values), COMMAND_LINE, known)
    except InputError as error:
        raise InputError([replace(problem, field=_named(problem.field, names)) for problem in error.problems]) from None
    if faults := list(_faults(request, changes, known)):
        raise InputError(faults)
    return request


def _faults(request: Request, changes: FieldChanges, known: KnownNames) -> Iterator[Problem]:
    """What the gate will refuse of the overrides that are set."""
    today = datetime.now(UTC).date()
    for override in request.overrides:
        fault = fault_of(override.reason, override.expires, today, known.longest_days)
        if fault is not None and override.field in changes.overrides:
            option = "--reason" if fault.field == "reason" else "--until"
            yield Problem(COMMAND_LINE, f"{OVERRIDES}{override.field}", f"{fault.message} ({option})", fault.fix)


def _override(name: str, value: Any, there: Mapping[str, Any] | None, changes: FieldChanges) -> dict[str, Any]:
    reason, until = changes.reason, changes.until
    if there is not None:
        reason, until = reason or there["reason"], until or there["expires"]
    if not reason or not until:
        missing = " and ".join(text for text, have in (("--reason TEXT", reason), ("--until DATE", until)) if not have)
        told = "is an exception from the plan, which a reviewer must understand and which ends"
        raise InputError.at(COMMAND_LINE, f"{OVERRIDES}{name}", told, f"Add {missing}.")
    return {"field": name, "value": value, "reason": reason, "expires": until}


def _named(place: str, names: Sequence[str]) -> str:
    """The field as the command line names it: `overrides[0].value` is a value of `overrides.NAME`."""
    match = re.match(r"overrides\[(\d+)\]", place)
    return f"{OVERRIDES}{names[int(match[1])]}" if match and int(match[1]) < len(names) else place


def _unknown(name: str, option: str) -> Problem | None:
    if name in FIELDS or (name.removeprefix(OVERRIDES) in OVERRIDE_FIELDS and name.startswith(OVERRIDES)):
        return None
    if name in OVERRIDE_FIELDS:
        fix = f"To override the plan, write {OVERRIDES}{name}."
    else:
        fix = suggest(name, (*FIELDS, *(f"{OVERRIDES}{one}" for one in OVERRIDE_FIELDS)))
    return Problem(COMMAND_LINE, option, f"{name!r} is not a field of a service", fix)


def _typed(name: str, text: str) -> str | int | float:
    return text if name in _TEXTS else number_of(text)


def number_of(text: str) -> str | int | float:
    """The number that a text is; else the text, for which a check names the field."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text
