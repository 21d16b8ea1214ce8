"""Lists the processes of the local platform, in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import Settings, load_settings, local_environment
from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.core.validation import suggest
from neuroscale.kube.client import Object
from neuroscale.local import (
    alertmanager,
    argocd,
    control_plane,
    gateway,
    gitea,
    kserve,
    kwok,
    kyverno,
    opencost,
    pages,
    portal,
    prometheus,
    redis,
    workflow_runner,
)
from neuroscale.local.alertmanager import Alertmanager
from neuroscale.local.argocd import ArgoCD
from neuroscale.local.cluster_parts import definitions
from neuroscale.local.gateway import Gateway
from neuroscale.local.gitea import Gitea
from neuroscale.local.kserve import Kserve
from neuroscale.local.kwok import Kwok, simulated_nodes
from neuroscale.local.kyverno import Kyverno
from neuroscale.local.node import service
from neuroscale.local.node.service import Node
from neuroscale.local.opencost import Cost
from neuroscale.local.pages import Pages
from neuroscale.local.portal import Portal
from neuroscale.local.process import Process
from neuroscale.local.prometheus import Prometheus
from neuroscale.local.redis import Redis
from neuroscale.local.state import State
from neuroscale.local.workflow_runner import Runner
from neuroscale.rendering.platform import alertmanager as rendered_alertmanager
from neuroscale.rendering.platform import monitoring
from neuroscale.rendering.platform.argocd import VALUES, config_maps
from neuroscale.repo.snapshot import FolderSnapshot

_FORGE_PORTS = (gitea.NAME, workflow_runner.NAME)
_CLUSTER_PARTS = (control_plane, kwok, service, kserve, kyverno, redis, argocd, gateway, prometheus, alertmanager)
_CLUSTER_PORTS = tuple(port for part in _CLUSTER_PARTS for port in part.PORTS)
# The values of the charts of KServe and Kyverno. KServe makes no ingress, because the gateway here does not need it.
_KSERVE_VALUES = ("platform/serving/kserve.yaml", "platform/serving/kserve-no-ingress.yaml")
_KSERVE_DOMAIN = "kserve.controller.gateway.domain"
_KYVERNO_VALUES = ("platform/serving/kyverno.yaml",)


def ports(state: State) -> tuple[str, ...]:
    """The names of the ports that must be chosen before any other function here is called."""
    instance = state.instance
    own = (*(pages.PORTS if instance.pages else ()), *(portal.PORTS if instance.portal else ()))
    forge = (*_FORGE_PORTS, *own)
    if not state.instance.cluster:
        return forge
    return (*forge, *_CLUSTER_PORTS, *(opencost.PORTS if state.instance.cost else ()))


def prepare(state: State, checkout: Path | None) -> None:
    """Write the files that the processes need before they start. Raises InputError, LocalError or UntrustedError.

    `checkout`: the repository whose settings, catalog and platform/ the cluster gets (None: this package's repository).
    """
    if state.instance.cluster:
        _prepare_cluster(state, checkout or delivered.FOLDER)
    if state.instance.pages:
        Pages(state).prepare(checkout or delivered.FOLDER)
    Gitea(state).prepare()
    Runner(state).prepare()
    if state.instance.portal:
        Portal(state).prepare()


def processes(state: State) -> list[Process]:
    """Every process of the local platform."""
    forge = [Gitea(state).process(), Runner(state).process()]
    forge += [Pages(state).process()] if state.instance.pages else []
    forge += [Portal(state).process()] if state.instance.portal else []
    if not state.instance.cluster:
        return forge
    return [
        *forge,
        *control_plane.processes(state, lambda: _definitions(state)),
        Kwok(state).process(),
        Node(state).process(),
        Kserve(state).process(),
        Kyverno(state).process(),
        Redis(state).process(),
        *ArgoCD(state).processes(),
        *Gateway(state).processes(),
        Prometheus(state).process(),
        *Alertmanager(state).processes(),
        *(Cost(state).processes() if state.instance.cost else ()),
    ]


def notes(state: State) -> tuple[str, ...]:
    """Faults of this machine and notes for its users, in sentences."""
    metrics, webhooks = (state.instance.ports.get(name) for name in (argocd.CONTROLLER, kserve.NAME))
    if not state.instance.cluster or metrics is None or webhooks is None:
        return state.instance.notes
    listening = (
        f"Other machines can reach two ports, because upstream has no option against it: {metrics} (metrics of Argo "
        f"CD's "
        f"application controller) and {webhooks} (KServe's webhooks). All others are only on the loopback device."
    )
    return (
        *state.instance.notes,
        *Node(state).notes(),
        *Prometheus(state).notes(),
        *Alertmanager(state).notes(),
        *Cost(state).notes(),
        listening,
    )


def forge_url(state: State) -> str:
    """The forge's address."""
    return Gitea(state).url


def _definitions(state: State) -> list[Object]:
    """The custom resource definitions that the parts of the cluster apply."""
    return [
        *Kwok(state).definitions(),
        *definitions((kserve.GROUP,), kserve.KINDS),
        *definitions((*kyverno.GROUPS, argocd.GROUP)),
    ]


def _prepare_cluster(state: State, root: Path) -> None:
    snapshot = FolderSnapshot(root)
    settings = load_settings(snapshot)
    nodes = _nodes(state, settings, snapshot)
    control_plane.prepare(state)
    Kwok(state).prepare(nodes)
    Node(state).prepare()
    Kserve(state).prepare([root / path for path in _KSERVE_VALUES], {_KSERVE_DOMAIN: settings.domain})
    Kyverno(state).prepare([root / path for path in _KYVERNO_VALUES])
    Redis(state).prepare()
    ArgoCD(state).prepare(config_maps((root / VALUES).read_text(encoding="utf-8")))
    Gateway(state).prepare(settings.domain)
    others: list[dict[str, Any]] = []
    if state.instance.cost:
        lists = [name for one in state.instance.environments for name in settings.environments[one].price_lists]
        Cost(state).prepare(nodes, load_catalog(snapshot), tuple(dict.fromkeys(lists)), root / opencost.VALUES)
        others = Cost(state).scrape(root / opencost.SCRAPE)
    Alertmanager(state).prepare(root / rendered_alertmanager.path_of(local_environment(settings)))
    receiver = Alertmanager(state).address if Alertmanager(state).is_asked_for else ""
    Prometheus(state).prepare(root / monitoring.SCRAPE, [root / path for path in monitoring.RULES], others, receiver)


def _nodes(state: State, settings: Settings, snapshot: FolderSnapshot) -> list[Object]:
    for name in state.instance.environments:
        if name not in settings.environments:
            fix = suggest(name, settings.environments)
            raise InputError.at("the command line", "--environment", f"{name!r} is not in the settings", fix)
    instance = state.instance
    return simulated_nodes(settings, load_catalog(snapshot), instance.environments, instance.nodes_each)
