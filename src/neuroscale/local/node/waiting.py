"""Why a container waits, in a kubelet's words."""

from __future__ import annotations

PULL_FAILED, PULL_BACK_OFF = "ErrImagePull", "ImagePullBackOff"
CONFIGURATION, CREATION = "CreateContainerConfigError", "CreateContainerError"


class WaitingError(Exception):
    """A container cannot be started now. `reason` is a kubelet's word, `message` a sentence or more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
