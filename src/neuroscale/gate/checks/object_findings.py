"""Judges annotations, replica numbers and values of objects.

- KServe (release 0.20) trusts internal annotations and labels on any pod: its webhook downloads what
  `internal.serving.kserve.io/storage-initializer-sourceuri` names. Its own Deployments carry them, so admission cannot
  refuse them there; nobody writes them into a file.
- Argo CD (release 3.5) reads hooks and options on any object of an application, also those of Helm in plain manifests
  (`gitops-engine/pkg/sync/hook/hook.go`): an object may then never be applied, be kept, or be deleted before an update.
- An annotation may stop a service, and KServe's webhook refuses some numbers of replicas. A merged request may mean a
  stop, so that it is a notice; in a production environment the rule on replicas refuses it.
- A ConfigMap may hold a password. gitleaks finds keys by their form and cannot tell a password from any other word: the
  name of the entry, or its place in an address, has to say what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from neuroscale.core.yaml_io import parts
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.kserve_pods import COMPONENTS
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import KSERVE

SYNC_ANNOTATION = "sync-annotation"
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
        message = f"the annotation {name} of this {manifest.kind}: {_TOLD.get(name, _OTHER)}"
        fix = "Remove it: the platform's applications treat all objects of a service alike."
        place = ("metadata", "annotations", name)
        yield manifest_finding(gate, SYNC_ANNOTATION, manifest, place, message, fix, severity=severity)


STOPPED = "stopped"
IMPOSSIBLE = "impossible-replicas"
_KINDS = ("InferenceService", "LLMInferenceService")


def stopped_services(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """A notice for a service of KServe that its annotation stops."""
    stopped = False
    with suppress(ValueError):  # the schema check reports annotations that are not a mapping
        stopped = kserve_pods.stopped(manifest.value)
    if manifest.group != KSERVE or manifest.kind not in _KINDS or not stopped:
        return
    message = f"the annotation {kserve_pods.STOP} stops this {manifest.kind}: KServe removes its pods"
    fix = "Remove the annotation, unless the service is to stop."
    place = ("metadata", "annotations", kserve_pods.STOP)
    yield manifest_finding(gate, STOPPED, manifest, place, message, fix, severity=Severity.NOTICE)


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
            message = f"the number of replicas of the {part} is negative, which KServe refuses"
        elif 0 < most < fewest:
            message = f"the {part} has at least {fewest} and at most {most} replicas, which KServe refuses"
        else:
            continue
        fix = "Write a minReplicas of 0 or more, and a maxReplicas that is not below it."
        yield manifest_finding(gate, IMPOSSIBLE, manifest, place, message, fix)


_NAMES = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(^|_)(PASS|PWD)|(API|ACCESS|SECRET|PRIVATE|SIGNING)_?KEY)$"
)
_ORDINARY = re.compile(r"|true|false|[01]|/[^\s:@]*|([^\s:]*:)?\$(\([\w.-]+\)|\{[\w.-]+\}|\w+)", re.IGNORECASE)
"""A switch, the path of a file, or a reference to a variable."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s/?#@:]{0,200}:[^\s/?#@$][^\s/?#@]{0,200}@")


def secrets_of_map(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a ConfigMap's data that hold a secret, each with the reason."""
    data = value.get("data")
    for key, entry in data.items() if isinstance(data, dict) else ():
        text = str(entry or "").strip()
        if _NAMES.search(re.sub(r"[-.]", "_", str(key)).upper()) and not _ORDINARY.fullmatch(text):
            yield str(key), "is named like a secret and holds its value"
        elif _ADDRESS.search(text):
            yield str(key), "holds an address with a password"


INTERNAL_TEXT = "internal-text"
INTERNAL = f"internal.{KSERVE}/"
_BY_A_POLICY = ("InferenceService", "LLMInferenceService")
_FIELDS = ("annotations", "labels")


def internal_texts(gate: str, manifest: Manifest) -> Iterator[Finding]:
    """A finding for each such annotation or label of an object, or of the pods that it makes."""
    if manifest.group == KSERVE and manifest.kind in _BY_A_POLICY:
        return
    for place, _ in parts(manifest.value):  # also in templates of pods
        if len(place) < 2 or place[-2] not in _FIELDS or not str(place[-1]).startswith(INTERNAL):
            continue
        message = f"{place[-1]} is KServe's own: its webhook loads a pod's model from where such a text says"
        fix = "Remove it: an InferenceService names the address of its model in storageUri."
        yield manifest_finding(gate, INTERNAL_TEXT, manifest, place, message, fix)
