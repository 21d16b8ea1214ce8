"""The policy gate: Kyverno's CLI judges, and its answers are compared with what it had to answer.

The exit status alone says nothing: Kyverno ends with 0 when a policy was not loaded or no object matched. So the gate
computes which policy applies to which object, demands one answer for every such pair, and sends a known-bad object
through every process, which each of its policies must refuse with its own message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from neuroscale.catalog.settings import LONGEST_DAYS
from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import flow
from neuroscale.gate.check import Evaluation
from neuroscale.gate.upstream_tool import run_tool
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import TRIPWIRES, Policy, PolicyException, PolicySet

GATE = "policy"

# Kyverno compiles every policy again for every object, so its time grows with objects x policies: the policies are
# split among processes, and an object that no policy of a process judges is left out of it.
_MOST_OBJECTS = 500
# Below so many pairs of a policy and an object, starting a second process costs more than the pairs do.
_FEWEST_PAIRS = 60

# (apiVersion, kind, namespace, name): how Kyverno's report names an object.
Reference = tuple[str, str, str, str]


@dataclass(frozen=True)
class Answer:
    """Kyverno's result for one policy and one object: `pass`, `fail`, or another word that counts as no answer."""

    result: str
    message: str


@dataclass(frozen=True)
class _Batch:
    """One Kyverno process: its policies, the tripwire of each, and objects of which no two share a reference."""

    policies: tuple[Policy, ...]
    tripwires: tuple[Manifest, ...]
    manifests: tuple[Manifest, ...]


