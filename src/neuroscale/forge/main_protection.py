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
    found = forge.protection(branch)
    if found is None:
        return [f"Nothing protects {branch}: everybody who may write to the repository may push to it."]
    wanted = REQUIRED_CHECK[forge.kind]
    told = []
    if found.direct_pushes:
        told.append(f"{branch} takes pushes without a pull request.")
    if wanted not in found.required_checks:
        listed = ", ".join(found.required_checks) or "none"
        told.append(f"{branch} does not require the check {wanted!r}. It requires: {listed}.")
    if found.approvals < 1:
        told.append(f"{branch} requires no approval.")
    if found.rebases is None:
        told.append("Whether the forge merges by rebasing is not shown to this token. Use that of an administrator.")
    elif found.rebases:
        why = "so that commits reach it which the gate never judged by themselves. Allow merge commits and squash alone"
        told.append(f"{branch} takes merges by rebasing ({', '.join(found.rebases)}), {why}.")
    return told
