"""Shows how far a pull request is: its state on the forge, its checks, and what the workflows say of it."""

from __future__ import annotations

from dataclasses import dataclass

from neuroscale.forge.after_merge.comments import MARKER as SMOKE_MARKER
from neuroscale.forge.after_merge.comments import record_of
from neuroscale.forge.interface import Comment, CommitStatus, PullRequest
from neuroscale.forge.main_protection import REQUIRED_CHECK
from neuroscale.forge.rest import Forge
from neuroscale.forge.service_history import Comments, headlines
from neuroscale.repo.layout import ServicePath
from neuroscale.report.markdown import MARKER


@dataclass(frozen=True)
class Progress:
    """A pull request now. `gate`: the required check (None: it has not begun). `path`: the service that it is about, by
    its branch (None: another change). `is_tested`: whether the smoke tests of its merge have an outcome."""

    pull: PullRequest
    gate: CommitStatus | None
    others: tuple[CommitStatus, ...]
    comments: tuple[Comments, ...]
    approved_by: tuple[str, ...]
    path: ServicePath | None
    is_tested: bool

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come on it: it was closed, or merged and, if it is about a service, tested."""
        if self.pull.state == "merged":
            return self.path is None or self.is_tested
        return self.pull.state == "closed"

    @property
    def state(self) -> tuple[str, str]:
        """The state in a word for the style, and in a sentence."""
        if self.pull.state == "merged":
            return "success", "Merged. Argo CD carries it out in the cluster."
        if self.pull.state == "closed":
            return "failure", "Closed without a merge."
        if self.gate is None or self.gate.state == "pending":
            return "pending", "The gate is judging it on the forge."
        if self.gate.state == "failure" and "cancelled" in self.gate.description.lower():
            return (
                "pending",
                "A run of the gate was cancelled: a newer one judges it, or start it on the forge.",
            )
        if self.gate.state == "failure":
            return "failure", "The gate refuses it."
        if not self.approved_by:
            return "success", "The gate passed. It waits for somebody's approval and merge on the forge."
        return "success", f"The gate passed, and {', '.join(self.approved_by)} approved it. It waits for its merge."


def progress(forge: Forge, number: int) -> Progress:
    """A pull request now. Raises ForgeError."""
    pull = forge.pull(number)
    statuses = forge.statuses(pull.head_sha)
    required = REQUIRED_CHECK[forge.kind]
    comments = forge.comments(number)
    path = service_of_branch(pull.head_branch)
    return Progress(
        pull,
        next((status for status in statuses if status.context == required), None),
        tuple(status for status in statuses if status.context != required),
        (*headlines(comments, MARKER), *headlines(comments, SMOKE_MARKER)),
        forge.approved_by(number),
        path,
        path is not None and any(_has_outcome(comment, path) for comment in comments),
    )


def _has_outcome(comment: Comment, path: ServicePath) -> bool:
    record = record_of(comment)
    return record is not None and record.services.get(path.name, ("waiting", ()))[0] != "waiting"


def service_of_branch(branch: str) -> ServicePath | None:
    """The service of a branch as the repository's own template names it: `neuroscale/ENVIRONMENT/SERVICE`."""
    parts = branch.split("/")
    return ServicePath(parts[1], parts[2]) if len(parts) == 3 and parts[0] == "neuroscale" else None
