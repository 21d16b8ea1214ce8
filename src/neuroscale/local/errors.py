"""What goes wrong with the local platform."""

from __future__ import annotations

from neuroscale.core.errors import NeuroscaleError


class LocalError(NeuroscaleError):
    """A part of the local platform does not do what it must; the message says which, why, and where to look."""
