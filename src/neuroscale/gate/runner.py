"""One run of the gate: every check over one input, and the verdict on it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscale import __version__
from neuroscale.core import schemas, tools
from neuroscale.core.counting import plainly_counted
from neuroscale.core.errors import ExitStatus, InputError, NeuroscaleError, UntrustedError
from neuroscale.gate.change import Change, read_change, texts_of
from neuroscale.gate.check import Evaluation, GateResult, guarded, problem_finding, problem_findings
from neuroscale.gate.checks.files import evaluate_files
from neuroscale.gate.checks.policy import evaluate_policies, exception_findings
from neuroscale.gate.checks.schema import evaluate_schemas
from neuroscale.gate.checks.secrets import Text, evaluate_secrets
from neuroscale.gate.checks.whole_tree import evaluate_tree
from neuroscale.gate.inputs import GateInput, read_paths
from neuroscale.gate.verdict import Check, Effects, Finding, Outcome, ServiceReport, Severity, Verdict, exit_status
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import TRIPWIRES, load_policy_set
from neuroscale.repo.git import TooLargeError
from neuroscale.repo.layout import CATALOG, MANIFESTS, PLAN_FILE, POLICIES, SETTINGS
from neuroscale.repo.snapshot import FolderSnapshot, MemorySnapshot, Snapshot

if TYPE_CHECKING:
    from neuroscale.costs.bill import CostChange
    from neuroscale.gate.checks.drift import Platform
    from neuroscale.planning.plan import Plan

_NO_SERVER = (
    "Rules that only an API server knows (CEL rules of custom resources, quantities, port ranges): none was asked."
)


@dataclass(frozen=True)
class Subject:
    """What is judged and by what: the input, the texts to search for secrets, and whose policies decide.

    `server`: whether an API server is asked, too. `strict`: whether an object of a kind that nothing judges is a
    finding.
    """

    given: GateInput
    texts: Callable[[], Iterable[Text]]
    judge: Snapshot
    change: Change | None = None
    paths: tuple[str, ...] = ()
    server: bool = False
    strict: bool = False


@dataclass
class _Report:
    """What the checks have handed in."""

    results: list[GateResult] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    platform: Platform | None = None
    cost: CostChange | None = None
    notes: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    unjudged: list[Manifest] = field(default_factory=list)
    effects: Effects | None = None
    anew: list[Manifest] = field(default_factory=list)
    servers: list[Manifest] = field(default_factory=list)


def gate_paths(paths: list[Path], root: Path, today: date, *, server: bool = False, strict: bool = False) -> Verdict:
    """Judge folders and files, with `server` by an API server too. Raises InputError for a path without manifests.

    `strict`: an object of a kind that nothing judges is a finding, and not only named.
    """
    given = read_paths(paths, root)
    names = tuple(map(str, paths))
    subject = Subject(
        given, lambda: _texts_of_files(given), FolderSnapshot(root), paths=names, server=server, strict=strict
    )
    return _judge(subject, today)


def gate_change(change: Change, today: date, *, server: bool = False, strict: bool = True) -> Verdict:
    """Judge what merging the change's head into its base brings, with `server` by an API server too.

    Policies and exceptions are the base's. `strict`: an object of a kind that nothing judges is a finding.
    """
    subject = Subject(
        read_change(change), lambda: texts_of(change), change.before, change, server=server, strict=strict
    )
    return _judge(subject, today)


def _judge(subject: Subject, today: date) -> Verdict:
    report = _Report()
    with (
        tempfile.TemporaryDirectory(prefix="neuroscale-gate-") as scratch,
        ThreadPoolExecutor() as pool,
        ExitStack() as ending,  # before the pool, so that nobody waits for a server's answers when this run breaks off
    ):
        folder = Path(scratch)
        manifests: list[Manifest] = []
        environments = _environments(subject)
        longest_days = _longest_days(subject)

        def files() -> Evaluation:
            evaluation, found = evaluate_files(subject.given, environments)
            manifests.extend(found)
            return evaluation if subject.change is None else _with_tree(evaluation, subject.change)

        report.results.append(guarded("files", "Files", files))
        _effects(subject, report, manifests)
        judged = [*manifests, *report.anew]
        running = _start(subject, judged, folder, pool, today, longest_days)
        if subject.server:
            running.append(_start_server(judged, pool, ending))
        _kinds(subject, report, judged)
        _platform_checks(subject, report, today, longest_days)
        _fit(subject, report, manifests)
        _rendered_platform(subject, report)
        _cost(subject, report, manifests, today)
        report.results.extend(future.result() for future in running)
    if not subject.server:
        report.results.append(_not_run("server", "API server", "it was not asked for by --server"))
    _say_who_judged(subject, report)
    return _verdict(subject, report)


def _with_tree(seen: Evaluation, change: Change) -> Evaluation:
    """The files check with what is wrong with the whole tree that the merge would bring."""
    found, tripwires = evaluate_tree(change)
    findings = tuple(dict.fromkeys((*seen.findings, *found)))
    return replace(seen, findings=findings, tripwires=seen.tripwires + tripwires, caught=seen.caught + tripwires)


def _start(
    subject: Subject,
    manifests: list[Manifest],
    folder: Path,
    pool: ThreadPoolExecutor,
    today: date,
    longest_days: int,
) -> list[Future[GateResult]]:
    """Start the checks that wait for other programs; this process goes on meanwhile."""

    def policy(judge: Snapshot, place: str) -> Evaluation:
        return evaluate_policies(
            load_policy_set(judge),
            manifests,
            schemas.find(),
            tools.find("kyverno"),
            folder / place,
            today=today,
            longest_days=longest_days,
        )

    def schema() -> Evaluation:
        return evaluate_schemas(manifests, schemas.find(), tools.find("kubeconform"), folder / "schema")

    def secrets() -> Evaluation:
        return evaluate_secrets(subject.texts(), tools.find("gitleaks"), folder / "secrets")

    running = [
        pool.submit(guarded, "policy", "Policies", lambda: policy(subject.judge, "policy")),
        pool.submit(guarded, "schema", "Schemas", schema),
        pool.submit(guarded, "secrets", "Secrets", secrets),
    ]
    if subject.change is not None and subject.change.touches(POLICIES):
        from neuroscale.gate.checks.policy_tests import evaluate_policy_tests

        change, after, altered = subject.change, subject.change.after, set(subject.change.paths)

        def policy_of_head() -> Evaluation:
            seen = policy(after, "policy-of-head")
            brought = [one for one in load_policy_set(after).exceptions if one.file in altered]
            return replace(seen, findings=(*seen.findings, *exception_findings(brought, today, longest_days)))

        def policy_tests() -> Evaluation:
            return evaluate_policy_tests(
                after, to_test, schemas.find(), tools.find("kyverno"), folder / "policy-tests", today=today
            )

        title = "Policies of the change"
        running.append(pool.submit(guarded, "policy-of-head", title, policy_of_head))
        # A policy's tests depend on its own folder and the tripwires: what exempts from policies alters none of them.
        every = _policies(after)
        to_test = every if TRIPWIRES in altered else {name for name in every if change.touches(f"{POLICIES}/{name}")}
        if to_test:
            running.append(pool.submit(guarded, "policy-tests", "Tests of the changed policies", policy_tests))
    return running


def _start_server(manifests: list[Manifest], pool: ThreadPoolExecutor, ending: ExitStack) -> Future[GateResult]:
    """Start an API server and what it is asked. `ending` ends it."""
    from neuroscale.gate.checks.api_server import evaluate_by_server
    from neuroscale.kube.ephemeral import EphemeralServer

    server = ending.enter_context(EphemeralServer())

    def by_server() -> Evaluation:
        try:
            tools.find("etcd")
            version = tools.find_tool("kube-apiserver").module.version
        except UntrustedError as error:
            raise UntrustedError(f"it was asked for and not run: {error}") from error
        return evaluate_by_server(manifests, schemas.find(), server, version)

    return pool.submit(guarded, "server", "API server", by_server)


def _kinds(subject: Subject, report: _Report, manifests: list[Manifest]) -> None:
    """Whether somebody judges the kind of every object."""
    from neuroscale.gate.checks.kinds import GATE, TITLE, evaluate_kinds, unjudged_kinds

    def kinds() -> Evaluation:
        policies = load_policy_set(subject.judge).policies
        evaluation, unjudged = evaluate_kinds(manifests, policies, schemas.find(), strict=subject.strict)
        report.unjudged.extend(unjudged)
        return evaluation

    report.results.append(guarded(GATE, TITLE, kinds))
    report.not_checked.extend(unjudged_kinds(report.unjudged))


def _catalog(subject: Subject, report: _Report) -> None:
    """Whether the catalog, the settings and the template can be used."""

    def catalog() -> Evaluation:
        findings, report.platform = _load_platform(subject.given.snapshot)
        return Evaluation(tuple(findings), 3, 3, "parts", 1, _catalog_tripwire())

    report.results.append(guarded("catalog", "Catalog, settings and template", catalog))


def _effects(subject: Subject, report: _Report, manifests: list[Manifest]) -> None:
    """What the change does to services that are rendered anew. The checks of manifests judge them as well."""
    from neuroscale.gate.checks import effects
    from neuroscale.gate.fit.check import NOT_JUDGED, evaluate_fit, runtimes_of
    from neuroscale.gate.fit.known_models import Knowledge

    change = subject.change
    if change is None:
        return
    report.not_checked.extend(effects.unseen(change))
    if not effects.touches(change):
        return
    _catalog(subject, report)
    if (platform := report.platform) is None:
        reason = "the catalog, the settings or the template cannot be read"
        report.results.append(_not_run(effects.GATE, effects.TITLE, reason))
        return

    def anew() -> Evaluation:
        evaluation, found = effects.evaluate_effects(change, subject.given.services, platform, manifests)
        report.effects = found.effects
        report.anew.extend(found.manifests)
        report.not_checked.extend(found.said)
        report.servers.extend(found.servers)
        return evaluation

    def fit() -> Evaluation:
        # Their plans are made by the change's facts: those of the base may not know what it brings, or know it worse.
        runtimes = runtimes_of(subject.given.snapshot)
        seen = evaluate_fit(report.servers, runtimes, lambda: Knowledge(platform.catalog, platform.settings))
        # Remarks on plans that the planner has just made are for whoever asks for such a service.
        kept = tuple(one for one in seen.findings if one.severity is Severity.ERROR or one.rule == NOT_JUDGED)
        return replace(seen, findings=kept)

    report.results.append(guarded(effects.GATE, effects.TITLE, anew))
    report.results.append(guarded(effects.FIT, effects.FIT_TITLE, fit))


def _platform_checks(subject: Subject, report: _Report, today: date, longest_days: int) -> None:
    """The catalog's own check, and the drift gate where there are services."""
    change = subject.change
    loaded = any(one.check.name == "catalog" for one in report.results)
    if not subject.given.services and not loaded:
        reason = "no service folder of this repository is among the files"
        if subject.given.plain:
            report.not_checked.append(
                "Drift: these manifests were not rendered by this repository, so there is nothing to compare them with."
            )
        report.results.append(_not_run("drift", "Drift", reason) if subject.given.plain else _empty_drift())
        return

    def drift(platform: Platform) -> Evaluation:
        from neuroscale.gate.checks.drift import evaluate_drift
        from neuroscale.gate.checks.history import History

        services = subject.given.services
        history = None if change is None else History(change, [service.path.folder for service in services])
        evaluation, plans = evaluate_drift(subject.given.snapshot, services, platform, today, history, longest_days)
        report.plans.update(plans)
        old = sum(finding.rule == "old-lock" for finding in evaluation.findings)
        if change is None and old:
            report.not_checked.append(
                f"{plainly_counted(old, 'plan')} older than the catalog: without a base, an edited plan cannot be told "
                "from an old one."
            )
        return evaluation

    if not loaded:
        _catalog(subject, report)
    if (platform := report.platform) is not None:
        report.results.append(guarded("drift", "Drift", lambda: drift(platform)))
    else:
        report.results.append(_not_run("drift", "Drift", "the catalog, the settings or the template cannot be read"))


