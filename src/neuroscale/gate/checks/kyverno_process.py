"""Runs one process of Kyverno's command line, and reads its report.

Its exit status alone proves nothing: it ends with 0 even if it loaded no policy or no object matched. So
`policy_tripwires` compares the answers with those that had to come.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.printable import shortened
from neuroscale.core.yaml_io import flow
from neuroscale.gate.run_upstream_tool import run_tool
from neuroscale.manifests.objects import Manifest
from neuroscale.policies.policy_set import Policy

# (apiVersion, kind, namespace, name): how Kyverno's report names an object.
Reference = tuple[str, str, str, str]

RARER_COLLECTION = {"GOGC": "400"}
"""Kyverno compiles each policy for each object: it is a third faster where Go collects its memory less often."""


@dataclass(frozen=True)
class KyvernoResult:
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


@dataclass(frozen=True)
class KyvernoRun:
    """What one process of Kyverno answered, by policy and object, what it printed beside, and its exit status."""

    answers: dict[tuple[str, Reference], KyvernoResult]
    errors: str
    exit_status: int


def run_kyverno(batch: Batch, kyverno: Path, folder: Path) -> KyvernoRun:
    """Run one Kyverno process over all policies, objects and tripwires of the batch.

    Raises UntrustedError if Kyverno does not end, ends with another status than 0 or 1, or prints what cannot be read.
    """
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
    return KyvernoRun(read_answers(run.output), run.errors, run.exit_status)


def read_answers(output: str) -> dict[tuple[str, Reference], KyvernoResult]:
    """Kyverno's results by policy and object. Raises UntrustedError for an unreadable or repeated result."""
    answers: dict[tuple[str, Reference], KyvernoResult] = {}
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
                answer = KyvernoResult(str(result["result"]), str(result.get("message", "")))
            except (KeyError, TypeError, ValueError) as error:
                raise UntrustedError(f"Kyverno's report has a result that cannot be read: {error!r}.") from error
            if pair in answers:
                raise UntrustedError(f"Kyverno answered twice for {pair_list([pair])}.")
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
                raise UntrustedError(f"Kyverno's output is not a report: {last_lines(output[position:])}") from error
            if not isinstance(report, dict):
                raise UntrustedError(f"Kyverno's output is not a report: {last_lines(str(report))}")
            reports.append(report)
    return reports


def pair_list(pairs: Sequence[tuple[str, Reference]]) -> str:
    """The first five pairs of policy and object, for a message."""
    shown = [
        f"{policy} on {kind} {namespace + '/' if namespace else ''}{name}"
        for policy, (_, kind, namespace, name) in pairs
    ]
    return shortened(shown, 5)


def last_lines(text: str) -> str:
    """The last three lines of what a tool printed, at most 500 characters, for a message."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-500:] or "nothing"
