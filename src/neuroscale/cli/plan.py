"""`neuroscale plan`: plans a request's accelerators, replicas and cost, and compares them with a cluster's room."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import (
    TO_STDERR,
    JsonOption,
    KubeconfigOption,
    PictureOption,
    RepositoryOption,
    plain_console,
    print_json,
)
from neuroscale.core.errors import ExitStatus


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
    from neuroscale.actions.open_repository import open_repository
    from neuroscale.planning.override_shortfalls import unmet_demands

    opened = open_repository(repository)
    wanted = opened.read_request(request, TO_STDERR)
    planned = opened.plan(wanted)
    if picture is not None:
        from neuroscale.report.memory_picture import write_picture

        where = opened.catalog.accelerators[planned.accelerator].title
        write_picture(planned.memory_gib, f"{planned.model} on {planned.accelerator_count} x {where}", picture)
    unmet = unmet_demands(planned, opened.catalog, opened.settings)
    compared = context is not None or kubeconfig is not None
    refused = planned.verdict == "refused"
    advice = None
    if refused:  # what else would do takes longer than a plan
        from neuroscale.planning.advice import advise

        advice = advise(wanted, opened.catalog, opened.settings)
    room, name = None, ""
    if compared and not refused:  # a refused plan has no pods that could find room
        from neuroscale.cluster.capacity_reader import room_for

        room, name = room_for(opened, wanted, planned, context, kubeconfig)
    if as_json:
        facts = planned.model_dump(mode="json") | {"unmet_demands": list(unmet)}
        if advice is not None:
            from neuroscale.report.advice_view import instead

            facts["choices"] = instead(advice)
        if compared:
            facts["cluster"] = {"name": name, **dataclasses.asdict(room)} if room else None
        print_json(facts)
    else:
        from neuroscale.report.plan_view import field, print_plan, print_room

        console = plain_console()
        print_plan(planned, console)
        if advice is not None:
            from neuroscale.report.advice_view import print_instead

            print_instead(advice, console)
        for sentence in unmet:
            field(console, "Before a merge", sentence, "yellow")
        if room is not None:
            print_room(room, name, console)
    if refused:
        return ExitStatus.FINDINGS
    if room is None or room.verdict in ("fits", "fits the fewest"):
        return ExitStatus.PASSED
    return ExitStatus.UNUSABLE if room.verdict == "unknown" else ExitStatus.FINDINGS
