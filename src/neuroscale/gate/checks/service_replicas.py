"""Judges the numbers of replicas of KServe's services: none, or numbers that KServe's own webhook refuses.

An annotation stops a service: KServe then removes its pods, and nobody gets an answer. A merged request may mean it, so
that it is a notice. In a production environment the rule on replicas refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from neuroscale.gate.check import manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests import kserve_scaling
from neuroscale.manifests.kserve_pods import COMPONENTS
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import KSERVE

RULE = "stopped"
IMPOSSIBLE = "impossible-replicas"
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


def impossible_replicas(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """Findings for numbers of replicas that KServe's webhook refuses: negative ones, and more at least than at most.

    Source: `validateReplicas` of KServe 0.20 (pkg/apis/serving/v1beta1/component.go): a missing `minReplicas` is 1, and
    a `maxReplicas` of 0 means no bound.
    """
    spec = manifest.value.get("spec")
    if (manifest.group, manifest.kind) != (KSERVE, "InferenceService") or not isinstance(spec, dict):
        return
    for part in COMPONENTS:
        component = spec.get(part)
        if not isinstance(component, dict):
            continue
        fewest, most = component.get("minReplicas", 1), component.get("maxReplicas", 0)
        if not isinstance(fewest, int) or not isinstance(most, int):
            continue  # the schema check reports a value that is not a number
        place = ("spec", part, "minReplicas" if "minReplicas" in component else "maxReplicas")
        if fewest < 0 or most < 0:
            told = f"the number of replicas of the {part} is negative, which KServe refuses"
        elif 0 < most < fewest:
            told = f"the {part} has at least {fewest} and at most {most} replicas, which KServe refuses"
        else:
            continue
        fix = "Write a minReplicas of 0 or more, and a maxReplicas that is not below it."
        yield manifest_finding(gate, IMPOSSIBLE, manifest, place, told, fix)
