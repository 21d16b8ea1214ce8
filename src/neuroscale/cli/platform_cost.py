"""`neuroscale platform cost`: prices the platform's own programs."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer

from neuroscale.cli.json_output import print_json
from neuroscale.cli.options import JsonOption, RepositoryOption
from neuroscale.core.errors import ExitStatus, InputError, Problem


def show_platform_costs(
    environment: Annotated[
        str, typer.Option("--environment", help="One environment. Default: all that have a cluster of their own.")
    ] = "",
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Show what the platform's own programs cost, by what their pods request: Argo CD, KServe, Kyverno, the gateway,
    Prometheus and OpenCost. Programs without a price are named with the reason."""
    from neuroscale.cli.open_repository import open_repository
    from neuroscale.core.validation import suggest
    from neuroscale.costs.change import priced
    from neuroscale.costs.platform import platform_side
    from neuroscale.costs.pricing import Prices
    from neuroscale.repo.snapshot import FolderSnapshot
    from neuroscale.report import platform_cost_view

    opened = open_repository(repository)
    settings = opened.settings
    names = [name for name, one in settings.environments.items() if one.cluster != "local"]
    if environment and environment not in names:
        why = (
            "runs on this machine, where its programs are processes"
            if environment in settings.environments
            else "is not in the settings"
        )
        raise InputError(
            Problem("command line", "--environment", f"{environment!r} {why}", suggest(environment, names))
        )
    prices = Prices(opened.catalog, settings.environments)
    snapshot = FolderSnapshot(opened.root)
    found = {
        name: priced(platform_side(snapshot, settings, name), name, prices)
        for name in ([environment] if environment else names)
    }
    if as_json:
        print_json(platform_cost_view.as_mapping(found))
        return ExitStatus.PASSED
    from rich.console import Console

    width = max(120, shutil.get_terminal_size().columns)
    platform_cost_view.print_costs(found, Console(highlight=False, soft_wrap=True, width=width))
    return ExitStatus.PASSED
