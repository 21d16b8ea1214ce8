"""Admission: what a merge could not bring, nobody can bring by hand."""

from __future__ import annotations

import pytest

from neuroscale.cluster.admission_tripwires import try_tripwires
from neuroscale.kube.client import Cluster
from neuroscale.smoke.check_errors import CannotTellError, require
from neuroscale.smoke.expected_services import Target
from neuroscale.smoke.pytest_plugin import Notes

_NO_RIGHT = " is forbidden: User "


@pytest.mark.check("admission")
def test_every_policy_refuses_its_tripwire(cluster: Cluster, target: Target, note: Notes) -> None:
    """Admission refuses the tripwires, each policy in its own words."""
    found = try_tripwires(cluster, target.policies)
    if found.silent and any(_NO_RIGHT in said for said in found.said.values()):
        raise CannotTellError(
            "this user may not try objects out, so nobody asked the policies",
            "Ask the platform's team for the right to create InferenceServices in the namespace default.",
        )
    accepted = "" if all(found.said.values()) else "; the cluster would have let a known-bad object in"
    require(
        not found.silent,
        f"did not refuse its tripwire: {', '.join(found.silent)}{accepted}",
        "Is Kyverno up, and the policy there? kubectl get validatingpolicies; kubectl -n kyverno get pods",
    )
    note(f"{len(target.policies.policies)} policies refuse theirs")
