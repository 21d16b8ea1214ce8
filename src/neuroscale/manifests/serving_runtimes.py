"""Finds the serving runtime that a service names, as KServe looks it up (release 0.20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from neuroscale.core.errors import InputError
from neuroscale.core.validation import mapping
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.repo.layout import RUNTIMES as RUNTIMES_FOLDER
from neuroscale.repo.snapshot import Snapshot

KSERVE = "serving.kserve.io"
RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")
SERVING = "kserve-container"
"""The container that KServe sends requests to."""
BUILT_IN = "kserve-vllmserver"
"""KServe's own runtime for vLLM, which it takes for the model format vLLM if a service names no runtime."""
SERVER_TYPE = f"{KSERVE}/server-type"

Runtimes = Callable[[str, str], Mapping[str, Any] | None]
"""Gives a runtime's object by its name and the service's namespace; None if it is unknown."""
RuntimeKey = tuple[str, str, str]
"""Kind, namespace ("" for a ClusterServingRuntime) and name."""

_Found = TypeVar("_Found")
_SIZE = {"cpu": "1", "memory": "2Gi"}
_BUILT_IN: Mapping[str, Any] = {
    "apiVersion": f"{KSERVE}/v1alpha1",
    "kind": RUNTIMES[1],
    "metadata": {"name": BUILT_IN, "annotations": {SERVER_TYPE: "vllmserver"}},
    "spec": {
        "containers": [
            {
                "name": SERVING,
                # KServe's installation sets the tag; without NVIDIA GPUs KServe takes the image for CPUs.
                "image": "vllm-openai:latest",
                "command": ["python", "-m", "vllm.entrypoints.openai.api_server"],
                "args": ["--port=8080", "--served-model-name={{.Name}}", "--model=/mnt/models"],
                "resources": {"requests": _SIZE, "limits": _SIZE},
                "volumeMounts": [{"name": "devshm", "mountPath": "/dev/shm"}],  # noqa: S108
            }
        ],
        "volumes": [{"name": "devshm", "emptyDir": {"medium": "Memory"}}],
    },
}
"""The part of that runtime that a service takes; KServe brings it (`config/runtimes/kserve-vllmserver.yaml`)."""


def runtime_key(value: Mapping[str, Any]) -> RuntimeKey | None:
    """The key by which a serving runtime is looked up; None for every other object."""
    kind, group = str(value.get("kind")), str(value.get("apiVersion")).rpartition("/")[0]
    metadata = value.get("metadata")
    if group != KSERVE or kind not in RUNTIMES or not isinstance(metadata, dict):
        return None
    return kind, str(metadata.get("namespace") or "") if kind == RUNTIMES[0] else "", str(metadata.get("name") or "")


def find_runtime(given: Mapping[RuntimeKey, _Found], name: str, namespace: str) -> _Found | None:
    """A runtime by its name: the one of the namespace wins over the one of the whole cluster."""
    return given.get((RUNTIMES[0], namespace, name)) or given.get((RUNTIMES[1], "", name))


def known_runtimes(objects: Iterable[Mapping[str, Any]]) -> Runtimes:
    """The lookup among the serving runtimes of some objects."""
    given = {key: value for value in objects if (key := runtime_key(value))}
    return lambda name, namespace: find_runtime(given, name, namespace)


def runtimes_below(snapshot: Snapshot, folder: str) -> list[Manifest]:
    """The serving runtimes of the whole cluster in a folder's files; files that cannot be read are left out."""
    found: list[Manifest] = []
    for entry in snapshot.entries(folder):
        data = snapshot.read(entry.path) if entry.path.endswith(".yaml") else None
        try:
            manifests = read_manifests(data, entry.path) if data is not None else []
        except InputError:
            continue  # the platform check reports what is wrong with it
        found += [one for one in manifests if one.kind == RUNTIMES[1]]
    return found


def runtime_name(model: Mapping[str, Any]) -> str:
    """The runtime that a predictor's `model` names; "" if KServe chooses one that the files do not show."""
    name = str(model.get("runtime") or "")
    return BUILT_IN if not name and model_format(model).lower() == "vllm" else name


def model_format(model: Mapping[str, Any]) -> str:
    """The name of the model's format."""
    return str(mapping(model.get("modelFormat"), "modelFormat").get("name") or "")


def runtime_of(model: Mapping[str, Any], namespace: str, runtimes: Runtimes) -> Mapping[str, Any] | None:
    """The runtime that serves a predictor's `model`; None if it is unknown."""
    name = runtime_name(model)
    if not name:
        return None
    return runtimes(name, namespace) or (_BUILT_IN if name == BUILT_IN else None)


def runtimes_of(snapshot: Snapshot) -> Callable[[str], Manifest | None]:
    """A function that gives a runtime by its name, or None if it does not exist. It reads them at its first call."""

    @cache
    def known() -> dict[str, Manifest]:
        return {one.name: one for one in runtimes_below(snapshot, RUNTIMES_FOLDER)}

    return lambda name: known().get(name)
