"""Computes how long Kubernetes' probes let a server load, in seconds from the container's start.

A kubelet (Kubernetes 1.37, pkg/kubelet/prober/worker.go) makes the first probe at the first tick of its period that is
`initialDelaySeconds` or more after the start, and ends the container at the failure that makes `failureThreshold` in a
row. So it may end the container as early as `initialDelaySeconds + (failureThreshold - 1) x periodSeconds` after the
start: a whole period earlier than the product of threshold and period suggests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ProbeKind = Literal["startup", "liveness"]

PROGRESS_DEADLINE = 600
"""Seconds without progress after which KServe 0.20 gives a Deployment up; no field changes them."""

BUSY_SECONDS = 60
"""How long a busy vLLM may leave /health unanswered. Preparing the largest image or video in the API server's process
took 56, 46, 25 and 19 s (its own 'Multi-modal warmup' in public start-up logs of 0.19 to 0.25); while the engine
computes, /health is answered at once, since it only asks whether the engine lives."""

DRAIN_SECONDS = 15
"""Seconds until the gateways know that a pod is gone from the endpoints (preStop), and again for the rest to end."""

_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}


@dataclass(frozen=True)
class ProbeJudgement:
    """Whether a server gets the time that it needs.

    `allowed_seconds`: a kubelet does not end the container earlier (None: no probe ends it, or the probe cannot be
    read). `expected_seconds`: the time that the server needs. `told`: the judgement as a complete sentence.
    """

    kind: ProbeKind
    allowed_seconds: int | None
    expected_seconds: int
    enough: bool
    told: str


def probe_window(probe: Mapping[str, Any]) -> tuple[int, int]:
    """The earliest and the latest second after a container's start at which a failing probe ends it; the last
    `timeoutSeconds` come on top of the latest.

    Raises ValueError, which names the field, for a value that is not a whole number.
    """
    delay, period, failures = (
        _whole(probe, name) for name in ("initialDelaySeconds", "periodSeconds", "failureThreshold")
    )
    return delay + (failures - 1) * period, delay + failures * period


def probe_period(probe: Any) -> int:
    """Seconds between two probes; Kubernetes' default if the field cannot be read."""
    try:
        return _whole(probe, "periodSeconds")
    except ValueError:
        return _DEFAULTS["periodSeconds"]


def failures_for(seconds: int, period: int) -> int:
    """The `failureThreshold` with which a probe without an initial delay waits at least `seconds`."""
    return math.ceil(seconds / period) + 1


def judge_probe(
    probe: Mapping[str, Any] | None, expected_seconds: float, kind: ProbeKind = "startup"
) -> ProbeJudgement:
    """Whether a startup probe waits for a server that needs `expected_seconds` from its container's start to its first
    answer; or, without a startup probe, whether the liveness probe does.

    No probe (None) ends nothing. A probe that cannot be read is not enough.
    """
    expected = math.ceil(expected_seconds)
    if probe is None:
        return ProbeJudgement(kind, None, expected, True, f"No {kind} probe ends a server that loads.")
    try:
        allowed, _ = probe_window(probe)
    except ValueError as error:
        return ProbeJudgement(kind, None, expected, False, f"The {kind} probe cannot be judged: {error}.")
    enough = allowed >= expected
    sure = f"The {kind} probe waits {allowed:,} s (initialDelaySeconds + (failureThreshold - 1) x periodSeconds)"
    told = f"{sure}, and the server takes about {expected:,} s to start"
    return ProbeJudgement(
        kind, allowed, expected, enough, f"{told}." if enough else f"{told}: Kubernetes ends it while it loads."
    )


def judge_probes(container: Mapping[str, Any], expected_seconds: float) -> ProbeJudgement:
    """`judge_probe` of the probe that may end a container as it starts: the startup probe, else the liveness probe."""
    kinds: tuple[ProbeKind, ...] = ("startup", "liveness")
    for kind in kinds:
        probe = container.get(f"{kind}Probe")
        if probe is not None:
            return judge_probe(probe, expected_seconds, kind)
    return judge_probe(None, expected_seconds, "liveness")


def judge_liveness(probe: Mapping[str, Any] | None, busy_seconds: float = BUSY_SECONDS) -> ProbeJudgement:
    """Whether a liveness probe tolerates a busy server that does not answer for `busy_seconds`.

    Its `initialDelaySeconds` are over by then. No probe (None) ends nothing. A probe that cannot be read is not enough.
    """
    expected = math.ceil(busy_seconds)
    if probe is None:
        return ProbeJudgement("liveness", None, expected, True, "No liveness probe ends a server that is busy.")
    try:
        failures, period = _whole(probe, "failureThreshold"), _whole(probe, "periodSeconds")
    except ValueError as error:
        return ProbeJudgement("liveness", None, expected, False, f"The liveness probe cannot be judged: {error}.")
    allowed = (failures - 1) * period
    told = (
        f"The liveness probe ends a server that answers nothing for {allowed:,} s ((failureThreshold - 1) x "
        f"periodSeconds), and a busy one may take {expected:,} s to answer"
    )
    return ProbeJudgement("liveness", allowed, expected, allowed >= expected, f"{told}.")


def _whole(probe: Mapping[str, Any], name: str) -> int:
    """A number, with the API server's default: 0 counts as not given."""
    if not isinstance(probe, Mapping):
        raise ValueError("it must be a mapping")
    value = probe.get(name) or _DEFAULTS[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"its {name} must be a whole number, 0 or more")
    return value
