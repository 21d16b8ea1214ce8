"""Whether a cluster's admission refuses the known-bad objects, each policy in its own words."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.kube.client import Cluster, RefusedError
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import PolicySet

_TRIED_IN = "default"  # tripwires name a namespace that is nowhere


@dataclass(frozen=True)
class Admission:
    """What the cluster answered. `silent`: the policies that did not refuse their tripwire, sorted.

    `said`: of each tripwire by name what the API server answered; empty where it would have let it in.
    """

    silent: tuple[str, ...]
    said: dict[str, str]


def try_tripwires(cluster: Cluster, policy_set: PolicySet) -> Admission:
    """Try every tripwire out by a server-side dry-run. Raises KubernetesError where the API server does not answer."""
    said = {tripwire.name: _refusal(cluster, tripwire) for tripwire in policy_set.tripwires}
    everything = "\n".join(said.values())
    silent = (one.name for one in policy_set.policies if denial(one.name, one.tripwire_message) not in everything)
    return Admission(tuple(sorted(silent)), said)


def denial(policy: str, message: str) -> str:
    """How Kyverno words at admission that a policy refuses an object."""
    return f"Policy {policy} failed: {message}"


def _refusal(cluster: Cluster, tripwire: Manifest) -> str:
    value = {**tripwire.value, "metadata": {**tripwire.value["metadata"], "namespace": _TRIED_IN}}
    try:
        cluster.create(value, dry_run=True)
    except RefusedError as error:
        return error.message
    return ""
