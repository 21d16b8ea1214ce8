"""Finds the files that this package delivers beside its code: policies, pins of tools, catalog facts, workflows.

A wheel carries them in its folder `delivered`; in a checkout they lie where they are written, at its root. Both have a
platform repository's layout. What an organisation decides for itself is not delivered: `EXAMPLE` holds an example.

Set-up runs before anything is installed: this module may import only the standard library.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of this package's code."""
_CARRIED = PACKAGE / "delivered"

CHECKOUT: Path | None = None if _CARRIED.is_dir() else PACKAGE.parents[1]
"""The root of the checkout that this package is read from; None where it comes from a wheel."""

EXAMPLE = PACKAGE / "repo" / "example"
"""The settings, teams, budgets, answers and services of an example organisation, in a platform repository's layout."""

START = PACKAGE / "repo" / "start"
"""The texts of files that a new repository starts with in words of its own, such as its README."""

FOLDER: Path = _CARRIED if CHECKOUT is None else CHECKOUT
"""The folder of all delivered files. A checkout that a judge unpacked holds only those that the gate reads."""


def install_command(purpose: str, in_checkout: str = "make setup") -> str:
    """The command that installs the missing tools: `in_checkout`, or the one for that purpose where a wheel runs."""
    return f"neuroscale tools install --for {purpose}" if CHECKOUT is None else in_checkout


def repair_advice() -> str:
    """The sentence for a user whose copy of the package lacks a delivered file."""
    if CHECKOUT is None:
        return "Install the package's wheel anew."
    return "Install the package with `make setup` in a complete clone."
