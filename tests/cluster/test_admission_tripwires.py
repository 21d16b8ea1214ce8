"""A cluster's admission is tried with the policies' known-bad objects, of the kinds that the cluster has."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx
import pytest

from neuroscale.cluster.admission_tripwires import denial, try_tripwires
from neuroscale.core.yaml_io import dump
from neuroscale.kube.client import Cluster
from neuroscale.manifests.objects import read_manifests
from neuroscale.policies.policy_set import load_policy_set
from neuroscale.repo.snapshot import FolderSnapshot
from roots import ROOT

POLICIES = load_policy_set(FolderSnapshot(ROOT))
KINDS = {"InferenceService": "inferenceservices", "Deployment": "deployments"}
"""Of the tripwires' kinds, those that this cluster has: not TrainedModel."""


def answer(request: httpx.Request, deaf: str) -> httpx.Response:
    """An API server with Kyverno, on which one policy judges nothing."""
    if request.method == "GET":
        rows = [{"kind": kind, "name": plural, "namespaced": True, "verbs": []} for kind, plural in KINDS.items()]
        return httpx.Response(200, json={"resources": rows})
    kind = json.loads(request.content)["kind"]
    told = [
        denial(one.name, one.tripwire_message)
        for one in POLICIES.policies
        if one.name != deaf and any(KINDS[kind] in rule.resources for rule in one.rules)
    ]
    return httpx.Response(400, json={"message": "; ".join(told)})


@pytest.mark.parametrize("deaf", ["", "non-root"])
def test_a_policy_of_kinds_that_the_cluster_lacks_is_idle_and_any_other_must_refuse_its_tripwire(deaf: str) -> None:
    client = httpx.Client(base_url="http://cluster", transport=httpx.MockTransport(lambda one: answer(one, deaf)))
    with Cluster("http://cluster", client, "a cluster") as cluster:
        found = try_tripwires(cluster, POLICIES)
    assert found.silent == ((deaf,) if deaf else ())
    assert found.idle == ("refused-kinds",)


def test_a_policy_of_ones_own_whose_kind_the_user_may_not_create_is_not_asked_and_hides_no_silent_one() -> None:
    first = POLICIES.policies[0]
    rule = replace(
        first.rules[0], groups=frozenset({"apps"}), versions=frozenset({"v1"}), resources=frozenset({"deployments"})
    )
    value = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "neuroscale-tripwire-own"}}
    own = replace(first, name="own", rules=(rule,), tripwire=read_manifests(dump(value).encode(), "cases.yaml")[0])
    policies = replace(POLICIES, policies=(*POLICIES.policies, own))

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and json.loads(request.content)["kind"] == "Deployment":
            return httpx.Response(403, json={"message": 'deployments.apps is forbidden: User "smoke" cannot create'})
        return answer(request, "non-root")

    client = httpx.Client(base_url="http://cluster", transport=httpx.MockTransport(respond))
    with Cluster("http://cluster", client, "a cluster") as cluster:
        found = try_tripwires(cluster, policies)
    assert (found.silent, found.unasked) == (("non-root",), ("own",))
