"""`neuroscale render`: writes the files of a request into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.open_repository import open_repository, read_file
from neuroscale.cli.options import TO_STDERR, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.planning.plan import load_plan
from neuroscale.planning.planner import request_digest
from neuroscale.rendering.service_folder import render, write
from neuroscale.repo.layout import PLAN_FILE


def render_request(
    request: Annotated[Path, typer.Argument(help="A request.yaml. A plan.yaml beside it is used as its lock.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write to. Default: the request's own.")
    ] = None,
    repository: RepositoryOption = None,
) -> int:
    """Render a request and its plan to manifests, and write them."""
    opened = open_repository(repository)
    wanted = opened.read_request(request, TO_STDERR)
    lock = request.parent / PLAN_FILE
    if lock.exists():
        planned = load_plan(read_file(lock), str(lock))
        if planned.lock.request_digest != request_digest(wanted):
            raise InputError.at(
                str(lock),
                "",
                f"was made for other answers than those in {request.name}",
                f"Run `neuroscale replan {request.parent}`.",
            )
    else:
        planned = opened.plan(wanted)
    folder = out or request.parent
    write(render(wanted, planned, opened.template), folder)
    typer.echo(f"Rendered {wanted.service} into {folder}.")
    return ExitStatus.PASSED
