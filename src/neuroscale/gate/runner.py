"""Runs the gate once: every check in its turn over one input, and then the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from pathlib import Path

from neuroscale.core.scratch import scratch_folder
from neuroscale.gate.check import GateCheck, GateResult, begin
from neuroscale.gate.checks.files import FilesCheck
from neuroscale.gate.checks.policy import PolicyCheck
from neuroscale.gate.checks.schema import SchemaCheck
from neuroscale.gate.checks.secrets import SecretsCheck, Text
from neuroscale.gate.judged_files import GateInput, read_paths
from neuroscale.gate.merged_change import Change, read_change, texts_of, touches_rendering
from neuroscale.gate.run_state import Run, Subject
from neuroscale.gate.verdict import Verdict
from neuroscale.repo.git import TooLargeError
from neuroscale.repo.layout import ServicePath


def gate_paths(paths: list[Path], root: Path, today: date, *, server: bool = False, strict: bool = False) -> Verdict:
    """Judge folders and files, with `server` by an API server too. Raises InputError for a path without manifests.

    `strict`: an object of a kind that nothing judges is a finding; otherwise the verdict only names it.
    """
    given = read_paths(paths, root)
    names = tuple(map(str, paths))
    subject = Subject(given, lambda: texts_of_files(given), given.snapshot, paths=names, server=server, strict=strict)
    return _judge(subject, today)


def gate_change(change: Change, today: date, *, server: bool = False, strict: bool = True) -> Verdict:
    """Judge what merging the change's head into its base brings, with `server` by an API server too.

    Policies and exceptions are the base's. `strict`: an object of a kind that nothing judges is a finding.
    """
    subject = Subject(
        read_change(change), lambda: texts_of(change), change.before, change, server=server, strict=strict
    )
    return _judge(subject, today)


def all_checks(*, renders_anew: bool = True, only_services: bool = False) -> Iterator[GateCheck]:
    """Every check, for one run, in the order in which they begin. A check finds in the run what earlier checks hand on.

    Checks that wait for other programs begin as soon as all objects are known. The others are imported in their turn,
    while those programs run: planning alone takes a tenth of a second of a processor. `renders_anew`: whether the input
    is a change after which services are rendered otherwise; without one, the checks of it would be left out.
    `only_services`: the input has nothing beside services, so the list of what it alters hands on no objects.
    """
    yield FilesCheck()
    if not only_services:
        yield _altered()
    if renders_anew:
        yield from _rendered_anew()
    yield PolicyCheck()
    yield SchemaCheck()
    yield SecretsCheck()
    from neuroscale.gate.checks.api_server import ApiServerCheck
    from neuroscale.gate.checks.catalog import CatalogCheck
    from neuroscale.gate.checks.changed_policies import ChangedPoliciesCheck
    from neuroscale.gate.checks.changed_policy_tests import ChangedPolicyTestsCheck
    from neuroscale.gate.checks.cost_rules import CostCheck
    from neuroscale.gate.checks.drift import DriftCheck
    from neuroscale.gate.checks.judged_kinds import KindsCheck
    from neuroscale.gate.checks.owners import OwnersCheck
    from neuroscale.gate.checks.platform_files import PlatformFilesCheck
    from neuroscale.gate.checks.production import ProductionCheck
    from neuroscale.gate.fit.by_changed_facts import ChangedFactsFitCheck
    from neuroscale.gate.fit.check import FitCheck

    if only_services:
        yield _altered()
    yield from (
        ChangedPoliciesCheck(),
        ChangedPolicyTestsCheck(),
        ApiServerCheck(),
        KindsCheck(),
        OwnersCheck(),
        CatalogCheck(lambda run: bool(run.given.services)),
        DriftCheck(),
        FitCheck(),
        ChangedFactsFitCheck(),
        PlatformFilesCheck(),
        ProductionCheck(),
        CostCheck(),
    )


def _altered() -> GateCheck:
    from neuroscale.gate.checks.altered import AlteredCheck

    return AlteredCheck()


def _rendered_anew() -> Iterator[GateCheck]:
    """The checks of what a change of the template, the catalog or the settings does to services."""
    from neuroscale.gate.checks.catalog import CatalogCheck
    from neuroscale.gate.checks.effects import EffectsCheck
    from neuroscale.gate.fit.rendered_anew import RenderedAnewFitCheck

    yield CatalogCheck(lambda run: run.change is not None and touches_rendering(run.change))
    yield EffectsCheck()
    yield RenderedAnewFitCheck()


def _checks_of(change: Change | None) -> Iterator[GateCheck]:
    if change is None:
        return all_checks(renders_anew=False, only_services=True)
    only_services = all(ServicePath.of(path) is not None for path in change.paths)
    return all_checks(renders_anew=touches_rendering(change), only_services=only_services)


def _judge(subject: Subject, today: date) -> Verdict:
    with (
        scratch_folder("neuroscale-gate-") as scratch,
        ThreadPoolExecutor() as pool,
        ExitStack() as ending,  # before the pool, so that a run that breaks off does not wait for a server's answers
    ):
        run = Run(subject, today, scratch, ending)
        not_checked: list[str] = []
        beside: list[tuple[GateCheck, Future[GateResult | None]]] = []
        for check in _checks_of(subject.change):
            end = begin(check, run)
            if check.beside:
                beside.append((check, pool.submit(end)))
                continue
            result = end()
            if result is not None:
                run.results.append(result)
            not_checked.extend(check.not_checked(run))
        from neuroscale.gate.make_verdict import make_verdict

        results = list(run.results)
        for check, future in beside:
            result = future.result()
            if result is not None:
                results.append(result)
            not_checked.extend(check.not_checked(run))
    return make_verdict(run, results, not_checked)


def texts_of_files(given: GateInput) -> Iterable[Text]:
    """Every file of the input, to search for secrets."""
    files = [(entry.path, entry.path, given.snapshot) for service in given.services for entry in service.entries]
    files += [(file.name, file.entry.path, file.snapshot) for file in (*given.plain, *given.inputs)]
    for name, path, snapshot in files:
        try:
            data = snapshot.read(path)
        except TooLargeError as error:
            yield Text(name, b"", unread=error.size)
        else:
            if data is not None:
                yield Text(name, data)
