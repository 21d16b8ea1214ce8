"""Applies many objects to a cluster, in the order in which they need each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from neuroscale.core.waiting import attempts
from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object, RefusedError

_CRD = "CustomResourceDefinition"
_DIGEST = "neuroscale.dev/digest"
# Objects that others need come first; webhooks come last, because the server would ask them about all later objects.
_FIRST = ("Namespace", _CRD)
_LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# An apply merges a definition with itself, which takes the server seconds for one of a megabyte. Kyverno is asked about
# each apply of a storage container, and answers only once KServe runs, which needs the storage container.
_STAY_IF_UNCHANGED = (_CRD, "ClusterStorageContainer")
_AT_ONCE = 8
_PAUSE = 0.1


def apply_all(cluster: Cluster, objects: Iterable[Object], *, served_within: float = 180.0) -> None:
    """Make every object as it is wanted; a second call changes nothing.

    `served_within`: the seconds that the server may take until it serves a new kind. Raises KubernetesError.
    """
    stages: dict[int, list[Object]] = {0: [], 1: [], 2: []}
    for wanted in objects:
        kind = wanted["kind"]
        stages[0 if kind in _FIRST else 2 if kind in _LAST else 1].append(wanted)
    for index, stage in stages.items():
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(lambda wanted: _apply(cluster, wanted), stage))
        if index == 0:
            await_served(cluster, [wanted for wanted in stage if wanted["kind"] == _CRD], served_within)


def _apply(cluster: Cluster, wanted: Object) -> None:
    if wanted["kind"] in _STAY_IF_UNCHANGED:
        _replace_if_changed(cluster, wanted)
    else:
        cluster.apply(wanted)


def _replace_if_changed(cluster: Cluster, wanted: Object) -> None:
    """Create or replace an object of no namespace, unless the cluster has it already."""
    new = marked(wanted)
    digest = new["metadata"]["annotations"][_DIGEST]
    identity = Identity.of(wanted)
    stored = cluster.get(identity.group_version, identity.kind, identity.name)
    if stored is None:
        try:
            cluster.create(new)
            return
        except RefusedError as error:
            if error.reason != "AlreadyExists":
                raise
        stored = cluster.get(identity.group_version, identity.kind, identity.name) or {"metadata": {}}
    if stored["metadata"].get("annotations", {}).get(_DIGEST) != digest:
        new["metadata"]["resourceVersion"] = stored["metadata"].get("resourceVersion", "")
        cluster.request("PUT", cluster.path(identity.group_version, identity.kind, name=identity.name), None, new)


def marked(wanted: Object) -> Object:
    """A definition or a storage container with the annotation by which `apply_all` knows that it is unchanged."""
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    metadata = wanted["metadata"]
    return {**wanted, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), _DIGEST: digest}}}


def await_served(cluster: Cluster, definitions: Sequence[Object], seconds: float) -> None:
    """Wait until the server answers for every version of these CustomResourceDefinitions. Raises KubernetesError."""
    specs = [definition["spec"] for definition in definitions]
    missing = [
        (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
        for spec in specs
        for version in spec["versions"]
        if version.get("served")
    ]
    for _ in attempts(seconds, _PAUSE):
        missing = [kind_name for kind_name in missing if not _is_served(cluster, *kind_name)]
        if not missing:
            return
    kinds = ", ".join(f"{kind} in {group_version}" for group_version, kind in missing)
    raise KubernetesError(f"{cluster.name} does not serve {kinds} {seconds:g} s after it was defined.")


def _is_served(cluster: Cluster, group_version: str, kind: str) -> bool:
    try:
        # The list of kinds shows a kind before the server answers for it.
        cluster.request("GET", cluster.path(group_version, kind), {"limit": "1"})
    except RefusedError as error:
        if error.code in (404, 429, 503):
            return False
        raise
    return True
