"""Estimates how long a replica takes to start and to end, and how long probes let it load.

Every figure is the slowest of several that others measured (settings and catalog name them), without a cache of
compiled code. A probe that gives up too early restarts the load for ever, and one that gives up late costs little.

A kubelet (Kubernetes 1.37, pkg/kubelet/prober/worker.go) makes the first probe at the first tick of its period that is
`initialDelaySeconds` or more after the start. It ends the container at the failure that makes `failureThreshold` in a
row: as early as `initialDelaySeconds + (failureThreshold - 1) x periodSeconds` after the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from neuroscale.catalog import ModelEntry, RuntimeEntry
from neuroscale.catalog.settings import Environment
from neuroscale.core.money_and_time import duration
from neuroscale.planning.candidates import Candidate
from neuroscale.planning.case import Case
from neuroscale.planning.fit.overhead import graph_sizes
from neuroscale.planning.measured import measured_seconds
from neuroscale.planning.plan import Startup
from neuroscale.planning.replica_memory import download_gib

ProbeKind = Literal["startup", "liveness"]

PROGRESS_DEADLINE = 600
"""Seconds without progress after which KServe 0.20 gives a Deployment up; no field changes them."""

BUSY_SECONDS = 60
"""How long a busy vLLM may leave /health unanswered. Preparing the largest image or video in the API server's process
took 56, 46, 25 and 19 s (its own 'Multi-modal warmup' in public start-up logs of 0.19 to 0.25). While the engine
computes, /health is answered at once, since it only asks whether the engine lives."""

DRAIN_SECONDS = 15
"""Seconds until the gateways know that a pod is gone from the endpoints (preStop), and again for the rest to end."""

_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}


@dataclass(frozen=True)
class ProbeJudgement:
    """Whether a server gets the time that it needs."""

    kind: ProbeKind
    # A kubelet does not end the container earlier (None: no probe ends it, or the probe cannot be read).
    allowed_seconds: int | None
    expected_seconds: int  # the time that the server needs
    enough: bool
    told: str  # the judgement as a complete sentence


def probe_window(probe: Mapping[str, Any]) -> tuple[int, int]:
    """The earliest and the latest second after a container's start at which a failing probe ends it; the last
    `timeoutSeconds` come on top of the latest. Raises ValueError, which names the field, for a value that is not a
    whole number."""
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
    answer; or, without a startup probe, whether the liveness probe does. No probe (None) ends nothing. A probe that
    cannot be read is not enough."""
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
    """Whether a liveness probe tolerates a busy server that does not answer for `busy_seconds`. Its
    `initialDelaySeconds` are over by then. No probe (None) ends nothing. A probe that cannot be read is not enough."""
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


PROBE_FACTOR = 1.5
PROBE_MARGIN_SECONDS = 300
"""The budget is 1.5 times the expected seconds plus these, for a slow network or eight ranks."""

LEAST_GRACE_SECONDS, MOST_GRACE_SECONDS = 60, 600
"""The grace of a pod that must end may not be longer than the cluster autoscaler waits for a node (its
--max-graceful-termination-sec, 600 s by default)."""

UNKNOWN_ANSWER_SECONDS = 90
"""Seconds for an answer if its speed is not known."""