def _fit(subject: Subject, report: _Report, manifests: list[Manifest]) -> None:
    """Whether what runs vLLM fits its accelerators. Facts of models and accelerators are the base's."""
    from neuroscale.gate.fit.check import GATE, TITLE, evaluate_fit, runtimes_of, unjudged
    from neuroscale.gate.fit.known_models import Knowledge, read_knowledge

    change, given = subject.change, subject.given.snapshot

    def knowledge() -> Knowledge | None:
        if change is not None and change.touches(CATALOG, SETTINGS):
            return read_knowledge(subject.judge, given)
        if report.platform is not None:
            return Knowledge(report.platform.catalog, report.platform.settings)
        return read_knowledge(subject.judge)

    runtimes = runtimes_of(given)
    result = guarded(GATE, TITLE, lambda: evaluate_fit(manifests, runtimes, knowledge))
    report.results.append(result)
    report.not_checked.extend(unjudged(result.findings))
    if change is not None and change.touches(CATALOG, SETTINGS):
        known = set(result.findings)

        def by_its_own() -> Evaluation:
            seen = evaluate_fit(manifests, runtimes, lambda: read_knowledge(given))
            return replace(seen, findings=tuple(one for one in seen.findings if one not in known))

        report.results.append(guarded(f"{GATE}-of-head", "Fit by the facts of the change", by_its_own))


