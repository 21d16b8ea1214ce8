"""Puts the bad pod of a test object into every other kind that has a pod or a template of one.

A rule that sees one kind alone lets these pass, although the server that they start is the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.mutation.harms import Harm, as_container
from neuroscale.gate.mutation.mutant import Mutant, Object, at, of_value
from neuroscale.gate.mutation.pod_places import POD_PLACES, SERVER

_KSERVE = "serving.kserve.io/v1alpha1"
_POD_KINDS = (
    ("v1", "Pod"),
    *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    *(("batch/v1", "Job"), ("batch/v1", "CronJob")),
    *(("v1", "ReplicationController"), ("v1", "PodTemplate")),
    *(("extensions/v1beta1", "Deployment"), ("apps/v1beta2", "Deployment")),
    *(("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), ("serving.knative.dev/v1", "Service")),
    ("argoproj.io/v1alpha1", "Rollout"),
    *((_KSERVE, "ServingRuntime"), (_KSERVE, "ClusterServingRuntime")),
)
_NO_SELECTOR = ("Job", "CronJob", "Service")
_APP = {"app": "mutant"}


def in_other_kinds(
    policy: str, harms: Sequence[Harm], bad: Sequence[Object], good: Sequence[Object], schemas: SchemaSet
) -> Iterator[Mutant]:
    """One bad pod in all kinds, and every harm in each kind that the policy has no good object of.

    Kinds that set-up has no schema of, which the schema check refuses whatever they hold, get only one harm.
    """
    whole = next((one for one in bad if one["kind"] in ("Deployment", "Pod") and one["kind"] in POD_PLACES), None)
    if whole is not None:
        inner = whole if whole["kind"] == "Pod" else at(whole, ("spec", "template")) or {}
        labels = at(inner, ("metadata", "labels")) or {}
        pod = at(whole, POD_PLACES[whole["kind"]][0])
        for version, kind in _POD_KINDS:
            if (version, kind) != (whole["apiVersion"], whole["kind"]):
                yield _mutant(policy, whole, version, kind, whole["metadata"].get("labels") or {}, labels, pod)
    shown = {one["kind"] for one in good}
    missing = [one for one in _POD_KINDS if one[1] not in shown]
    for number, (harm, pod) in enumerate((harm, pod) for harm in harms if (pod := _pod(harm)) is not None):
        labels = harm.value if harm.sort == "labels" else harm.base["metadata"].get("labels") or {}
        for version, kind in missing:
            if number == 0 or (version, kind) in schemas.kinds:
                yield _mutant(policy, harm.base, version, kind, labels, labels, pod)


def _pod(harm: Harm) -> Object | None:
    """A pod with the harm, or None if only KServe gives the harm its meaning."""
    container = as_container(harm)
    if container is not None:
        return {"containers": [container]}
    server = {"containers": [copy.deepcopy(SERVER)]}
    if harm.sort == "volume":
        return {**server, "volumes": [{**harm.value, "name": "mutant"}]}
    if harm.sort == "pod":
        return {**server, **copy.deepcopy(harm.value)}
    return server if harm.sort == "labels" else None


def _mutant(
    policy: str,
    base: Object,
    version: str,
    kind: str,
    own: Mapping[str, Any],
    labels: Mapping[str, Any],
    pod: Object,
) -> Mutant:
    """`own`: the labels of the object; `labels`: those of its pods."""
    metadata = {key: base["metadata"][key] for key in ("name", "namespace") if key in base["metadata"]}
    if kind == "Pod":
        own = dict(own.items() & labels.items())
    value: Object = {"apiVersion": version, "kind": kind, "metadata": {**metadata, "labels": dict(own)}}
    spec = copy.deepcopy(pod)
    template: Object = {"metadata": {"labels": {**labels, **_APP}}, "spec": spec}
    if kind in ("Job", "CronJob"):
        spec["restartPolicy"] = "Never"
    if kind == "Pod" or kind.endswith("ServingRuntime"):
        value["spec"] = spec
        if kind.startswith("Cluster"):
            value["metadata"].pop("namespace", None)
    elif kind == "PodTemplate":
        value["template"] = template
    elif kind == "LeaderWorkerSet":
        value["spec"] = {"leaderWorkerTemplate": {"workerTemplate": template}}
    elif kind == "CronJob":
        value["spec"] = {"schedule": "0 4 * * *", "jobTemplate": {"spec": {"template": template}}}
    else:
        value["spec"] = {"template": template}
        if kind not in _NO_SELECTOR:
            value["spec"]["selector"] = _APP if kind == "ReplicationController" else {"matchLabels": _APP}
        if kind == "StatefulSet":
            value["spec"]["serviceName"] = "mutant"
    return of_value(policy, f"other kind:{version} {kind}", base, "", value)
