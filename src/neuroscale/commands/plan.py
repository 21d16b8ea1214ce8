"""`neuroscale plan`."""

from __future__ import annotations

import sys
from pathlib import Path

from neuroscale.commands.context import open_repository
from neuroscale.errors import ExitStatus
from neuroscale.planning.planner import plan


def show_plan(path: Path, repository: Path | None, *, as_json: bool) -> int:
    """Print the plan for a request, as text or JSON; a refused plan is exit status 1."""
    context = open_repository(repository)
    request = context.read_request(path)
    made = plan(request, context.catalog, context.settings, context.template.version)
    if as_json:
        sys.stdout.write(made.model_dump_json(indent=2) + "\n")
    else:
        from rich.console import Console

        from neuroscale.report.plan_view import print_plan

        print_plan(made, Console(highlight=False))
    return ExitStatus.FINDINGS if made.verdict == "refused" else ExitStatus.PASSED
