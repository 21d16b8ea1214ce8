"""`neuroscale serve`."""

from __future__ import annotations

from pathlib import Path

from neuroscale.commands.context import open_repository
from neuroscale.errors import ExitStatus


def serve_plans(host: str, port: int, repository: Path | None) -> int:
    """Serve `POST /api/v1/plan` until interrupted."""
    from neuroscale.server import serve

    context = open_repository(repository)
    serve(context.root, host=host, port=port)
    return ExitStatus.PASSED
