"""Checks that a server's probes leave time for its start, and that its termination leaves time for open answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.container_faults import ContainerFault
from neuroscale.planning.plan import Startup
from neuroscale.planning.probes import (
    DRAIN_SECONDS,
    ProbeJudgement,
    failures_for,
    judge_liveness,
    judge_probes,
    probe_period,
)
from neuroscale.planning.startup import container_seconds
from neuroscale.vllm.arguments import Parsed

_DRAIN = "shutdown_timeout"
_USUAL_GRACE = 30
"""Kubernetes' default of `terminationGracePeriodSeconds`."""

LEAST_START_SECONDS = 20
"""No vLLM is known to start faster, whatever it loads: the start of its processes alone took 35 s and more in public
logs (the catalog's runtimes name them), without loading, compiling and capturing."""
_USUAL_START_SECONDS = 600


def check_start(container: Mapping[str, Any], start: Startup, source: str) -> Iterator[ContainerFault]:
    """A fault if the probes of a server end it before its `start`, with files from `source`, is over."""
    judged = judge_probes(container, container_seconds(start, source))
    if not judged.enough:
        yield ContainerFault(
            "startup-probe-too-short", (f"{judged.kind}Probe",), judged.told, _longer(container, judged, start)
        )
    patient = judge_liveness(container.get("livenessProbe"))
    if not patient.enough and not (judged.kind == "liveness" and not judged.enough):
        fix = "Raise its failureThreshold or periodSeconds."
        yield ContainerFault("liveness-probe-impatient", ("livenessProbe",), patient.told, fix, refused=False)


def check_least_start(container: Mapping[str, Any]) -> Iterator[ContainerFault]:
    """A fault if the probes are too short for any start, for a server whose start time is unknown."""
    judged = judge_probes(container, LEAST_START_SECONDS)
    if not judged.enough:
        probe = f"{judged.kind}Probe"
        every = probe_period(container.get(probe))
        failures = failures_for(_USUAL_START_SECONDS, every)
        numbers = (
            f"failureThreshold: {failures} with periodSeconds: {every}, which is {_USUAL_START_SECONDS // 60} minutes"
        )
        fix = f"Give it a startupProbe that waits for the load, such as {numbers}."
        told = judged.told.replace("about", "at least")
        yield ContainerFault("startup-probe-too-short", (probe,), told, fix)


def waits_for(container: Mapping[str, Any], starts: Iterable[Startup], source: str) -> bool:
    """Whether the probes wait for each of these starts; False if there are no starts and a probe could end the server.

    If no probe could end the server, the answer does not depend on the starts.
    """
    least = judge_probes(container, 0)
    if least.allowed_seconds is None:
        return least.enough
    slowest = max((container_seconds(start, source) for start in starts), default=None)
    return slowest is not None and judge_probes(container, slowest).enough


def _longer(container: Mapping[str, Any], judged: ProbeJudgement, start: Startup) -> str:
    measured = "If you measured faster loads, write that into platform/settings.yaml (throughput_mib_s)."
    if judged.kind == "liveness":
        return f"Add a startupProbe that waits {start.probe_budget_seconds} s. {measured}"
    every = probe_period(container.get("startupProbe"))
    failures = failures_for(start.probe_budget_seconds, every)
    return f"Give it failureThreshold: {failures} with periodSeconds: {every}. {measured}"


def check_end(parsed: Parsed, pod: Mapping[str, Any], place: Path) -> Iterator[ContainerFault]:
    """A fault if vLLM cuts off open answers when a pod ends. `place`: that of `--shutdown-timeout`, if it is given.

    By default vLLM drops open answers at once (`--shutdown-timeout` of 0), whatever the pod's grace period is.
    """
    if not parsed.exact or _DRAIN not in parsed.snapshot.arguments:
        return
    drain, room = parsed.value(_DRAIN), 2 * DRAIN_SECONDS
    if isinstance(drain, bool) or not isinstance(drain, int | float):
        return
    grace = pod.get("terminationGracePeriodSeconds")
    seconds = grace if isinstance(grace, int) and not isinstance(grace, bool) else _USUAL_GRACE
    if drain <= 0:
        yield ContainerFault(
            "answers-cut-off",
            place,
            "Without --shutdown-timeout vLLM drops open answers whenever a pod is replaced",
            f"Set --shutdown-timeout to the longest answer's seconds; terminationGracePeriodSeconds {room} s higher.",
            refused=False,
        )
    elif drain >= seconds:
        yield ContainerFault(
            "answers-cut-off",
            place,
            f"--shutdown-timeout={drain:g} is not less than the {seconds} s that the pod has to end: answers that are "
            "still open then are cut off",
            f"Set terminationGracePeriodSeconds to {math.ceil(drain) + room} or more.",
            refused=False,
        )