def _rendered_platform(subject: Subject, report: _Report) -> None:
    """Whether a change of the platform, its settings or its catalog brings along what they render to."""
    from neuroscale.gate.checks.platform_files import LOOKS_AT, TITLE, evaluate_platform, is_renderer_of

    change = subject.change
    if change is None or not change.touches(*LOOKS_AT):
        return
    if is_renderer_of(change):
        report.results.append(guarded("platform", TITLE, lambda: evaluate_platform(change.after)))
    else:
        reason = "the change alters how it is rendered: its own gate says whether it is"
        report.results.append(_not_run("platform", TITLE, reason))


def _cost(subject: Subject, report: _Report, manifests: list[Manifest], today: date) -> None:
    """What the change costs. Without a base there is no change, and so no cost of one.

    A failure neither refuses nor passes anything: it is named among what was not checked.
    """
    change = subject.change
    if change is None or not change.touches(MANIFESTS):
        return
    try:
        from neuroscale.gate.checks.cost import cost_of_change

        platform = (report.platform.catalog, report.platform.settings) if report.platform else None
        report.cost = cost_of_change(change, platform, manifests, report.plans, today)
    except Exception as error:
        reason = str(error) if isinstance(error, NeuroscaleError) else f"{type(error).__name__}: {error}"
        report.not_checked.append(f"The change of the cost is not known: {' '.join(reason.split())}")


