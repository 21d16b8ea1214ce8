"""`neuroscale promote`: carries a service's answers into another environment, in a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    ReasonOption,
    RemoteOption,
    RepositoryOption,
    SetOption,
    TokenFileOption,
    UnsetOption,
    UntilOption,
)
from neuroscale.cli.options.change_outcome import run_change

if TYPE_CHECKING:
    from neuroscale.forge.service_changes import Promoted
    from neuroscale.forge.service_pull_request import Publisher


def promote_service(
    service: ChangedServiceArgument,
    to: Annotated[str, typer.Option("--to", help="The environment that gets the service.")],
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
    """Carry a service's answers into another environment, planned by that one's limits and prices. Refused where the
    smoke test did not pass where it is (by the forge, or in the cluster that an option names), unless --reason says
    why; so is, on the local forge, an environment that nothing of the local platform deploys."""
    from neuroscale.actions.chosen_cluster import Where, unfinished_in
    from neuroscale.actions.promotion import Proofs, evidence_of
    from neuroscale.forge.service_changes import Named, Promoted
    from neuroscale.request.field_changes import read_changes

    changes = read_changes(assigned or (), removed or (), reason, until)
    where = Where(context, kubeconfig, state)
    forge = ForgeChoice(repository, remote, token_file, local)

    def change(root: Path, publisher: Publisher) -> Promoted:
        proofs = Proofs(publisher.forge, where, root, local, TO_STDERR)
        return Promoted(Named(service, root), to, changes, evidence_of(proofs, reason, to), unfinished_in(where, root))

    return run_change(forge, change, dry_run=dry_run, as_json=as_json)
