"""The cluster's API server."""

from __future__ import annotations

import pytest

from neuroscale.cluster.pods import part
from neuroscale.kube.client import Cluster
from neuroscale.smoke.facts import Api
from neuroscale.smoke.outcomes import FindingError, require
from neuroscale.smoke.plugin import Notes


@pytest.mark.check("api-server")
def test_the_api_server_answers(api: Api, note: Notes) -> None:
    """API server reachable."""
    if api.cluster is None:
        raise FindingError(
            api.problem, "Is the context the right one, and the cluster up? kubectl --context NAME get --raw /version"
        )
    note(f"{api.version.get('gitVersion', 'unknown version')} at {api.cluster.url}")


@pytest.mark.check("identity")
def test_the_api_server_knows_who_asks(cluster: Cluster, note: Notes) -> None:
    """Who am I."""
    review = cluster.request(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    user = part(review, "status", "userInfo")
    name, groups = str(user.get("username") or ""), [str(one) for one in user.get("groups") or []]
    require(
        name and name != "system:anonymous",
        f"the API server takes this user for {name or 'nobody'}",
        "Log in to the cluster, or name a kubeconfig with credentials (--kubeconfig, --context).",
    )
    note(f"{name} of {', '.join(groups) or 'no group'}")
