"""Renders the way into a cluster from outside: a gateway with TLS, and the issuer of its certificate."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent

from neuroscale.catalog.cluster_settings import OwnAuthority
from neuroscale.catalog.settings import Settings
from neuroscale.core.yaml_io import dump
from neuroscale.rendering.platform.charts import Chart, ClusterFiles, cluster_files
from neuroscale.rendering.platform.filling import Verbatim, filled

_CHART = "envoy-gateway"
_SOLVER = " " * 10


def render_gateway(charts: Iterable[Chart], settings: Settings) -> dict[str, str]:
    """The gateway in every folder of charts that gets Envoy Gateway, by its path in the repository."""
    used = {kind for chart in charts if chart.name == _CHART for kind in chart.clusters}
    return {f"{one.folder}/gateway.yaml": _gateway(one) for one in cluster_files(settings) if one.kind in used}


def _gateway(cluster: ClusterFiles) -> str:
    signer = cluster.signer
    own = isinstance(signer, OwnAuthority)
    return filled(
        "gateway.yaml",
        hosts=f"*.{cluster.domain}",
        own_authority=own,
        acme_server="" if isinstance(signer, OwnAuthority) else signer.server,
        acme_email="" if isinstance(signer, OwnAuthority) else signer.email,
        acme_dns01=Verbatim("" if isinstance(signer, OwnAuthority) else indent(dump(signer.dns01).rstrip(), _SOLVER)),
    )
