"""Renders the way into a cluster from outside: a gateway with TLS, and the issuer of its certificate."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent

from neuroscale.catalog.settings import OwnAuthority, Settings
from neuroscale.core.yaml_io import dump
from neuroscale.rendering.platform.charts import CLUSTERS, FOLDER, Chart, Cluster
from neuroscale.rendering.platform.filling import Verbatim, filled

_CHART = "envoy-gateway"
_SOLVER = " " * 10


def render_gateway(charts: Iterable[Chart], settings: Settings) -> dict[str, str]:
    """The gateway of every kind of cluster that gets Envoy Gateway, by its path in the repository."""
    used = {cluster for chart in charts if chart.name == _CHART for cluster in chart.clusters}
    return {f"{FOLDER}/{cluster}/gateway.yaml": _gateway(cluster, settings) for cluster in CLUSTERS if cluster in used}


def _gateway(cluster: Cluster, settings: Settings) -> str:
    signer = settings.certificates.get(cluster, OwnAuthority(issuer="own"))
    own = isinstance(signer, OwnAuthority)
    return filled(
        "gateway.yaml",
        hosts=f"*.{settings.domain}",
        own_authority=own,
        acme_server="" if isinstance(signer, OwnAuthority) else signer.server,
        acme_email="" if isinstance(signer, OwnAuthority) else signer.email,
        acme_dns01=Verbatim("" if isinstance(signer, OwnAuthority) else indent(dump(signer.dns01).rstrip(), _SOLVER)),
    )
