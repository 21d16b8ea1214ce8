"""Reads the pods of the platform's own programs from `platform/clusters/workloads.yaml`.

Upstream's charts make these pods. `scripts/platform_workloads.py` renders the charts with the values of this repository
and records what their pods request, since a gate has neither helm nor the charts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from neuroscale.catalog.settings import Settings
from neuroscale.core.frozen import Frozen, Label, Source
from neuroscale.core.validation import parse
from neuroscale.rendering.platform.charts import FOLDER, Chart, Cluster, chart_values, load_charts
from neuroscale.repo.snapshot import Snapshot, read_text

WORKLOADS_FILE = f"{FOLDER}/workloads.yaml"
SCRIPT = "scripts/platform_workloads.py"


class RecordedPods(Frozen):
    """The objects of a program that make pods, with the fields that decide their number and requests.

    `chart` is a name in charts.yaml, or the name of a program that no chart there brings: such a one names its
    `clusters`. `version` and `values` (see `values_digest`) say what was rendered; a chart has one entry for each set
    of values that a cluster gives it.
    """

    chart: Label
    version: Annotated[str, Field(pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+$")]
    values: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    clusters: tuple[Cluster, ...] = ()
    source: Source
    objects: tuple[dict[str, Any], ...]

    @field_validator("objects")
    @classmethod
    def _named(cls, value: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for declared in value:
            metadata = declared.get("metadata")
            if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
                raise ValueError("each object needs metadata with a name")
        return value


class RecordFile(Frozen):
    """The whole file."""

    schema_version: Literal[1]
    charts: tuple[RecordedPods, ...]


@dataclass(frozen=True)
class UnknownProgram:
    """A program whose pods are not known, with the reason. `content` is the same for the same version and values."""

    name: str
    reason: str
    content: str


@dataclass(frozen=True)
class PlatformPods:
    """The objects that make the pods of the platform's programs in a cluster, and programs whose pods are not known."""

    objects: tuple[dict[str, Any], ...]
    unknown: tuple[UnknownProgram, ...]


def load_record(snapshot: Snapshot) -> RecordFile:
    """The record of a repository. Raises InputError."""
    return parse(RecordFile, read_text(snapshot, WORKLOADS_FILE), WORKLOADS_FILE)


def platform_pods(snapshot: Snapshot, settings: Settings, environment: str) -> PlatformPods:
    """The pods of the platform's own programs in an environment's cluster. Raises InputError.

    A chart whose version or values differ from the recorded ones is unknown: its record may be wrong by now.
    """
    record = load_record(snapshot).charts
    rendered = {(entry.chart, entry.version, entry.values): entry for entry in record}
    charts, cluster = load_charts(snapshot), settings.environments[environment].cluster
    objects: list[dict[str, Any]] = []
    unknown: list[UnknownProgram] = []
    for chart in (entry for entry in charts if cluster in entry.clusters):
        digest = values_digest(chart, snapshot, settings, environment)
        known = rendered.get((chart.name, chart.version, digest))
        if known is not None:
            objects += known.objects
            continue
        reason = (
            f"{WORKLOADS_FILE} does not say what its pods request"
            if chart.name not in {entry.chart for entry in record}
            else f"its version or values changed after {WORKLOADS_FILE} was written; run {SCRIPT}"
        )
        unknown.append(UnknownProgram(chart.name, reason, f"{chart.version} {digest}"))
    for other in _beside(record, charts, cluster):
        objects += other.objects
    return PlatformPods(tuple(objects), tuple(unknown))


def values_digest(chart: Chart, snapshot: Snapshot, settings: Settings, environment: str | None = None) -> str:
    """A digest of a chart's values without the domain, which decides about no pod. Raises InputError."""
    values = chart_values(chart.model_copy(update={"domain_at": None}), snapshot, settings, environment)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _beside(record: Collection[RecordedPods], charts: Collection[Chart], cluster: str) -> list[RecordedPods]:
    names = {chart.name for chart in charts}
    return [entry for entry in record if entry.chart not in names and cluster in entry.clusters]
