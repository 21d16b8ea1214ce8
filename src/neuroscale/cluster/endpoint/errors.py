"""Defines the errors of an endpoint."""

from __future__ import annotations

from neuroscale.core.errors import ExitStatus, NeuroscaleError


class EndpointError(NeuroscaleError):
    """The endpoint refused, did not answer, or broke off; the message says how, and what to do. Never holds a key.

    `status`: HTTP's (None: there was no answer). `said`: the server's own message on one line, at most 500 characters.
    `arrived`: the text that had arrived until then.
    `way`: how the way to the service failed: `refused`, `cut`, `timeout`, `dns`, `tls`, `forward`, or `no pod` where a
    gateway could not ask one; "" if the service itself answered, or has no pod.
    `lost`: how many of the `sent` requests were not answered, where several were sent at once.
    """

    exit_status = ExitStatus.FINDINGS

    def __init__(
        self,
        message: str,
        status: int | None = None,
        said: str = "",
        arrived: str = "",
        way: str = "",
        lost: int = 1,
        sent: int = 1,
    ) -> None:
        super().__init__(message)
        self.lost, self.sent = lost, sent
        self.way = way
        self.status = status
        self.said = said
        self.arrived = arrived


class UnreachedError(EndpointError):
    """No answer came. `told`: why; `do`: what to do."""

    def __init__(self, told: str, do: str, way: str = "") -> None:
        super().__init__(f"{told}. {do}", way=way)
        self.told = told
        self.do = do
