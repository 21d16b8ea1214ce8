"""The schema check: kubeconform judges every object, and kubernetes-validate judges the native kinds once more.

A kind without a schema is a finding, never a pass. For every kind in the run one object with an unknown field goes
through the same invocation; if kubeconform does not refuse it, the gate cannot be trusted.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from neuroscale.core import tool_cache
from neuroscale.core.errors import UntrustedError
from neuroscale.core.printable import plainly_counted
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import Path as FieldPath
from neuroscale.core.yaml_io import dotted, flow
from neuroscale.gate.check import APPLIED, GateCheck, Run
from neuroscale.gate.checks.file_modes import file_modes, is_mode, mode_fix
from neuroscale.gate.checks.stored_keys import is_stored_key
from neuroscale.gate.evaluation import Evaluation, manifest_finding
from neuroscale.gate.run_upstream_tool import run_tool
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest

GATE = "schema"
_TRIPWIRE_FIELD = "neuroscaleTripwire"
_MISNAMED_GROUP = "internal.apiserver.k8s.io"
"""kubernetes-validate looks for this group's files under another name than they have: only kubeconform judges it."""
_RENDERED_KINDS = (
    ("serving.kserve.io/v1beta1", "InferenceService"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
)


class SchemaCheck(GateCheck):
    """Whether every object has the form of its kind."""

    name = GATE
    title = "Schemas"
    needs = APPLIED
    beside = True

    def __init__(self) -> None:
        self._stored_keys = 0

    def evaluate(self, run: Run) -> Evaluation:
        judged = [manifest for manifest in run.applied if not is_stored_key(manifest)]
        self._stored_keys = len(run.applied) - len(judged)
        return evaluate_schemas(judged, run.schemas(), tool_cache.find("kubeconform"), run.folder / "schema")

    def not_checked(self, run: Run) -> Iterable[str]:  # noqa: ARG002
        if self._stored_keys:
            yield (
                f"Schemas: there is none of External Secrets here. The kinds check held the form of "
                f"{plainly_counted(self._stored_keys, 'ExternalSecret')} against the settings."
            )


def evaluate_schemas(manifests: Sequence[Manifest], schemas: SchemaSet, kubeconform: Path, folder: Path) -> Evaluation:
    """Check every object against its kind's schema. `folder` is an empty scratch folder.

    Raises UntrustedError when kubeconform's answers do not cover every object exactly once, or disagree with its exit
    status.
    """
    known = [manifest for manifest in manifests if (manifest.api_version, manifest.kind) in schemas.kinds]
    # kubeconform builds a file's path from the kind: it gets only objects of kinds in the index.
    findings = [
        manifest_finding(
            GATE,
            "no-schema",
            manifest,
            ("kind",),
            f"there is no schema for {manifest.api_version} {manifest.kind}",
            _schema_fix(manifest, schemas),
        )
        for manifest in manifests
        if (manifest.api_version, manifest.kind) not in schemas.kinds
    ]
    kinds = sorted({*_RENDERED_KINDS, *((manifest.api_version, manifest.kind) for manifest in known)})
    tripwires = [(kind, _tripwire(*kind)) for kind in kinds]
    objects = [*(manifest.value for manifest in known), *(value for _, value in tripwires)]
    answers = _kubeconform(objects, schemas, kubeconform, folder)
    for manifest, answer in zip(known, answers, strict=False):
        findings.extend(_findings(manifest, answer))
        findings.extend(file_modes(GATE, manifest))
    for (kind, _), answer in zip(tripwires, answers[len(known) :], strict=True):
        if answer["status"] != "statusInvalid" or _TRIPWIRE_FIELD not in answer.get("msg", ""):
            raise UntrustedError(
                f"kubeconform did not refuse the tripwire of {kind[0]} {kind[1]}: it answered {answer['status']!r} "
                f"with {answer.get('msg', '')!r}. The schema of that kind is not strict or was not used."
            )
    caught = len(tripwires) + _validate_native(known, tripwires, schemas, findings)
    return Evaluation(
        tuple(findings),
        evaluated=len(manifests),
        expected=len(manifests),
        unit="objects",
        tripwires=caught,
        caught=caught,
        detail=f"{len(kinds)} kinds",
    )


def _schema_fix(manifest: Manifest, schemas: SchemaSet) -> str:
    versions = sorted(
        api_version
        for api_version, kind in schemas.kinds
        if kind == manifest.kind and api_version.rpartition("/")[0] == manifest.group
    )
    if versions:
        return f"Write apiVersion: {' or '.join(versions)}, with the fields of that version."
    return "Correct apiVersion and kind, or add the module with its CRD to the set-up: nothing is skipped."


def _tripwire(api_version: str, kind: str) -> dict[str, Any]:
    metadata = {"name": f"{TRIPWIRE_PREFIX}-{kind.lower()}"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, _TRIPWIRE_FIELD: True}


def _kubeconform(
    objects: Sequence[dict[str, Any]], schemas: SchemaSet, kubeconform: Path, folder: Path
) -> list[dict[str, Any]]:
    """kubeconform's answer for every object, in their order."""
    objects_folder = folder / "objects"
    objects_folder.mkdir(parents=True)
    for index, value in enumerate(objects):
        (objects_folder / f"{index:06}.json").write_text(flow(value))
    run = run_tool(
        [
            kubeconform,
            *("-strict", "-verbose", "-summary", "-output", "json"),
            *("-n", str(os.cpu_count() or 1)),
            *("-schema-location", schemas.location),
            objects_folder,
        ],
        folder=folder,
        timeout=120 + 0.05 * len(objects),
        statuses=frozenset({0, 1}),
    )
    try:
        report = json.loads(run.output)
        summary = {key: int(value) for key, value in report["summary"].items()}
        resources = list(report["resources"])
        answers = {int(Path(resource["filename"]).stem): resource for resource in resources}
        statuses = Counter(str(resource["status"]) for resource in resources)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UntrustedError(
            f"kubeconform's output cannot be read: {error!r}. It printed: {run.errors[-500:]}"
        ) from error
    if len(resources) != len(objects) or sorted(answers) != list(range(len(objects))):
        raise UntrustedError(f"kubeconform answered for {len(answers)} of {len(objects)} objects.")
    counted = {
        "valid": statuses["statusValid"],
        "invalid": statuses["statusInvalid"],
        "errors": statuses["statusError"],
        "skipped": 0,
    }
    if summary != counted or sum(counted.values()) != len(objects):
        raise UntrustedError(f"kubeconform's summary {summary} disagrees with its answers {dict(statuses)}.")
    if run.exit_status != (1 if counted["invalid"] or counted["errors"] else 0):
        raise UntrustedError(f"kubeconform's exit status {run.exit_status} disagrees with its answers {counted}.")
    return [answers[index] for index in range(len(objects))]


def _findings(manifest: Manifest, answer: dict[str, Any]) -> list[Finding]:
    if (answer.get("kind"), answer.get("name")) != (manifest.kind, manifest.name):
        raise UntrustedError(f"kubeconform read {answer.get('kind')} {answer.get('name')} for {manifest.subject}.")
    if answer["status"] == "statusValid":
        return []
    message = str(answer.get("msg", ""))
    if answer["status"] == "statusError":
        raise UntrustedError(f"kubeconform could not judge {manifest.subject} of {manifest.file}: {message}")
    errors = [(path, text) for path, text in _ERROR.findall(message) if text != "validation failed"] or [
        ("", message.partition("Check JSON formatting: ")[2] or message or "refused without a reason")
    ]
    return [_invalid(manifest, _field_path(path), text) for path, text in errors]


# One error in kubeconform's message. Its list of errors leaves out the details where a field has several.
_ERROR = re.compile(r"- at '([^']*)': (.*?)(?=\s+- at '|$)", re.DOTALL)


def _field_path(pointer: str) -> FieldPath:
    """A JSON pointer as the path of a field."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/") if part]
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _invalid(manifest: Manifest, path: FieldPath, message: str) -> Finding:
    of = f"{manifest.api_version} {manifest.kind}"
    return manifest_finding(
        GATE,
        "invalid",
        manifest,
        path,
        f"{dotted(path) or 'the object'}: {message}",
        mode_fix(manifest.at(path)) if is_mode(path) else f"Correct the field to what {of} allows.",
    )


def _validate_native(
    manifests: Sequence[Manifest],
    tripwires: Sequence[tuple[tuple[str, str], dict[str, Any]]],
    schemas: SchemaSet,
    findings: list[Finding],
) -> int:
    """Judge the native kinds by kubernetes-validate too; returns how many tripwires it caught.

    It names only one error of an object, which for a bare tripwire can be a missing field. So the tripwire of a kind is
    the first valid object of that kind with an unknown field added, or the bare tripwire if no object is valid.
    """
    seen = {(finding.file, finding.subject) for finding in findings}
    bases: dict[tuple[str, str], dict[str, Any]] = {}
    for manifest in manifests:
        if not _is_native(schemas, manifest.api_version, manifest.kind):
            continue
        errors = _native_errors(manifest.value)
        if not errors:
            bases.setdefault((manifest.api_version, manifest.kind), manifest.value)
        elif (manifest.file, manifest.subject) not in seen:
            findings.extend(_invalid(manifest, path, message) for path, message in errors)
    known = [(kind, value) for kind, value in tripwires if _is_native(schemas, *kind)]
    for kind, bare in known:
        base = bases.get(kind)
        errors = _native_errors(bare if base is None else {**base, _TRIPWIRE_FIELD: True})
        named = any(_TRIPWIRE_FIELD in message for _, message in errors)
        if not errors or (base is not None and not named):
            raise UntrustedError(f"kubernetes-validate did not refuse the tripwire of {kind[0]} {kind[1]}: {errors}.")
    return len(known)


def _is_native(schemas: SchemaSet, api_version: str, kind: str) -> bool:
    known = schemas.kinds.get((api_version, kind))
    return known is not None and known.native and api_version.partition("/")[0] != _MISNAMED_GROUP


def _native_errors(value: dict[str, Any]) -> list[tuple[FieldPath, str]]:
    validate, version, invalid = _native_validator()
    try:
        validate(value, version, strict=True)
    except invalid as error:
        return [(tuple(error.absolute_path), str(error.message))]
    return []


@functools.cache
def _native_validator() -> tuple[Any, str, type[Any]]:
    """kubernetes-validate's function, the newest version that it knows, and its error.

    The import is slow and only some runs need it. The package parses its two megabytes of definitions for every
    object; the same content is read once here.
    """
    from kubernetes_validate import utils

    utils.schema_contents = functools.cache(utils.schema_contents)
    utils.all_versions = functools.cache(utils.all_versions)
    return utils.validate, utils.latest_version(), utils.ValidationError
