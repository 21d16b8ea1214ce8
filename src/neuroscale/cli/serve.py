"""`neuroscale serve`: serves the API with which the portal shows plans."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroscale.cli.options import RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, Problem


def serve_plans(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8088,
    repository: RepositoryOption = None,
) -> int:
    """Serve `POST /api/v1/plan` for the portal."""
    import socket

    from neuroscale.cli.backstage_api import serve
    from neuroscale.cli.open_repository import open_repository
    from neuroscale.rendering.scaffolder.actions import PLAN_ROUTE

    opened = open_repository(repository)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            Problem(
                "the command line",
                "--host, --port",
                f"this program cannot listen at {host} port {port}: {error.strerror}",
                "Name an address of this machine and a free port; --port 0 takes any.",
            )
        ) from error
    with listener:
        address = f"[{host}]" if family is socket.AF_INET6 else host
        typer.echo(f"Serving POST http://{address}:{listener.getsockname()[1]}{PLAN_ROUTE}")
        serve(opened.catalog, opened.settings, opened.template, listener)
    return ExitStatus.PASSED
