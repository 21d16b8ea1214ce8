"""Judges every object by the policies as a change leaves them, beside the base's, and finds unfinished policies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.check import Evaluation, GateCheck, LeftOut, file_finding
from neuroscale.gate.checks.policy import evaluate_by
from neuroscale.gate.checks.policy_exceptions import exception_findings
from neuroscale.policies.new_policy import PLACEHOLDER
from neuroscale.repo.layout import POLICIES

if TYPE_CHECKING:
    from neuroscale.gate.run_state import Run


class ChangedPoliciesCheck(GateCheck):
    """Judges by the change's own policies, and looks at the exceptions that it brings."""

    name = "policy-of-head"
    title = "Policies of the change"
    beside = True

    def left_out(self, run: Run) -> LeftOut | None:
        return None if run.change is not None and run.change.touches(POLICIES) else LeftOut()

    def evaluate(self, run: Run) -> Evaluation:
        if run.change is None:
            raise UntrustedError("this run has no change, and so no changed policies.")
        policy_set, altered = run.after.policies(), set(run.change.paths)
        seen = evaluate_by(run, policy_set, self.name)
        brought = [one for one in policy_set.exceptions if one.file in altered]
        unfinished = [
            file_finding(
                self.name,
                "unfinished-policy",
                policy.file,
                f"the annotation {name} of the policy {policy.name} still holds a new policy's text ({PLACEHOLDER})",
                "Write the text that people read under the policy's findings.",
            )
            for policy in policy_set.policies
            if policy.file in altered
            for name, text in policy.value["metadata"]["annotations"].items()
            if PLACEHOLDER in str(text)
        ]
        of_exceptions = exception_findings(brought, run.today, run.longest_days)
        return replace(seen, findings=(*seen.findings, *unfinished, *of_exceptions))
