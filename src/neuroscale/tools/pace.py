"""Says how long the steps that are left will take, by the pace of the machine on the steps before them."""

from __future__ import annotations

from collections.abc import Sequence

from neuroscale.tools.steps import Step

_TRUSTED = 20.0
"""Seconds of work that the times of two quiet cores count for, before the machine's own."""
_FORGOTTEN = 120.0
"""Seconds of work after which an earlier pace counts half: others use the machine, too."""


class Pace:
    """The seconds that this machine takes for a second of work on two quiet cores."""

    def __init__(self) -> None:
        self._wanted = self._took = _TRUSTED

    def add(self, wanted: float, took: float) -> None:
        """Count a step: its seconds on two quiet cores, and those that it took here, without any wait for others."""
        kept = 0.5 ** (wanted / _FORGOTTEN)
        self._wanted, self._took = kept * self._wanted + wanted, kept * self._took + took

    def left(self, steps: Sequence[Step], passed: float) -> str:
        """The time that these steps will take; those that are done beside others began `passed` seconds ago."""
        pace = self._took / self._wanted
        seconds = pace * sum(step.seconds for step in steps if not step.beside)
        seconds = max([seconds, *(pace * step.seconds - passed for step in steps if step.beside)])
        return f"about {seconds / 60:.0f} min" if seconds >= 90 else "about a minute"
