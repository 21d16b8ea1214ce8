"""Finds annotations and labels in which KServe's own controllers and webhooks hand each other the source of a model.

KServe (release 0.20) trusts them on any pod: the webhook of `pkg/webhook/admission/pod` downloads what
`internal.serving.kserve.io/storage-initializer-sourceuri` names, with the endpoint and the loader of others. Its own
Deployments carry them, so admission cannot refuse them there; nobody writes them into a file. On KServe's services,
the policy allowed-storage refuses them in files and at admission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.check import manifest_finding
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import KSERVE

RULE = "internal-text"
INTERNAL = f"internal.{KSERVE}/"
_BY_A_POLICY = ("InferenceService", "LLMInferenceService")
_FIELDS = ("annotations", "labels")


def internal_texts(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """A finding for each such annotation or label of an object, or of the pods that it makes."""
    if manifest.group == KSERVE and manifest.kind in _BY_A_POLICY:
        return
    for place in _places(manifest.value, ()):
        told = f"{place[-1]} is KServe's own: its webhook loads a pod's model from where such a text says"
        fix = "Remove it: an InferenceService names the address of its model in storageUri."
        yield manifest_finding(gate, RULE, manifest, place, told, fix)


def _places(value: Any, at: Path) -> Iterator[Path]:
    """The paths of the texts, also in templates of pods."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in _FIELDS and isinstance(one, dict):
                yield from ((*at, key, name) for name in one if str(name).startswith(INTERNAL))
            else:
                yield from _places(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _places(one, (*at, number))
