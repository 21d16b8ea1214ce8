"""Installs the platform in a cluster that has Argo CD: the objects that Argo CD needs, and nothing that it deploys
itself.

Safe to repeat: it first tries every object by a dry-run, then applies it; it leaves an object that is already as
wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from neuroscale.core import tool_cache
from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object, RefusedError
from neuroscale.rendering.platform.argocd import ENVIRONMENT_LABEL, NAMESPACE

Result = Literal["created", "changed", "unchanged"]

_GROUP_VERSION = "argoproj.io/v1alpha1"
_KINDS = ("AppProject", "Application", "ApplicationSet")
_BY_ENVIRONMENT = ("Application", "ApplicationSet")
_SELECTOR = "app.kubernetes.io/part-of=neuroscale"
# Argo CD's programs read these once, when they start.
_READ_AT_START = "argocd-cmd-params-cm"
# Fields that the API server itself writes.
_SERVERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink")
# Argo CD sets them when the forge tells it of a push, and removes them when it has looked.
_LOOK_AGAIN = ("argocd.argoproj.io/refresh", "argocd.argoproj.io/application-set-refresh")


@dataclass(frozen=True)
class Applied:
    """The outcome for one object (in a dry run: the expected outcome)."""

    identity: Identity
    result: Result


@dataclass(frozen=True)
class Installation:
    """The outcome of an installation. `notes` are sentences for people."""

    applied: tuple[Applied, ...]
    notes: tuple[str, ...]


class HalfInstalledError(NeuroscaleError):
    """The cluster refused or was lost after some objects were applied; the message names them."""


def install(
    cluster: Cluster,
    environment: str,
    wanted: Sequence[Object],
    *,
    dry_run: bool = False,
    tell: Callable[[Applied], None] = lambda _: None,
) -> Installation:
    """Apply the objects in their order. `tell` is called with each one.

    Raises InputError if the cluster lacks Argo CD or belongs to another environment, KubernetesError if it refuses an
    object before anything was applied, and HalfInstalledError afterwards.
    """
    _check_argocd(cluster)
    left_over = _check_environment(cluster, environment, wanted)
    before = [_live(cluster, one) for one in wanted]
    # The cluster refuses most faulty objects here, before anything is stored.
    tried = [cluster.apply(one, dry_run=True) for one in wanted]
    applied: list[Applied] = []
    for old, new, one in zip(before, tried, wanted, strict=True):
        result: Result = "created" if old is None else "unchanged" if _content(old) == _content(new) else "changed"
        if result != "unchanged" and not dry_run:
            try:
                cluster.apply(one)
            except KubernetesError as error:
                raise _half(applied, one, error) from error
        applied.append(Applied(Identity.of(one), result))
        tell(applied[-1])
    return Installation(tuple(applied), tuple(_notes(applied, left_over)))


def _check_argocd(cluster: Cluster) -> None:
    missing = []
    for kind in _KINDS:
        try:
            cluster.kind(_GROUP_VERSION, kind)
        except RefusedError as error:
            if error.code != 404:
                raise
            missing.append(kind)
    if missing:
        message = f"has no Argo CD: it does not know {', '.join(missing)}"
    elif cluster.get("v1", "Namespace", NAMESPACE) is None:
        message = f"has no namespace {NAMESPACE}"
    else:
        return
    raise InputError.at(cluster.name, "", message, f"Install it first:\n{argocd_command()}")


def argocd_command() -> str:
    """The commands that install the version of Argo CD which this repository pins."""
    version = tool_cache.tool("argocd").module.version
    manifest = f"https://raw.githubusercontent.com/argoproj/argo-cd/{version}/manifests/install.yaml"
    return (
        f"  kubectl create namespace {NAMESPACE}\n"
        f"  kubectl apply --server-side --namespace {NAMESPACE} --filename {manifest}"
    )


def _check_environment(cluster: Cluster, environment: str, wanted: Sequence[Object]) -> list[Identity]:
    """Raises InputError if the cluster belongs to another environment. Returns the objects that are no longer
    wanted."""
    ours = {Identity.of(one) for one in wanted}
    left_over = []
    for kind in _BY_ENVIRONMENT:
        for found in cluster.list(_GROUP_VERSION, kind, NAMESPACE, _SELECTOR):
            if any(owner.get("controller") for owner in found["metadata"].get("ownerReferences") or ()):
                continue  # belongs to an application set, which is checked itself
            labels = found["metadata"].get("labels") or {}
            theirs = labels.get(ENVIRONMENT_LABEL)
            identity = Identity.of(found)
            if theirs is not None and theirs != environment:
                raise InputError.at(
                    cluster.name,
                    "",
                    f"is the cluster of the environment {theirs!r}: it has the {identity}",
                    f"Name the context of {environment}'s cluster, or --environment {theirs}.",
                )
            if theirs == environment and identity not in ours:
                left_over.append(identity)
    return left_over


def _live(cluster: Cluster, wanted: Object) -> Object | None:
    identity = Identity.of(wanted)
    return cluster.get(identity.group_version, identity.kind, identity.name, identity.namespace)


def _content(found: Object) -> Any:
    metadata = {key: value for key, value in found["metadata"].items() if key not in _SERVERS}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: value for key, value in annotations.items() if key not in _LOOK_AGAIN}
    # `operation` is there while Argo CD syncs an Application.
    content = {**found, "metadata": metadata, "operation": None, "status": None}
    # Argo CD's controller writes a whole application set back: it adds empty fields and drops false ones.
    return _said(content) if found["kind"] == "ApplicationSet" else content


def _said(value: Any) -> Any:
    """The value without fields that are false or empty."""
    if isinstance(value, dict):
        said = {key: _said(item) for key, item in value.items()}
        return {key: item for key, item in said.items() if item not in (None, False, "", {}, [])}
    return [_said(item) for item in value] if isinstance(value, list) else value


def _half(applied: Sequence[Applied], failed: Object, error: KubernetesError) -> NeuroscaleError:
    done = [str(one.identity) for one in applied if one.result != "unchanged"]
    if not done:
        return error
    return HalfInstalledError(
        f"The {Identity.of(failed)} was not applied: {error}\n"
        f"Applied before it, and left as it is: {', '.join(done)}. Correct that, and run the command again."
    )


def _notes(applied: Sequence[Applied], left_over: Sequence[Identity]) -> list[str]:
    notes = [f"The {identity} is no longer wanted and was left: remove it by hand." for identity in left_over]
    if any(one.identity.name == _READ_AT_START and one.result != "unchanged" for one in applied):
        notes.append(
            f"Argo CD reads {_READ_AT_START} when it starts: kubectl --namespace {NAMESPACE} rollout restart "
            "statefulset/argocd-application-controller deployment/argocd-repo-server deployment/argocd-server "
            "deployment/argocd-applicationset-controller"
        )
    return notes
