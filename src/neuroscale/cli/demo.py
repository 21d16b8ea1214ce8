"""`neuroscale demo`: plays the whole way from a request to a service in a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show_demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the forge running, so that you can look around.")] = False,
    state: Annotated[
        Path | None, typer.Option("--state", help="The folder of the forge's files. Default: .state/demo.")
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option("--wheel", help="This tool's wheel. Default: a checkout builds it; else as it was installed."),
    ] = None,
) -> int:
    """Show the main job from answers to a merge, in a repository that `repository init` writes, and on a forge of its
    own."""
    from neuroscale.demo.run import run_demo

    return run_demo(state, wheel, keep=keep)
