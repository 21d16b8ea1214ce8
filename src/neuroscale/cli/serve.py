"""`neuroscale serve`."""

from __future__ import annotations

import socket
from pathlib import Path

import typer

from neuroscale.cli.context import open_repository
from neuroscale.core.errors import ExitStatus, InputError, Problem
from neuroscale.rendering.scaffolder.actions import PLAN_ROUTE


def serve_plans(host: str, port: int, repository: Path | None) -> int:
    """Serve `POST /api/v1/plan` until interrupted. Raises InputError where nothing can listen at that address."""
    from neuroscale.cli.backstage_api import serve

    context = open_repository(repository)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            Problem(
                "the command line",
                "--host, --port",
                f"nothing can listen at {host} port {port}: {error.strerror}",
                "Name an address of this machine and a free port; --port 0 takes any.",
            )
        ) from error
    with listener:
        address = f"[{host}]" if family is socket.AF_INET6 else host
        typer.echo(f"Serving POST http://{address}:{listener.getsockname()[1]}{PLAN_ROUTE}")
        serve(context.catalog, context.settings, context.template, listener)
    return ExitStatus.PASSED
