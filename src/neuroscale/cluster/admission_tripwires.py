"""Tries by dry-run whether a cluster's admission refuses each policy's known-bad object with that policy's message."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.kube.client import Cluster, RefusedError
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import PolicySet

_TRIED_IN = "default"  # tripwires name a namespace that does not exist


@dataclass(frozen=True)
class Admission:
    """The cluster's answers. `silent`: the policies that did not refuse their tripwire, sorted.

    `said`: the API server's answer to each tripwire, by the tripwire's name; empty where the server would admit it.
    """

    silent: tuple[str, ...]
    said: dict[str, str]


def try_tripwires(cluster: Cluster, policy_set: PolicySet) -> Admission:
    """Try every tripwire by a server-side dry-run. Raises KubernetesError if the API server does not answer."""
    said = {tripwire.name: _refusal(cluster, tripwire) for tripwire in policy_set.tripwires}
    everything = "\n".join(said.values())
    silent = (one.name for one in policy_set.policies if denial(one.name, one.tripwire_message) not in everything)
    return Admission(tuple(sorted(silent)), said)


def denial(policy: str, message: str) -> str:
    """The start of Kyverno's message at admission when a policy refuses an object."""
    return f"Policy {policy} failed: {message}"


def _refusal(cluster: Cluster, tripwire: Manifest) -> str:
    value = {**tripwire.value, "metadata": {**tripwire.value["metadata"], "namespace": _TRIED_IN}}
    try:
        cluster.create(value, dry_run=True)
    except RefusedError as error:
        return error.message
    return ""
