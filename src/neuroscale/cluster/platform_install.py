"""Bringing the platform to a cluster that has Argo CD: what Argo CD must be told, and nothing that it deploys itself.

Safe to repeat: every object is first tried without being stored, then applied; one that is there as wanted is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from neuroscale.core import tool_cache
from neuroscale.core.errors import InputError, NeuroscaleError, Problem
from neuroscale.kube.client import Cluster, Identity, KubernetesError, Object, RefusedError
from neuroscale.rendering.platform.argocd import ENVIRONMENT_LABEL, NAMESPACE

Result = Literal["created", "changed", "unchanged"]

_GROUP_VERSION = "argoproj.io/v1alpha1"
_KINDS = ("AppProject", "Application", "ApplicationSet")
_BY_ENVIRONMENT = ("Application", "ApplicationSet")
_SELECTOR = "app.kubernetes.io/part-of=neuroscale"
# Read once, when Argo CD's programs start.
_READ_AT_START = "argocd-cmd-params-cm"
# What the API server itself writes.
_SERVERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink")


@dataclass(frozen=True)
class Applied:
    """What became of one object (in a dry run: what would become of it)."""

    identity: Identity
    result: Result


@dataclass(frozen=True)
class Installation:
    """What an installation did. `notes` are sentences for people."""

    applied: tuple[Applied, ...]
    notes: tuple[str, ...]


class HalfInstalledError(NeuroscaleError):
    """The cluster refused, or was lost, after something was applied; the message says what."""


def install(
    cluster: Cluster,
    environment: str,
    wanted: Sequence[Object],
    *,
    dry_run: bool = False,
    tell: Callable[[Applied], None] = lambda _: None,
) -> Installation:
    """Apply the objects in their order. `tell` hears of each one.

    Raises InputError where the cluster lacks Argo CD or is another environment's, KubernetesError where it refuses an
    object before anything was applied, and HalfInstalledError afterwards.
    """
    _check_argocd(cluster)
    left_over = _check_environment(cluster, environment, wanted)
    before = [_live(cluster, one) for one in wanted]
    # Most of what can be refused is refused here, before anything is stored.
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
        message = f"has no Argo CD: it knows no {', '.join(missing)}"
    elif cluster.get("v1", "Namespace", NAMESPACE) is None:
        message = f"has no namespace {NAMESPACE}"
    else:
        return
    raise InputError(Problem(cluster.name, "", message, f"Install it first:\n{argocd_command()}"))


def argocd_command() -> str:
    """The commands that install the version of Argo CD which this repository pins."""
    version = tool_cache.tool("argocd").module.version
    manifest = f"https://raw.githubusercontent.com/argoproj/argo-cd/{version}/manifests/install.yaml"
    return (
        f"  kubectl create namespace {NAMESPACE}\n"
        f"  kubectl apply --server-side --namespace {NAMESPACE} --filename {manifest}"
    )


def _check_environment(cluster: Cluster, environment: str, wanted: Sequence[Object]) -> list[Identity]:
    """Raises InputError where the cluster is another environment's; returns objects that nobody wants any more."""
    ours = {Identity.of(one) for one in wanted}
    left_over = []
    for kind in _BY_ENVIRONMENT:
        for found in cluster.list(_GROUP_VERSION, kind, NAMESPACE, _SELECTOR):
            if any(owner.get("controller") for owner in found["metadata"].get("ownerReferences") or ()):
                continue  # an application set's, which is judged itself
            labels = found["metadata"].get("labels") or {}
            theirs = labels.get(ENVIRONMENT_LABEL)
            identity = Identity.of(found)
            if theirs is not None and theirs != environment:
                raise InputError(
                    Problem(
                        cluster.name,
                        "",
                        f"is the cluster of the environment {theirs!r}: it has the {identity}",
                        f"Name the context of {environment}'s cluster, or --environment {theirs}.",
                    )
                )
            if theirs == environment and identity not in ours:
                left_over.append(identity)
    return left_over


def _live(cluster: Cluster, wanted: Object) -> Object | None:
    identity = Identity.of(wanted)
    return cluster.get(identity.group_version, identity.kind, identity.name, identity.namespace)


def _content(found: Object) -> Any:
    metadata = {key: value for key, value in found["metadata"].items() if key not in _SERVERS}
    content = {**found, "metadata": metadata, "status": None}
    # Its controller writes an application set back as a whole: with empty fields that nobody wrote, without false ones.
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
        f"Applied before it, and left as it is: {', '.join(done)}. Run the command again when that is mended."
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
