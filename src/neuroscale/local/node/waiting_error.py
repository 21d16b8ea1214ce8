"""Defines the error of a container that waits, in a kubelet's terms."""

from __future__ import annotations

PULL_FAILED, PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
CONFIGURATION, CREATION = "CreateContainerConfigError", "CreateContainerError"


class WaitingError(Exception):
    """A container cannot be started now. `reason` is the kubelet's, `message` a sentence or more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
