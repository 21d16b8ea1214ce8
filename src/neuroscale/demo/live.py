"""Runs the last part of the demo: a model that really runs on this machine answers, and passes the smoke tests."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from neuroscale.cluster.endpoint.access import pods_of
from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.core.waiting import attempts
from neuroscale.demo.steps import LIVE, Result
from neuroscale.forge.after_merge.comments import MARKER
from neuroscale.local.control_plane import cluster

if TYPE_CHECKING:
    from neuroscale.demo.steps import Demo
    from neuroscale.forge.interface import PullRequest
    from neuroscale.forge.rest import Forge
    from neuroscale.kube.client import Object
    from neuroscale.local.forge_setup import LocalForge

_READY_SECONDS = 900
_TOLD_SECONDS = 900.0
_PASSED = "Smoke test passed"
_PROMPT = "Which model are you, and who pays for you?"


def make_key(demo: Demo, local: LocalForge) -> None:
    """Make the service's API key before its pods ask for it: the smoke workflow would make it too, a minute later."""
    demo.follow_main()
    demo.neuroscale("key", LIVE.path, *_state(local), expect=ExitStatus.PASSED, folder=demo.developers_clone)


def loads(demo: Demo, local: LocalForge) -> None:
    """Wait until the model answers. Raises UntrustedError if it does not."""
    wait = ("--wait", str(_READY_SECONDS))
    clone = demo.developers_clone
    demo.neuroscale("status", LIVE.path, *wait, *_state(local), expect=ExitStatus.PASSED, folder=clone)
    demo.facts["ready"] = _ready_since(local)


def answers(demo: Demo, local: LocalForge) -> None:
    """Ask it. Raises UntrustedError if it gives no answer."""
    arguments = ("query", LIVE.path, _PROMPT, "--max-tokens", "40")
    demo.facts["answering"] = demo.answered(*arguments, *_state(local), folder=demo.developers_clone)


def is_tested(demo: Demo, local: LocalForge) -> None:
    """Run the smoke tests of the service. Raises UntrustedError if a test fails."""
    clone = demo.developers_clone
    tested = ("--environment", LIVE.environment, "--service", LIVE.service)
    demo.neuroscale("smoke", *tested, *_state(local), expect=ExitStatus.PASSED, folder=clone)
    demo.neuroscale("metrics", LIVE.path, *_state(local), expect=ExitStatus.PASSED, folder=clone)
    requested, merged, ready, answering = (demo.facts[name] for name in ("asked", "merged", "ready", "answering"))
    demo.results += [
        Result("The live model", "answered, and passed every smoke test"),
        Result("Form to merge", duration(merged - requested)),
        Result("Merge to Ready", duration(ready - merged)),
        Result("Ready to first token", duration(answering - ready)),
    ]


def is_reported(demo: Demo, forge: Forge, pull: PullRequest) -> None:
    """Wait for the comment of the forge's own smoke tests on the merged pull request."""
    for _ in attempts(_TOLD_SECONDS, pause=1.0):
        # A run that could not decide is followed by the run of the next merge.
        comments = [comment.body for comment in forge.comments(pull.number) if comment.body.startswith(MARKER)]
        passed = next((body for body in comments if _PASSED in body), None)
        if passed is not None:
            break
    else:
        first = comments[0] if comments else "nothing"
        raise UntrustedError(f"the demo expected a comment on {pull.url} that its smoke test passed; it says: {first}")
    demo.say(pull.url, style="bold")
    for line in passed.splitlines():
        if not line.startswith("<!--"):
            demo.say(f"  | {line}")
    demo.results.append(
        Result("The merged pull request", "shows the results of the smoke tests, and how to ask the service")
    )


def _state(local: LocalForge) -> tuple[str, str]:
    return "--state", str(local.state.folder)


def _ready_since(local: LocalForge) -> float:
    """The time at which the service's first pod became ready, in whole seconds since 1970."""
    with cluster(local.state) as live:
        pods = pods_of(live, "", LIVE.service)
    return min(_became_ready(pod) for pod in pods)


def _became_ready(pod: Object) -> float:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return float("inf")
