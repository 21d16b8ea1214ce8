"""Says why a service may be promoted: by its smoke test, and by what deploys the environment that gets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from neuroscale.actions.chosen_cluster import Where, asked_cluster, environments_in
from neuroscale.actions.progress import SILENT, Progress
from neuroscale.actions.service_change import once_for_each_main
from neuroscale.actions.smoke_comments import Tested, smoke_tested
from neuroscale.actions.smoke_now import Question, smoke_report
from neuroscale.core.errors import ASKED, InputError, field_of
from neuroscale.forge.request_flow import Main
from neuroscale.forge.rest import Forge as Rest
from neuroscale.local.forge_accounts import LOGINS, REVERT
from neuroscale.repo.layout import ServicePath
from neuroscale.smoke.results import headline


class Proofs(NamedTuple):
    """Where to ask whether a service works: its forge, and the cluster that options name (else the local platform).
    `local`: the forge is the local platform's."""

    rest: Rest
    where: Where
    root: Path
    local: bool = False
    progress: Progress = SILENT


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
                f"Wait for its smoke test, name the cluster to test it there now ({field_of('context')}), "
                f"or say why it is promoted all the same: {field_of('reason', 'TEXT')}.",
            )
        return [tested.sentence, *undeployed, *([f"Why: {reason}"] if reason else [])]

    return once_for_each_main(evidence)


def _undeployed(proofs: Proofs, to: str, *, refuse: bool) -> list[str]:
    """A sentence where nothing deploys an environment to the cluster that is known. Raises InputError, to `refuse` it,
    if that cluster is the local forge's: no other one reads that forge."""

    deployed = environments_in(proofs.where, proofs.root, local=proofs.local)
    if deployed is None or to in deployed:
        return []
    here = "the local platform" if proofs.local else "the cluster that was asked"
    message = f"nothing deploys {to} to {here}: Argo CD deploys {', '.join(sorted(deployed))} to it"
    if refuse and proofs.local:
        options = " ".join(f"--environment {name}" for name in sorted({*deployed, to}))
        fix = f"Deploy it there, too (neuroscale local up {options}), or say why: {field_of('reason', 'TEXT')}."
        raise InputError.at(ASKED, "to", message, fix)
    return [f"{message[0].upper()}{message[1:]}. Its pods start only where another cluster deploys {to}."]


def tested_in(proofs: Proofs, main: Main, path: ServicePath) -> Tested:
    """By what the forge has of the smoke tests, or by those that run now: in the cluster that an option names, else in
    the local platform if that runs the environment."""

    where, root = proofs.where, proofs.root
    if where == Where():
        tested = smoke_tested(proofs.rest, main, path, _workflow_account(main, local=proofs.local))
        where = where if tested.passed else asked_cluster(where, root, path.environment, proofs.progress)
        if where == Where():
            return tested
    report = smoke_report(Question(path.environment, path.service, revision=main.base.commit), where, root)
    failures = (result for result in report.checks if result.outcome in ("failed", "error"))
    failed = next((f" {failure.title}: {failure.message}" for failure in failures), "")
    passed = report.passed and not any(result.misleads for result in report.checks)
    return Tested(passed, f"{path.name}, tested now in its cluster: {headline(report)}.{failed}")


def _workflow_account(main: Main, *, local: bool) -> str:
    """The login that the smoke workflow comments as: the settings' of main, or the local platform's own."""
    if not local:
        return main.inputs.settings.repository.smoke_account

    return LOGINS[REVERT]
