"""Checks the metrics that autoscaling and alerts read."""

from __future__ import annotations

import time

import pytest

from neuroscale.cluster.endpoint import chat, metrics
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.smoke import model_requests
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import require
from neuroscale.smoke.runner import Spec

_WITHIN = 15.0  # seconds until a request is counted
_TOKENS = 4


@pytest.mark.check("metrics-names")
def test_it_has_the_metrics_that_autoscaling_and_alerts_use(inside: Endpoint, note: Notes) -> None:
    """/metrics has the names that autoscaling and alerts use."""
    found = metrics.read(inside)
    require(
        not found.missing,
        f"/metrics lacks {', '.join(found.missing)}",
        "Autoscaling and alerts would not work. Check whether the runtime's version renamed the metrics.",
    )
    note(f"{len(metrics.NAMES)} names")


@pytest.mark.check("metrics-move")
def test_its_metrics_count_a_request(inside: Endpoint, spec: Spec, note: Notes) -> None:
    """/metrics counts a request."""
    before = metrics.read(inside)
    chat.complete(inside, "Count me", model_requests.limits(spec.patience, _TOKENS, whole=True))
    ends = time.monotonic() + _WITHIN
    while (still := _still(before, metrics.read(inside))) and time.monotonic() < ends:
        time.sleep(0.2)
    require(
        not still,
        f"a request of {_TOKENS} tokens did not change {', '.join(still)}",
        f"Check whether /metrics belongs to another process, or is not collected: {inside.look}",
    )
    note("first token, latency, between tokens, queue, tokens in and out")


def _still(before: metrics.Snapshot, after: metrics.Snapshot) -> list[str]:
    """The metrics that exist but did not grow; a gauge may keep its value."""
    grown = {
        metrics.TTFT: (before.ttft, after.ttft),
        metrics.END_TO_END: (before.e2e, after.e2e),
        metrics.ITL: (before.itl, after.itl),
        metrics.QUEUE: (before.queue, after.queue),
    }
    still = [name for name, (old, new) in grown.items() if old and new and new.count <= old.count]
    counts = {
        metrics.PROMPT_TOKENS: (before.prompt_tokens, after.prompt_tokens),
        metrics.GENERATION_TOKENS: (before.generation_tokens, after.generation_tokens),
    }
    still += [name for name, (old, new) in counts.items() if old is not None and new is not None and new <= old]
    return still
