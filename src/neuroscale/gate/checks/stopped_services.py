"""Names services that an annotation stops: KServe then removes their pods, and nobody gets an answer.

A merged request may mean it, so that it is a notice. In a production environment the rule on replicas refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from neuroscale.gate.check import manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests import kserve_scaling
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import KSERVE

RULE = "stopped"
_KINDS = ("InferenceService", "LLMInferenceService")


def stopped_services(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """A notice for a service of KServe that its annotation stops."""
    stopped = False
    with suppress(ValueError):  # the schema check reports annotations that are not a mapping
        stopped = kserve_scaling.stopped(manifest.value)
    if manifest.group != KSERVE or manifest.kind not in _KINDS or not stopped:
        return
    told = f"the annotation {kserve_scaling.STOP} stops this {manifest.kind}: KServe removes its pods"
    fix = "Remove the annotation, unless the service is to stop."
    place = ("metadata", "annotations", kserve_scaling.STOP)
    yield manifest_finding(gate, RULE, manifest, place, told, fix, severity=Severity.NOTICE)
