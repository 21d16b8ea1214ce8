"""`neuroscale plan`."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.cli.context import Context, open_repository
from neuroscale.core.counting import counted
from neuroscale.core.errors import ExitStatus
from neuroscale.planning.plan import Plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.request.service_request import Request

if TYPE_CHECKING:
    from rich.console import Console

    from neuroscale.cluster.capacity import Capacity


@dataclass(frozen=True)
class Target:
    """The cluster to compare a plan with: a context of a kubeconfig (None: the usual ones)."""

    context: str | None
    kubeconfig: Path | None


def show_plan(
    path: Path,
    repository: Path | None,
    *,
    as_json: bool,
    target: Target | None = None,
    picture: Path | None = None,
) -> int:
    """Print the plan for a request, whether a cluster has room for it, and draw its memory into a file.

    Exit status 1: refused, or no room now; 2: the cluster does not let this user see it. Raises KubernetesError where
    it does not answer.
    """
    context = open_repository(repository)
    request = context.read_request(path)
    made = plan(request, context.catalog, context.settings, context.template.version)
    if picture is not None:
        from neuroscale.report.memory_picture import write_picture

        where = context.catalog.accelerators[made.accelerator].title
        write_picture(made.memory_gib, f"{made.model} on {made.accelerator_count} x {where}", picture)
    # A refused plan has no pods that could find room.
    wanted = target if made.verdict != "refused" else None
    capacity, name = _compare(context, request, made, wanted) if wanted else (None, "")
    if as_json:
        found = made.model_dump(mode="json")
        if target is not None:
            found["cluster"] = {"name": name, **dataclasses.asdict(capacity)} if capacity else None
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        from rich.console import Console

        from neuroscale.report.plan_view import print_plan

        console = Console(highlight=False)
        print_plan(made, console)
        if capacity is not None:
            _print(capacity, name, console)
    if made.verdict == "refused":
        return ExitStatus.FINDINGS
    if capacity is None or capacity.verdict in ("fits", "fits the fewest"):
        return ExitStatus.PASSED
    return ExitStatus.UNUSABLE if capacity.verdict == "unknown" else ExitStatus.FINDINGS


def _compare(context: Context, request: Request, made: Plan, target: Target) -> tuple[Capacity, str]:
    from neuroscale.cluster import capacity, capacity_reader
    from neuroscale.kube.client import Cluster

    demand = capacity_reader.demand(made, render(request, made, context.template))
    others = capacity_reader.others(made, context.settings.environments[made.environment], context.catalog)
    with Cluster.of_kubeconfig(target.kubeconfig, target.context) as cluster:
        return capacity.judge(demand, capacity_reader.read(cluster, demand.namespace), others), cluster.name


def _print(capacity: Capacity, name: str, console: Console) -> None:
    from neuroscale.core.printable import terminal
    from neuroscale.report.plan_view import field, line

    field(console, f"Cluster {terminal(name)}", f"{capacity.verdict}: {terminal(capacity.summary)}")
    for pool in capacity.pools:
        free = "unknown" if pool.free is None else f"{pool.free:,}"
        there = f"{free} of {pool.allocatable:,} {pool.resource} free"
        told = f"{counted(pool.nodes, 'node')}, {pool.usable:,} usable, {there}"
        line(console, f"- node pool {terminal(pool.name)}: {terminal(told)}", 4)
    for finding in capacity.findings:
        line(console, f"- {terminal(finding.message)} {terminal(finding.remedy)}", 4)
    for note in capacity.notes:
        line(console, f"- {terminal(note)}", 4)
    if capacity.verdict == "unknown":
        line(console, "- Ask as somebody who may list nodes, pods, resource quotas and limit ranges.", 4)
