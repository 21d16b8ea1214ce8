"""`neuroscale promote`: carries a service's answers into another environment, in a pull request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from neuroscale.cli.options import (
    ClusterStateOption,
    ContextOption,
    JsonOption,
    KubeconfigOption,
    LocalForgeOption,
    RemoteOption,
    RepositoryOption,
    TokenFileOption,
)
from neuroscale.cli.service_change import (
    ChangedServiceArgument,
    DryRunOption,
    Forge,
    ReasonOption,
    SetOption,
    UnsetOption,
    UntilOption,
    once_for_each_main,
    run_change,
)
from neuroscale.core.errors import InputError

if TYPE_CHECKING:
    from neuroscale.cli.chosen_cluster import Where
    from neuroscale.forge.request_flow import Draft, Main
    from neuroscale.forge.rest import Forge as Rest
    from neuroscale.forge.service_changes import Promoted
    from neuroscale.forge.service_pull_request import Publisher
    from neuroscale.forge.smoke_evidence import Tested
    from neuroscale.gate.verdict import ServiceReport
    from neuroscale.repo.layout import ServicePath


def promote_service(
    service: ChangedServiceArgument,
    to: Annotated[str, typer.Option("--to", help="The environment that gets the service.")],
    given: SetOption = None,
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
    from neuroscale.cli.chosen_cluster import Where, unfinished_in
    from neuroscale.forge.service_changes import Named, Promoted, compared
    from neuroscale.request.field_changes import read_changes

    changes = read_changes(given or (), removed or (), reason, until)
    where = Where(context, kubeconfig, state)
    forge = Forge(repository, remote, token_file, local)
    made: list[Promoted] = []

    def change(root: Path, publisher: Publisher) -> Promoted:
        proofs = Proofs(publisher.forge, where, root, local=local)
        evidence, asks = evidence_of(proofs, reason, to), unfinished_in(where, root)
        made[:] = [Promoted(Named(service, root), to, changes, evidence, asks)]
        return made[0]

    def beside(draft: Draft) -> ServiceReport | None:
        source = made[0].source
        if source is None or draft.subject is None:
            return None
        return compared(source, draft.subject.request, draft.subject.plan)

    return run_change(forge, change, dry_run=dry_run, as_json=as_json, beside=beside)


class Proofs(NamedTuple):
    """Where to ask whether a service works: its forge, and the cluster that options name (else the local platform).
    `local`: the forge is the local platform's."""

    rest: Rest
    where: Where
    root: Path
    local: bool = False


def evidence_of(proofs: Proofs, reason: str, to: str) -> Callable[[Main, ServicePath], Sequence[str]]:
    """Says why the service may be promoted, and where nothing deploys the environment `to`. Raises InputError if it is
    not known to work, or nothing of the local platform deploys `to`, and no reason is given."""

    def evidence(main: Main, path: ServicePath) -> Sequence[str]:
        undeployed = _undeployed(proofs, to, refuse=not reason)
        tested = tested_in(proofs, main, path)
        if not tested.passed and not reason:
            raise InputError.at(
                path.folder,
                "",
                f"is not known to be live and tested: {tested.sentence.removesuffix('.')}",
                "Wait for its smoke test, name the cluster to test it there now (--context), or say why it is "
                "promoted all the same: --reason TEXT.",
            )
        return [tested.sentence, *undeployed, *([f"Why: {reason}"] if reason else [])]

    return once_for_each_main(evidence)


def _undeployed(proofs: Proofs, to: str, *, refuse: bool) -> list[str]:
    """A sentence where nothing deploys an environment to the cluster that is known. Raises InputError, to `refuse` it,
    if that cluster is the local forge's: no other one reads that forge."""
    from neuroscale.cli.chosen_cluster import environments_in

    deployed = environments_in(proofs.where, proofs.root, local=proofs.local)
    if deployed is None or to in deployed:
        return []
    here = "the local platform" if proofs.local else "the cluster that was asked"
    told = f"nothing deploys {to} to {here}: Argo CD deploys {', '.join(sorted(deployed))} to it"
    if refuse and proofs.local:
        options = " ".join(f"--environment {name}" for name in sorted({*deployed, to}))
        fix = f"Deploy it there, too (neuroscale local up {options}), or say why: --reason TEXT."
        raise InputError.at("the command line", "--to", told, fix)
    return [f"{told[0].upper()}{told[1:]}. Its pods start only where another cluster deploys {to}."]


def tested_in(proofs: Proofs, main: Main, path: ServicePath) -> Tested:
    """By what the forge has of the smoke tests, or by those that run now: in the cluster that an option names, else in
    the local platform if that runs the environment."""
    from neuroscale.cli.chosen_cluster import Where, asked_cluster
    from neuroscale.cli.smoke import Question, smoke_report
    from neuroscale.forge.smoke_evidence import Tested, smoke_tested
    from neuroscale.smoke.results import headline

    where, root = proofs.where, proofs.root
    if where == Where():
        tested = smoke_tested(proofs.rest, main, path, _workflow_account(main, local=proofs.local))
        where = where if tested.passed else asked_cluster(where, root, path.environment)
        if where == Where():
            return tested
    report = smoke_report(Question(path.environment, path.service, revision=main.base.commit), where, root)
    failed = next((f" {one.title}: {one.message}" for one in report.checks if one.outcome in ("failed", "error")), "")
    passed = report.passed and not any(one.misleads for one in report.checks)
    return Tested(passed, f"{path.name}, tested now in its cluster: {headline(report)}.{failed}")


def _workflow_account(main: Main, *, local: bool) -> str:
    """The login that the smoke workflow comments as: the settings' of main, or the local platform's own."""
    if not local:
        return main.inputs.settings.repository.smoke_account
    from neuroscale.local.forge_accounts import LOGINS, REVERT

    return LOGINS[REVERT]
