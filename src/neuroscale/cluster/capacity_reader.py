"""Reads the objects that decide a cluster's capacity, and the demand of a plan that is compared with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from neuroscale.catalog import Catalog
from neuroscale.catalog.settings import Environment
from neuroscale.cluster.capacity import Capacity, Demand, Other, Read, judge_capacity
from neuroscale.core.errors import InputError
from neuroscale.core.validation import part
from neuroscale.core.yaml_io import read_mapping
from neuroscale.kube.client import Cluster, Object, RefusedError
from neuroscale.manifests.pod_sets import UnknownPods
from neuroscale.manifests.pods_of_objects import pods_of_objects
from neuroscale.planning.plan import Plan
from neuroscale.planning.rollout import strategy
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render
from neuroscale.repo.layout import SERVICE_FILE
from neuroscale.request.service_request import Request

_DENIED = (401, 403)


def demand(plan: Plan, rendered: Mapping[str, str], runtimes: Iterable[Object] = ()) -> Demand:
    """The demand of a plan's rendered files. `runtimes`: serving runtimes that the cluster has.

    Raises InputError if KServe would not accept the files.
    """
    found = read_mapping(rendered[SERVICE_FILE], SERVICE_FILE).value
    if not part(found, "spec", "predictor", "model"):
        raise InputError.at(SERVICE_FILE, "spec.predictor.model", "is missing", "Correct the template's skeleton.")
    (read_object,) = pods_of_objects([found], runtimes)
    pods = read_object.found[0]
    if isinstance(pods, UnknownPods) or pods.bounds is None:
        why = pods.reason if isinstance(pods, UnknownPods) else pods.passing
        raise InputError.at(SERVICE_FILE, "spec", f"defines no pods: {why}", "Correct the template's skeleton.")
    ((pod, _),) = pods.specs
    surge, _ = strategy(plan)
    return Demand(plan.service, plan.tenancy.namespace, dict(pod), (pods.bounds.fewest, pods.bounds.most), surge)


def others(plan: Plan, environment: Environment, catalog: Catalog) -> list[Other]:
    """The environment's accelerators that the plan does not use."""
    names = [name for name in environment.accelerators if name != plan.accelerator]
    entries = [catalog.accelerators[name].on(environment.cluster) for name in names]
    return [
        Other(entry.name, entry.resource, {**environment.node_selector, **entry.node_selector}) for entry in entries
    ]


def read(cluster: Cluster, namespace: str) -> Read:
    """Nodes, all pods, and the namespace with its limits. Raises KubernetesError if the cluster cannot be asked.

    `unreadable` names the kinds that this user may not read.
    """
    unreadable: dict[str, str] = {}

    def listed(kind: str, within: str = "") -> tuple[Object, ...]:
        try:
            return tuple(cluster.list("v1", kind, within))
        except RefusedError as error:
            if error.code not in _DENIED:
                raise
            unreadable[kind] = f"{error.message.rstrip('.')}."
            return ()

    # Pods are read after the nodes, so a pod that was created in between is counted on a known node.
    nodes, pods = listed("Node"), listed("Pod")
    quotas, limit_ranges = listed("ResourceQuota", namespace), listed("LimitRange", namespace)
    found = None
    try:
        found = cluster.get("v1", "Namespace", namespace)
    except RefusedError as error:
        if error.code not in _DENIED:
            raise
        unreadable["Namespace"] = f"{error.message.rstrip('.')}."
    return Read(nodes, pods, found, quotas, limit_ranges, unreadable)


def room_for(
    inputs: PlanningInputs, request: Request, made: Plan, context: str | None, kubeconfig: Path | None
) -> tuple[Capacity, str]:
    """Whether a cluster has room for the plan's pods now, and the cluster's name.

    `context` and `kubeconfig` None: the defaults. Raises KubernetesError if the cluster does not answer.
    """
    asked = demand(made, render(request, made, inputs.template))
    choices = others(made, inputs.settings.environments[made.environment], inputs.catalog)
    with Cluster.of_kubeconfig(kubeconfig, context) as cluster:
        return judge_capacity(asked, read(cluster, asked.namespace), choices), cluster.name
