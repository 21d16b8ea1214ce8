"""`neuroscale render` and `neuroscale replan`."""

from __future__ import annotations

import glob
from pathlib import Path

import typer

from neuroscale.cli.context import Context, open_repository, read_file
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.planning.plan import Plan, load_plan
from neuroscale.planning.planner import plan, request_digest
from neuroscale.rendering.service_folder import render, write
from neuroscale.repo.layout import MANIFESTS, PLAN_FILE, REQUEST_FILE, ServicePath
from neuroscale.request.service_request import Request


def render_request(path: Path, out: Path | None, repository: Path | None) -> int:
    """Write what a request renders to: with the plan beside it where there is one, else with a new plan."""
    context = open_repository(repository)
    request = context.read_request(path)
    lock = path.parent / PLAN_FILE
    if lock.exists():
        planned = load_plan(read_file(lock), str(lock))
        if planned.lock.request_digest != request_digest(request):
            raise InputError(
                Problem(
                    str(lock),
                    "",
                    f"was made for other answers than {path.name} holds",
                    f"Run `neuroscale replan {path.parent}`.",
                )
            )
    else:
        planned = _new_plan(context, request)
    folder = out or path.parent
    write(render(request, planned, context.template), folder)
    typer.echo(f"Rendered {request.service} into {folder}.")
    return ExitStatus.PASSED


def replan_service(named: str, repository: Path | None) -> int:
    """Renew a service's plan and render it. A plan that is refused changes nothing."""
    context = open_repository(repository)
    folder = _service_folder(context.root, named)
    file = folder / REQUEST_FILE
    request = context.read_request(file)
    wanted = ServicePath(request.environment, request.service).folder
    if folder.resolve() != (context.root / wanted).resolve():
        raise InputError(
            Problem(
                str(file),
                "",
                f"is the request of {request.environment}/{request.service}, and does not lie in {wanted}",
                "Correct its service and environment, or move the folder.",
            )
        )
    planned = _new_plan(context, request)
    write(render(request, planned, context.template), folder)
    typer.echo(f"Planned and rendered {folder.relative_to(context.root)} again.")
    return ExitStatus.PASSED


def _new_plan(context: Context, request: Request) -> Plan:
    return plan(request, context.catalog, context.settings, context.template.version)


def _service_folder(root: Path, named: str) -> Path:
    """The folder of a service by its path, by ENVIRONMENT/SERVICE, or by a name that only one environment has."""
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
        raise InputError(Problem("the command line", "SERVICE", f"{named!r} is in {names}", "Name one of them."))
    if not candidates or not candidates[0].is_relative_to(root):
        raise InputError(
            Problem(
                "the command line",
                "SERVICE",
                f"{named!r} is not a service of this repository",
                f"Name a folder {ServicePath('ENVIRONMENT', 'SERVICE').folder} that holds a {REQUEST_FILE}.",
            )
        )
    return candidates[0]