def _empty_drift() -> GateResult:
    def nothing() -> Evaluation:
        from neuroscale.gate.checks.drift import evaluate_nothing

        return evaluate_nothing()

    return guarded("drift", "Drift", nothing)


def _load_platform(snapshot: Snapshot) -> tuple[list[Finding], Platform | None]:
    from neuroscale.catalog import load_catalog
    from neuroscale.catalog.settings import check_settings, load_settings
    from neuroscale.gate.checks.drift import Platform
    from neuroscale.rendering.scaffolder.form import check_form
    from neuroscale.rendering.service_folder import load_template

    findings: list[Finding] = []
    loaded = []
    for load in (load_catalog, load_settings, load_template):
        try:
            loaded.append(load(snapshot))
        except InputError as error:
            findings.extend(problem_findings("catalog", "invalid", error))
    if findings:
        return findings, None
    platform = Platform(*loaded)  # type: ignore[arg-type]
    problems = check_form(platform.template, platform.catalog, platform.settings)
    try:
        check_settings(platform.settings, platform.catalog)
    except InputError as error:
        problems = [*error.problems, *problems]
    return [problem_finding("catalog", "disagreement", problem) for problem in problems], platform


def _catalog_tripwire() -> int:
    """Whether a catalog with an unknown field is refused: 1, or an UntrustedError."""
    from neuroscale.catalog import load_catalog

    try:
        load_catalog(MemorySnapshot({f"{CATALOG}/teams/tripwire.yaml": b"name: tripwire\ntripwire: true\n"}))
    except InputError as error:
        # Other things are wrong with so small a catalog: only the unknown field shows that entries are checked.
        if any(problem.field == "tripwire" for problem in error.problems):
            return 1
    raise UntrustedError("the catalog's check did not refuse its tripwire, an entry with an unknown field.")


def _environments(subject: Subject) -> tuple[str, ...] | None:
    """The environments that the settings name, or None where they cannot be read (the catalog's check says why)."""
    if not subject.given.services:
        return None
    from neuroscale.catalog.settings import load_settings

    try:
        return tuple(load_settings(subject.given.snapshot).environments)
    except InputError:
        return None


def _longest_days(subject: Subject) -> int:
    """How far ahead overrides and exceptions may end, by the settings.

    A change that alters it is judged by the shorter term: by the base's, and by what holds once it is merged. Settings
    that cannot be read say nothing (the catalog's check says why).
    """
    from neuroscale.catalog.settings import LONGEST_DAYS, load_settings

    terms = []
    for snapshot in (subject.judge, subject.given.snapshot):
        with suppress(InputError):
            terms.append(load_settings(snapshot).exceptions.longest_days)
    return min(terms, default=LONGEST_DAYS)


def _not_run(name: str, title: str, reason: str) -> GateResult:
    return GateResult(Check(name=name, title=title, outcome=Outcome.NOT_RUN, detail=reason))


def _texts_of_files(given: GateInput) -> Iterable[Text]:
    files = [(entry.path, entry.path, given.snapshot) for service in given.services for entry in service.entries]
    files += [(file.name, file.entry.path, file.snapshot) for file in given.plain]
    for name, path, snapshot in files:
        try:
            data = snapshot.read(path)
        except TooLargeError as error:
            yield Text(name, b"", unread=error.size)
        else:
            if data is not None:
                yield Text(name, data)


