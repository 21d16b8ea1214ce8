"""Renders the charts of `platform/clusters/charts.yaml` as Argo CD applications, one folder a kind of cluster."""

from __future__ import annotations

from textwrap import indent
from typing import Annotated, Any, Literal

from pydantic import Field

from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError
from neuroscale.core.frozen import Frozen, Label, Source
from neuroscale.core.validation import parse
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.repo.snapshot import Snapshot, read_text

FOLDER = "platform/clusters"
FILE = f"{FOLDER}/charts.yaml"
_INDENT = 8
Cluster = Literal["kind", "gke", "eks"]
CLUSTERS: tuple[Cluster, ...] = ("kind", "gke", "eks")


class Chart(Frozen):
    """One chart at a fixed version. `values` lie on top of the `values_files`, in their order.

    `repository` is an address with https, or a path in a registry for charts that a registry holds. `domain_at`: the
    field of the values that gets the settings' domain.
    """

    name: Label
    clusters: Annotated[tuple[Cluster, ...], Field(min_length=1)]
    wave: Annotated[int, Field(ge=-99, le=99)]
    repository: Annotated[str, Field(pattern=r"^(https://)?[a-z0-9][a-z0-9./-]{3,200}$")]
    chart: Label
    version: Annotated[str, Field(pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+$")]
    namespace: Label
    checked: Source
    values_files: tuple[Annotated[str, Field(pattern=r"^platform/(serving|cost)/[a-z-]+\.yaml$")], ...] = ()
    values: dict[str, Any] = Field(default_factory=dict)
    domain_at: Annotated[str, Field(pattern=r"^[A-Za-z.]+$")] | None = None


class _Charts(Frozen):
    schema_version: Literal[1]
    charts: tuple[Chart, ...]


def load_charts(snapshot: Snapshot) -> tuple[Chart, ...]:
    """The charts of a repository. Raises InputError with every problem."""
    charts = parse(_Charts, read_text(snapshot, FILE), FILE).charts
    names = [chart.name for chart in charts]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError.at(FILE, "charts", f"{min(repeated)!r} stands twice", "Give each a name of its own.")
    return charts


def chart_values(chart: Chart, snapshot: Snapshot, settings: Settings) -> dict[str, Any]:
    """The values of a chart, its files merged as helm merges them. Raises InputError."""
    merged: dict[str, Any] = {}
    for path in chart.values_files:
        merged = _merged(merged, read_mapping(read_text(snapshot, path), path).value)
    merged = _merged(merged, chart.values)
    if chart.domain_at:
        domain: Any = settings.domain
        for part in reversed(chart.domain_at.split(".")):
            domain = {part: domain}
        merged = _merged(merged, domain)
    return merged


def render(snapshot: Snapshot, charts: tuple[Chart, ...], settings: Settings) -> dict[str, str]:
    """The applications, by their path in the repository."""
    files: dict[str, str] = {}
    for cluster in CLUSTERS:
        own = [chart for chart in charts if cluster in chart.clusters]
        for chart in own:
            values = chart_values(chart, snapshot, settings)
            beside = [other for other in own if other.namespace == chart.namespace]
            first = min(beside, key=lambda other: (other.wave, other.name))
            files[f"{FOLDER}/{cluster}/{chart.name}.yaml"] = filled(
                "chart.yaml",
                beside=Verbatim("".join(f", {path}" for path in chart.values_files)),
                name=chart.name,
                release=chart.name,
                # Of several charts in a namespace the first one makes the namespace.
                has_namespace=first is chart,
                namespace=chart.namespace,
                namespace_wave=Verbatim(f'"{chart.wave - 1}"'),
                wave=Verbatim(f'"{chart.wave}"'),
                repository=chart.repository,
                chart=chart.chart,
                version=chart.version,
                has_values=bool(values),
                settings=Verbatim(indent(dump(values).rstrip("\n"), " " * _INDENT)),
            )
    return files


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two values as helm merges them: mappings key by key, everything else whole."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
