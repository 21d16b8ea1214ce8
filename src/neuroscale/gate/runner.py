"""Runs the gate once: every check in its turn over one input, and then the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from functools import partial
from importlib import import_module
from pathlib import Path

from neuroscale.core.files import scratch_folder
from neuroscale.gate.check import GateCheck, Run, Subject, begin, in_order
from neuroscale.gate.evaluation import GateResult
from neuroscale.gate.faults_of_base import base_of, faults_of_unchanged_services, with_faults_of_base_as_notices
from neuroscale.gate.judged_files import read_paths, texts_of_files
from neuroscale.gate.make_verdict import make_verdict
from neuroscale.gate.merged_change import Change, read_change, texts_of, touches_rendering
from neuroscale.gate.verdict import Verdict


def gate_paths(
    paths: list[Path], root: Path | None, today: date, *, server: bool = False, strict: bool = False
) -> Verdict:
    """Judge folders and files, with `server` by an API server too. Raises InputError for a path without manifests.

    `root`: the repository whose policies and settings judge; None: those that the package delivers.
    `strict`: an object of a kind that nothing judges is a finding; otherwise the verdict only names it.
    """
    gate_input = read_paths(paths, root)
    names = tuple(map(str, paths))
    texts = partial(texts_of_files, gate_input)
    subject = Subject(gate_input, texts, gate_input.snapshot, paths=names, server=server, strict=strict)
    return _judge(subject, today)


def gate_change(change: Change, today: date, *, server: bool = False, strict: bool = True) -> Verdict:
    """Judge what merging the change's head into its base brings, with `server` by an API server too.

    Policies and exceptions are the base's. `strict`: an object of a kind that nothing judges is a finding.
    """
    subject = Subject(
        read_change(change), lambda: texts_of(change), change.before, change, server=server, strict=strict
    )
    return _judge(subject, today)


_CHECKS = {
    "pin": "pin:PinCheck",
    "files": "files:FilesCheck",
    "change": "change_notices:ChangeCheck",
    "effects": "effects:EffectsCheck",
    "effects-fit": "fit.check:RenderedAnewFitCheck",
    "policy": "policy:PolicyCheck",
    "schema": "schema:SchemaCheck",
    "secrets": "secrets:SecretsCheck",
    "policy-of-head": "changed_policies:ChangedPoliciesCheck",
    "policy-tests": "changed_policies:ChangedPolicyTestsCheck",
    "server": "api_server:ApiServerCheck",
    "kinds": "judged_kinds:KindsCheck",
    "owners": "owners:OwnersCheck",
    "catalog": "catalog:CatalogCheck",
    "drift": "drift:DriftCheck",
    "fit": "fit.check:FitCheck",
    "fit-of-head": "fit.check:ChangedFactsFitCheck",
    "platform": "platform_files:PlatformFilesCheck",
    "production": "production:ProductionCheck",
    "cost": "cost:CostCheck",
}
"""The checks and their classes, in the order in which they begin, if none has to wait for what it needs.

Checks that wait for other programs begin as soon as all objects are known. The others are imported in their turn, while
those programs run: planning alone takes a tenth of a second of a processor.
"""


def all_checks(*, of_change: bool = True, renders_anew: bool = True) -> Iterator[GateCheck]:
    """Every check, for one run. `of_change`: whether the input is a change, and `renders_anew`: whether services are
    rendered otherwise after it; without, the checks of it would be left out."""
    left_out = (*(() if of_change else ("change", "pin")), *(() if renders_anew else ("effects", "effects-fit")))
    return in_order([name for name in _CHECKS if name not in left_out], _made)


def _made(name: str) -> GateCheck:
    module, _, of = _CHECKS[name].partition(":")
    folder = "neuroscale.gate" if "." in module else "neuroscale.gate.checks"
    check: GateCheck = getattr(import_module(f"{folder}.{module}"), of)()
    return check


def _judge(subject: Subject, today: date) -> Verdict:
    with (
        scratch_folder("neuroscale-gate-") as scratch,
        ThreadPoolExecutor() as pool,
        ExitStack() as ending,  # before the pool, so that a run that breaks off does not wait for a server's answers
    ):
        change = subject.change
        renders_anew = change is not None and touches_rendering(change)
        checks = all_checks(of_change=change is not None, renders_anew=renders_anew)
        run, not_checked = _ended(Run(subject, today, scratch, ending), checks, pool)
        if change is not None and (left := faults_of_unchanged_services(run)):
            (scratch / "base").mkdir()
            checks = in_order(_needed_by({name.removesuffix("-of-head") for name in left}), _made)
            base, _ = _ended(Run(base_of(run, change), today, scratch / "base", ending), checks, pool)
            run = with_faults_of_base_as_notices(run, left, base)
    return make_verdict(run, not_checked)


def _ended(run: Run, checks: Iterable[GateCheck], pool: ThreadPoolExecutor) -> tuple[Run, list[str]]:
    """The run after its checks, and what they did not look at, in words."""
    not_checked: list[str] = []
    beside: list[tuple[GateCheck, Future[GateResult | None]]] = []

    def ended(check: GateCheck, result: GateResult | None) -> None:
        nonlocal run
        run = run.ended_with(check.name, result, check.value)
        not_checked.extend(check.not_checked(run.seen_by(check)))

    for check in checks:
        end = begin(check, run)
        if check.beside:
            beside.append((check, pool.submit(end)))
        else:
            ended(check, end())
    for check, future in beside:
        ended(check, future.result())
    return run, not_checked


def _needed_by(names: set[str]) -> list[str]:
    """These checks and all that they need, in the order of the table."""
    while more := {needed for name in names for needed in _made(name).needs} - names:
        names = names | more
    return [name for name in _CHECKS if name in names]
