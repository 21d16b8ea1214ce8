"""Prometheus of the platform on this machine: what it finds by the API server, what it may, and how it is reached."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from cluster_lab import run
from command_line import Said
from neuroscale.catalog.cluster_settings import Prometheus as Configured
from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object, RefusedError
from neuroscale.local.control_plane import control_plane
from neuroscale.local.kwok import SIMULATED
from neuroscale.local.node.service import NODE
from neuroscale.local.opencost import PORTS as METER
from neuroscale.local.process import belonging
from neuroscale.local.prometheus import NAME, Prometheus, address_in
from platform_lab import Platform
from roots import ROOT
from waiting import wait_for

pytestmark = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]

PLACE = Configured()


def metrics(platform: Platform, service: str, *arguments: object) -> Said:
    where = arguments or ("--state", platform.folder)
    return run("metrics", service, *where, "--repository", ROOT)


def pod(name: str, node: str, labels: dict[str, str], annotations: dict[str, str], port: Object) -> Object:
    container = {"name": "kserve-container", "image": "registry.example.com/nothing:1", "ports": [port]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PLACE.namespace, "labels": labels, "annotations": annotations},
        "spec": {"nodeName": node, "automountServiceAccountToken": False, "containers": [container]},
    }


@dataclass(frozen=True)
class Pods:
    """Two pods of a simulated node: one of a service, and one behind which the platform's Prometheus answers."""

    service: str
    node: str


@pytest.fixture
def pods(platform: Platform) -> Iterator[Pods]:
    name = f"pretend-{secrets.token_hex(3)}"
    with platform.cluster() as cluster, contextlib.ExitStack() as made:
        node = next(one["metadata"]["name"] for one in cluster.list("v1", "Node", labels=f"{SIMULATED}=true"))

        def put(wanted: Object) -> None:
            # The controllers make what a new namespace needs in their own time.
            wait_for(lambda: _applied(cluster, wanted), 60, f"{wanted['kind']} is taken")
            made.callback(cluster.delete, Identity.of(wanted))

        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE.namespace}})
        said = {"prometheus.kserve.io/port": "8080", "prometheus.kserve.io/path": "/metrics"}
        put(pod(f"{name}-1", node, {"serving.kserve.io/inferenceservice": name}, said, {"containerPort": 8080}))
        web = {"name": "web", "containerPort": PLACE.port}
        put(pod("prometheus-0", node, {"app": "prometheus"}, {}, web))
        forward = {"ports": [PLACE.port], "target": {"address": "127.0.0.1", "port": _port(platform)}}
        put(
            {
                "apiVersion": "kwok.x-k8s.io/v1alpha1",
                "kind": "PortForward",
                "metadata": {"name": "prometheus-0", "namespace": PLACE.namespace},
                "spec": {"forwards": [forward]},
            }
        )
        put(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": PLACE.service, "namespace": PLACE.namespace},
                "spec": {"selector": {"app": "prometheus"}, "ports": [{"port": PLACE.port, "targetPort": "web"}]},
            }
        )
        for one in (f"{name}-1", "prometheus-0"):
            wait_for(lambda one=one: _is_ready(cluster, one), 60, f"{one} is ready")  # type: ignore[misc]
        yield Pods(name, node)


def _applied(cluster: Cluster, wanted: Object) -> bool:
    try:
        cluster.apply(wanted)
    except RefusedError as error:
        if error.code in (403, 409):  # no service account yet; an older one of this name is ending
            return False
        raise
    return True


def _is_ready(cluster: Cluster, name: str) -> bool:
    found = cluster.get("v1", "Pod", name, PLACE.namespace) or {}
    conditions = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", ())}
    return conditions.get("Ready") == "True"


def _port(platform: Platform) -> int:
    return platform.local.state.instance.ports[NAME]


def test_a_simulated_pod_is_never_up_and_the_command_says_why(platform: Platform, pods: Pods) -> None:
    told = f"Its pods are simulated ({pods.node}): there is no server to measure."
    wait_for(lambda: told in metrics(platform, pods.service).out, 60, metrics(platform, pods.service).out)
    said = metrics(platform, pods.service, "--state", platform.folder, "--json")
    assert said.status == 1
    assert (said.json["answers"], said.json["reason"]) == (False, told)


def test_a_clusters_prometheus_is_reached_through_the_api_server(platform: Platform, pods: Pods) -> None:
    said = metrics(platform, pods.service, "--kubeconfig", platform.kubeconfig, "--json")
    assert said.status == 1, said.out + said.err + platform.logs(5)
    assert said.json["prometheus"].startswith(f"{PLACE.namespace}/{PLACE.service}:{PLACE.port} of ")
    with platform.cluster() as cluster:
        cluster.delete(Identity("v1", "Service", PLACE.namespace, PLACE.service))
    said = metrics(platform, pods.service, "--kubeconfig", platform.kubeconfig)
    assert said.status == 2
    assert f"the Service {PLACE.namespace}/{PLACE.service} is not in the cluster" in said.err
    assert "--prometheus-url" in said.err


def test_it_is_a_healthy_process_that_listens_on_this_machine_alone(platform: Platform) -> None:
    said = run("local", "status", "--state", platform.folder, "--json")
    (row,) = [one for one in said.json["processes"] if one["name"] == NAME]
    assert (row["health"], row["port"]) == ("healthy", _port(platform))
    url = Prometheus(platform.local.state).url
    assert any(f"Prometheus answers PromQL at {url}/api/v1/query" in note for note in said.json["notes"])
    listening = {
        connection.laddr.ip
        for process in belonging(platform.local.state.instance.id, NAME)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", _port(platform))) == 0


def test_it_may_see_where_pods_are_and_nothing_else(platform: Platform) -> None:
    plane = control_plane(platform.local.state)
    with Cluster.of_kubeconfig(plane.kubeconfig_of(NAME), None) as cluster:
        cluster.list("v1", "Pod")
        for group_version, kind in (("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Node"), ("apps/v1", "Deployment")):
            with pytest.raises(RefusedError) as refused:
                cluster.list(group_version, kind)
            assert refused.value.code == 403
        with pytest.raises(KubernetesError):
            cluster.delete(Identity("v1", "Pod", "kserve", "any"))


def test_it_looks_only_at_pods_of_this_machine_and_at_its_own_meter(platform: Platform) -> None:
    ports = platform.local.state.instance.ports
    meter = {f"127.0.0.1:{ports[name]}" for name in METER if name in ports}
    with contextlib.ExitStack() as stack:
        from neuroscale.cluster.metrics.prometheus import by_address

        prometheus = stack.enter_context(by_address(address_in(platform.folder)))
        for target in prometheus.targets("active"):
            if target["labels"]["instance"] in meter:
                continue
            assert target["labels"]["node"] == NODE
            assert target["scrapeUrl"].startswith("http://127.127.")
