"""Defines the errors of the local platform."""

from __future__ import annotations

from neuroscale.core.errors import NeuroscaleError


class LocalError(NeuroscaleError):
    """A part of the local platform fails; the message says which, why, and where to look."""
