"""Asks the cluster once before all checks of a run, which share its answers.

Compares the commit that Argo CD has deployed with the merged one, for one service.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.object_fields import part
from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.kube.client import Cluster, KubernetesError, RefusedError
from neuroscale.repo.git import Git, fetch_origin
from neuroscale.smoke.expected_services import Service

Standing = Literal["the same", "equal", "behind", "ahead", "unknown"]


def standing(root: Path, folder: str, merged: str, deployed: str) -> Standing:
    """Compare two commits of a clone: `same` commit, or `equal` folder; else the deployed one is `behind` or `ahead`.

    `ahead`: the deployed commit comes after the merged one, and the folder was changed again. `unknown`: neither the
    clone nor its origin has the deployed commit. The origin is asked because others may merge while tests run.
    """
    if deployed == merged:
        return "the same"
    git = Git(root)
    try:
        if not git.knows(deployed):
            fetch_origin(git)
            if not git.knows(deployed):
                return "unknown"
        there, wanted = (git.tree(commit, folder) for commit in (deployed, merged))
        if there == wanted:
            return "equal"
        later = git.run("merge-base", "--is-ancestor", merged, deployed, check=False).returncode == 0
        return "ahead" if later else "behind"
    finally:
        git.close()


@dataclass(frozen=True)
class Api:
    """The API server, its version and the user that it recognizes in the caller; or why it does not answer.

    `unknown`: why it does not recognize the caller, "" if it does.
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
        return Api(cluster, unknown=f"the API server refuses the caller: {error.message}")
    except KubernetesError as error:
        return Api(None, problem=str(error))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = cluster.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    except RefusedError as error:
        return Api(cluster, version, unknown=f"the API server does not name the caller's user: {error.message}")
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
        unknown=f"the API server recognizes the caller only as {name or 'a user without a name'}" if nobody else "",
    )


def https_url(cluster: Cluster, service: Service) -> str:
    """The service's address for its clients, as KServe reports it; "" if that has no TLS, or there is none."""
    found = cluster.get("serving.kserve.io/v1beta1", "InferenceService", service.name, service.namespace) or {}
    url = str(part(found, "status").get("url") or "")
    return url if url.startswith("https://") else ""


@dataclass(frozen=True)
class Opened:
    """A service's endpoint as clients reach it, and one of its pods; or why one of them cannot be opened."""

    endpoint: Endpoint | None
    inside: Endpoint | None
    problem: NeuroscaleError | None

    @property
    def of_the_service(self) -> bool:
        """Whether the service causes the problem, and not this machine or the user's rights."""
        if isinstance(self.problem, InputError):
            return all(one.where != "kubectl" for one in self.problem.problems)
        return isinstance(self.problem, EndpointError)
