"""Waits for a forge's background work."""

from __future__ import annotations

from neuroscale.core.waiting import attempts
from neuroscale.forge.interface import CommitStatus, Forge, ForgeUnavailableError

_PAUSE = 0.5


def wait_for_status(forge: Forge, sha: str, context: str, within: float) -> CommitStatus:
    """The status `context` of a commit once it is no longer pending.

    Raises ForgeUnavailableError when that takes longer than `within` seconds.
    """
    status: CommitStatus | None = None
    for _ in attempts(within, _PAUSE):
        status = next((one for one in forge.statuses(sha) if one.context == context), None)
        if status is not None and status.state != "pending":
            return status
    state = f"is still pending ({status.description}, {status.url})" if status else "did not appear"
    raise ForgeUnavailableError(
        f"The status {context!r} of commit {sha[:12]} {state} after {within:.0f} s. Check that a runner is up."
    )