def evaluate_policies(
    policy_set: PolicySet,
    manifests: Sequence[Manifest],
    schemas: SchemaSet,
    kyverno: Path,
    folder: Path,
    *,
    today: date,
    longest_days: int = LONGEST_DAYS,
    workers: int | None = None,
) -> Evaluation:
    """Judge every object by every policy that applies to it.

    `folder` is an empty scratch folder; `longest_days`, how far ahead an exception may end; `workers`, how many Kyverno
    processes share the policies. Raises UntrustedError as soon as one answer cannot be trusted.
    """
    check_reach(policy_set.policies, schemas)
    pairs, homeless = applicable(policy_set.policies, manifests, schemas)
    few = sum(len(names) for names in pairs.values()) < _FEWEST_PAIRS
    count = workers or (1 if few else os.cpu_count() or 1)
    batches = _batches(policy_set, manifests, pairs, schemas, count)
    findings = list(homeless)
    in_force = [one for one in policy_set.exceptions if one.fault(today, longest_days) is None]
    needed: set[tuple[str, int]] = set()
    expected = evaluated = 0
    # Threads only wait for the processes; a failure in one batch cancels those that have not started.
    with ThreadPoolExecutor(max_workers=count) as pool:
        futures = [
            pool.submit(_judge, batch, pairs, schemas, kyverno, folder / f"batch-{index}")
            for index, batch in enumerate(batches)
        ]
        try:
            outcomes = [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
    for batch, answers in zip(batches, outcomes, strict=True):
        for policy in batch.policies:
            for manifest in batch.manifests:
                if policy.name not in pairs[id(manifest)]:
                    continue
                expected += 1
                answer = answers[policy.name, reference(manifest)]
                evaluated += 1
                if answer.result != "pass":
                    needed.add((policy.name, id(manifest)))
                    findings.append(_finding(policy, manifest, answer, policy_set.exceptions, today, longest_days))
    findings += _unneeded(in_force, manifests, needed)
    covered = {id(manifest) for manifest in manifests if pairs[id(manifest)]}
    detail = f"{len(policy_set.policies)} policies, {len(covered)} of {len(manifests)} objects have one that applies"
    if others := sorted({manifest.kind for manifest in manifests if id(manifest) not in covered}):
        detail += f"; none judges {', '.join(others)}"
    # Every policy is in at least one batch, and a batch that did not catch each of its tripwires has raised.
    caught = len({policy.name for batch in batches for policy in batch.policies})
    return Evaluation(tuple(findings), evaluated, expected, "policy results", len(policy_set.policies), caught, detail)


def check_reach(policies: Iterable[Policy], schemas: SchemaSet) -> None:
    """Every rule names resources that exist, and every version of them: another version would slip past the policy.

    Raises UntrustedError naming the policy and the rule.
    """
    versions: dict[tuple[str, str], set[str]] = {}
    for (api_version, _), kind in schemas.kinds.items():
        group, _, version = api_version.rpartition("/")
        versions.setdefault((group, kind.plural), set()).add(version)
    for policy in policies:
        for rule in policy.rules:
            for group in rule.groups:
                for resource in rule.resources:
                    known = versions.get((group, resource.partition("/")[0]))
                    if known is None:
                        raise UntrustedError(
                            f"the policy {policy.name} names {group or 'core'}/{resource}, which no cluster has. "
                            f"Correct {policy.file}."
                        )
                    if "*" not in rule.versions and not known <= rule.versions:
                        raise UntrustedError(
                            f"the policy {policy.name} leaves out {', '.join(sorted(known - rule.versions))} of "
                            f"{group or 'core'}/{resource}. Name every version in {policy.file}."
                        )


def applicable(
    policies: Iterable[Policy], manifests: Sequence[Manifest], schemas: SchemaSet
) -> tuple[dict[int, frozenset[str]], list[Finding]]:
    """The names of the policies that apply to each object (by its `id`), and findings for kinds nobody knows."""
    pairs: dict[int, frozenset[str]] = {}
    findings = []
    for manifest in manifests:
        kind = schemas.kinds.get((manifest.api_version, manifest.kind))
        if kind is None:
            pairs[id(manifest)] = frozenset()
            findings.append(
                Finding(
                    gate=GATE,
                    rule="unknown-kind",
                    file=manifest.file,
                    line=manifest.line("kind"),
                    subject=manifest.subject,
                    message=f"no policy can judge {manifest.api_version} {manifest.kind}: the kind is not known here",
                    fix="Correct apiVersion and kind, or add the module with its CRD to the set-up.",
                )
            )
        else:
            pairs[id(manifest)] = frozenset(policy.name for policy in policies if policy.applies(manifest, kind.plural))
    return pairs, findings


def reference(manifest: Manifest) -> Reference:
    """How Kyverno's report names the object: it puts what has no namespace into `default`."""
    return (manifest.api_version, manifest.kind, manifest.namespace or "default", manifest.name)


def _tripwire(policy: Policy, tripwires: Iterable[Manifest], schemas: SchemaSet) -> Manifest:
    """The tripwire that a policy must refuse. Raises UntrustedError where none is of a kind that it judges."""
    for tripwire in tripwires:
        kind = schemas.kinds.get((tripwire.api_version, tripwire.kind))
        if kind is not None and policy.applies(tripwire, kind.plural):
            return tripwire
    raise UntrustedError(f"no tripwire in {TRIPWIRES} is of a kind that the policy {policy.name} judges. Add one.")


def _batches(
    policy_set: PolicySet,
    manifests: Sequence[Manifest],
    pairs: Mapping[int, frozenset[str]],
    schemas: SchemaSet,
    count: int,
) -> list[_Batch]:
    """Every (policy, object) pair in exactly one batch, every policy in at least one."""
    policies = policy_set.policies
    # Long policies take long to compile: hand them out longest first, always to the lightest group.
    groups: list[list[Policy]] = [[] for _ in range(min(count, len(policies)))]
    weights = [0] * len(groups)
    lengths = {policy.name: len(json.dumps(policy.value)) for policy in policies}
    for policy in sorted(policies, key=lambda policy: (-lengths[policy.name], policy.name)):
        lightest = weights.index(min(weights))
        groups[lightest].append(policy)
        weights[lightest] += lengths[policy.name]
    batches: list[_Batch] = []
    for group in groups:
        names = {policy.name for policy in group}
        rounds: list[dict[Reference, Manifest]] = [{}]
        for manifest in manifests:
            if names.isdisjoint(pairs[id(manifest)]):
                continue
            name = reference(manifest)
            # The same object in two environments: Kyverno cannot tell them apart, so they go to different processes.
            for place in rounds:
                if name not in place and len(place) < _MOST_OBJECTS:
                    place[name] = manifest
                    break
            else:
                rounds.append({name: manifest})
        needed = {id(tripwire): tripwire for tripwire in (_tripwire(p, policy_set.tripwires, schemas) for p in group)}
        batches.extend(_Batch(tuple(group), tuple(needed.values()), tuple(place.values())) for place in rounds)
    return batches


def _judge(
    batch: _Batch, pairs: Mapping[int, frozenset[str]], schemas: SchemaSet, kyverno: Path, folder: Path
) -> dict[tuple[str, Reference], Answer]:
    """Run one Kyverno process and return its answers, complete and without the tripwires'."""
    folder.mkdir(parents=True)
    files = []
    for index, policy in enumerate(batch.policies):
        path = folder / f"policy-{index:03}.yaml"
        path.write_text(flow(policy.value))
        files.append(path)
    resources = folder / "resources.yaml"
    objects = [*batch.manifests, *batch.tripwires]
    resources.write_text("".join(f"---\n{flow(manifest.value)}\n" for manifest in objects))
    run = run_tool(
        [kyverno, "apply", *files, "--resource", resources, "--policy-report", "--output-format", "json"],
        folder=folder,
        timeout=120 + 0.05 * len(objects) * len(batch.policies),
        # 1 is the only honest answer: the tripwires are in there.
        statuses=frozenset({0, 1}),
        environment={"GOGC": "400"},
    )
    answers = _answers(run.output)
    if not answers:
        raise UntrustedError(f"Kyverno evaluated nothing, not even the tripwires. It printed: {_quote(run.errors)}")
    expected = {
        (policy.name, reference(manifest))
        for manifest in batch.manifests
        for policy in batch.policies
        if policy.name in pairs[id(manifest)]
    }
    for tripwire in batch.tripwires:
        plural = schemas.kinds[tripwire.api_version, tripwire.kind].plural
        expected |= {
            (policy.name, reference(tripwire)) for policy in batch.policies if policy.applies(tripwire, plural)
        }
    for policy in batch.policies:
        answer = answers.get((policy.name, reference(_tripwire(policy, batch.tripwires, schemas))))
        if answer is None:
            raise UntrustedError(
                f"Kyverno did not evaluate the policy {policy.name}: its tripwire came back without an answer, so the "
                f"policy was not loaded. Check {policy.file}. Kyverno printed: {_quote(run.errors)}"
            )
        if (answer.result, answer.message) != ("fail", policy.tripwire_message):
            raise UntrustedError(
                f"the policy {policy.name} did not refuse its tripwire as it must: it answered {answer.result!r} with "
                f"{answer.message!r} instead of {policy.tripwire_message!r}."
            )
    if missing := sorted(expected - set(answers)):
        raise UntrustedError(f"Kyverno gave no answer for {len(missing)} of {len(expected)} pairs: {_pairs(missing)}.")
    if surplus := sorted(set(answers) - expected):
        raise UntrustedError(f"Kyverno answered for pairs that no policy rule covers: {_pairs(surplus)}.")
    if odd := sorted(pair for pair, answer in answers.items() if answer.result not in ("pass", "fail", "error")):
        raise UntrustedError(f"Kyverno neither passed nor refused: {_pairs(odd)}.")
    if run.exit_status != 1:
        raise UntrustedError(
            f"Kyverno ended with exit status {run.exit_status} although its own results hold refused tripwires."
        )
    return answers


def _answers(output: str) -> dict[tuple[str, Reference], Answer]:
    """Kyverno's report by policy and object. Raises UntrustedError for anything but reports of single results."""
    answers: dict[tuple[str, Reference], Answer] = {}
    for report in _reports(output):
        results = report.get("results")
        if report.get("kind") not in ("ClusterReport", "Report") or not isinstance(results, list):
            raise UntrustedError(f"Kyverno's output holds a {report.get('kind')!r} where a report was expected.")
        counted: dict[str, int] = {}
        for result in results:
            try:
                (resource,) = result["resources"]
                pair = (
                    str(result["policy"]),
                    (
                        str(resource["apiVersion"]),
                        str(resource["kind"]),
                        str(resource.get("namespace", "")),
                        str(resource["name"]),
                    ),
                )
                answer = Answer(str(result["result"]), str(result.get("message", "")))
            except (KeyError, TypeError, ValueError) as error:
                raise UntrustedError(f"Kyverno's report has a result that cannot be read: {error!r}.") from error
            if pair in answers:
                raise UntrustedError(f"Kyverno answered twice for {_pairs([pair])}.")
            answers[pair] = answer
            counted[answer.result] = counted.get(answer.result, 0) + 1
        summary = {key: value for key, value in report.get("summary", {}).items() if value}
        if summary != counted:
            raise UntrustedError(f"Kyverno's summary {summary} disagrees with its results {counted}.")
    return answers


def _reports(output: str) -> list[dict[str, Any]]:
    decoder = json.JSONDecoder()
    reports = []
    position = 0
    while position < len(output):
        if output[position].isspace():
            position += 1
        elif output.startswith("---", position):
            position += 3
        elif output.startswith("Warning:", position):
            position = (output.find("\n", position) + 1) or len(output)
        else:
            try:
                report, position = decoder.raw_decode(output, position)
            except (json.JSONDecodeError, RecursionError) as error:
                raise UntrustedError(f"Kyverno's output is not a report: {_quote(output[position:])}") from error
            if not isinstance(report, dict):
                raise UntrustedError(f"Kyverno's output is not a report: {_quote(str(report))}")
            reports.append(report)
    return reports


def exception_findings(exceptions: Iterable[PolicyException], today: date, longest_days: int) -> list[Finding]:
    """The exceptions that do not hold, as findings at their own files."""
    return [
        Finding(
            gate=GATE,
            rule=f"exception-{fault.rule}",
            file=one.file,
            message=f"{fault.field}: the exception {fault.message}",
            fix=fault.fix,
        )
        for one in exceptions
        if (fault := one.fault(today, longest_days)) is not None
    ]


def _unneeded(
    in_force: Sequence[PolicyException], manifests: Sequence[Manifest], needed: set[tuple[str, int]]
) -> list[Finding]:
    """A notice for each exception of an object that its policy does not refuse: the other ones are told as it is."""
    named: dict[tuple[str, str, str], list[Manifest]] = {}
    for manifest in manifests if in_force else ():
        named.setdefault((manifest.kind, manifest.namespace, manifest.name), []).append(manifest)
    return [
        Finding(
            gate=GATE,
            rule="exception-unneeded",
            severity=Severity.NOTICE,
            file=manifest.file,
            line=manifest.line("kind"),
            subject=manifest.subject,
            message=f"the policy {one.policy} does not refuse it, and {one.file} excepts it until {one.expires}: "
            f"{one.reason}",
            fix=f"Remove {one.file}.",
        )
        for one in in_force
        for manifest in named.get((one.kind, one.namespace, one.name), ())
        if (one.policy, id(manifest)) not in needed
    ]


def _finding(
    policy: Policy,
    manifest: Manifest,
    answer: Answer,
    exceptions: Sequence[PolicyException],
    today: date,
    longest_days: int,
) -> Finding:
    finding = Finding(
        gate=GATE,
        rule=policy.name,
        file=manifest.file,
        line=manifest.line("kind"),
        subject=manifest.subject,
        message=answer.message or "refused",
        fix=policy.fix,
    )
    if answer.result == "error":
        return finding.model_copy(update={"message": f"the policy could not be evaluated: {answer.message}"})
    for exception in exceptions:
        if not exception.covers(policy.name, manifest):
            continue
        fault = exception.fault(today, longest_days)
        if fault is None:
            note = f"{finding.message} (excepted by {exception.file} until {exception.expires}: {exception.reason})"
            return finding.model_copy(update={"severity": Severity.NOTICE, "message": note})
        note = f"{finding.message} (the exception {exception.file} {fault.message})"
        finding = finding.model_copy(update={"message": note})
    return finding


def _pairs(pairs: Sequence[tuple[str, Reference]]) -> str:
    shown = [
        f"{policy} on {kind} {namespace + '/' if namespace else ''}{name}"
        for policy, (_, kind, namespace, name) in pairs[:5]
    ]
    return ", ".join(shown) + (f" and {len(pairs) - 5} more" if len(pairs) > 5 else "")


def _quote(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-500:] or "nothing"
