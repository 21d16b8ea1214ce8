"""Makes the verdict of a run from the results of its checks, in the order and the words that every report shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuroscale import __version__
from neuroscale.core.errors import ExitStatus
from neuroscale.core.masked_secrets import KnownSecrets
from neuroscale.core.printable import plainly_counted
from neuroscale.gate.check import Run
from neuroscale.gate.file_kinds import in_words
from neuroscale.gate.judged_files import GateInput
from neuroscale.gate.service_reports import moved_services, own_revisions, service_report
from neuroscale.gate.verdict import Alterations, Check, Finding, Outcome, Severity, Verdict, exit_status
from neuroscale.manifests.objects import Manifest
from neuroscale.repo.example_repository import ExampleSnapshot
from neuroscale.repo.layout import CATALOG, POLICIES
from neuroscale.repo.tool_pin import other_tool

_NO_SERVER = (
    "Rules that only an API server knows (CEL rules of custom resources, quantities, port ranges): this run asked none."
)


def make_verdict(run: Run, not_checked: Sequence[str]) -> Verdict:
    """The verdict on a run whose checks have ended. `not_checked`: what they did not look at, in words.

    Every report is made of it: whatever a check quotes of the input, no secret of it is in there.
    """
    gate_input, change, results, anew = run.given, run.change, run.results, run.anew
    altered = run.altered.alterations if run.altered else None
    checks = tuple(result.check for result in results)
    services = tuple(service_report(run, service) for service in gate_input.services)
    seen = [*(finding for result in results for finding in result.findings), *moved_services(services)]
    seen += own_revisions(run)
    joined = merged(seen, [*anew.manifests, *anew.servers] if anew else [])
    findings = tuple(
        sorted(
            joined,
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
    status = exit_status(checks)
    verdict = Verdict(
        tool_version=__version__,
        exit_status=status.value,
        headline=_headline(status, checks, findings, gate_input, run.unjudged, altered),
        base=change.base if change else "",
        head=change.head if change else "",
        paths=run.subject.paths,
        checks=checks,
        findings=findings,
        services=services,
        cost=run.cost,
        effects=anew.effects if anew else None,
        altered=altered,
        notes=tuple(_who_judged(run)),
        not_checked=(*not_checked, *_unseen(checks, gate_input)),
    )
    values = verdict.model_dump(mode="json")
    shown = KnownSecrets(run.secrets).strike(values)
    return verdict if shown == values else Verdict.model_validate(shown, strict=False)


def merged(findings: Sequence[Finding], rendered: Sequence[Manifest]) -> list[Finding]:
    """The findings of a run; those that say the same about several rendered objects become one."""
    places = {(manifest.file, manifest.subject): manifest for manifest in rendered if manifest.service is not None}
    kept: dict[tuple[str, ...], Finding] = {}
    others: dict[tuple[str, ...], set[str]] = {}
    for number, finding in enumerate(findings):
        manifest = places.get((finding.file, finding.subject))
        if manifest is None:
            kept[str(number),] = finding
            continue
        message = finding.message.replace(manifest.name, "\0")
        key: tuple[str, ...] = (finding.gate, finding.rule, finding.severity, finding.file, message, finding.fix)
        kept.setdefault(key, finding)
        others.setdefault(key, set()).add(finding.subject)
    for key, subjects in others.items():
        more = f" and {len(subjects) - 1} more like it" if len(subjects) > 1 else ""
        first = kept[key]
        kept[key] = first.model_copy(update={"message": f"rendered for {first.subject}{more}: {first.message}"})
    return list(kept.values())


def _who_judged(run: Run) -> Iterator[str]:
    change = run.change
    if not isinstance(run.subject.judge, ExampleSnapshot) and (other := other_tool(run.subject.judge)):
        yield f"{other}."
    if change is None:
        if isinstance(run.given.snapshot, ExampleSnapshot):
            yield (
                f"No platform repository is here: the policies that neuroscale {__version__} delivers judged, with an "
                "example organisation's settings. An organisation's own policies, settings and exceptions may judge "
                "otherwise: name its repository with --repository."
            )
        if run.given.services:
            yield "The run has no base, so the policies and exceptions of this work tree decided."
        return
    if change.touches(POLICIES):
        yield "The change alters policies or exceptions: the base's decided, and the change's own ran beside them."
    if change.touches(CATALOG):
        yield (
            "The change alters the catalog: the base's facts decided whether a service fits. "
            "The change's own facts stood in for those that the base lacks, and judged beside the base's."
        )


def _unseen(checks: Sequence[Check], gate_input: GateInput) -> Iterator[str]:
    if not any(check.name == "server" and check.outcome in (Outcome.PASSED, Outcome.FINDINGS) for check in checks):
        yield _NO_SERVER
    if gate_input.ignored:
        names = ", ".join(gate_input.ignored[:5]) + (" and others" if len(gate_input.ignored) > 5 else "")
        yield f"{plainly_counted(len(gate_input.ignored), 'file')} without a manifest's ending: {names}."


def refusal_of(status: ExitStatus, checks: Sequence[Check], findings: Sequence[Finding]) -> str:
    """The headline of a verdict that cannot be trusted or that refuses; "" of another."""
    if status is ExitStatus.UNTRUSTED:
        broken = ", ".join(check.title for check in checks if check.outcome is Outcome.UNTRUSTED)
        return f"The gate cannot be trusted, so this is not a verdict: {broken}"
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    files = len({finding.file for finding in errors})
    return f"Refused: {plainly_counted(len(errors), 'finding')} in {plainly_counted(files, 'file')}" if errors else ""


def _headline(
    status: ExitStatus,
    checks: tuple[Check, ...],
    findings: tuple[Finding, ...],
    gate_input: GateInput,
    unjudged: Sequence[Manifest],
    altered: Alterations | None,
) -> str:
    if refusal := refusal_of(status, checks, findings):
        return refusal
    beside = in_words(altered.files) if altered else ""
    if not gate_input.services and not gate_input.plain and not gate_input.strays:
        if beside:
            return f"Passed: no service differs, and a person must look at {beside}"
        return "Nothing to check: no manifest differs"
    if gate_input.services:
        number, word = len(gate_input.services), "service"
        left = len({manifest.service for manifest in unjudged if manifest.service})
    else:
        number, word, left = len(gate_input.plain), "file", len({manifest.file for manifest in unjudged})
    if left == number and not beside:
        return f"Nothing to check: {plainly_counted(left, word)} of kinds that nothing judges"
    parts = [f"Passed: {plainly_counted(number - left, word)} checked"]
    if left:
        parts.append(f"{plainly_counted(left, word)} with kinds that nothing judges")
    remarks = [f"{check.unjudged} of {check.expected} {check.unit} not judged" for check in checks if check.unjudged]
    remarks += [f"a person must look at {beside}"] if beside else []
    return "; ".join([", and ".join(parts), *remarks])
