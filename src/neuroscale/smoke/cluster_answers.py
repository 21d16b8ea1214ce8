"""What the cluster answered before any check looked: shared by the checks of one run."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.object_fields import part
from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.kube.client import Cluster, KubernetesError, RefusedError


@dataclass(frozen=True)
class Api:
    """The API server, its version and who it takes the caller for; or why it does not answer.

    `unknown`: why it takes the caller for nobody, "" where it knows them.
    """

    cluster: Cluster | None
    version: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    problem: str = ""
    unknown: str = ""


def who_am_i(cluster: Cluster) -> Api:
    """Ask the API server. Never raises KubernetesError."""
    try:
        version = str(cluster.request("GET", "/version").get("gitVersion") or "unknown version")
    except RefusedError as error:
        return Api(cluster, unknown=f"the API server refuses who asks: {error.message}")
    except KubernetesError as error:
        return Api(None, problem=str(error))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = cluster.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    except RefusedError as error:
        return Api(cluster, version, unknown=f"the API server does not say who asks: {error.message}")
    except KubernetesError as error:
        return Api(None, problem=str(error))
    user = part(found, "status", "userInfo")
    name, groups = str(user.get("username") or ""), user.get("groups")
    nobody = name in ("", "system:anonymous")
    return Api(
        cluster,
        version,
        name,
        tuple(str(one) for one in groups) if isinstance(groups, list) else (),
        unknown=f"the API server takes this user for {name or 'nobody'}" if nobody else "",
    )


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
