"""Estimates how long a replica takes to start and to end, and sets the limits of its probes.

Every figure is the slowest of several that others measured (settings and catalog name them): a probe that gives up too
early restarts the load for ever, and one that gives up late costs little. The figures assume no cache of compiled code.
"""

from __future__ import annotations

import math

from neuroscale.catalog import ModelEntry, RuntimeEntry
from neuroscale.catalog.settings import Environment
from neuroscale.planning.candidates import Candidate, Case
from neuroscale.planning.fit.overhead import graph_sizes
from neuroscale.planning.plan import Startup
from neuroscale.planning.probes import (
    BUSY_SECONDS,
    DRAIN_SECONDS,
    PROGRESS_DEADLINE,
    ProbeJudgement,
    judge_liveness,
    judge_probe,
    judge_probes,
)
from neuroscale.planning.replica_memory import download_gib

__all__ = [
    "BUSY_SECONDS",
    "PROGRESS_DEADLINE",
    "ProbeJudgement",
    "captured_graphs",
    "container_seconds",
    "drain_seconds",
    "judge_liveness",
    "judge_probe",
    "judge_probes",
    "reasons_of",
    "startup",
    "startup_of",
]

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
) -> Startup:
    """The seconds of a start, step by step, and the limits that follow from them.

    `sequences`: requests computed at once (`--max-num-seqs`). `eager`: vLLM neither compiles nor captures graphs.
    `answer_seconds`: the time of the longest answer (None: not known).
    """
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
            mib / read.value,
            layers * (runtime.compile_layer_seconds.value or 0.0),
            layers * (runtime.capture_layer_seconds.value or 0.0) * captured_graphs(sequences),
            runtime.start_seconds.value or 0.0,
        )
    ]
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
    """The `startup` of a plan's choice: its longest answer takes as long as a lone user waits for it."""
    pace = chosen.speed
    answer = None
    if pace.ttft_seconds is not None and pace.decode_tokens_per_second:
        answer = pace.ttft_seconds + case.request.longest_answer_tokens / pace.decode_tokens_per_second
    return startup(case.model, chosen.runtime, case.environment, sequences=chosen.sequences, answer_seconds=answer)


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
    parts = [
        f"{seconds} s {what}"
        for seconds, what in (
            (start.download_seconds, "to fetch the weights"),
            (start.load_seconds, "to load them"),
            (start.compile_seconds, "to compile"),
            (start.graphs_seconds, "to capture graphs"),
            (start.other_seconds, "for the rest"),
        )
        if seconds
    ]
    sentences = [
        f"A replica takes up to {start.expected_seconds} s from its pod's start to ready, at the slowest that others "
        f"measured: {', '.join(parts)}. The startup probe waits {start.probe_budget_seconds} s."
    ]
    if start.expected_seconds > PROGRESS_DEADLINE:
        sentences.append(
            f"After {PROGRESS_DEADLINE} s, KServe's Deployment reports ProgressDeadlineExceeded, and no field of "
            "KServe 0.20 changes that time. The server goes on loading. Until it is ready, Argo CD may show the "
            "service as Degraded, and `neuroscale status` shows it as starting."
        )
    sentences.append(
        f"When a pod must end, vLLM has {start.termination_grace_seconds} s to finish the answers that it has begun."
    )
    return sentences
