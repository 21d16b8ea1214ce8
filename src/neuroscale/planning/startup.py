"""How long a replica takes to start, and how long the startup probe waits for it."""

from __future__ import annotations

import math

from neuroscale.catalog import ModelEntry, RuntimeEntry
from neuroscale.planning.memory import download_gib
from neuroscale.planning.plan import Startup
from neuroscale.settings import Environment

PROBE_FACTOR = 1.5
PROBE_MARGIN_SECONDS = 300
"""The budget is half as long again as expected, and five minutes: a probe that gives up early restarts the load."""


def startup(model: ModelEntry, runtime: RuntimeEntry, environment: Environment) -> Startup:
    """Bytes over the slowest throughput of the environment's source, and the runtime's own start.

    A 4-bit Gemma 4 26B-A4B took 664 s to load over GCS FUSE and 99 s to compile on an L4.
    """
    throughput = environment.models.throughput_mib_s
    expected = download_gib(model) * 1024 / throughput.value + (runtime.start_seconds.value or 0.0)
    budget = expected * PROBE_FACTOR + PROBE_MARGIN_SECONDS
    return Startup(expected_seconds=math.ceil(expected), probe_budget_seconds=math.ceil(budget / 60) * 60)
