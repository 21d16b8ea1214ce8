"""`neuroscale replan`: plans existing services anew with today's catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroscale.actions.open_repository import open_repository
from neuroscale.cli.options import TO_STDERR, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.core.printable import terminal
from neuroscale.planning.override_shortfalls import unmet_demands
from neuroscale.rendering.service_folder import render, write
from neuroscale.repo.layout import REQUEST_FILE, ServicePath
from neuroscale.repo.services import find_service, services_of
from neuroscale.repo.snapshot import FolderSnapshot


def replan_service(
    service: Annotated[str, typer.Argument(help="A service: its folder, ENVIRONMENT/SERVICE, or its name alone.")],
    repository: RepositoryOption = None,
) -> int:
    """Renew the plan of one service in its folder from the catalog as it is, and render it again: the offline half of
    `neuroscale upgrade`, which opens the pull requests."""
    opened = open_repository(repository)
    folder = opened.root / find_service(service, services_of(FolderSnapshot(opened.root)), opened.root).folder
    file = folder / REQUEST_FILE
    request = opened.read_request(file, TO_STDERR)
    wanted = ServicePath(request.environment, request.service).folder
    if folder.resolve() != (opened.root / wanted).resolve():
        raise InputError.at(
            str(file),
            "",
            f"is the request of {request.environment}/{request.service}, and does not lie in {wanted}",
            "Correct its service and environment, or move the folder.",
        )
    planned = opened.plan(request)
    write(render(request, planned, opened.template), folder)
    typer.echo(f"Planned and rendered {folder.relative_to(opened.root)} again.")
    for sentence in unmet_demands(planned, opened.catalog, opened.settings):
        typer.echo(f"Before a merge: {terminal(sentence, 1000)}")
    return ExitStatus.PASSED
