"""Renders the charts of `platform/clusters/charts.yaml` as Argo CD applications: one folder a kind of cluster, and one
for each environment whose settings differ from those of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import Annotated, Any, Literal

from pydantic import Field

from neuroscale.catalog.cluster_settings import CLUSTER_KINDS, ClusterKind, OwnAuthority, Signer
from neuroscale.catalog.settings import Settings
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen, Label, Source
from neuroscale.core.validation import parse, suggest
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.rendering.platform.filling import Verbatim, filled
from neuroscale.repo.layout import SETTINGS
from neuroscale.repo.snapshot import Snapshot, read_text

FOLDER = "platform/clusters"
FILE = f"{FOLDER}/charts.yaml"
_INDENT = 8
Cluster = ClusterKind
CLUSTERS = CLUSTER_KINDS


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


@dataclass(frozen=True)
class ClusterFiles:
    """The files of one folder: those of a kind of cluster (`environment` is None), or of one environment's cluster."""

    folder: str
    kind: Cluster
    environment: str | None
    domain: str
    signer: Signer


def cluster_files(settings: Settings) -> list[ClusterFiles]:
    """Every folder of rendered charts: one a kind of cluster, and one for each environment that differs from it."""
    signers = {kind: settings.certificates.get(kind, OwnAuthority(issuer="own")) for kind in CLUSTERS}
    found = [ClusterFiles(f"{FOLDER}/{kind}", kind, None, settings.domain, signers[kind]) for kind in CLUSTERS]
    for name, environment in settings.environments.items():
        if environment.cluster != "local" and settings.has_own_cluster_files(name):
            signer, domain = environment.certificate or signers[environment.cluster], settings.domain_of(name)
            found.append(ClusterFiles(upstream_folder(settings, name), environment.cluster, name, domain, signer))
    return found


def upstream_folder(settings: Settings, environment: str) -> str:
    """The folder of charts and gateway that an environment's cluster gets: that of its kind, or one of its own."""
    own = settings.has_own_cluster_files(environment)
    return f"{FOLDER}/{environment}/upstream" if own else f"{FOLDER}/{settings.environments[environment].cluster}"


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


def check_charts(charts: tuple[Chart, ...], settings: Settings) -> None:
    """Raises InputError if an environment has values for a chart that its kind of cluster does not get."""
    problems = []
    for name, environment in settings.environments.items():
        known = [chart.name for chart in charts if environment.cluster in chart.clusters]
        problems += [
            Problem(
                SETTINGS,
                f"environments.{name}.charts.{chart}",
                f"{FILE} has no chart of that name for clusters of the kind {environment.cluster}",
                suggest(chart, known),
            )
            for chart in environment.charts
            if chart not in known
        ]
    if problems:
        raise InputError(problems)


def chart_values(
    chart: Chart, snapshot: Snapshot, settings: Settings, environment: str | None = None
) -> dict[str, Any]:
    """The values of a chart, its files merged as helm merges them, and those of an environment over them (None: as its
    kind of cluster gets them). Raises InputError."""
    merged: dict[str, Any] = {}
    for path in chart.values_files:
        merged = _merged(merged, read_mapping(read_text(snapshot, path), path).value)
    merged = _merged(merged, chart.values)
    if environment is not None:
        merged = _merged(merged, settings.environments[environment].charts.get(chart.name, {}))
    if chart.domain_at:
        domain: Any = settings.domain if environment is None else settings.domain_of(environment)
        for part in reversed(chart.domain_at.split(".")):
            domain = {part: domain}
        merged = _merged(merged, domain)
    return merged


def render(snapshot: Snapshot, charts: tuple[Chart, ...], settings: Settings) -> dict[str, str]:
    """The applications, by their path in the repository."""
    files: dict[str, str] = {}
    for cluster in cluster_files(settings):
        own = [chart for chart in charts if cluster.kind in chart.clusters]
        changed = settings.environments[cluster.environment].charts if cluster.environment else {}
        for chart in own:
            values = chart_values(chart, snapshot, settings, cluster.environment)
            sources = [*chart.values_files, *([SETTINGS] if chart.name in changed else [])]
            beside = [other for other in own if other.namespace == chart.namespace]
            first = min(beside, key=lambda other: (other.wave, other.name))
            files[f"{cluster.folder}/{chart.name}.yaml"] = filled(
                "chart.yaml",
                beside=Verbatim("".join(f", {path}" for path in sources)),
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
