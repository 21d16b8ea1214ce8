"""`neuroscale plan`: plans a request's accelerators, replicas and cost, and compares them with a cluster's room."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import (
    TO_STDERR,
    InputsOption,
    JsonOption,
    KubeconfigOption,
    PictureOption,
    plain_console,
    print_json,
)
from neuroscale.core.errors import ExitStatus
from neuroscale.core.printable import terminal


def show_plan(
    request: Annotated[Path, typer.Argument(help="A request.yaml, or a file with a form's answers.")],
    context: Annotated[
        str | None, typer.Option("--context", help="Compare with the nodes and quotas of this kubeconfig context.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    accelerators: Annotated[
        str, typer.Option("--accelerators", help="Consider these alone, as A,B: not those of the environment.")
    ] = "",
    prices: Annotated[
        str,
        typer.Option(
            "--prices",
            metavar="LIST|FILE",
            help="Take prices from this list of the catalog, or from a file in its form: not the environment's lists.",
        ),
    ] = "",
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: InputsOption = None,
) -> int:
    """Show what the platform decides for a request: accelerator, memory, flags, price. Exit status 1: refused, or the
    cluster has no room for it now."""
    from neuroscale.actions.open_repository import open_inputs
    from neuroscale.planning.override_shortfalls import unmet_demands

    opened = open_inputs(repository)
    wanted = opened.read_request(request, TO_STDERR)
    sources = [opened.settings_note] if opened.is_example else []
    if accelerators or prices:
        named = [name.strip() for name in accelerators.split(",")] if accelerators else []
        chosen = opened.prices(prices) if prices else None
        with opened.named():
            opened = opened.considering(wanted.environment, named, chosen)
        environment = opened.settings.environments[wanted.environment]
        told = [f"the accelerators {', '.join(environment.accelerators)}"] if named else []
        told += [f"prices of {prices}"] if chosen else []
        sources.append(f"For this plan alone, {wanted.environment} has {' and '.join(told)}.")
    for note in sources:
        typer.echo(terminal(note), err=as_json)
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
        facts |= {"sources": sources} if sources else {}
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
