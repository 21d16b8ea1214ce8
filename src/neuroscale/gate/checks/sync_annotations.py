"""Finds annotations by which an object tells Argo CD to treat it unlike the others of its application.

Argo CD (release 3.5) reads them on any object of an application, also those of Helm in plain manifests
(`gitops-engine/pkg/sync/hook/hook.go`). A hook is compared with nothing between two syncs, or is never applied (Skip);
an option can keep an object that Git no longer has, and another one deletes it before each update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neuroscale.gate.check import manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests.objects import Manifest

RULE = "sync-annotation"
_ARGOCD, _HELM = "argocd.argoproj.io/", "helm.sh/"
HOOK = f"{_ARGOCD}hook"
_ORDER = f"{_ARGOCD}sync-wave"
"""The order within a sync, which leaves nothing out."""
_HOOK = (
    "the object is then a hook: Argo CD applies it during a sync or never, undoes no change of it, and may delete it"
)
_TOLD = {
    HOOK: _HOOK,
    f"{_ARGOCD}hook-delete-policy": _HOOK,
    f"{_ARGOCD}sync-options": "Argo CD can then keep an object that Git no longer has, or delete it to update it",
    f"{_ARGOCD}compare-options": "Argo CD can then hide that the object differs from Git",
    f"{_HELM}hook": _HOOK,
    f"{_HELM}hook-delete-policy": _HOOK,
    f"{_HELM}resource-policy": "Argo CD then keeps the object when its application is deleted",
}
_OTHER = "it changes how Argo CD treats this one object"


def sync_annotations(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """A finding for each such annotation of an object. Elsewhere than in a service's folder it is a notice."""
    annotations: Any = manifest.value["metadata"].get("annotations")
    severity = Severity.NOTICE if manifest.service is None else Severity.ERROR
    for key in annotations if isinstance(annotations, dict) else ():
        name = str(key)
        if not name.startswith((_ARGOCD, _HELM)) or name == _ORDER or (name not in _TOLD and name.startswith(_HELM)):
            continue
        told = f"the annotation {name} of this {manifest.kind}: {_TOLD.get(name, _OTHER)}"
        fix = "Remove it: the platform's applications treat all objects of a service alike."
        place = ("metadata", "annotations", name)
        yield manifest_finding(gate, RULE, manifest, place, told, fix, severity=severity)
