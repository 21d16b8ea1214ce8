"""Holds known-bad services with a catalog of their own: every run of the fit check must find the fault of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from neuroscale.catalog import Accelerator, Catalog, ModelEntry, RuntimeEntry
from neuroscale.catalog.entries import Checkpoint, Figure, Parameters, Serving, Tried, Weights
from neuroscale.gate.fit.known_models import Knowledge
from neuroscale.gate.fit.read_only_root import NO_FOLDER
from neuroscale.gate.fit.volumes import SHARED_MEMORY
from neuroscale.gate.policy_exceptions import WRITABLE_ROOT
from neuroscale.manifests.objects import Manifest, tripwire
from neuroscale.models.config import read_config
from neuroscale.models.facts import ModelFacts

_SOURCE = "a tripwire of the gate"
_NOTHING: Mapping[str, str] = {}
_VOLUMES = [{"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
_KEY = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "tripwire", "key": "api-key"}}}
_NODES = {"example.com/tripwire": "small"}
_MODELS = {"tripwire/dense-31b": (64, 6144, 20480), "tripwire/dense-1b": (16, 2048, 8192)}
"""Layers, hidden size, and width of the MLP."""
_TRIED = "vllm/vllm-openai-tripwire:v0.32.0"
_PROBE = {"httpGet": {"path": "/health", "port": 8000}}
_BAD = (
    ("not-reachable", "--host"),
    ("wrong-port", "listens on port 9000"),
    ("missing-file", "--ssl-keyfile"),
    ("host-memory", "64 MiB"),
    ("ends-later", "timeout"),
    ("keyless-path", "/invocations"),
    ("keyless-path", "VLLM_SERVER_DEV_MODE"),
    ("small-volume", SHARED_MEMORY),
)
"""The faults of one service, by the rules of `reach` and `room`, each with a part of its message."""


@dataclass(frozen=True)
class Tripwire:
    """Known-bad manifests. `wanted`: the rules that must find them, each with a part of its message."""

    title: str
    manifests: tuple[Manifest, ...]
    wanted: tuple[tuple[str, str], ...]
    knowledge: Knowledge


@cache
def tripwires() -> tuple[Tripwire, ...]:
    """All tripwires of the fit check."""
    knowledge = Knowledge(_catalog(), None, facts=_facts())

    def deployment(*arguments: str, gpus: int = 1, limits: Mapping[str, str] = _NOTHING, **more: Any) -> Manifest:
        container = {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.32.0",
            "args": list(arguments),
            "resources": {"limits": {"example.com/tripwire": gpus, **limits}},
            **more,
        }
        pod = {"nodeSelector": _NODES, "containers": [container], "volumes": _VOLUMES}
        return tripwire("apps/v1", "Deployment", spec={"template": {"spec": pod}})

    def service(*arguments: str) -> tuple[Manifest, ...]:
        """A service with these arguments, and a runtime that names the model."""
        container = {"name": "kserve-container", "image": "vllm/vllm-openai:v0.32.0", "command": ["vllm", "serve"]}
        runtime = tripwire(
            "serving.kserve.io/v1alpha1",
            "ClusterServingRuntime",
            spec={"containers": [{**container, "args": ["--model=tripwire/dense-31b"]}]},
        )
        model = {"runtime": runtime.name, "args": list(arguments), "resources": {"limits": {"example.com/tripwire": 1}}}
        return runtime, tripwire(
            "serving.kserve.io/v1beta1",
            "InferenceService",
            spec={"predictor": {"nodeSelector": _NODES, "model": model}},
        )

    large, small = "--model=tripwire/dense-31b", "--model=tripwire/dense-1b"
    tls = ("--ssl-keyfile=/tls/tls.key", "--ssl-certfile=/tls/tls.crt")
    bad = deployment(
        *(small, "--host=127.0.0.1", "--port=9000", "--tensor-parallel-size=2", *tls),
        gpus=2,
        limits={"memory": "64Mi"},
        command=["timeout", "60", "vllm", "serve"],
        env=[_KEY, {"name": "VLLM_SERVER_DEV_MODE", "value": "1"}],
        readinessProbe=_PROBE,
        volumeMounts=[{"name": "shared-memory", "mountPath": SHARED_MEMORY}],
    )
    large_alone, two_ranks = deployment(large, "--max-model-len=4096"), "--tensor-parallel-size=2"
    read_only, writable = ({"readOnlyRootFilesystem": is_read_only} for is_read_only in (True, False))
    does_not_fit = ("does-not-fit", "does not fit")
    labels = (("model-labels", "model-architecture"), ("model-labels", "total-params"))
    no_folder = (NO_FOLDER, "/tmp")  # noqa: S108 - a part of a message
    faults: tuple[tuple[str, Manifest | tuple[Manifest, ...], tuple[tuple[str, str], ...]], ...] = (
        ("31B parameters in 16 bits on a card of 22 GiB", large_alone, (does_not_fit,)),
        ("the same, of which a runtime names the model", service("--max-model-len=4096"), (does_not_fit,)),
        (
            "an argument that does not exist",
            deployment(small, "--no-such-argument"),
            (("unknown-argument", "--no-such-argument"),),
        ),
        ("an argument that was removed", deployment(small, "--swap-space=4"), (("removed-argument", "--swap"),)),
        (
            "more ranks than accelerators",
            deployment(small, two_ranks),
            (("accelerator-count", "runs on 2 accelerators"),),
        ),
        (
            "two ranks without shared memory",
            deployment(small, two_ranks, gpus=2),
            (("no-shared-memory", SHARED_MEMORY),),
        ),
        ("arguments in a file", deployment(small, "--config", "a.yaml"), (("not-judged", "cannot be judged"),)),
        ("a server that nobody reaches, that does not stay up, and that asks nobody for a key", bad, _BAD),
        ("a model with the labels of another one", _labelled(deployment(small)), labels),
        (
            "a server on a socket",
            deployment(small, "--uds=/tmp/vllm.sock", readinessProbe=_PROBE),
            (("not-reachable", "--uds"),),
        ),
        (
            "a writable root in an image that was tried with a read-only one",
            deployment(small, image=_TRIED, securityContext=writable),
            ((WRITABLE_ROOT, "tripwire"),),
        ),
        (
            "a read-only root without a folder for temporary files",
            deployment(small, image=_TRIED, securityContext=read_only),
            (no_folder,),
        ),
    )
    return tuple(
        Tripwire(title, bad if isinstance(bad, tuple) else (bad,), wanted, knowledge) for title, bad, wanted in faults
    )


def _labelled(manifest: Manifest) -> Manifest:
    labels = {"model-architecture": "moe", "total-params": "1M"}
    value = {**manifest.value, "metadata": {"name": manifest.name, "labels": labels}}
    return replace(manifest, value=value)


def _catalog() -> Catalog:
    figure = {"value": None, "source": _SOURCE}
    card = Accelerator.model_validate(
        {
            "name": "tripwire",
            "title": "A card of 22 GiB",
            "family": "cuda",
            "counts": [1, 2],
            "resource": "example.com/tripwire",
            "node_selector": _NODES,
            "memory_gib": {"value": 22.0, "source": _SOURCE},
            "bandwidth_gb_s": figure,
            "bf16_tflops": figure,
            "pcie_gb_s": figure,
            "quantizations": ["none"],
            "kv_cache_dtypes": ["auto"],
            "support_source": _SOURCE,
        },
        strict=False,
    )
    entries = {name: _entry(name) for name in _MODELS}
    return Catalog(entries, {card.name: card}, {}, {"tripwire": _runtime()}, {})


def _runtime() -> RuntimeEntry:
    """A runtime with only the fields that the check reads."""
    entry: dict[str, Any] = {"name": "tripwire", "family": "cuda", "image": _TRIED, "digest": None, "version": "0.32.0"}
    return RuntimeEntry.model_construct(**entry, read_only_root=Tried(value=True, source=_SOURCE))


def _entry(name: str) -> ModelEntry:
    """An entry with only the fields that the check reads; `_facts` gives the facts of its model."""
    weights: dict[str, Any] = {"kind": "hub", "path": name, "revision": None}
    size = Figure(value=2.0, source=_SOURCE)
    sizes = {"download_gib": size, "resident_gib": size, "host_memory_gib": size}
    checkpoint: dict[str, Any] = {"dtype": "bfloat16", "quantization": "none", **sizes}
    serving: dict[str, Any] = {"families": ("cuda",), "tool_call_parser": None, "reasoning_parser": None}
    published: dict[str, Any] = {"published_total": None, "published_active": None}
    entry: dict[str, Any] = {
        "name": name,
        "parameters": Parameters.model_construct(**published),
        "title": name,
        "variant_of": None,
        "weights": Weights.model_construct(**weights),
        "checkpoint": Checkpoint.model_construct(**checkpoint),
        "serving": Serving.model_construct(**serving),
    }
    return ModelEntry.model_construct(**entry)


def _facts() -> dict[str, ModelFacts]:
    """The facts of dense models of Llama's shape."""
    return {
        name: read_config(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "dtype": "bfloat16",
                "num_hidden_layers": layers,
                "hidden_size": hidden,
                "vocab_size": 128256,
                "intermediate_size": width,
                "num_attention_heads": hidden // 128,
                "num_key_value_heads": hidden // 512,
                "head_dim": 128,
                "max_position_embeddings": 131072,
                "tie_word_embeddings": False,
            },
            name,
        )
        for name, (layers, hidden, width) in _MODELS.items()
    }