def _say_who_judged(subject: Subject, report: _Report) -> None:
    if subject.change is None and subject.given.services:
        report.notes.append("No base was named: the policies and exceptions of this work tree decided.")
    elif subject.change is not None and subject.change.touches(POLICIES):
        report.notes.append(
            "The change alters policies or exceptions: the base's decided, and the change's own ran beside them."
        )
        if removed := sorted(_policies(subject.change.before) - _policies(subject.change.after)):
            report.notes.append(f"The change removes policies, which will judge nothing then: {', '.join(removed)}.")
    if subject.change is not None and subject.change.touches(CATALOG):
        report.notes.append(
            "The change alters the catalog: the base's facts decided whether a service fits. "
            "The change's own stood in for what the base does not have, and were asked beside them."
        )


def _policies(snapshot: Snapshot) -> set[str]:
    paths = (entry.path for entry in snapshot.entries(POLICIES))
    return {path.split("/")[1] for path in paths if path.endswith("/policy.yaml")}


def _verdict(subject: Subject, report: _Report) -> Verdict:
    given = subject.given
    checks = tuple(result.check for result in report.results)
    found = [finding for result in report.results for finding in result.findings]
    if rendered := [*report.anew, *report.servers]:
        from neuroscale.gate.checks.effects import merged

        found = merged(found, rendered)
    findings = tuple(
        sorted(
            found,
            key=lambda finding: (
                finding.severity is Severity.NOTICE,
                finding.file,
                finding.line or 0,
                finding.gate,
                finding.rule,
                finding.message,
            ),
        )
    )
    services = tuple(
        ServiceReport(
            environment=service.path.environment,
            name=service.path.service,
            change=service.change,
            plan=report.plans.get(service.path.folder),
            plan_before=_plan_before(subject.change, service.path.folder, service.change),
        )
        for service in given.services
    )
    not_checked = list(report.not_checked)
    if not any(check.name == "server" and check.outcome in (Outcome.PASSED, Outcome.FINDINGS) for check in checks):
        not_checked.append(_NO_SERVER)
    if given.ignored:
        names = ", ".join(given.ignored[:5]) + (" and others" if len(given.ignored) > 5 else "")
        not_checked.append(f"{plainly_counted(len(given.ignored), 'file')} without a manifest's ending: {names}.")
    status = exit_status(checks)
    return Verdict(
        tool_version=__version__,
        exit_status=status.value,
        headline=_headline(status, checks, findings, given, report.unjudged),
        base=subject.change.base if subject.change else "",
        head=subject.change.head if subject.change else "",
        paths=subject.paths,
        checks=checks,
        findings=findings,
        services=services,
        cost=report.cost,
        effects=report.effects,
        notes=tuple(report.notes),
        not_checked=tuple(not_checked),
    )


def _plan_before(change: Change | None, folder: str, kind: str) -> Plan | None:
    """The plan at base, for what differs; None where there is none that can be read."""
    if change is None or kind == "added":
        return None
    from neuroscale.planning.plan import load_plan

    data = change.before.read(f"{folder}/{PLAN_FILE}")
    try:
        return None if data is None else load_plan(data.decode("utf-8", "replace"), folder)
    except InputError:
        return None


def _headline(
    status: ExitStatus,
    checks: tuple[Check, ...],
    findings: tuple[Finding, ...],
    given: GateInput,
    unjudged: Sequence[Manifest],
) -> str:
    if status is ExitStatus.UNTRUSTED:
        broken = ", ".join(check.title for check in checks if check.outcome is Outcome.UNTRUSTED)
        return f"The gate cannot be trusted, so this is no verdict: {broken}"
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        files = len({finding.file for finding in errors})
        return f"Refused: {plainly_counted(len(errors), 'finding')} in {plainly_counted(files, 'file')}"
    if not given.services and not given.plain and not given.strays:
        return "Nothing to check: no manifest differs"
    if given.services:
        number, word, left = len(given.services), "service", len({one.service for one in unjudged if one.service})
    else:
        number, word, left = len(given.plain), "file", len({one.file for one in unjudged})
    if left == number:
        return f"Nothing to check: {plainly_counted(left, word)} of kinds that nothing judges"
    passed = f"Passed: {plainly_counted(number - left, word)} checked"
    return f"{passed}, and {plainly_counted(left, word)} with kinds that nothing judges" if left else passed
