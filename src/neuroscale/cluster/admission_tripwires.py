"""Tries by dry-run whether a cluster's admission refuses each policy's known-bad object with that policy's message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuroscale.kube.client import Cluster, Kind, RefusedError
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import TRIED_IN, PolicySet

_NO_RIGHT = " is forbidden: User "


@dataclass(frozen=True)
class Admission:
    """The cluster's answers. `silent`: the policies that did not refuse their tripwire, sorted.

    `said`: the API server's answer to each tripwire, by the tripwire's name; empty where the server would admit it.
    `idle`: the policies that judge none of the tripwires' kinds that the cluster has, sorted. `unasked`: the policies
    of which this user may try no tripwire, sorted.
    """

    silent: tuple[str, ...]
    said: dict[str, str]
    idle: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


def try_tripwires(cluster: Cluster, policy_set: PolicySet) -> Admission:
    """Try every tripwire by a server-side dry-run. Raises KubernetesError if the API server does not answer.

    It leaves out tripwires of kinds that the cluster does not have: nobody can create such an object there.
    """
    served = [(one, kind.plural) for one in policy_set.every_tripwire if (kind := _kind(cluster, one)) is not None]
    said = {tripwire.name: _refusal(cluster, tripwire) for tripwire, _ in served}
    everything = "\n".join(said.values())
    policies = policy_set.policies

    def judging_none(tried: Sequence[tuple[Manifest, str]]) -> set[str]:
        return {policy.name for policy in policies if not any(policy.applies(*tripwire) for tripwire in tried)}

    idle = judging_none(served)
    silent = {policy.name for policy in policies if denial(policy.name, policy.tripwire_message) not in everything}
    asked = [(tripwire, plural) for tripwire, plural in served if _NO_RIGHT not in said[tripwire.name]]
    unasked = (judging_none(asked) & silent) - idle
    return Admission(tuple(sorted(silent - idle - unasked)), said, tuple(sorted(idle)), tuple(sorted(unasked)))


def denial(policy: str, message: str) -> str:
    """The start of Kyverno's message at admission when a policy refuses an object."""
    return f"Policy {policy} failed: {message}"


def _kind(cluster: Cluster, tripwire: Manifest) -> Kind | None:
    try:
        return cluster.kind(tripwire.api_version, tripwire.kind)
    except RefusedError as error:
        if error.code != 404:
            raise
        return None


def _refusal(cluster: Cluster, tripwire: Manifest) -> str:
    value = {**tripwire.value, "metadata": {**tripwire.value["metadata"], "namespace": TRIED_IN}}
    try:
        cluster.create(value, dry_run=True)
    except RefusedError as error:
        return error.message
    return ""
