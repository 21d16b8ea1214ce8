"""Checks admission: an object that a merge could not bring cannot be applied by hand."""

from __future__ import annotations

import pytest

from neuroscale.cluster.admission_tripwires import try_tripwires
from neuroscale.cluster.command_lines import CommandLines
from neuroscale.core.waiting import attempts
from neuroscale.kube.client import Cluster
from neuroscale.smoke.expected_services import Target
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import CannotTellError, require

_WITHIN = 15.0  # seconds


@pytest.mark.check("admission")
def test_every_policy_refuses_its_tripwire(cluster: Cluster, target: Target, lines: CommandLines, note: Notes) -> None:
    """Admission refuses the tripwires, each policy with its own message."""
    # Kyverno may be late once on a busy cluster; a policy that is gone refuses nothing at any time.
    for _ in attempts(_WITHIN, 2.0):
        found = try_tripwires(cluster, target.policies)
        if not found.silent:
            break
    # A policy of the organisation's own may judge kinds that nobody but an administrator creates.
    if set(found.unasked) - {policy.name for policy in target.policies.policies if policy.tripwire is not None}:
        raise CannotTellError(
            "this user may not try objects by a dry-run, so the policies were not asked",
            "Ask the platform's team for the right to create InferenceServices in the namespace default.",
        )
    accepted = "" if all(found.said.values()) else "; the cluster would have admitted a known-bad object"
    require(
        not found.silent,
        f"did not refuse its tripwire: {', '.join(found.silent)}{accepted}",
        f"Check that Kyverno runs and has the policy: {lines.kubectl} get validatingpolicies; {lines.kubectl} "
        "-n kyverno get pods",
    )
    left = f"; this user may not try those of {', '.join(found.unasked)}" if found.unasked else ""
    note(f"{len(target.policies.policies) - len(found.unasked)} policies refuse their tripwires{left}")
