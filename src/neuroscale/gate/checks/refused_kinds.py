"""Lists the kinds that no service needs and that would undo other checks, each with the reason and a way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
