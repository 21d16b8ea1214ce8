"""Judges annotations, replica numbers and values of objects, and lists the kinds that are refused by name.

- KServe (release 0.20) trusts internal annotations and labels on any pod: its webhook downloads what
  `internal.serving.kserve.io/storage-initializer-sourceuri` names. Its own Deployments carry them, so admission cannot
  refuse them there; nobody writes them into a file.
- Argo CD (release 3.5) reads hooks and options on any object of an application, also those of Helm in plain manifests
  (`gitops-engine/pkg/sync/hook/hook.go`): an object may then never be applied, be kept, or be deleted before an update.
- An annotation may stop a service, and KServe's webhook refuses some numbers of replicas. A merged request may mean a
  stop, so that it is a notice; in a production environment the rule on replicas refuses it.
- A ConfigMap may hold a password. gitleaks finds keys by their form and cannot tell a password from any other word: the
  name of the entry, or its place in an address, has to say what it is.
- REFUSED lists kinds that no service needs and that would undo other checks, each with the reason and a way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from neuroscale.core.yaml_io import parts
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.verdict import Finding, Severity
from neuroscale.manifests import kserve_pods
from neuroscale.manifests.kserve_pods import COMPONENTS
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.serving_runtimes import KSERVE

_KEDA, _KSERVE, _GATEWAY, _ARGO = "keda.sh", "serving.kserve.io", "gateway.networking.k8s.io", "argoproj.io"


@dataclass(frozen=True)
class Refusal:
    """Why a kind is refused, and what to do instead.

    `everywhere`: also in a folder that belongs to no change. The platform's own files hold objects of the other kinds.
    """

    why: str
    fix: str
    everywhere: bool = False


_SCALES = Refusal(
    "it is a second autoscaler beside the number of replicas in the service, and may scale to zero",
    "Remove it, and ask for the replicas in the service's request.",
    everywhere=True,
)
_JOBS = Refusal(
    "it makes Jobs by itself, as many as a queue or a metric says, beside the number of replicas in the service",
    "Remove it, and ask for the replicas in the service's request.",
    everywhere=True,
)
_ROUTE = Refusal(
    "it can take requests for any host, including that of another service",
    "Remove it: KServe makes the route of an InferenceService, <service>-<namespace>.<domain>.",
)
_APPLICATION = Refusal(
    "it decides what Argo CD applies and where: a change of manifests could leave its project with it",
    "Remove it: `neuroscale platform render` writes the projects and applications from settings and catalog.",
)
_EXCEPTION = Refusal(
    "it switches off policies at admission", "Remove it, and record a reviewed exception in policies/exceptions/."
)
_DELETION = Refusal(
    "it deletes objects that others made, at the times that it names",
    "Remove it: Argo CD deletes an object when its file is removed from Git.",
)
REFUSED: Mapping[tuple[str, str], Refusal] = {
    (_KEDA, "ScaledObject"): _SCALES,
    (_KEDA, "ScaledJob"): _JOBS,
    (_KSERVE, "TrainedModel"): Refusal(
        "it loads a model into a server that runs already, past the fit check and the model labels",
        "Remove it, and request a service of its own for the model.",
        everywhere=True,
    ),
    (_KSERVE, "LLMInferenceServiceConfig"): Refusal(
        "KServe merges it into every LLMInferenceService that names it, after the policies judged that service",
        "Write its fields into the LLMInferenceService, where the policies see them.",
        everywhere=True,
    ),
    (_KSERVE, "ClusterStorageContainer"): Refusal(
        "KServe runs its container in the pods of every service whose model address it matches, in all namespaces",
        "Remove it: KServe's own storage container loads the addresses that policies/allowed-storage allows.",
        everywhere=True,
    ),
    (_GATEWAY, "HTTPRoute"): _ROUTE,
    (_GATEWAY, "GRPCRoute"): _ROUTE,
    (_GATEWAY, "TLSRoute"): _ROUTE,
    (_GATEWAY, "TCPRoute"): _ROUTE,
    (_GATEWAY, "Gateway"): _ROUTE,
    ("networking.k8s.io", "Ingress"): _ROUTE,
    (_ARGO, "Application"): _APPLICATION,
    (_ARGO, "ApplicationSet"): _APPLICATION,
    (_ARGO, "AppProject"): _APPLICATION,
    ("kyverno.io", "PolicyException"): _EXCEPTION,
    ("policies.kyverno.io", "PolicyException"): _EXCEPTION,
    ("policies.kyverno.io", "DeletingPolicy"): _DELETION,
    ("policies.kyverno.io", "NamespacedDeletingPolicy"): _DELETION,
    ("kyverno.io", "CleanupPolicy"): _DELETION,
    ("kyverno.io", "ClusterCleanupPolicy"): _DELETION,
}
"""By group and kind: it holds kinds too whose definitions set-up does not install.

`policies/refused-kinds` refuses those that are refused everywhere at admission too. KServe, Argo CD and the platform
make objects of the others themselves, or Kyverno is configured to ignore them (`platform/serving/kyverno.yaml`).
"""


def plural_of(kind: str) -> str:
    """The resource name of a refused kind whose definition set-up does not install."""
    return f"{kind.lower()}s"


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
        told = f"the annotation {name} of this {manifest.kind}: {_TOLD.get(name, _OTHER)}"
        fix = "Remove it: the platform's applications treat all objects of a service alike."
        place = ("metadata", "annotations", name)
        yield manifest_finding(gate, SYNC_ANNOTATION, manifest, place, told, fix, severity=severity)


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
    told = f"the annotation {kserve_pods.STOP} stops this {manifest.kind}: KServe removes its pods"
    fix = "Remove the annotation, unless the service is to stop."
    place = ("metadata", "annotations", kserve_pods.STOP)
    yield manifest_finding(gate, STOPPED, manifest, place, told, fix, severity=Severity.NOTICE)


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
        told = f"{place[-1]} is KServe's own: its webhook loads a pod's model from where such a text says"
        fix = "Remove it: an InferenceService names the address of its model in storageUri."
        yield manifest_finding(gate, INTERNAL_TEXT, manifest, place, told, fix)
