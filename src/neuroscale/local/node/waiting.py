"""Says why a container of the node waits, and for how long it waits after failures."""

from __future__ import annotations

from dataclasses import dataclass

PULL_FAILED, PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
CONFIGURATION, CREATION = "CreateContainerConfigError", "CreateContainerError"


class WaitingError(Exception):
    """A container cannot be started now. `reason` is the kubelet's, `message` a sentence or more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


FIRST, LONGEST = 10.0, 300.0
"""Seconds. Source: kubelet's MaxContainerBackOff and its first back-off period."""


@dataclass
class BackOff:
    """A first failure is repeated at once, the second after 10 s, and each further one after twice the time.

    After ten minutes without a failure the count starts again. Times are seconds of one clock.
    """

    seconds: float = 0.0
    _failed: float = 0.0

    def failed(self, now: float) -> None:
        """Note a failure at `now`."""
        if self._failed and now - self._failed > 2 * LONGEST:
            self.seconds = 0.0
        elif self._failed:
            self.seconds = min(LONGEST, self.seconds * 2) if self.seconds else FIRST
        self._failed = now

    def left(self, now: float) -> float:
        """Seconds until the next attempt is allowed."""
        return max(0.0, self._failed + self.seconds - now) if self._failed else 0.0
