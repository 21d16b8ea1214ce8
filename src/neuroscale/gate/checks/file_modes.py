"""Finds modes of files that Kubernetes refuses, or that are octal numbers written as decimal ones.

A mode is an integer from 0 to 0777 in octal (511); Kubernetes reads no octal numbers out of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuroscale.core.scalar_advice import LARGEST_MODE, octal_mode
from neuroscale.core.yaml_io import Path as FieldPath
from neuroscale.core.yaml_io import dotted, parts
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import Manifest

RULE = "file-mode"
_SOURCES = frozenset({"configMap", "downwardAPI", "projected", "secret"})
"""Volumes whose files have modes: `defaultMode`, and `mode` of each of their `items`."""
_LIKE_OCTAL = frozenset({400, 440, 444, 500})
"""Decimal numbers that Kubernetes takes, and that are modes which people use only when they are read in octal."""


def file_modes(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """Findings for modes above 511, and notices for modes that are most likely meant in octal."""
    for path, value in parts(manifest.value):
        if not is_mode(path) or type(value) is not int:
            continue  # the schema refuses it
        if not 0 <= value <= LARGEST_MODE:
            message = f"{dotted(path)}: {value} is not a mode: Kubernetes takes numbers from 0 to 511 (0777 in octal)"
            yield manifest_finding(gate, RULE, manifest, path, message, mode_fix(value))
        elif value in _LIKE_OCTAL:
            message = f"{dotted(path)}: {value} is the mode {value:04o}, and looks like the mode 0{value}"
            fix = f"If 0{value} is meant, write {octal_mode(str(value))}."
            yield manifest_finding(gate, RULE, manifest, path, message, fix, severity=Severity.NOTICE)


def mode_fix(value: object) -> str:
    """What to write for a wrong mode: the number of the octal digits that somebody wrote."""
    mode = octal_mode(str(value))
    return "Write a whole number from 0 to 511." if mode is None else f"Write {mode} (0{mode:o} in octal)."


def is_mode(path: FieldPath) -> bool:
    """Whether the field at `path` is the mode of a volume's files."""
    parent = path[:-1] if path[-1:] == ("defaultMode",) else path[:-3] if _in_items(path) else ()
    return parent[-1:] != () and parent[-1] in _SOURCES


def _in_items(path: FieldPath) -> bool:
    return path[-1:] == ("mode",) and path[-3:-2] == ("items",)
