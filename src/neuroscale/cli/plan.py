"""`neuroscale plan`: plans a request's accelerators, replicas and cost.

Asks a cluster how much room it has for a plan, and prints the answer.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from neuroscale.cli.options import (
    JsonOption,
    KubeconfigOption,
    PictureOption,
    RepositoryOption,
    plain_console,
    print_json,
)
from neuroscale.cluster import capacity, capacity_reader
from neuroscale.cluster.capacity import Capacity
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import counted, terminal
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


def show_plan(
    request: Annotated[Path, typer.Argument(help="A request.yaml, or a file with a form's answers.")],
    context: Annotated[
        str | None, typer.Option("--context", help="Compare with the nodes and quotas of this kubeconfig context.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show what the platform decides for a request: accelerator, memory, flags, price. Exit status 1: refused, or the
    cluster has no room for it now."""
    from neuroscale.cli.open_repository import open_repository
    from neuroscale.planning.override_shortfalls import unmet_demands
    from neuroscale.planning.planner import plan

    opened = open_repository(repository)
    asked = opened.read_request(request)
    made = plan(asked, opened.catalog, opened.settings, opened.template.version)
    if picture is not None:
        from neuroscale.report.memory_picture import write_picture

        where = opened.catalog.accelerators[made.accelerator].title
        write_picture(made.memory_gib, f"{made.model} on {made.accelerator_count} x {where}", picture)
    unmet = unmet_demands(made, opened.catalog, opened.settings)
    compared = context is not None or kubeconfig is not None
    room, name = None, ""
    if compared and made.verdict != "refused":  # a refused plan has no pods that could find room
        room, name = room_for(opened, asked, made, context, kubeconfig)
    if as_json:
        found = made.model_dump(mode="json") | {"unmet_demands": list(unmet)}
        if compared:
            found["cluster"] = {"name": name, **dataclasses.asdict(room)} if room else None
        print_json(found)
    else:
        from neuroscale.report.plan_view import print_plan

        console = plain_console()
        print_plan(made, console)
        for sentence in unmet:
            field(console, "Before a merge", sentence, "yellow")
        if room is not None:
            print_room(room, name, console)
    if made.verdict == "refused":
        return ExitStatus.FINDINGS
    if room is None or room.verdict in ("fits", "fits the fewest"):
        return ExitStatus.PASSED
    return ExitStatus.UNUSABLE if room.verdict == "unknown" else ExitStatus.FINDINGS
