"""`neuroscale tools`: installs the upstream tools, the schemas and the packages that commands run."""

from __future__ import annotations

from typing import Annotated

import typer

from neuroscale.tools.bundle import DIGESTS, VARIABLE
from neuroscale.tools.main import install, purpose_here
from neuroscale.tools.steps import PURPOSES, WHEEL_PURPOSES

app = typer.Typer(no_args_is_help=True, help="Install the upstream tools that commands run.")


@app.callback()
def _group() -> None:
    """One command is a group, too."""


@app.command("install")
def install_tools(
    purpose: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="; ".join(f"{name}: {text}" for name, text in PURPOSES.items())
            + f". A wheel offers {', '.join(WHEEL_PURPOSES)}. Default: all in a checkout, gate in a wheel.",
        ),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help=f"Take built tools from this bundle (default: ${VARIABLE}, else tool_bundle of the "
            f"repository's platform/settings.yaml; an empty text: from none). Each is compared with {DIGESTS}.",
        ),
    ] = None,
    keep_build_cache: Annotated[
        bool,
        typer.Option(
            "--keep-build-cache",
            help="Keep Go's modules and compiled packages, which are otherwise removed after the last tool.",
        ),
    ] = False,
    pinned_go: Annotated[
        bool, typer.Option("--pinned-go", help="Build with the pinned Go alone, as a bundle needs it.")
    ] = False,
) -> int:
    """Build the missing tools, or take them from a bundle, into the tool cache; in a checkout also make its `.venv`.

    What is there as pinned stays as it is. It is what `make setup` runs.
    """
    return install(purpose_here(purpose), bundle, keep_build_cache=keep_build_cache, pinned_only=pinned_go)
