"""`neuroscale serve`: the pages on which people ask for services, and the API of a portal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.cli.options import (
    ClusterStateOption,
    ContextOption,
    KubeconfigOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
)
from neuroscale.core.errors import ExitStatus, InputError


def serve_plans(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8088,
    public_url: Annotated[
        str, typer.Option("--public-url", help="The address that people type, where a proxy stands in front.")
    ] = "",
    proxies: Annotated[
        list[str] | None,
        typer.Option("--trusted-proxy", help="The address that a proxy connects from; nobody else may then connect."),
    ] = None,
    user_header: Annotated[
        str,
        typer.Option("--user-header", help="The header in which that proxy names the person; needs a forge's token."),
    ] = "",
    portal_token: Annotated[
        Path | None,
        typer.Option("--portal-token-file", help="A file of mode 0600 with the token by which a portal shows itself."),
    ] = None,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    repository: RepositoryOption = None,
) -> int:
    """Serve the pages on which people ask for services and look after them, and the API of a portal. It writes nothing
    but pull requests, as the person who is signed in."""
    import socket

    from neuroscale.actions.chosen_cluster import Where
    from neuroscale.actions.open_repository import forge_address, open_repository
    from neuroscale.forge.token import find_token, read_token
    from neuroscale.portal.app import create_app, serve
    from neuroscale.portal.cluster_questions import ClusterQuestions
    from neuroscale.portal.exposure import exposure_at
    from neuroscale.portal.pending_changes import PendingChanges
    from neuroscale.rendering.scaffolder.template import PLAN_ROUTE
    from neuroscale.repo.layout import LOCAL_STATE

    opened = open_repository(repository)
    exposure_at(host, port, public_url, tuple(proxies or ()), user_header)
    needs_own = bool(user_header or portal_token)
    own = find_token(token_file) if needs_own else None
    portal = read_token(portal_token) if portal_token else None
    address, missing = forge_address(opened.root, remote, (state or opened.root / LOCAL_STATE) if local else None)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise InputError.at(
            "the command line",
            "--host, --port",
            f"this program cannot listen at {host} port {port}: {error.strerror}",
            "Name an address of this machine and a free port; --port 0 takes any.",
        ) from error
    with listener:
        port = listener.getsockname()[1]
        exposure = exposure_at(host, port, public_url, tuple(proxies or ()), user_header)
        around = ClusterQuestions(Where(context, kubeconfig, state), opened.root, local=local)
        pending_changes = PendingChanges(opened.root, address, opened, missing)
        app = create_app(pending_changes, around, exposure, own, portal)
        at = f"http://{f'[{host}]' if family is socket.AF_INET6 else host}:{port}"
        typer.echo(f"Pages: {public_url or at}/")
        typer.echo(f"Serving POST {at}{PLAN_ROUTE}")
        if missing:
            typer.echo(f"No pull request can be opened: {missing}", err=True)
        serve(app, pending_changes, listener)
    return ExitStatus.PASSED
