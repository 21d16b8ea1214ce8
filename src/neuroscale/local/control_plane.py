"""Runs the local cluster's control plane: etcd, API server, controller manager and scheduler, as on any cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from neuroscale.core.tool_cache import ToolName
from neuroscale.kube.apply import marked
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Object
from neuroscale.kube.control_plane import ADMINISTRATOR, ControlPlane, Ports
from neuroscale.kube.stored_definitions import store_definitions
from neuroscale.local.copied_programs import copied, copy_tool
from neuroscale.local.process import Process, answers
from neuroscale.local.state import State

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
PORTS = (ETCD, "etcd-peer", API_SERVER, CONTROLLER_MANAGER, SCHEDULER)

_PROGRAMS: tuple[ToolName, ...] = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
_FOLDER = "cluster"


def control_plane(state: State) -> ControlPlane:
    """The cluster's files and addresses. Its ports must have been chosen."""
    ports = state.instance.ports
    return ControlPlane(
        folder=state.run / _FOLDER,
        ports=Ports(ports[ETCD], ports["etcd-peer"], ports[API_SERVER]),
        program=lambda name: copied(state, name),
        owner=state.cluster_user,
        service_accounts=True,
        nodes=True,
    )


def cluster(state: State, user: str = ADMINISTRATOR) -> Cluster:
    """A client of the cluster, as its administrator or another of its users."""
    return Cluster.of_control_plane(control_plane(state), user)


def kubeconfig(state: State) -> Path:
    """The administrator's kubeconfig."""
    return control_plane(state).kubeconfig


def kubeconfig_beside(authority: Path) -> Path:
    """The administrator's kubeconfig, by the file of the cluster's certificate authority: a workflow's job may not read
    the state."""
    return authority.with_name(f"{ADMINISTRATOR}.kubeconfig")


def prepare(state: State) -> None:
    """Write programs, certificates and kubeconfigs. Raises UntrustedError if set-up has not built a program."""
    for name in _PROGRAMS:
        copy_tool(state, name)
    plane = control_plane(state)
    plane.prepare()
    for name in (CONTROLLER_MANAGER, SCHEDULER):
        plane.add_user(name, f"system:{name}")
        plane.server_certificate(f"{name}-server")


def processes(state: State, definitions: Callable[[], Sequence[Object]] = tuple) -> list[Process]:
    """The four processes. `definitions`: the custom resource definitions with which a new cluster starts."""
    plane = control_plane(state)
    parts = _Parts(state, plane)
    api_server = parts.process(API_SERVER, plane.api_server_argv(), plane.api_server_problem, (ETCD,))
    return [
        parts.process(ETCD, plane.etcd_argv(), plane.etcd_problem, ()),
        # Those who need the definitions apply them all the same: with these there, they have nothing to change.
        replace(api_server, prepare=lambda: store_definitions(plane, [marked(one) for one in definitions()])),
        parts.controller(
            CONTROLLER_MANAGER,
            f"--root-ca-file={plane.authority_file}",
            f"--service-account-private-key-file={plane.folder / 'service-accounts.key'}",
            "--use-service-account-credentials",
            # Only KWOK's nodes can fail here: as quickly as a test of a failed node needs.
            "--node-monitor-grace-period=40s",
            "--concurrent-deployment-syncs=20",
            "--concurrent-replicaset-syncs=20",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ),
        parts.controller(SCHEDULER, "--kube-api-qps=200", "--kube-api-burst=400"),
    ]


@dataclass(frozen=True)
class _Parts:
    state: State
    plane: ControlPlane

    def process(
        self, name: str, argv: tuple[str, ...], ready: Callable[[], str | None], needs: tuple[str, ...]
    ) -> Process:
        return Process(
            name=name,
            argv=argv,
            environment=environment(self.plane.folder),
            folder=self.plane.folder,
            user=self.state.cluster_user,
            ready=ready,
            port=self.state.instance.ports[name],
            needs=needs,
        )

    def controller(self, name: ToolName, *options: str) -> Process:
        """A process that works through the API server, and answers for its own health."""
        plane, port = self.plane, self.state.instance.ports[name]
        kubeconfig = plane.kubeconfig_of(name)
        certificate, key = plane.server_certificate(f"{name}-server")
        argv = (
            str(plane.program(name)),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={plane.authority_file}",
            "--leader-elect=false",
            "--profiling=false",
            *options,
        )
        url = f"https://{LOOPBACK}:{port}/healthz"
        return self.process(name, argv, lambda: answers(url, plane.client_context(ADMINISTRATOR)), (API_SERVER,))


def environment(folder: Path) -> dict[str, str]:
    """The environment of a cluster's process, without any variable of the platform's caller."""
    return {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
