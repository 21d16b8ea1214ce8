"""Runs OpenCost and kube-state-metrics on this machine: they meter the cluster's pods at the prices of the catalog.

Prometheus takes samples of both. Simulated nodes cost what the catalog says, and have more CPU and memory than real
machines, so their idle costs are too high: the meter is real, and the bill is for practice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.core.files import write_private, write_public
from neuroscale.core.yaml_io import read_mapping
from neuroscale.costs.node_prices import UNPRICED, default_prices, node_prices
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Object
from neuroscale.local import kwok, prometheus
from neuroscale.local.cluster_parts import rights
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copied, copy_tool
from neuroscale.local.node.registration import Capacity
from neuroscale.local.node.service import NODE
from neuroscale.local.process import Process, answers, is_running
from neuroscale.local.state import PASSABLE, State
from neuroscale.repo.layout import METER

OPENCOST: Final = "opencost"
METRICS: Final = "kube-state-metrics"
_TELEMETRY: Final = f"{METRICS}-telemetry"
PORTS = (OPENCOST, METRICS, _TELEMETRY)
SCRAPE: Final = f"{METER}/scrape.yaml"
VALUES: Final = f"{METER}/kube-state-metrics-values.yaml"
"""The values of kube-state-metrics in every cluster: the custom resources that it exports, and its rights to them."""

# Of a scrape configuration: how often and where, which differs here.
_ELSEWHERE: Final = ("scrape_interval", "scrape_timeout", "static_configs")
# Not the name of an environment: several are deployed onto this cluster.
_CLUSTER_ID: Final = "this-machine"
STEP: Final = timedelta(minutes=1)
"""How often OpenCost looks: more often than by default, so that a window of minutes has figures."""
_USERS: Final = {OPENCOST: "neuroscale:opencost", METRICS: "neuroscale:kube-state-metrics"}
# What kube-state-metrics exports, and what OpenCost reads of it.
_RESOURCES = (
    *("daemonsets", "deployments", "jobs", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes"),
    *("pods", "replicasets", "services", "statefulsets"),
)
_READ: Final[tuple[Object, ...]] = (
    {
        "apiGroups": [""],
        "resources": [
            *("configmaps", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods"),
            *("replicationcontrollers", "services"),
        ],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["daemonsets", "deployments", "replicasets", "statefulsets"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]},
    {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list", "watch"]},
)


def address_in(folder: Path) -> str:
    """Where the OpenCost of the platform in a state folder answers. Raises InputError where there is none."""
    found = State.read(folder)
    if found is None or not found.instance.cost or OPENCOST not in found.instance.ports:
        raise InputError.at(str(folder), "", "holds no OpenCost", "Start one: neuroscale local up --with cost")
    return Cost(found).url


def unpriced_in(folder: Path) -> tuple[str, ...]:
    """The nodes of the platform in a state folder that no price list has a price of."""
    found = State.read(folder)
    return Cost(found).unpriced if found is not None else ()


def runs_in(folder: Path) -> bool:
    """Whether the platform in a state folder runs with OpenCost."""
    found = State.read(folder)
    return found is not None and found.instance.cost and OPENCOST in found.instance.ports and is_running(found)


@dataclass(frozen=True)
class Cost:
    """Where OpenCost of a local platform lies, and how it is run. The ports must have been chosen."""

    state: State

    @property
    def url(self) -> str:
        """Where OpenCost answers: `/allocation/compute`."""
        return f"http://{LOOPBACK}:{self.state.instance.ports[OPENCOST]}"

    @property
    def folder(self) -> Path:
        """What OpenCost writes."""
        return self.state.run / OPENCOST

    @property
    def settings(self) -> Path:
        """What it reads and must not change: the prices."""
        return self.state.run / f"{OPENCOST}-settings"

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The nodes that no price list has a price of."""
        lines = self._prices.read_text(encoding="utf-8").splitlines() if self._prices.exists() else []
        return tuple(line.removeprefix(UNPRICED) for line in lines if line.startswith(UNPRICED))

    def prepare(self, nodes: Sequence[Object], catalog: Catalog, price_lists: tuple[str, ...], values: Path) -> None:
        """Write programs, prices, and what kube-state-metrics exports beside Kubernetes' own kinds by its `values`.

        Raises UntrustedError where set-up has not built a program.
        """
        plane, user = control_plane(self.state), self.state.cluster_user
        for name in (OPENCOST, METRICS):
            copy_tool(self.state, name)
            plane.add_user(name, _USERS[name])
        self.state.make_folder(self.folder, None)
        self.state.make_folder(self.settings, None, PASSABLE)
        # No price list has a price of this machine.
        own = {"metadata": {"name": NODE}, "status": {"capacity": Capacity.of_this_machine(self.folder).capacity()}}
        write_public(self._prices, node_prices([*nodes, own], catalog, price_lists))
        found: Any = read_mapping(values.read_text(encoding="utf-8"), str(values)).value
        write_public(self._exported, json.dumps(found[METRICS], indent=2) + "\n")
        write_public(self._resources, json.dumps(found[METRICS]["customResourceState"]["config"], indent=2) + "\n")
        defaults = default_prices(catalog, price_lists)
        write_public(self.settings / "default.json", defaults)
        # It writes into the folder of its configuration; what it was given stays beside it. The file gets its owner
        # before it has its name: in a folder of another user, a name may become a link to any file.
        write_private(self.folder / "default.json", defaults, user)
        self.state.make_folder(self.folder, user)

    def scrape(self, path: Path) -> list[dict[str, Any]]:
        """The scrape configurations of every cluster, with the addresses of this machine."""
        found: Any = read_mapping(path.read_text(encoding="utf-8"), str(path)).value
        ports = self.state.instance.ports
        return [
            {
                **{key: value for key, value in one.items() if key not in _ELSEWHERE},
                "static_configs": [{"targets": [f"{LOOPBACK}:{ports[one['job_name']]}"]}],
            }
            for one in found["scrape_configs"]
        ]

    def processes(self) -> list[Process]:
        """What the supervisor runs."""
        return [self._metrics(), self._opencost()]

    def notes(self) -> tuple[str, ...]:
        """What its users should know."""
        if not self.state.instance.cost or OPENCOST not in self.state.instance.ports or not self._prices.exists():
            return ()
        free = (
            f" No price list has a price of {', '.join(self.unpriced)}: these nodes cost next to nothing there."
            if self.unpriced
            else ""
        )
        return (
            f"OpenCost meters the cluster at {self.url}. After some minutes: "
            f"neuroscale showback --window 5m --state {self.state.folder}.{free}",
        )

    @property
    def _prices(self) -> Path:
        return self.settings / "prices.csv"

    @property
    def _exported(self) -> Path:
        return self.settings / f"{METRICS}-values.json"

    @property
    def _resources(self) -> Path:
        return self.settings / f"{METRICS}.json"

    def _metrics(self) -> Process:
        plane, ports = control_plane(self.state), self.state.instance.ports
        return Process(
            name=METRICS,
            argv=(
                str(copied(self.state, METRICS)),
                f"--kubeconfig={plane.kubeconfig_of(METRICS)}",
                f"--host={LOOPBACK}",
                f"--port={ports[METRICS]}",
                f"--telemetry-host={LOOPBACK}",
                f"--telemetry-port={ports[_TELEMETRY]}",
                f"--resources={','.join(_RESOURCES)}",
                # Without them all costs are __unallocated__.
                "--metric-labels-allowlist=pods=[*],nodes=[*],namespaces=[*]",
                f"--custom-resource-state-config-file={self._resources}",
            ),
            environment=environment(self.folder),
            folder=self.folder,
            user=self.state.cluster_user,
            ready=lambda: answers(f"http://{LOOPBACK}:{ports[METRICS]}/healthz"),
            port=ports[METRICS],
            needs=(API_SERVER,),
            settings=self._exported.read_text(encoding="utf-8") if self._exported.exists() else "",
            prepare=self._apply,
        )

    def _opencost(self) -> Process:
        ports = self.state.instance.ports
        kubeconfig = str(control_plane(self.state).kubeconfig_of(OPENCOST))
        variables = {
            "API_PORT": str(ports[OPENCOST]),
            "CLUSTER_ID": _CLUSTER_ID,
            "CONFIG_PATH": str(self.folder),
            "CSV_PATH": str(self._prices),
            "USE_CSV_PROVIDER": "true",
            "KUBECONFIG": kubeconfig,
            "KUBECONFIG_PATH": kubeconfig,
            # It takes the address out of the kubeconfig, and yet asks for this.
            "KUBERNETES_PORT": f"tcp://{LOOPBACK}:{ports[API_SERVER]}",
            "KUBECOST_JOB_NAME": OPENCOST,
            "PROMETHEUS_SERVER_ENDPOINT": f"http://{LOOPBACK}:{ports[prometheus.NAME]}",
            # kube-state-metrics tells the rest.
            "ETL_RESOLUTION_SECONDS": str(STEP // timedelta(seconds=1)),
            "EMIT_KSM_V1_METRICS": "false",
            "EMIT_KSM_V1_METRICS_ONLY": "true",
            "LOG_LEVEL": "warn",
            "DISABLE_LOG_COLOR": "true",
        }
        return Process(
            name=OPENCOST,
            argv=(str(copied(self.state, OPENCOST)),),
            environment={**environment(self.folder), **variables},
            folder=self.folder,
            user=self.state.cluster_user,
            ready=lambda: answers(f"{self.url}/healthz"),
            port=ports[OPENCOST],
            # It looks at the nodes once to see whose prices it needs.
            needs=(API_SERVER, kwok.NAME, prometheus.NAME, METRICS),
            settings=self._prices.read_text(encoding="utf-8") if self._prices.exists() else "",
        )

    def _apply(self) -> None:
        """Both may read what costs are made of, kube-state-metrics what its values say, and they change nothing."""
        more = json.loads(self._exported.read_text(encoding="utf-8"))["rbac"]["extraRules"]
        with cluster(self.state) as found:
            for name, user in _USERS.items():
                apply_all(found, rights(user, user, [*_READ, *(more if name == METRICS else ())]))
