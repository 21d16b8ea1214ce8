"""Says what the protection of a repository's main branch lacks."""

from __future__ import annotations

from collections.abc import Mapping

from neuroscale.forge.interface import Kind
from neuroscale.forge.rest import Forge

REQUIRED_CHECK: Mapping[Kind, str] = {"gitea": "gate / gate (pull_request_target)", "github": "gate"}
"""The name under which each kind of forge shows the gate's status."""


def problems(forge: Forge, branch: str) -> list[str]:
    """What lets a change reach the branch without the gate and a review, a sentence each; empty if nothing does.

    Raises ForgeError if the forge does not show the protection to this token.
    """
    protection = forge.protection(branch)
    if protection is None:
        return [f"Nothing protects {branch}: everybody who may write to the repository may push to it."]
    wanted = REQUIRED_CHECK[forge.kind]
    gaps = []
    if protection.direct_pushes:
        gaps.append(f"{branch} takes pushes without a pull request.")
    if wanted not in protection.required_checks:
        listed = ", ".join(protection.required_checks) or "none"
        gaps.append(f"{branch} does not require the check {wanted!r}. It requires: {listed}.")
    if protection.approvals < 1:
        gaps.append(f"{branch} requires no approval.")
    if protection.rebases is None:
        gaps.append("Whether the forge merges by rebasing is not shown to this token. Use that of an administrator.")
    elif protection.rebases:
        why = "so that commits reach it which the gate never judged by themselves. Allow merge commits and squash alone"
        gaps.append(f"{branch} takes merges by rebasing ({', '.join(protection.rebases)}), {why}.")
    return gaps
