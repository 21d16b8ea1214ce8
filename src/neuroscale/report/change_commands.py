"""Writes the command that asks for a change of a service."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from neuroscale.explain.explanation import Explanation
from neuroscale.request.field_changes import FieldChanges


def update_line(service: str, changes: FieldChanges, *, local: bool) -> str:
    """The `neuroscale update` that asks for the changes. `local`: on the forge of the local platform."""
    words = ["neuroscale", "update", service or "SERVICE", *settings_of(changes.values)]
    words += [f"--unset={field}" for field in changes.removed]
    line = shlex.join(words)
    if changes.overrides:
        line += f" --reason={shlex.quote(changes.reason)} --until={changes.until}"
    return f"{line}{' --local' if local else ''}"


def settings_of(values: Mapping[str, Any]) -> list[str]:
    """The options that set values of a request."""
    return [f"--set={field}={value}" for field, value in values.items()]


def next_line(explained: Explanation) -> str:
    """The command that asks for the next configuration; "" if no change of the service's request does."""
    if explained.next is not None and explained.edited:
        return f"neuroscale upgrade {shlex.quote(explained.service)}{' --local' if explained.local else ''}"
    return "" if explained.change is None else update_line(explained.service, explained.change, local=explained.local)
