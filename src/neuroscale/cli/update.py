"""`neuroscale update`: changes some answers or overrides of a service, in a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale.actions.service_change import ForgeChoice
from neuroscale.cli.options import (
    ChangedServiceArgument,
    ClusterStateOption,
    ContextOption,
    DryRunOption,
    JsonOption,
    KubeconfigOption,
    LocalForgeOption,
    ReasonOption,
    RemoteOption,
    RepositoryOption,
    SetOption,
    TokenFileOption,
    UnsetOption,
    UntilOption,
)
from neuroscale.cli.options.change_outcome import run_change
from neuroscale.core.errors import InputError

if TYPE_CHECKING:
    from neuroscale.forge.service_changes import Updated
    from neuroscale.forge.service_pull_request import Publisher


def update_service(
    service: ChangedServiceArgument,
    assigned: SetOption = None,
    removed: UnsetOption = None,
    reason: ReasonOption = "",
    until: UntilOption = "",
    dry_run: DryRunOption = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: ClusterStateOption = None,
    remote: RemoteOption = "origin",
    token_file: TokenFileOption = None,
    local: LocalForgeOption = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> int:
    """Change a service's answers or overrides: show what follows, judge it, and open the pull request. The other
    answers stay, and an open pull request of yours for the service gets the change on top. The cluster (that an option
    names, else the local platform) says whether the newest version runs, where the merge's effect depends on it. Exit
    status 1: refused."""
    from neuroscale.actions.chosen_cluster import Where, unfinished_in
    from neuroscale.forge.service_changes import Named, Updated
    from neuroscale.request.field_changes import read_changes

    if not assigned and not removed:
        message = "names no field to change"
        raise InputError.at("the command line", "--set", message, "Write --set FIELD=VALUE, or --unset FIELD.")
    changes = read_changes(assigned or (), removed or (), reason, until)
    forge = ForgeChoice(repository, remote, token_file, local)
    where = Where(context, kubeconfig, state)

    def change(root: Path, _: Publisher) -> Updated:
        return Updated(Named(service, root), changes, unfinished_in(where, root))

    return run_change(forge, change, dry_run=dry_run, as_json=as_json)