def startup(
    model: ModelEntry,
    runtime: RuntimeEntry,
    environment: Environment,
    *,
    sequences: int,
    eager: bool = False,
    answer_seconds: float | None = None,
    measured: tuple[float, float] = (0.0, 0.0),
) -> Startup:
    """The seconds of a start, step by step, and the limits that follow from them. `sequences`: requests computed at
    once (`--max-num-seqs`). `eager`: vLLM neither compiles nor captures graphs. `answer_seconds`: the time of the
    longest answer (None: not known). `measured`: as `measured_seconds` gives them. They only make a start longer: its
    files may have been in the node's memory, or its code compiled before."""
    mib = download_gib(model) * 1024
    rates = environment.models.throughput_mib_s
    way = "hub" if model.weights.kind == "hub" else environment.models.way_of_store
    copied = way in ("hub", "bucket")
    # A model that the environment cannot get has a refused plan, and no known rate of download.
    download = mib / rates[way].value if copied and way in rates else 0.0
    read = rates["disk"] if copied else rates.get(way, rates["disk"])
    eager = eager or "--enforce-eager" in runtime.args
    layers = 0 if eager else model.facts.num_layers
    parts = [
        math.ceil(seconds)
        for seconds in (
            download,
            max(mib / read.value, measured[0]),
            layers * (runtime.compile_layer_seconds.value or 0.0),
            layers * (runtime.capture_layer_seconds.value or 0.0) * captured_graphs(sequences),
            runtime.start_seconds.value or 0.0,
        )
    ]
    parts[4] += max(0, math.ceil(measured[1]) - sum(parts[2:]))
    budget = sum(parts) * PROBE_FACTOR + PROBE_MARGIN_SECONDS
    answer = UNKNOWN_ANSWER_SECONDS if answer_seconds is None else answer_seconds
    grace = math.ceil((answer + 2 * DRAIN_SECONDS) / 10) * 10
    return Startup(
        expected_seconds=sum(parts),
        download_seconds=parts[0],
        load_seconds=parts[1],
        compile_seconds=parts[2],
        graphs_seconds=parts[3],
        other_seconds=parts[4],
        probe_budget_seconds=math.ceil(budget / 60) * 60,
        termination_grace_seconds=min(max(grace, LEAST_GRACE_SECONDS), MOST_GRACE_SECONDS),
    )


def startup_of(case: Case, chosen: Candidate) -> Startup:
    """The `startup` of a plan's choice: its longest answer takes as long as a user waits for it at the asked load."""
    load, answer = chosen.load.speed if chosen.load else None, None
    if load is not None and load.ttft_p95 is not None and load.tokens_per_second_user is not None:
        answer = load.ttft_p95.value + case.request.longest_answer_tokens / load.tokens_per_second_user.value
    server = chosen.server
    return startup(
        case.model,
        chosen.runtime,
        case.environment,
        sequences=chosen.sequences,
        answer_seconds=answer,
        measured=measured_seconds(case.model, server.device, server.arguments, server.version),
    )


def drain_seconds(start: Startup) -> int:
    """The part of the termination grace that is left for answers, in seconds: vLLM's `--shutdown-timeout`."""
    return start.termination_grace_seconds - 2 * DRAIN_SECONDS


def container_seconds(start: Startup, storage_uri: str) -> int:
    """The expected seconds of the server's own container: KServe copies a bucket's files before that starts."""
    copied_before = storage_uri.startswith(("gs://", "s3://"))
    return start.expected_seconds - (start.download_seconds if copied_before else 0)


def captured_graphs(sequences: int) -> int:
    """CUDA graphs that vLLM 0.32 captures by default: for each batch size up to twice `sequences` (512 at most) one for
    any step, and up to `sequences` one for steps that only decode (`_set_cudagraph_sizes`, config/vllm.py)."""
    sizes = graph_sizes(sequences)
    return len(sizes) + len([size for size in sizes if size <= sequences])


def reasons_of(start: Startup) -> list[str]:
    """A plan's sentences on how its replicas start and end."""
    parts = [f"{name} {duration(seconds)}" for name, seconds in start.steps.items()]
    sentences = [
        f"A replica takes up to {duration(start.expected_seconds)} from its pod's start to ready, at the slowest that "
        f"others measured: {', '.join(parts)}. The startup probe waits {duration(start.probe_budget_seconds)}."
    ]
    if start.expected_seconds > PROGRESS_DEADLINE:
        sentences.append(
            f"After {duration(PROGRESS_DEADLINE)}, KServe's Deployment reports ProgressDeadlineExceeded, and no field "
            "of KServe 0.20 changes that time. The server goes on loading. Until it is ready, Argo CD may show the "
            "service as Degraded, and `neuroscale status` shows it as starting."
        )
    sentences.append(
        f"When a pod must end, vLLM has {duration(start.termination_grace_seconds)} to finish the answers that it has "
        "begun."
    )
    return sentences
