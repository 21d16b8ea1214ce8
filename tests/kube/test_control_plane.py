"""Whom the programs of a control plane believe."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from api_server import ApiServer
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.control_plane import ADMINISTRATOR, ControlPlane, Ports, client_context

pytestmark = pytest.mark.tools


def reached(url: str, authority: Path, certificate: Path | None, key: Path | None) -> str:
    """What a server answers to a client that trusts its authority; empty where it ends the connection."""
    if certificate is None or key is None:
        context = ssl.create_default_context(cafile=str(authority))
    else:
        context = client_context(authority, certificate, key)
    try:
        return httpx.get(url, verify=context, trust_env=False, timeout=10.0).text
    except httpx.TransportError:
        return ""


@pytest.mark.parametrize("place", ["etcd", "etcd_peer"])
def test_etcd_speaks_to_the_api_server_alone_and_not_to_users_of_the_cluster(api_server: ApiServer, place: str) -> None:
    plane = api_server.plane
    url = f"https://{LOOPBACK}:{getattr(plane.ports, place)}/{'version' if place == 'etcd_peer' else 'health'}"
    authority = plane.folder / "etcd-authority.crt"
    api_server.kubeconfig_of("somebody", ("team-alpha",))
    own = [plane.folder / f"api-server-etcd-client.{suffix}" for suffix in ("crt", "key")]
    assert reached(url, authority, own[0], own[1])
    assert not reached(url, authority, None, None)
    for user in ("somebody", ADMINISTRATOR):
        assert not reached(url, authority, plane.folder / f"{user}.crt", plane.folder / f"{user}.key")


def test_nobody_reaches_etcds_peers_in_the_clear(api_server: ApiServer) -> None:
    try:
        answer = httpx.get(f"http://{LOOPBACK}:{api_server.plane.ports.etcd_peer}/members", trust_env=False)
    except httpx.TransportError:
        return
    assert answer.status_code == 400, answer.text


def test_an_etcd_whose_certificates_are_not_there_is_ill_and_no_error(tmp_path: Path) -> None:
    assert "cannot be read" in (ControlPlane(tmp_path, Ports(1, 2, 3)).etcd_problem() or "")
