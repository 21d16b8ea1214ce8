"""Finds the pods of a set of manifests that run vLLM, and their commands, whatever object makes the pods.

An InferenceService is merged with its runtime by the rules of KServe (release 0.20), as its controller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from neuroscale.core.yaml_io import Path
from neuroscale.gate.fit.environment import PORT_SERVICE
from neuroscale.gate.fit.inference_service_servers import Runtimes, inference_service_servers
from neuroscale.gate.fit.llm_inference_service_servers import llm_inference_service_servers
from neuroscale.gate.fit.vllm_containers import Found, Unread, VllmContainer, containers
from neuroscale.manifests import kserve_scaling
from neuroscale.manifests.objects import Manifest
from neuroscale.manifests.pod_resources import mapping
from neuroscale.manifests.serving_runtimes import KSERVE, RUNTIMES, find_runtime, runtime_key


def servers(manifests: Sequence[Manifest], elsewhere: Callable[[str], Manifest | None]) -> Iterator[Found]:
    """Every container that runs vLLM. `elsewhere` gives a ClusterServingRuntime outside of the manifests by name."""
    given = {key: manifest for manifest in manifests if (key := runtime_key(manifest.value))}

    def runtime(name: str, namespace: str) -> Manifest | None:
        return find_runtime(given, name, namespace) or elsewhere(name)

    linked = {one.namespace: one for one in manifests if _sets_port(one)}
    for manifest in manifests:
        try:
            for found in _read(manifest, runtime):
                if isinstance(found, VllmContainer) and _sees_services(found):
                    yield replace(found, port_service=linked.get(manifest.namespace))
                else:
                    yield found
        except ValueError as error:
            # The schema check reports what is wrong with it.
            if _mentions(manifest.value):
                yield Unread(manifest, (), manifest.subject, f"it cannot be read: {error}")


def _sets_port(manifest: Manifest) -> bool:
    """Whether it is a Service whose address Kubernetes writes into VLLM_PORT of its namespace's pods."""
    if (manifest.group, manifest.kind, manifest.name) != ("", "Service", PORT_SERVICE):
        return False
    spec = manifest.value.get("spec")
    return isinstance(spec, dict) and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"


def _sees_services(server: VllmContainer) -> bool:
    """Whether the pod gets the variables of Services: Knative switches them off; other pods get them by default."""
    if server.spec.get("enableServiceLinks") is False or server.description:
        return False
    return server.manifest.kind != "InferenceService" or kserve_scaling.is_standard(server.manifest.value)


def _read(manifest: Manifest, runtime: Runtimes) -> Iterator[Found]:
    if manifest.group == KSERVE and manifest.kind == "InferenceService":
        yield from inference_service_servers(manifest, runtime)
    elif manifest.group == KSERVE and manifest.kind == "LLMInferenceService":
        yield from llm_inference_service_servers(manifest)
    else:
        pods = _group_size(manifest)
        description = manifest.kind in RUNTIMES or manifest.kind in ("LLMInferenceServiceConfig", "PodTemplate")
        for at, spec in _pod_specs(manifest.value, ()):
            for found in containers(manifest, at, spec, manifest.subject, description=description):
                yield replace(found, pods=pods) if isinstance(found, VllmContainer) else found


def _group_size(manifest: Manifest) -> int:
    """The number of pods that one server runs in, if a LeaderWorkerSet makes them."""
    if manifest.kind != "LeaderWorkerSet":
        return 1
    group = mapping(mapping(manifest.value.get("spec"), "spec").get("leaderWorkerTemplate"), "leaderWorkerTemplate")
    size = group.get("size")
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1


def _pod_specs(value: Any, at: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every mapping of an object that holds containers, and the path to it."""
    if isinstance(value, dict):
        containers = value.get("containers")
        if isinstance(containers, list) and all(isinstance(one, dict) for one in containers):
            yield at, value
        for key, item in value.items():
            if key not in ("containers", "metadata"):
                yield from _pod_specs(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_specs(item, (*at, index))


def _mentions(value: Any) -> bool:
    return "vllm" in repr(value).lower()
