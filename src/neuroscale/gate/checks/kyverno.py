"""Runs one process of Kyverno's command line, and returns its answers, complete and without the tripwires'.

Its exit status alone proves nothing: it ends with 0 even if it loaded no policy or no object matched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import flow
from neuroscale.gate.run_upstream_tool import run_tool
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import TRIPWIRES, Policy

# (apiVersion, kind, namespace, name): how Kyverno's report names an object.
Reference = tuple[str, str, str, str]

RARER_COLLECTION = {"GOGC": "400"}
"""Kyverno compiles each policy for each object: it is a third faster where Go collects its memory less often."""


@dataclass(frozen=True)
class Answer:
    """Kyverno's result for one policy and one object: `pass`, `fail`, or another word that counts as no answer."""

    result: str
    message: str


@dataclass(frozen=True)
class Batch:
    """One Kyverno process: its policies, the tripwire of each, and objects of which no two share a reference."""

    policies: tuple[Policy, ...]
    tripwires: tuple[Manifest, ...]
    manifests: tuple[Manifest, ...]


def reference(manifest: Manifest) -> Reference:
    """How Kyverno's report names the object: an object without a namespace is in `default`."""
    return (manifest.api_version, manifest.kind, manifest.namespace or "default", manifest.name)


def tripwire_of(policy: Policy, tripwires: Iterable[Manifest], schemas: SchemaSet) -> Manifest:
    """The tripwire that a policy must refuse. Raises UntrustedError if no tripwire is of a kind that it judges."""
    for tripwire in tripwires:
        kind = schemas.kinds.get((tripwire.api_version, tripwire.kind))
        if kind is not None and policy.applies(tripwire, kind.plural):
            return tripwire
    raise UntrustedError(f"no tripwire in {TRIPWIRES} is of a kind that the policy {policy.name} judges. Add one.")


def ask_kyverno(
    batch: Batch, pairs: Mapping[int, frozenset[str]], schemas: SchemaSet, kyverno: Path, folder: Path
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
        # Only 1 can be right: the tripwires are among the objects.
        statuses=frozenset({0, 1}),
        environment=RARER_COLLECTION,
    )
    answers = read_answers(run.output)
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
        answer = answers.get((policy.name, reference(tripwire_of(policy, batch.tripwires, schemas))))
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


def read_answers(output: str) -> dict[tuple[str, Reference], Answer]:
    """Kyverno's results by policy and object. Raises UntrustedError for an unreadable or repeated result."""
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


def _pairs(pairs: Sequence[tuple[str, Reference]]) -> str:
    shown = [
        f"{policy} on {kind} {namespace + '/' if namespace else ''}{name}"
        for policy, (_, kind, namespace, name) in pairs[:5]
    ]
    return ", ".join(shown) + (f" and {len(pairs) - 5} more" if len(pairs) > 5 else "")


def _quote(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-500:] or "nothing"
