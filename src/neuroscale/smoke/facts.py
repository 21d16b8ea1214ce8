"""What the cluster answered before any check looked: shared by the checks of one run."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.endpoint.connection import Endpoint
from neuroscale.endpoint.errors import EndpointError
from neuroscale.errors import InputError, NeuroscaleError
from neuroscale.kube.client import Cluster, Object


@dataclass(frozen=True)
class Api:
    """The API server and its version, or why it does not answer."""

    cluster: Cluster | None
    version: Object
    problem: str


@dataclass(frozen=True)
class Opened:
    """A service's endpoint as clients reach it, and one of its pods; or why it cannot be opened."""

    endpoint: Endpoint | None
    inside: Endpoint | None
    problem: NeuroscaleError | None

    @property
    def of_the_service(self) -> bool:
        """Whether the problem is the service's, and not of the machine that asks or of the user's rights."""
        if isinstance(self.problem, InputError):
            return all(one.where != "kubectl" for one in self.problem.problems)
        return isinstance(self.problem, EndpointError)
