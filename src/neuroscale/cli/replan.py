"""`neuroscale replan`: plans existing services anew with today's catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.open_repository import open_repository
from neuroscale.cli.options import RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render, write
from neuroscale.repo.layout import MANIFESTS, REQUEST_FILE, ServicePath


def replan_service(
    service: Annotated[str, typer.Argument(help="A service: its folder, ENVIRONMENT/SERVICE, or its name alone.")],
    repository: RepositoryOption = None,
) -> int:
    """Renew a service's plan from the catalog as it is, and render it again."""
    opened = open_repository(repository)
    folder = _service_folder(opened.root, service)
    file = folder / REQUEST_FILE
    request = opened.read_request(file)
    wanted = ServicePath(request.environment, request.service).folder
    if folder.resolve() != (opened.root / wanted).resolve():
        raise InputError.at(
            str(file),
            "",
            f"is the request of {request.environment}/{request.service}, and does not lie in {wanted}",
            "Correct its service and environment, or move the folder.",
        )
    planned = plan(request, opened.catalog, opened.settings, opened.template.version)
    write(render(request, planned, opened.template), folder)
    typer.echo(f"Planned and rendered {folder.relative_to(opened.root)} again.")
    return ExitStatus.PASSED


def _service_folder(root: Path, named: str) -> Path:
    """The folder of a service by its path, by ENVIRONMENT/SERVICE, or by a name that only one environment has."""
    import glob

    given = Path(named)
    absolute = given.resolve() if given.exists() else root / given
    candidates = [absolute] if (absolute / REQUEST_FILE).is_file() else []
    parts = given.parts
    if not candidates and 1 <= len(parts) <= 2 and not given.is_absolute() and ".." not in parts:
        literal = [glob.escape(part) for part in parts]
        pattern = f"*/{literal[0]}" if len(literal) == 1 else "/".join(literal)
        below = root / MANIFESTS
        candidates = [folder for folder in sorted(below.glob(pattern)) if (folder / REQUEST_FILE).is_file()]
    if len(candidates) > 1:
        names = ", ".join(str(folder.relative_to(root)) for folder in candidates)
        raise InputError.at("the command line", "SERVICE", f"{named!r} is in {names}", "Name one of them.")
    if not candidates or not candidates[0].is_relative_to(root):
        raise InputError.at(
            "the command line",
            "SERVICE",
            f"{named!r} is not a service of this repository",
            f"Name a folder {ServicePath('ENVIRONMENT', 'SERVICE').folder} that holds a {REQUEST_FILE}.",
        )
    return candidates[0]
