"""`neuroscale retire` and `neuroscale restore`: remove a service in a pull request, and bring a removed one back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuroscale.actions.service_change import ForgeChoice
from neuroscale.cli.options import (
    TO_STDERR,
    ChangedServiceArgument,
    ClusterStateOption,
    ContextOption,
    DryRunOption,
    JsonOption,
    KubeconfigOption,
    LocalForgeOption,
    PrometheusOption,
    ReasonOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
)
from neuroscale.cli.options.change_outcome import run_change


def retire_service(
    service: ChangedServiceArgument,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    prometheus_url: PrometheusOption = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Remove a service: show its requests of the last days, what it saves and what remains, and open the pull request
    that removes its folder. `neuroscale restore` brings it back."""
    from neuroscale.actions.chosen_cluster import Where
    from neuroscale.actions.retirement import removal_sentences
    from neuroscale.forge.service_changes import Named, Retired

    where = Where(context, kubeconfig, state)
    forge = ForgeChoice(repository, remote, token_file, local)

    def change(root: Path, _: object) -> Retired:
        sentences = removal_sentences(where, prometheus_url, root, reason, TO_STDERR, local=local)
        return Retired(Named(service, root), sentences)

    return run_change(forge, change, dry_run=dry_run, as_json=as_json)


def restore_service(
    service: ChangedServiceArgument,
    anew: Annotated[
        bool, typer.Option("--anew", help="Plan its answers with today's catalog. Default: the same files as before.")
    ] = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Bring back a service that was removed: as its folder was before, if it still passes the gate, or planned anew."""
    from neuroscale.forge.service_changes import Named, Restored

    forge = ForgeChoice(repository, remote, token_file, local)
    return run_change(
        forge,
        lambda root, _: Restored(Named(service, root), anew=anew, reason=reason),
        dry_run=dry_run,
        as_json=as_json,
        instead=""
        if anew
        else "Its files of then do not pass any more: --anew plans its answers with today's catalog.",
    )
