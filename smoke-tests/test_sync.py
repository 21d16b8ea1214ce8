"""Checks the way from Git to the cluster: Argo CD's application, the live object, the running pods."""

from __future__ import annotations

import pytest

from neuroscale.cluster.command_lines import CommandLines
from neuroscale.cluster.object_fields import differences
from neuroscale.cluster.pod_state import SERVER
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Cluster, Object
from neuroscale.rendering.object_names import application_name
from neuroscale.rendering.platform.argocd import NAMESPACE
from neuroscale.smoke.expected_services import Service, Target, standing
from neuroscale.smoke.pytest_plugin import Notes, distrust
from neuroscale.smoke.results import CannotTellError, FindingError, require
from neuroscale.smoke.runner import Spec


@pytest.mark.check("application")
def test_argo_cd_has_synced_the_merged_revision(
    cluster: Cluster, spec: Spec, target: Target, service: Service, note: Notes, pytestconfig: pytest.Config
) -> None:
    """Argo CD's application is Synced and Healthy at the merged revision."""
    name = application_name(target.environment, service.name)
    argocd = f"{spec.lines.kubectl} -n {NAMESPACE}"
    see = f"{argocd} describe application {name}"
    found = cluster.get("argoproj.io/v1alpha1", "Application", name, NAMESPACE)
    if found is None:
        raise FindingError(f"the application {name} does not exist", f"{argocd} describe applicationsets")
    sync, health = part(found, "status", "sync"), part(found, "status", "health")
    revision = str(sync.get("revision") or "")
    short, merged = revision[:10] or "no commit", target.revision[:10]
    stands = standing(target.root, service.path.folder, target.revision, revision, spec.sources)
    if revision and stands in ("ahead", "unknown"):
        told = {
            "ahead": f"Argo CD is at {short}, where {service.name} was changed again since {merged}",
            "unknown": f"Argo CD is at {short}, which neither this clone nor {' or '.join(spec.sources)} has",
        }[stands]
        # The change under test may not be the cause of any other failure.
        distrust(pytestconfig, told)
        raise CannotTellError(told, f"Run: {spec.fetch}; then the smoke tests of the newest commit.")
    require(
        sync.get("status") == "Synced",
        f"the application {name} is {sync.get('status') or 'not compared yet'} at {short}",
        see,
    )
    require(
        health.get("status") == "Healthy",
        f"the application {name} is {health.get('status') or 'of unknown health'}",
        f"{see}; {spec.lines.own(f'status {service.name}')}",
    )
    require(stands in ("the same", "equal"), f"Argo CD is at {short}, which lacks the change of {merged}", see)
    also = f", which has the service's last change ({merged})" if stands == "equal" else ""
    note(f"Synced and Healthy at {short}{also}")


@pytest.mark.check("live-object")
def test_the_live_object_is_what_git_holds(live: Object, service: Service, lines: CommandLines) -> None:
    """The live InferenceService equals Git: labels, image, arguments and all other fields."""
    fields = differences({key: service.wanted.get(key) for key in ("metadata", "spec")}, live)
    require(
        not fields,
        f"it differs from Git in {', '.join(fields[:5])}",
        f"Somebody changed it, or Argo CD is paused: "
        f"{lines.kubectl} -n {service.namespace} get isvc {service.name} -o yaml",
    )


@pytest.mark.check("live-pods")
def test_the_running_pods_are_what_git_holds(
    cluster: Cluster, pods: list[Object], service: Service, lines: CommandLines, note: Notes
) -> None:
    """The running pods equal Git: labels, image, arguments and resources."""
    runtime = _runtime_arguments(cluster, service)
    wrong = [f"{pod['metadata']['name']}: {told}" for pod in pods for told in _differences(pod, service, runtime)]
    require(
        not wrong,
        "; ".join(wrong[:5]),
        f"Check whether a roll-out is under way, or KServe's controller is down: {lines.own(f'status {service.name}')}",
    )
    note(f"{len(pods)} pods of {service.server.get('image')}")


def _runtime_arguments(cluster: Cluster, service: Service) -> list[str]:
    """The arguments that KServe puts before the service's own."""
    name = str(service.server.get("runtime") or "")
    version = "serving.kserve.io/v1alpha1"
    found = cluster.get(version, "ServingRuntime", name, service.namespace) or cluster.get(
        version, "ClusterServingRuntime", name
    )
    containers = items(found, "spec", "containers")
    return [str(one) for row in containers if row.get("name") == SERVER for one in row.get("args") or []]


def _differences(pod: Object, service: Service, runtime: list[str]) -> list[str]:
    labels = part(pod, "metadata", "labels")
    server = next((one for one in items(pod, "spec", "containers") if one.get("name") == SERVER), {})
    told = _other_resources(server, service)
    told += [
        f"label {name} is {labels.get(name)!r}, not {value!r}"
        for name, value in service.labels.items()
        if labels.get(name) != str(value)
    ]
    if server.get("image") != service.server.get("image"):
        told.append(f"image {server.get('image')}, not {service.server.get('image')}")
    wanted, found = [*runtime, *service.arguments], [str(one) for one in server.get("args") or []]
    if found != wanted:
        more, less = [one for one in found if one not in wanted], [one for one in wanted if one not in found]
        told.append(f"arguments differ (has {more or 'nothing'} more, lacks {less or 'nothing'})")
    return told


def _other_resources(server: Object, service: Service) -> list[str]:
    """The requests and limits of Git that the server does not have, and its accelerators that Git does not name. What
    else it has may come from its runtime or its namespace."""
    told = []
    for kind in ("requests", "limits"):
        wanted, found = part(service.server, "resources", kind), part(server, "resources", kind)
        for name in sorted({*wanted, *(name for name in found if "/" in name)}):
            if name not in wanted or differences({kind: {name: wanted[name]}}, {kind: found}):
                told.append(f"{kind} {name} is {found.get(name, 'missing')}, not {wanted.get(name, 'asked for')}")
    return told
