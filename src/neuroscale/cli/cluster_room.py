"""Asks a cluster how much room it has for a plan, and prints the answer."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from neuroscale.cluster import capacity, capacity_reader
from neuroscale.cluster.capacity import Capacity
from neuroscale.core.plurals import counted
from neuroscale.core.printable import terminal
from neuroscale.kube.client import Cluster
from neuroscale.planning.plan import Plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render
from neuroscale.report.plan_view import field, line
from neuroscale.request.service_request import Request


def room_for(
    inputs: PlanningInputs, request: Request, made: Plan, context: str | None, kubeconfig: Path | None
) -> tuple[Capacity, str]:
    """Whether a cluster has room for the plan's pods now, and the cluster's name.

    `context` and `kubeconfig` None: the defaults. Raises KubernetesError if the cluster does not answer.
    """
    demand = capacity_reader.demand(made, render(request, made, inputs.template))
    others = capacity_reader.others(made, inputs.settings.environments[made.environment], inputs.catalog)
    with Cluster.of_kubeconfig(kubeconfig, context) as cluster:
        return capacity.judge_capacity(demand, capacity_reader.read(cluster, demand.namespace), others), cluster.name


def print_room(room: Capacity, name: str, console: Console) -> None:
    """Print the room in the cluster of that name, below a plan."""
    field(console, f"Cluster {terminal(name)}", f"{room.verdict}: {terminal(room.summary)}")
    for pool in room.pools:
        free = "unknown" if pool.free is None else f"{pool.free:,}"
        there = f"{free} of {pool.allocatable:,} {pool.resource} free"
        told = f"{counted(pool.nodes, 'node')}, {pool.usable:,} usable, {there}"
        line(console, f"- node pool {terminal(pool.name)}: {terminal(told)}", 4)
    for finding in room.findings:
        line(console, f"- {terminal(finding.message)} {terminal(finding.remedy)}", 4)
    for note in room.notes:
        line(console, f"- {terminal(note)}", 4)
    if room.verdict == "unknown":
        line(console, "- Ask as a user who may list nodes, pods, resource quotas and limit ranges.", 4)
