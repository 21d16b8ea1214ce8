"""The fit check on manifests of every kind: good ones pass, and each way to spoil one is found at its place."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump
from neuroscale.gate.evaluation import guarded
from neuroscale.gate.fit import check as gate
from neuroscale.gate.fit.check import evaluate_fit
from neuroscale.gate.fit.judgement import RULES, Judged, judge_container
from neuroscale.gate.fit.known_models import Knowledge, read_knowledge
from neuroscale.gate.fit.tripwires import tripwires
from neuroscale.gate.fit.vllm_containers import VllmContainer
from neuroscale.gate.fit.vllm_pods import servers
from neuroscale.gate.fit.volumes import DRIVER
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.gate.verdict import Finding, Outcome, Severity
from neuroscale.manifests.objects import read_manifests
from neuroscale.manifests.serving_runtimes import runtimes_of
from neuroscale.rendering.scaffolder.skeleton_values import parameters_label, ratio_label
from neuroscale.repo.layout import ServicePath
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.vllm.arguments import parse_arguments
from platform_repository import ROOT, SNAPSHOT
from policies_support import NAMES, fixture_manifests

DENSE, EXPERTS, GEMMA = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "google/gemma-4-26B-A4B-it"
L4 = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
A100 = {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}
H100 = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
FILE = "chat.yaml"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    found = read_knowledge(PlatformSources(SNAPSHOT))
    assert found is not None
    return found


def container(*args: str, gpus: int = 1, image: str = "vllm/vllm-openai:v0.32.0", **more: Any) -> Object:
    resources: Object = {"limits": {"cpu": "4", "memory": "32Gi"}}
    if gpus:
        resources["limits"]["nvidia.com/gpu"] = gpus
    return {"name": "vllm", "image": image, "args": list(args), "resources": resources, **more}


SHM = {"name": "shared", "mountPath": "/dev/shm"}
READ_ONLY: Object = {
    "securityContext": {"readOnlyRootFilesystem": True},
    "env": [{"name": "TMPDIR", "value": "/dev/shm"}],
}
"""For the image that was tried with a read-only root."""
IN_MEMORY = [{"name": "shared", "emptyDir": {"medium": "Memory"}}]


def deployment(*args: str, gpus: int = 1, nodes: Object | None = None, **more: Any) -> Object:
    """A server with shared memory, unless `volumeMounts` says otherwise."""
    vllm = container(*args, gpus=gpus, **{"volumeMounts": [SHM], **more})
    if "-cpu:" in vllm["image"]:
        vllm |= {**READ_ONLY, "env": [*READ_ONLY["env"], *vllm.get("env", ())]}
    spec = {"nodeSelector": L4 if nodes is None else nodes, "containers": [vllm], "volumes": IN_MEMORY}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {"template": {"spec": spec}},
    }


def dense(*more: str, **options: Any) -> Object:
    """8B parameters in 16 bits on one L4: it fits."""
    return deployment(f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16", *more, **options)


def experts(*more: str, **options: Any) -> Object:
    """30B parameters of experts in 16 bits on four L4: they fit."""
    args = (f"--model={EXPERTS}", "--tensor-parallel-size=4", "--max-model-len=8192", "--max-num-seqs=16")
    return deployment(*args, *more, **{"gpus": 4, **options})


def inference_service(*args: str, gpus: int = 1, runtime: str = "neuroscale-vllm", **model: Any) -> Object:
    value = container(*args, gpus=gpus)
    del value["name"]
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {
            "predictor": {
                "nodeSelector": L4,
                "model": {
                    "modelFormat": {"name": "huggingface"},
                    "runtime": runtime,
                    "command": ["vllm", "serve"],
                    **value,
                    **model,
                },
            }
        },
    }


LOAD = {"failureThreshold": 80, "periodSeconds": 10}
ALIVE = {"failureThreshold": 7, "periodSeconds": 10}


def timed(*more: str, grace: int | None = 120, **probes: Object | None) -> Object:
    """A service whose probes and end leave it time."""
    given = {"startupProbe": LOAD, "livenessProbe": ALIVE, **probes}
    args = (f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16", "--shutdown-timeout=90", *more)
    value = inference_service(*args)
    value["spec"]["predictor"]["model"] |= {name: probe for name, probe in given.items() if probe is not None}
    if grace is not None:
        value["spec"]["predictor"]["terminationGracePeriodSeconds"] = grace
    return value


def found(knowledge: Knowledge | None, *objects: Object, environment: str = "") -> tuple[Finding, ...]:
    service = ServicePath(environment, "chat") if environment else None
    manifests = [one for value in objects for one in read_manifests(dump(value).encode(), FILE, service)]
    # Each call would judge all tripwires again, which takes most of its time. They have tests of their own.
    with mock.patch.object(gate, "tripwires", tuple):
        return evaluate_fit(manifests, runtimes_of(SNAPSHOT), lambda: knowledge).findings


def errors(knowledge: Knowledge, *objects: Object) -> dict[str, Finding]:
    return {one.rule: one for one in found(knowledge, *objects) if one.severity is Severity.ERROR}


def notices(knowledge: Knowledge, *objects: Object) -> dict[str, Finding]:
    return {one.rule: one for one in found(knowledge, *objects) if one.severity is Severity.NOTICE}


@pytest.mark.parametrize(
    "value",
    [
        dense(),
        dense("--tool-call-parser=llama3_json", "--enable-auto-tool-choice"),
        experts("--enable-expert-parallel", "--tool-call-parser=hermes", "--reasoning-parser=qwen3"),
        inference_service(f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16"),
        deployment(f"--model={GEMMA}", "--max-model-len=8192", nodes=H100),
    ],
    ids=["dense", "tools", "experts", "service", "images"],
)
def test_what_fits_passes_without_a_remark(knowledge: Knowledge, value: Object) -> None:
    assert found(knowledge, value) == ()


Spoil = Callable[[], Object]
SPOILT: dict[str, tuple[Spoil, str]] = {
    "unknown-argument": (lambda: dense("--max-model-length=4096"), "--max-model-len"),
    "removed-argument": (lambda: dense("--disable-log-requests"), "--enable-log-requests"),
    "ambiguous-argument": (lambda: dense("--max-num=4"), "could match"),
    "incomplete-argument": (lambda: dense("--seed"), "--seed"),
    "argument-value": (lambda: dense("--kv-cache-dtype=fp9"), "fp9"),
    "stray-word": (lambda: dense("extra"), "extra"),
    "ends-at-once": (lambda: dense("--help"), "ends"),
    "argument-range": (lambda: dense("--gpu-memory-utilization=1.5"), "1.5"),
    "no-model": (lambda: deployment("--max-model-len=8192"), "Qwen/Qwen3-0.6B"),
    "ignored-argument": (
        lambda: deployment(DENSE, command=["python3", "-m", "vllm.entrypoints.openai.api_server"]),
        "--model",
    ),
    "tool-choice-without-parser": (lambda: dense("--enable-auto-tool-choice"), "--tool-call-parser"),
    "unknown-tool-parser": (lambda: dense("--tool-call-parser=llama5"), "llama5"),
    "unknown-reasoning-parser": (lambda: dense("--reasoning-parser=llama5"), "llama5"),
    "unknown-quantization": (lambda: dense("--quantization=fp3"), "fp3"),
    "parser": (lambda: dense("--tool-call-parser=gemma4"), "llama3_json"),
    "outputs-without-requests": (lambda: dense("--enable-log-outputs"), "--enable-log-requests"),
    "context-length": (lambda: dense("--max-model-len=200000"), "131072"),
    "expert-parallelism": (lambda: dense("--enable-expert-parallel"), "dense"),
    "data-parallelism": (
        lambda: deployment(f"--model={GEMMA}", "--data-parallel-size=2", gpus=2, nodes=H100),
        "38999",
    ),
    "attention-heads": (lambda: dense("--tensor-parallel-size=3"), "32 attention heads"),
    "accelerator-count": (lambda: experts(gpus=8), "4 of them idle"),
    "media-limit": (lambda: dense('--limit-mm-per-prompt={"image": -1}'), "-1"),
    "batched-tokens": (lambda: dense("--max-num-batched-tokens=8"), "--max-num-seqs=16"),
    "whole-prompts": (lambda: dense("--no-enable-chunked-prefill", "--max-num-batched-tokens=4096"), "one step"),
    "kv-cache-dtype": (lambda: dense("--kv-cache-dtype=fp8", nodes=A100), "fp8"),
    "does-not-fit": (lambda: dense("--max-model-len=131072"), "GiB short"),
    "random-weights": (lambda: dense("--load-format=dummy"), "random weights"),
    "ends-later": (
        lambda: dense(command=["timeout", "60", "vllm", "serve"]),
        "timeout 60",
    ),
}


def asked(port: Object | int | str = 8080, **more: Any) -> Object:
    """Probes that ask a port."""
    probe = {"httpGet": {"path": "/health", "port": port, **more}, "failureThreshold": 80}
    return {"startupProbe": probe, "readinessProbe": probe}


def served(*more: str, **model: Any) -> Object:
    """A service on port 8080, whose probes ask there."""
    args = (f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16", "--port=8080", *more)
    return inference_service(*args, **{"ports": [{"containerPort": 8080}], **asked(), **model})


HANDLER = "CUSTOM_FASTAPI_INVOCATION_HANDLER"
KEYED = [{"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "chat", "key": "api-key"}}}]
HANDLED = [*KEYED, {"name": HANDLER, "value": "platform:python_implementation"}]
FROM_SECRET = {"valueFrom": {"secretKeyRef": {"name": "chat", "key": "mode"}}}
TLS = ("--ssl-keyfile=/tls/tls.key", "--ssl-certfile=/tls/tls.crt")
MOUNTED = [{"name": "tls", "mountPath": "/tls"}]


@pytest.mark.parametrize(
    ("value", "rule", "told"),
    [
        (served("--port=9000"), "wrong-port", "startupProbe asks port 8080"),
        (dense("--port=9000", **asked(8000)), "wrong-port", "asks port 8000"),
        (dense(**asked(8080)), "wrong-port", "listens on port 8000"),
        (dense("--port=9000", ports=[{"name": "web", "containerPort": 80}], **asked("web")), "wrong-port", "port 80"),
        (served(ports=[{"containerPort": 80}]), "wrong-port", "requests come to port 80"),
        (dense("--host=127.0.0.1", **asked(8000)), "not-reachable", "--host=127.0.0.1"),
        (served("--host=localhost", startupProbe=None, readinessProbe=None), "not-reachable", "--host=localhost"),
        (served("--uds=/tmp/vllm.sock"), "not-reachable", "--uds=/tmp/vllm.sock"),
        (served(*TLS), "missing-file", "no volume is mounted"),
        (served(*TLS, volumeMounts=MOUNTED), "wrong-port", "scheme: HTTP"),
        (dense(resources={"limits": {"memory": "64Mi", "nvidia.com/gpu": 1}}), "host-memory", "64 MiB"),
        (
            dense(command=["sh", "-c", f"exec timeout -k 5 60s vllm serve {DENSE} --max-model-len=8192"], args=[]),
            "ends-later",
            "timeout 60s",
        ),
        (served(env=KEYED), "keyless-path", "/invocations"),
        (served(env=[*HANDLED, {"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]), "keyless-path", "DEV_MODE=1"),
    ],
)
def test_a_server_that_nobody_reaches_or_anybody_may_ask_is_found(
    knowledge: Knowledge, value: Object, rule: str, told: str
) -> None:
    assert told in errors(knowledge, value)[rule].message


def test_the_memory_that_is_advised_is_what_the_planner_gives(knowledge: Knowledge) -> None:
    little: dict[str, Any] = {"resources": {"limits": {"memory": "64Mi", "nvidia.com/gpu": 1}}}
    assert "to 32Gi, as a plan gives" in errors(knowledge, dense(**little))["host-memory"].fix
    path = ROOT / "manifests/local/tiny-moe/inferenceservice.yaml"
    rendered = yaml.safe_load(path.read_text())
    resources = rendered["spec"]["predictor"]["model"]["resources"]
    planned, resources["limits"]["memory"] = resources["limits"]["memory"], "64Mi"
    (fault,) = (one for one in found(knowledge, rendered, environment="local") if one.rule == "host-memory")
    assert f"to {planned}, as a plan gives" in fault.fix
    unknown = errors(knowledge, deployment("--model=/mnt/unknown", **little))["host-memory"]
    assert unknown.fix.endswith("neuroscale plan computes it.")


@pytest.mark.parametrize(
    "value",
    [
        served(),
        served(env=HANDLED),
        served(env=[*HANDLED, {"name": "VLLM_SERVER_DEV_MODE", "value": "0"}]),
        served("--host=0.0.0.0"),
        served(*TLS, volumeMounts=MOUNTED, **asked(scheme="HTTPS")),
        dense("--port=9000", ports=[{"name": "web", "containerPort": 9000}], **asked("web")),
        dense("--port=9000", **asked(80, host="example.com")),
        dense("--host=127.0.0.1"),
        dense(command=["timeout", "0", "vllm", "serve"]),
        dense(livenessProbe={"exec": {"command": ["true"]}}),
    ],
)
def test_a_server_that_is_reached_in_its_own_way_passes(knowledge: Knowledge, value: Object) -> None:
    assert errors(knowledge, value) == {}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (served("--port=$(PORT)", env=[{"name": "PORT", **FROM_SECRET}]), "PORT gets its value in the cluster"),
        (served("--host=$(HOST)", env=[{"name": "HOST", **FROM_SECRET}]), "HOST gets its value in the cluster"),
        (served(env=[*HANDLED, {"name": "VLLM_SERVER_DEV_MODE", **FROM_SECRET}]), "VLLM_SERVER_DEV_MODE lets in"),
        (served(env=[*KEYED, {"name": HANDLER, **FROM_SECRET}]), "INVOCATION_HANDLER lets in"),
    ],
)
def test_how_a_server_is_reached_by_values_of_the_cluster_is_not_judged(
    knowledge: Knowledge, value: Object, told: str
) -> None:
    said = found(knowledge, value)
    assert {one.rule for one in said} == {"not-judged"}
    assert any(told in one.message for one in said)


def with_volume(path: str, limit: str | None, *args: str, gpus: int = 1, medium: str = "", **more: Any) -> Object:
    """8B parameters in 16 bits, with an emptyDir at a path."""
    value = dense(*args, gpus=gpus, volumeMounts=[{"name": "room", "mountPath": path}], **more)
    empty = {"sizeLimit": limit} if limit else {}
    value["spec"]["template"]["spec"]["volumes"] = [{"name": "room", "emptyDir": {**empty, "medium": medium}}]
    return value


TWO = ("--tensor-parallel-size=2",)


def shared(limit: str, **more: Any) -> Object:
    return with_volume("/dev/shm", limit, *TWO, gpus=2, medium="Memory", **more)


HUB_HOME = [{"name": "HOME", "value": "/home/vllm"}]
OFFLINE = [*HUB_HOME, {"name": "HF_HUB_OFFLINE", "value": "1"}]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (with_volume("/home/vllm", "1Gi", env=HUB_HOME), "to /home/vllm/.cache/huggingface/hub"),
        (with_volume("/cache", "2Gi", env=[*HUB_HOME, {"name": "HF_HOME", "value": "/cache/hf"}]), "/cache/hf/hub"),
        (with_volume("/files", "2Gi", "--download-dir=/files"), "holds 2.0 GiB"),
        (with_volume("/home/vllm", "1Mi", env=OFFLINE), "in /home/vllm/.cache/vllm"),
        (with_volume("/c", "1Mi", env=[*OFFLINE, {"name": "VLLM_CACHE_ROOT", "value": "/c/vllm"}]), "in /c/vllm"),
        (shared("1Mi"), "holds 1 MiB"),
        # Ten chunks of 16 MiB, and the bytes that say who has read them.
        (shared("160Mi"), "a queue of 160 MiB"),
        (shared("161Mi", env=[{"name": "VLLM_MQ_MAX_CHUNK_BYTES_MB", "value": "32"}]), "320 MiB"),
    ],
)
def test_a_volume_that_is_sure_to_be_too_small_is_found(knowledge: Knowledge, value: Object, told: str) -> None:
    finding = errors(knowledge, value)["small-volume"]
    assert told in finding.message
    assert "sizeLimit" in finding.fix


@pytest.mark.parametrize(
    "value",
    [
        with_volume("/home/vllm", "20Gi", env=HUB_HOME),
        with_volume("/home/vllm", None, env=HUB_HOME),
        with_volume("/home/vllm", "0", env=HUB_HOME),
        with_volume("/home/vllm/other", "1Mi", env=HUB_HOME),
        with_volume("/home/vllm", "1Mi"),  # which user the image has is not told
        with_volume("/home/vllm", "1Mi", env=[{"name": "HOME", **FROM_SECRET}]),
        with_volume("/home/vllm", "1Mi", "--enforce-eager", env=OFFLINE),
        with_volume("/home/vllm", "1Mi", env=[*OFFLINE, {"name": "VLLM_DISABLE_COMPILE_CACHE", "value": "1"}]),
        with_volume("/home/vllm", "3Mi", env=OFFLINE),  # how much more a real model takes is not known
        with_volume("/home/vllm", "1Gi", "--load-format=runai_streamer", env=HUB_HOME),
        with_volume("/dev/shm", "1Mi", medium="Memory"),  # one rank asks nobody
        shared("161Mi"),
        with_volume("/dev/shm", "1Mi", *TWO, gpus=2),  # a disk: what is free of it is the node's
        with_volume("/dev/shm", "1Mi", *TWO, "--distributed-executor-backend=ray", gpus=2, medium="Memory"),
    ],
)
def test_a_volume_that_may_do_passes(knowledge: Knowledge, value: Object) -> None:
    assert "small-volume" not in {one.rule for one in found(knowledge, value)}


def without(*args: str, gpus: int = 2, mounts: Any = (), pod: Object | None = None, **more: Any) -> Object:
    """8B parameters on several accelerators, with nothing at /dev/shm."""
    value = dense(*args, gpus=gpus, volumeMounts=list(mounts), **more)
    value["spec"]["template"]["spec"] |= pod or {}
    return value


PIPELINE = ("--pipeline-parallel-size=2",)
SMALLER = [{"name": "VLLM_MQ_MAX_CHUNK_BYTES_MB", "value": "4"}]
TWO_ON_CPU: Object = {"nodes": {}, "image": "vllm/vllm-openai-cpu:v0.32.0", "gpus": 0}


@pytest.mark.parametrize(
    ("value", "severity", "told"),
    [
        (
            without(*TWO),
            Severity.ERROR,
            "a queue of 160 MiB in /dev/shm, and a container without a volume there has 64",
        ),
        (without(*PIPELINE), Severity.ERROR, "a queue of 160 MiB"),
        (without(*TWO, "--distributed-executor-backend=mp"), Severity.ERROR, "a queue of 160 MiB"),
        (without(*TWO, mounts=[{"name": "shared", "mountPath": "/dev/shm2"}]), Severity.ERROR, "160 MiB"),
        (
            without(*TWO, **TWO_ON_CPU, env=[{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "2"}]),
            Severity.ERROR,
            "160 MiB",
        ),
        (without(*TWO, nodes={"nobody.example.com/knows": "it"}), Severity.ERROR, "a queue of 160 MiB"),
        (without(*TWO, "--distributed-executor-backend=ray"), Severity.NOTICE, "2 ranks share 64 MiB"),
        (without(*TWO, env=SMALLER), Severity.NOTICE, "on GPUs by NCCL"),
        (without("--data-parallel-size=2"), Severity.NOTICE, "2 ranks share 64 MiB"),
        (
            without(*TWO, mounts=[SHM], pod={"volumes": [{"name": "shared", "emptyDir": {}}]}),
            Severity.NOTICE,
            "a volume on the node's disk",
        ),
        (inference_service(f"--model={DENSE}", *TWO, "--max-model-len=8192", gpus=2), Severity.ERROR, "160 MiB"),
    ],
)
def test_ranks_without_shared_memory_are_found(
    knowledge: Knowledge, value: Object, severity: Severity, told: str
) -> None:
    (finding,) = (one for one in found(knowledge, value) if one.rule == "no-shared-memory")
    assert (finding.severity, told in finding.message) == (severity, True)
    assert "medium: Memory" in finding.fix


def built_in_on_two() -> Object:
    """A service on two accelerators by KServe's own runtime, which mounts /dev/shm."""
    value = inference_service(runtime="kserve-vllmserver", gpus=2, storageUri=f"hf://{DENSE}", args=[*TWO])
    del value["spec"]["predictor"]["model"]["command"]
    return value


@pytest.mark.parametrize(
    "value",
    [
        without(gpus=1),  # one rank asks nobody
        without(*TWO, pod={"hostIPC": True}),
        without(*TWO, mounts=[{"name": "shared", "mountPath": "/dev"}]),
        without(*TWO, mounts=[SHM], pod={"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "a"}}]}),
        built_in_on_two(),
    ],
)
def test_ranks_with_shared_memory_pass(knowledge: Knowledge, value: Object) -> None:
    assert "no-shared-memory" not in {one.rule for one in found(knowledge, value)}


def test_a_runtimes_shared_memory_counts_for_its_service(knowledge: Knowledge) -> None:
    serving = {"name": "kserve-container", "command": ["vllm", "serve"], "image": "vllm/vllm-openai:v0.32.0"}
    runtime = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": "own", "namespace": "team-alpha"},
        "spec": {"containers": [{**serving, "volumeMounts": [SHM]}], "volumes": IN_MEMORY},
    }
    service = inference_service(f"--model={DENSE}", *TWO, "--max-model-len=8192", gpus=2, runtime="own")
    assert "no-shared-memory" not in {one.rule for one in found(knowledge, runtime, service)}
    runtime["spec"] = {"containers": [serving]}
    assert "no-shared-memory" in errors(knowledge, runtime, service)


@pytest.mark.parametrize("rule", SPOILT)
def test_each_way_to_spoil_a_command_is_found(knowledge: Knowledge, rule: str) -> None:
    spoil, told = SPOILT[rule]
    finding = errors(knowledge, spoil())[rule]
    assert told in f"{finding.message} {finding.fix}"
    assert finding.gate == "fit"
    assert finding.fix


SHORT = {"failureThreshold": 10, "periodSeconds": 10}


@pytest.mark.parametrize(
    ("value", "rule", "severity", "told"),
    [
        (timed(startupProbe=SHORT), "startup-probe-too-short", Severity.ERROR, "Kubernetes ends it while it loads"),
        (timed(startupProbe={"periodSeconds": "ten"}), "startup-probe-too-short", Severity.ERROR, "periodSeconds"),
        (timed(startupProbe=None), "startup-probe-too-short", Severity.ERROR, "Add a startupProbe"),
        (
            timed(livenessProbe={"failureThreshold": 2, "periodSeconds": 5}),
            "liveness-probe-impatient",
            Severity.NOTICE,
            "answers nothing for 5 s",
        ),
        (timed("--shutdown-timeout=0"), "answers-cut-off", Severity.NOTICE, "drops open answers"),
        (timed(grace=None), "answers-cut-off", Severity.NOTICE, "the 30 s"),
    ],
    ids=["short", "not a number", "liveness alone", "impatient", "no drain", "no grace"],
)
def test_a_server_is_given_the_time_to_start_and_to_end(
    knowledge: Knowledge, value: Object, rule: str, severity: Severity, told: str
) -> None:
    assert found(knowledge, timed(), environment="dev") == ()
    finding = next(iter(found(knowledge, value, environment="dev")))
    assert (finding.rule, finding.severity) == (rule, severity)
    assert told in f"{finding.message} {finding.fix}"


def test_what_the_fix_of_a_short_probe_says_passes(knowledge: Knowledge) -> None:
    finding = found(knowledge, timed(startupProbe=SHORT), environment="dev")[0]
    failures, period = map(int, re.findall(r"failureThreshold: (\d+) with periodSeconds: (\d+)", finding.fix)[0])
    better = {"failureThreshold": failures, "periodSeconds": period}
    assert found(knowledge, timed(startupProbe=better), environment="dev") == ()


def test_a_services_probe_is_laid_over_its_runtimes(knowledge: Knowledge) -> None:
    """The service changes one number of the probe, and the rest of it stays the runtime's."""
    runtime: Object = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": "own", "namespace": "team-alpha"},
        "spec": {"containers": [{"name": "kserve-container", "startupProbe": {"periodSeconds": 60}}]},
    }
    value = timed(startupProbe={"failureThreshold": 13})
    value["spec"]["predictor"]["model"]["runtime"] = "own"
    assert found(knowledge, runtime, value, environment="dev") == ()
    runtime["spec"]["containers"][0]["startupProbe"] = {"periodSeconds": 1}
    assert [one.rule for one in found(knowledge, runtime, value, environment="dev")] == ["startup-probe-too-short"]


def test_how_long_a_start_takes_is_not_told_of_an_unknown_environment(knowledge: Knowledge) -> None:
    (finding,) = found(knowledge, timed(startupProbe=SHORT), environment="moon")
    assert (finding.rule, finding.severity) == ("not-judged", Severity.NOTICE)
    assert "probes" in finding.message


def test_variables_that_move_memory_are_planned_or_said(knowledge: Knowledge) -> None:
    def with_variable(name: str, value: str) -> Object:
        arguments = (f"--model={DENSE}", "--max-model-len=8192", "--gpu-memory-utilization=0.96")
        return deployment(*arguments, env=[{"name": name, "value": value}])

    assert "does-not-fit" not in errors(knowledge, with_variable("VLLM_LOGGING_LEVEL", "INFO"))
    # Without an estimate of the graphs they come on top of a share that leaves no room for them.
    refused = errors(knowledge, with_variable("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "0"))["does-not-fit"]
    assert "after the cache has its share" in refused.message
    assert "VLLM_MLA_DISABLE" in notices(knowledge, with_variable("VLLM_MLA_DISABLE", "1"))["not-judged"].message


def test_backends_that_are_set_by_hand_are_refused_served_or_said_not_to_be_judged(knowledge: Knowledge) -> None:
    refused = errors(knowledge, dense("--attention-backend=FLASH_ATTN", "--kv-cache-dtype=fp8"))["does-not-fit"]
    assert "reads no KV cache in fp8" in refused.message
    assert "Leave the backends" in refused.fix
    assert not found(knowledge, dense("--attention-backend=FLASH_ATTN"))
    for words in ("--attention-backend=CUSTOM", "--linear-backend=marlin"):
        notice = notices(knowledge, dense(words))["not-judged"]
        assert words.partition("=")[0] in notice.message
        assert notice.fix == "Leave the choice to vLLM, or measure a start."


@pytest.mark.parametrize(
    "served",
    [lambda probe: timed(startupProbe=probe), lambda probe: deployment("--model=example/unknown", startupProbe=probe)],
    ids=["a model of the catalog", "an unknown model"],
)
def test_a_probe_that_is_too_short_for_any_start_is_found_without_an_environment(
    knowledge: Knowledge, served: Callable[[Object], Object]
) -> None:
    (finding,) = errors(knowledge, served({"failureThreshold": 3, "periodSeconds": 5})).values()
    assert finding.rule == "startup-probe-too-short"
    assert "waits 10 s" in finding.message
    failures, period = map(int, re.findall(r"failureThreshold: (\d+) with periodSeconds: (\d+)", finding.fix)[0])
    assert errors(knowledge, served({"failureThreshold": failures, "periodSeconds": period})) == {}


@pytest.mark.parametrize(
    ("probes", "rules"),
    [
        ({"startupProbe": {"failureThreshold": 5, "periodSeconds": 5}}, ["not-judged"]),
        ({"startupProbe": {"failureThreshold": 400, "periodSeconds": 10}}, []),
        ({"startupProbe": None, "livenessProbe": None}, []),
        ({"startupProbe": None, "livenessProbe": {"periodSeconds": 2}}, ["startup-probe-too-short"]),
        ({"startupProbe": {"periodSeconds": "ten"}}, ["startup-probe-too-short"]),
    ],
)
def test_what_waits_for_the_slowest_known_environment_is_judged_without_one(
    knowledge: Knowledge, probes: Object, rules: list[str]
) -> None:
    assert [one.rule for one in found(knowledge, timed(**probes))] == rules


def labelled(value: Object, *at: str, **labels: str) -> Object:
    """The object with model labels, on itself or at a place in it."""
    value = copy.deepcopy(value)
    holder = value
    for part in at or ("metadata",):
        holder = holder.setdefault(part, {})
    holder["labels"] = {name.replace("_", "-"): text for name, text in labels.items()}
    return value


RIGHT = {"model_architecture": "moe", "active_param_ratio": "0.11", "total_params": "30.5B"}
POD = ("spec", "template", "metadata")


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (labelled(experts(), **{**RIGHT, "total_params": "1M"}), ["total-params"]),
        (labelled(experts(), **{**RIGHT, "total_params": "30.5T"}), ["total-params"]),
        (labelled(experts(), **{**RIGHT, "active_param_ratio": "0.0001"}), ["active-param-ratio"]),
        (labelled(experts(), **{**RIGHT, "active_param_ratio": "0.5"}), ["active-param-ratio"]),
        (labelled(experts(), *POD, **{**RIGHT, "active_param_ratio": "0.5"}), ["active-param-ratio"]),
        (labelled(experts(), model_architecture="dense"), ["model-architecture"]),
        (labelled(dense(), **RIGHT), ["model-architecture", "total-params"]),
        (labelled(timed(), total_params="80B"), ["total-params"]),
    ],
)
def test_labels_of_another_model_are_found(knowledge: Knowledge, value: Object, labels: list[str]) -> None:
    found_here = [one for one in found(knowledge, value) if one.rule == "model-labels"]
    assert [next(name for name in labels if f"the label {name} " in one.message) for one in found_here] == labels
    assert {one.severity for one in found_here} == {Severity.ERROR}


def canary(model: str) -> Object:
    """A service of a dense model with a canary of another one."""
    value = labelled(timed(), model_architecture="dense", active_param_ratio="1.0", total_params="8B")
    other = copy.deepcopy(value["spec"]["predictor"])
    other["model"]["args"][0] = f"--model={model}"
    value["spec"]["canary"] = [{"trafficPercent": 10, "predictor": other}]
    return value


@pytest.mark.parametrize(
    "value",
    [
        labelled(experts(), **RIGHT),
        labelled(experts(), *POD, **{**RIGHT, "active_param_ratio": "0.1", "total_params": "31000M"}),
        labelled(dense(), model_architecture="dense", active_param_ratio="1", total_params="8.03B"),
        labelled(dense(), total_params="large", model_architecture="big"),  # the policy refuses these
        labelled(deployment("--model=someone/unknown"), **RIGHT),
        canary(EXPERTS),
    ],
)
def test_labels_of_the_model_pass_and_those_of_an_unknown_one_are_not_judged(
    knowledge: Knowledge, value: Object
) -> None:
    assert not [one for one in found(knowledge, value) if one.rule == "model-labels"]


def test_labels_that_the_planner_writes_are_those_of_the_models(knowledge: Knowledge) -> None:
    values = []
    for number, (name, entry) in enumerate(knowledge.catalog.models.items()):
        facts = entry.facts
        value = labelled(
            deployment(f"--model={name}", nodes={}),  # on an accelerator, what fits would be computed as well
            model_architecture=facts.kind,
            active_param_ratio=ratio_label(facts.kind, facts.active_params / facts.total_params),
            total_params=parameters_label(facts.total_params),
        )
        value["metadata"]["name"] = f"chat-{number}"
        values.append(value)
    assert [one.message for one in found(knowledge, *values) if one.rule == "model-labels"] == []
    values[-1]["metadata"]["labels"]["total-params"] = "1B"
    assert [one.rule for one in found(knowledge, values[-1]) if one.rule == "model-labels"] == ["model-labels"]


def test_no_rule_goes_without_a_test() -> None:
    code = "".join(
        (ROOT / f"src/neuroscale/{name}.py").read_text()
        for name in (
            *("vllm/accelerator_rules", "vllm/command_rules", "vllm/model_rules"),
            *("gate/fit/judgement", "gate/fit/reachability", "gate/fit/vllm_containers"),
        )
    )
    rules = set(re.findall(r'(?:Fault|_say|_undivided)\(\s*"([a-z-]+)"', code)) | set(RULES.values())
    tests = Path(__file__).read_text() + (ROOT / "tests/vllm/test_vllm_checks.py").read_text()
    assert {rule for rule in rules if f'"{rule}"' not in tests} == set()


def test_a_finding_stands_at_the_line_of_its_argument(knowledge: Knowledge) -> None:
    text = textwrap.dedent(f"""\
        apiVersion: v1
        kind: Pod
        metadata: {{name: chat}}
        spec:
          nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-l4}}
          containers:
            - name: vllm
              image: vllm/vllm-openai:v0.32.0
              args:
                - --model={DENSE}
                - --max-model-len=8192
                - --swap-space
                - "4"
              resources: {{limits: {{nvidia.com/gpu: 1}}}}
        """)
    evaluation = evaluate_fit(read_manifests(text.encode(), FILE), lambda _: None, lambda: knowledge)
    (finding,) = evaluation.findings
    assert (finding.file, finding.line, finding.rule) == (FILE, 12, "removed-argument")
    assert finding.subject == "Pod chat"


@pytest.mark.parametrize("kind", ["31B", "26B"])
def test_a_large_model_in_16_bits_on_an_l4_is_refused_with_what_would_work(knowledge: Knowledge, kind: str) -> None:
    name = next(one for one in knowledge.catalog.models if kind in one and one.endswith("it"))
    finding = errors(knowledge, deployment(f"--model={name}", "--max-model-len=8192"))["does-not-fit"]
    assert "weights" in finding.message
    assert "These would fit" in finding.fix


def test_a_service_and_its_runtime_are_judged_as_kserve_joins_them(knowledge: Knowledge) -> None:
    runtime = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "theirs"},
        "spec": {
            "containers": [
                {
                    "name": "kserve-container",
                    "image": "vllm/vllm-openai:v0.32.0",
                    "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
                    "args": [f"--model={DENSE}", "--max-num-seqs=16", "--served-model-name={{.Name}}"],
                }
            ]
        },
    }
    service = inference_service("--max-model-len=8192", runtime="theirs")
    for key in ("command", "image"):
        del service["spec"]["predictor"]["model"][key]
    assert found(knowledge, runtime, service) == ()
    service["spec"]["predictor"]["model"]["args"] = ["--max-model-len=131072"]
    assert set(errors(knowledge, runtime, service)) == {"does-not-fit"}
    service["spec"]["predictor"]["model"]["args"] = ["--max-model-len=8192"]
    runtime["spec"]["containers"][0]["args"].append("--disable-log-requests")  # type: ignore[index]
    finding = errors(knowledge, runtime, service)["removed-argument"]
    assert finding.line is not None


def test_what_kserve_fills_in_from_elsewhere_is_not_judged(knowledge: Knowledge) -> None:
    args = (f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16")
    named = inference_service(*args, "--served-model-name={{.Name}}", "--seed=$(SEED)")
    named["spec"]["predictor"]["model"]["env"] = [{"name": "SEED", "value": "{{ .Namespace }}"}]
    assert errors(knowledge, named)["argument-value"].message.startswith("team-alpha")
    labelled = inference_service(*args, "--dtype={{.Labels.dtype}}")
    assert set(notices(knowledge, labelled)) == {"not-judged"}
    assert not errors(knowledge, labelled)


def test_an_llm_service_is_run_by_a_script_that_reads_its_words_anew(knowledge: Knowledge) -> None:
    value = llm_service(parallelism={"tensor": 4})
    main = value["spec"]["template"]["containers"][0]
    fits = ["--max-model-len=8192", "--max-num-seqs=16"]
    main["args"] = [*fits, '--compilation-config={"mode": 3}']
    assert "argument-value" in errors(knowledge, value)
    main["args"] = [*fits, """--compilation-config='{"mode": 3}'""", "--seed 3"]
    assert found(knowledge, value) == ()


def test_a_namespaced_runtime_comes_before_a_clusters(knowledge: Knowledge) -> None:
    def runtime(kind: str, model: str) -> Object:
        serving = {"name": "kserve-container", "image": "vllm/vllm-openai:v0.32.0", "args": [f"--model={model}"]}
        metadata = {"name": "both"} | ({"namespace": "team-alpha"} if kind == "ServingRuntime" else {})
        return {
            "apiVersion": "serving.kserve.io/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": {"containers": [serving]},
        }

    service = inference_service("--max-model-len=8192", "--max-num-seqs=16", runtime="both")
    objects = (runtime("ServingRuntime", DENSE), runtime("ClusterServingRuntime", "google/gemma-4-31B-it"), service)
    assert found(knowledge, *objects) == ()
    assert "does-not-fit" in errors(knowledge, objects[1], service)


def test_an_unknown_runtime_hides_part_of_the_command_and_the_gate_says_so(knowledge: Knowledge) -> None:
    service = inference_service(f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16", runtime="unknown")
    assert "unknown is not among the files" in notices(knowledge, service)["not-judged"].message
    assert errors(knowledge, service) == {}
    assert set(errors(knowledge, inference_service("--model=m", "--swap-space=4", runtime="unknown"))) == {
        "removed-argument"
    }


def test_kserves_own_runtime_for_vllm_is_known(knowledge: Knowledge) -> None:
    service = inference_service("--max-model-len=8192", runtime="kserve-vllmserver")
    model = service["spec"]["predictor"]["model"]
    for key in ("command", "image"):
        del model[key]
    model["storageUri"] = f"hf://{DENSE}"
    model["args"].append("--max-num-seqs=16")
    # Which vLLM it is depends on the KServe of the cluster.
    assert set(notices(knowledge, service)) == {"not-judged"}
    assert errors(knowledge, service) == {}
    model["args"] = ["--max-model-len=131072"]
    assert "does-not-fit" in errors(knowledge, service)


@pytest.mark.parametrize(
    ("source", "args"),
    [
        (f"hf://{DENSE}", "--model=/mnt/models"),
        (f"hf://{DENSE}:main", "--model=/mnt/models"),
        ("", f"--model={DENSE}"),
    ],
)
def test_the_model_is_known_by_where_its_files_come_from(knowledge: Knowledge, source: str, args: str) -> None:
    storage: Object = {"storageUri": source} if source else {}
    assert found(knowledge, inference_service(args, "--max-model-len=8192", "--max-num-seqs=16", **storage)) == ()
    large = inference_service(args, "--max-model-len=131072", **storage)
    assert set(errors(knowledge, large)) == {"does-not-fit"}


def test_a_served_name_does_not_say_which_model_it_is(knowledge: Knowledge) -> None:
    service = inference_service("--model=/mnt/models", f"--served-model-name={DENSE}", storageUri="s3://other/model")
    assert "not in the catalog" in notices(knowledge, service)["not-judged"].message


SHELL = """\
set -e
# vllm serve is started below
export LENGTH=8192
exec vllm serve {model} --max-model-len=${{LENGTH}} \\
  --max-num-seqs ${{SEQS:-16}} $MORE 2>&1
"""


def test_a_command_in_a_shells_script_is_read(knowledge: Knowledge) -> None:
    def script(text: str, **variables: str) -> Object:
        env = [{"name": name, "value": value} for name, value in variables.items()]
        return deployment(text, command=["/bin/bash", "-c"], env=env)

    good = SHELL.format(model=DENSE)
    assert found(knowledge, script(good, MORE="--enforce-eager")) == ()
    assert set(errors(knowledge, script(good, MORE="--swap-space 4"))) == {"removed-argument"}
    assert set(errors(knowledge, script(good, MORE="--max-model-len 131072"))) == {"does-not-fit"}
    assert "$MORE" in notices(knowledge, script(good))["not-judged"].message
    hidden = script(good.replace("$MORE", "$(cat /etc/arguments)"))
    assert "another command" in notices(knowledge, hidden)["not-judged"].message


def test_what_comes_from_elsewhere_is_said_not_to_be_judged(knowledge: Knowledge) -> None:
    secret = {"name": "LENGTH", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
    plain = {"name": "LENGTH", "value": "8192"}
    args = (f"--model={DENSE}", "--max-num-seqs=16", "--max-model-len=$(LENGTH)")
    assert found(knowledge, deployment(*args, env=[plain])) == ()
    assert "LENGTH" in notices(knowledge, deployment(*args, env=[secret]))["not-judged"].message
    assert "envFrom" in notices(knowledge, deployment(*args, envFrom=[{}]))["not-judged"].message
    assert "not-judged" in notices(knowledge, dense("--config", "/etc/vllm.yaml"))
    own = deployment(command=["/start.sh"])
    assert "/start.sh" in notices(knowledge, own)["not-judged"].message


def test_unknown_models_accelerators_and_versions_are_said_not_to_be_judged(knowledge: Knowledge) -> None:
    unknown = notices(knowledge, deployment("--model=someone/unheard-of", "--max-model-len=8192"))
    assert "someone/unheard-of" in unknown["not-judged"].message
    assert "not-judged" in notices(knowledge, dense(nodes={"cloud.google.com/gke-accelerator": "nvidia-b300"}))
    assert "any of" in notices(knowledge, dense(nodes={}))["not-judged"].message
    older = dense("--swap-space=4", image="vllm/vllm-openai:v0.6.0")
    assert {"not-judged", "removed-argument"} <= set(notices(knowledge, older))
    assert "tag does not show" in notices(knowledge, dense(image="vllm/vllm-openai:latest"))["not-judged"].message
    no_gpu = deployment(f"--model={DENSE}", gpus=0)
    assert "asks for no accelerator" in notices(knowledge, no_gpu)["not-judged"].message
    assert all("not-judged" in notices(None, value) for value in (dense(), experts()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        ("0.9.0", ("--max-model-len=131072",)),
        ("0.10.2", ("--max-model-len=131072", "--enable-lora")),
        # What 0.10 read as a longer context is an argument that the known parser lacks.
        ("0.10.2", ("--max-model-len=200000", '--rope-scaling={"type": "yarn", "factor": 4.0}')),
    ],
)
def test_what_only_an_old_release_knows_is_no_finding_and_not_judged(
    knowledge: Knowledge, version: str, arguments: tuple[str, ...]
) -> None:
    old = dense(*arguments, image=f"vllm/vllm-openai:v{version}")
    assert errors(knowledge, old) == {}
    assert "not-judged" in notices(knowledge, old)
    assert errors(knowledge, dense(arguments[0], image="vllm/vllm-openai:v0.18.0"))


def test_a_product_of_nvidias_own_labels_names_the_accelerator(knowledge: Knowledge) -> None:
    assert found(knowledge, dense(nodes={"nvidia.com/gpu.product": "NVIDIA-L4"})) == ()
    a100 = dense("--max-model-len=131072", nodes={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    assert errors(knowledge, a100) == {}
    assert "does-not-fit" in errors(
        knowledge, dense("--max-model-len=131072", nodes={"nvidia.com/gpu.product": "NVIDIA-L4"})
    )


PRODUCT = "nvidia.com/gpu.product"
GKE_SLICE = "cloud.google.com/gke-gpu-partition-size"


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (A100 | {"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}, "gke-gpu-partition-size"),
        (L4 | {"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}, "gke-gpu-partition-size"),
        (H100 | {"cloud.google.com/gke-gpu-partition-size": "7g.80gb"}, "gke-gpu-partition-size"),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.10gb"}, "gke-gpu-partition-size"),
        (H100 | {GKE_SLICE: "1g.10gb", "cloud.google.com/gke-gpu-sharing-strategy": "mps"}, "gke-gpu-sharing-strategy"),
        (L4 | {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, "gke-gpu-sharing-strategy"),
        (L4 | {"cloud.google.com/gke-max-shared-clients-per-gpu": "4"}, "gke-max-shared-clients-per-gpu"),
        (L4 | {"nvidia.com/gpu.replicas": "4"}, "gpu.replicas"),
        (H100 | {"nvidia.com/mig-1g.10gb.count": "7"}, "mig-1g.10gb"),
        ({PRODUCT: "NVIDIA-L4-SHARED"}, "NVIDIA-L4-SHARED"),
        ({PRODUCT: "NVIDIA-L4-12Q"}, "NVIDIA-L4-12Q"),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, "MIG-1g.10gb"),
        (L4 | {PRODUCT: "NVIDIA-T4"}, "NVIDIA-T4"),
        (H100 | {PRODUCT: "NVIDIA-L4"}, "names another card"),
        ({"nvidia.com/gpu.family": "hopper"}, "gpu.family"),
        ({"node.kubernetes.io/instance-type": "g2-standard-4"}, "instance-type"),
        (L4 | {"nvidia.com/gpu.memory": "10240"}, "gpu.memory"),
    ],
)
def test_a_part_of_a_card_is_not_judged_as_a_whole_one(knowledge: Knowledge, nodes: Object, told: str) -> None:
    findings = found(knowledge, dense(nodes=nodes), environment="dev")
    assert any(one.rule == "not-judged" and told in one.message for one in findings)
    assert "does-not-fit" not in {one.rule for one in findings}


def a_slice(profile: str, nodes: Object, *, resource: str = "nvidia.com/gpu") -> Object:
    value = dense(nodes=nodes)
    limits = value["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits[resource.format(profile)] = limits.pop("nvidia.com/gpu")
    return value


@pytest.mark.parametrize(("profile", "fits"), [("1g.10gb", False), ("3g.40gb", True)])
def test_a_slice_of_the_catalog_is_judged_by_its_own_memory(knowledge: Knowledge, profile: str, fits: bool) -> None:
    mixed = a_slice(profile, {PRODUCT: "NVIDIA-H100-80GB-HBM3"}, resource="nvidia.com/mig-{}")
    for value in (mixed, a_slice(profile, H100 | {GKE_SLICE: profile})):
        rules = {one.rule for one in found(knowledge, value)}
        assert "not-judged" not in rules
        assert ("does-not-fit" in rules) is not fits


def test_amds_cards_are_judged_and_never_surely(knowledge: Knowledge) -> None:
    value = a_slice("", {"amd.com/gpu.device-id": "74a1"}, resource="amd.com/gpu")
    assert "build for cuda," in errors(knowledge, value)["image-build"].message
    value["spec"]["template"]["spec"]["containers"][0] |= {
        "image": "vllm/vllm-openai-rocm:v0.32.0",
        "command": ["vllm", "serve"],
    }
    assert errors(knowledge, value) == {}
    assert "tight" in str(notices(knowledge, value))
    value["spec"]["template"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai-cpu:v0.32.0"
    assert "image-build" in errors(knowledge, value)


@pytest.mark.parametrize(
    ("key", "operator", "values", "judged"),
    [
        ("nvidia.com/gpu.memory", "Lt", ["12000"], False),
        ("nvidia.com/gpu.memory", "Lt", ["24000"], True),
        ("nvidia.com/gpu.memory", "Gt", ["23000"], True),
        ("nvidia.com/gpu.memory", "Gt", ["40000"], False),
        ("nvidia.com/gpu.memory", "In", ["23034"], True),
        ("cloud.google.com/gke-gpu-sharing-strategy", "Exists", [], False),
        ("cloud.google.com/gke-gpu-sharing-strategy", "DoesNotExist", [], True),
        ("nvidia.com/gpu.replicas", "In", ["1"], True),
        (PRODUCT, "In", ["NVIDIA-L4"], True),
        (PRODUCT, "In", ["NVIDIA-L4", "NVIDIA-H200"], True),
        (PRODUCT, "In", ["NVIDIA-L4", "NVIDIA-L4-SHARED"], False),
    ],
)
def test_node_affinity_tells_of_a_part_of_a_card(
    knowledge: Knowledge, key: str, operator: str, values: list[str], judged: bool
) -> None:
    value = dense()
    rule = {"key": key, "operator": operator} | ({"values": values} if values else {})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    value["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    assert (found(knowledge, value) == ()) is judged


@pytest.mark.parametrize("kind", ["StatefulSet", "Pod", "CronJob", "RayJob"])
def test_pods_of_every_kind_are_found(knowledge: Knowledge, kind: str) -> None:
    pod = dense("--max-model-len=131072")["spec"]["template"]["spec"]
    spec = {
        "StatefulSet": {"template": {"spec": pod}},
        "Pod": pod,
        "CronJob": {"jobTemplate": {"spec": {"template": {"spec": pod}}}},
        "RayJob": {"clusters": [{"headGroupSpec": {"template": {"spec": pod}}}]},
    }[kind]
    value = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "chat"}, "spec": spec}
    assert set(errors(knowledge, value)) == {"does-not-fit"}


def test_what_does_not_run_vllm_is_left_alone(knowledge: Knowledge) -> None:
    value = dense()
    value["spec"]["template"]["spec"]["containers"] = [
        {"name": "web", "image": "nginx:1.29", "args": ["--swap-space"]},
        {"name": "shell", "image": "busybox:1", "command": ["sh", "-c"], "args": ["echo vllm"]},
        {"name": "router", "image": "example.com/vllm-router:1", "args": ["--port=80"]},
    ]
    evaluation = evaluate_fit(read_manifests(dump(value).encode(), FILE), lambda _: None, lambda: knowledge)
    assert (evaluation.findings, evaluation.evaluated) == ((), 0)


def test_what_takes_accelerators_and_may_not_be_vllm_is_said_not_to_be_judged(knowledge: Knowledge) -> None:
    pod = deployment(image="example.com/our-own-server:3")
    assert "nvidia.com/gpu" in notices(knowledge, pod)["not-judged"].message
    service = inference_service(
        runtime="kserve-tritonserver", image="nvcr.io/nvidia/tritonserver:25.01", command=["tritonserver"]
    )
    assert "kserve-tritonserver" in notices(knowledge, service)["not-judged"].message
    assert found(knowledge, deployment(image="example.com/our-own-server:3", gpus=0)) == ()


def test_a_sidecar_that_starts_with_the_pod_is_judged(knowledge: Knowledge) -> None:
    def pod(*args: str, **more: Any) -> Object:
        value = dense()
        inner = value["spec"]["template"]["spec"]
        inner["initContainers"] = [container(f"--model={DENSE}", "--max-num-seqs=16", *args, **more)]
        inner["containers"] = [{"name": "web", "image": "nginx:1.29"}]
        return value

    assert found(knowledge, pod("--max-model-len=8192", restartPolicy="Always")) == ()
    assert "does-not-fit" in errors(knowledge, pod("--max-model-len=131072", restartPolicy="Always"))
    assert "before the pod's own" in notices(knowledge, pod("--max-model-len=8192"))["not-judged"].message
    other = pod(image="example.com/converter:3")
    assert "nvidia.com/gpu" in notices(knowledge, other)["not-judged"].message
    # The image holds other programs, too: a download takes no accelerator.
    assert found(knowledge, pod(command=["hf", "download"], gpus=0)) == ()


def test_a_sidecar_of_kserves_own_kinds_is_judged(knowledge: Knowledge) -> None:
    sidecar = container(f"--model={DENSE}", "--max-model-len=131072", restartPolicy="Always")
    llm = llm_service(parallelism={"tensor": 4})
    llm["spec"]["template"]["containers"][0]["args"] = ["--max-model-len=8192", "--max-num-seqs=16"]
    assert found(knowledge, llm) == ()
    llm["spec"]["template"]["initContainers"] = [sidecar]
    assert "does-not-fit" in errors(knowledge, llm)
    service = inference_service(f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16")
    service["spec"]["predictor"]["initContainers"] = [sidecar]
    assert "does-not-fit" in errors(knowledge, service)


def test_a_predictor_of_a_format_is_a_model_of_that_format(knowledge: Knowledge) -> None:
    service = inference_service(f"--model={DENSE}")
    predictor = service["spec"]["predictor"]
    model = predictor.pop("model")
    predictor["huggingface"] = {"args": ["--swap-space=4"], "resources": model["resources"]}
    assert "format huggingface" in notices(knowledge, service)["not-judged"].message
    predictor["huggingface"] |= {"image": model["image"], "command": model["command"]}
    assert "removed-argument" in errors(knowledge, service)
    del predictor["huggingface"]
    predictor["sklearn"] = {"storageUri": "gs://models/iris"}
    assert found(knowledge, service) == ()


def test_devices_by_claims_are_accelerators_too(knowledge: Knowledge) -> None:
    value = deployment(image="example.com/our-own-server:3", gpus=0)
    inner = value["spec"]["template"]["spec"]
    inner["resourceClaims"] = [{"name": "card", "resourceClaimTemplateName": "l4"}]
    inner["containers"][0]["resources"]["claims"] = [{"name": "card"}]
    assert "the claim card" in notices(knowledge, value)["not-judged"].message


@pytest.mark.parametrize(
    ("image", "build"),
    [
        ("vllm/vllm-openai-cpu:v0.32.0", "cpu"),
        ("rocm/vllm:v0.32.0", "rocm"),
        ("vllm/vllm-openai-rocm:v0.32.0", "rocm"),
        ("example.com/mirror/vllm-openai:v0.32.0-rocm", "rocm"),
        ("vllm/vllm-tpu:v0.32.0", "tpu"),
        ("vllm/vllm-openai:v0.32.0", ""),
        ("example.com/tpu-team/vllm-openai:v0.32.0", ""),
        ("example.com/own/vllm:v0.32.0", ""),
    ],
)
def test_an_image_is_of_the_accelerators_build(knowledge: Knowledge, image: str, build: str) -> None:
    seen = errors(knowledge, dense(image=image, command=["vllm", "serve"]))
    assert set(seen) == ({"image-build"} if build else set())
    if build:
        assert f"build for {build}," in seen["image-build"].message


def test_a_stopped_service_runs_nothing(knowledge: Knowledge) -> None:
    service = inference_service(f"--model={DENSE}", "--max-model-len=131072")
    service["metadata"]["annotations"] = {"serving.kserve.io/stop": "true"}
    assert found(knowledge, service) == ()


def test_workers_count_with_their_head(knowledge: Knowledge) -> None:
    service = inference_service(f"--model={EXPERTS}", "--max-model-len=8192", "--max-num-seqs=16", gpus=2)
    predictor = service["spec"]["predictor"]
    predictor["workerSpec"] = {
        "tensorParallelSize": 2,
        "pipelineParallelSize": 2,
        "containers": [{"name": "worker", "resources": {"limits": {"nvidia.com/gpu": 2}}}],
    }
    predictor["model"]["args"] += ["--tensor-parallel-size=2", "--pipeline-parallel-size=2"]
    assert found(knowledge, service) == ()
    predictor["model"]["args"][-1] = "--pipeline-parallel-size=4"
    assert "accelerator-count" in errors(knowledge, service)


def llm_service(**spec: Any) -> Object:
    main = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 4}}, "image": "vllm/vllm-openai:v0.32.0"}
    return {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {
            "model": {"uri": f"hf://{EXPERTS}", "name": "chat"},
            "template": {"nodeSelector": L4, "containers": [main]},
            **spec,
        },
    }


def test_an_llm_service_is_judged_by_the_command_that_kserve_renders(knowledge: Knowledge) -> None:
    value = llm_service(parallelism={"tensor": 4})
    main = value["spec"]["template"]["containers"][0]
    main["args"] = ["--max-model-len=8192", "--max-num-seqs=16"]
    assert found(knowledge, value) == ()
    # KServe does not render the pipeline size: three of the accelerators idle, and one does not hold the model.
    lost = llm_service(parallelism={"pipeline": 4})
    assert {"accelerator-count", "does-not-fit"} <= set(errors(knowledge, lost))
    main["env"] = [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--swap-space 4"}]
    assert "removed-argument" in errors(knowledge, value)
    assert "not-judged" in notices(knowledge, llm_service(template=None, parallelism={"tensor": 4}))


@pytest.mark.parametrize("command", [None, ["vllm", "serve", f"--model={EXPERTS}", "--tensor-parallel-size=4"]])
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"baseRefs": [{"name": "theirs"}]}, "LLMInferenceServiceConfig"),
        ({"model": {"uri": f"hf://{EXPERTS}", "lora": {"adapters": [{"name": "a", "uri": "hf://a/b"}]}}}, "LoRA"),
        ({"kvCacheOffloading": {"cpu": "500Gi"}}, "--kv-transfer-config"),
    ],
)
def test_what_kserve_adds_to_an_llm_service_is_said_not_to_be_judged(
    knowledge: Knowledge, command: list[str] | None, more: Object, told: str
) -> None:
    def service(**spec: Any) -> Object:
        value = llm_service(parallelism={"tensor": 4}, **spec)
        main = value["spec"]["template"]["containers"][0]
        main["args"] = ["--max-model-len=8192", "--max-num-seqs=16"]
        if command is not None:
            main["command"] = command
        return value

    assert found(knowledge, service()) == ()
    assert told in notices(knowledge, service(**more))["not-judged"].message


def test_a_tpu_slice_is_used_whole(knowledge: Knowledge) -> None:
    card = knowledge.catalog.accelerators["tpu-v6e-4"]
    value = deployment(
        f"--model={GEMMA}", "--tensor-parallel-size=2", "--max-model-len=4096", gpus=0, nodes=dict(card.node_selector)
    )
    pod = value["spec"]["template"]["spec"]["containers"][0]
    pod["image"], pod["command"] = "vllm/vllm-tpu:v0.32.0", ["vllm", "serve"]
    pod["resources"]["limits"]["google.com/tpu"] = 4
    assert "2x2" in errors(knowledge, value)["tpu-topology"].message
    pod["args"][1] = "--tensor-parallel-size=4"
    assert "tpu-topology" not in errors(knowledge, value)


def test_quantised_groups_stay_whole(knowledge: Knowledge) -> None:
    name = "google/gemma-4-26B-A4B-it-qat-w4a16-ct"
    width, group = 704, 32
    assert (width // 8) % group
    args = (f"--model={name}", "--tensor-parallel-size=8", "--max-model-len=8192")
    finding = errors(knowledge, deployment(*args, gpus=8, nodes=H100))["quantized-groups"]
    assert str(width) in finding.message
    spread = deployment(*args, "--enable-expert-parallel", gpus=8, nodes=H100)
    assert "routed experts" not in str(errors(knowledge, spread).get("quantized-groups", ""))


def test_a_quantisation_that_the_accelerator_does_not_compute_is_found(knowledge: Knowledge) -> None:
    card = knowledge.catalog.accelerators["tpu-v6e-1"]
    value = deployment("--model=google/gemma-4-26B-A4B-it-qat-w4a16-ct", gpus=0, nodes=dict(card.node_selector))
    pod = value["spec"]["template"]["spec"]["containers"][0]
    pod["resources"]["limits"]["google.com/tpu"] = 1
    assert "quantization" in errors(knowledge, value)
    other = deployment("--model=google/gemma-4-26B-A4B-it-qat-w4a16-ct", "--quantization=gptq", nodes=H100)
    assert "quantised with compressed-tensors" in errors(knowledge, other)["quantization"].message


def test_a_video_that_is_computed_in_one_step_needs_a_step_that_large(knowledge: Knowledge) -> None:
    args = (f"--model={GEMMA}", "--max-model-len=8192", "--max-num-seqs=16", "--max-num-batched-tokens=2048")
    assert "2496" in errors(knowledge, deployment(*args, nodes=H100))["batched-tokens"].message
    assert "batched-tokens" not in errors(knowledge, deployment(*args, "--language-model-only", nodes=H100))


def test_expert_parallelism_on_one_accelerator_is_a_remark(knowledge: Knowledge) -> None:
    value = deployment(f"--model={EXPERTS}", "--max-model-len=8192", "--enable-expert-parallel", nodes=H100)
    assert "does nothing" in notices(knowledge, value)["expert-parallelism"].message
    assert errors(knowledge, value) == {}


def test_what_leaves_little_room_is_a_remark(knowledge: Knowledge) -> None:
    longest = 131072
    seen = {length: found(knowledge, dense(f"--max-model-len={length}")) for length in range(8192, longest, 4096)}
    rules = [tuple(one.rule for one in findings) for findings in seen.values()]
    # It fits, then it is tight, then it does not fit; and each of them at some length.
    assert list(dict.fromkeys(rules)) == [(), ("tight",), ("does-not-fit",)]
    # What the remark says to write leaves no remark.
    tight = next(one for findings in seen.values() for one in findings if one.rule == "tight")
    told = re.search(r"at most ([\d,]+) tokens surely fit", tight.fix)
    assert told is not None
    assert found(knowledge, dense(f"--max-model-len={told[1].replace(',', '')}")) == ()


def test_the_tiny_models_on_this_machines_cpu_fit(knowledge: Knowledge) -> None:
    def service(memory: str, space: str) -> Object:
        env = [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": space}]
        args = ("--model=/mnt/models/tiny-qwen3-moe", "--max-model-len=2048", "--enforce-eager")
        value = deployment(*args, gpus=0, nodes={}, image="vllm/vllm-openai-cpu:v0.32.0", env=env)
        value["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = memory
        return value

    assert found(knowledge, service("4Gi", "1")) == ()
    assert "does-not-fit" in errors(knowledge, service("4Gi", "8"))


def on_cpu(*more: str, memory: str = "64Gi", **options: Any) -> Object:
    args = (f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16", "--enforce-eager", *more)
    value = deployment(*args, gpus=0, nodes={}, image="vllm/vllm-openai-cpu:v0.32.0", **options)
    limits = value["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits["memory"] = memory
    if not memory:
        del limits["memory"]
    return value


def space(text: str) -> list[Object]:
    return [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": text}]


@pytest.mark.parametrize(
    ("sizes", "gib", "fits"),
    [
        ((), "10", True),
        (("--tensor-parallel-size=4",), "10", True),
        (("--tensor-parallel-size=4",), "20", False),
        (("--data-parallel-size=4",), "10", False),
    ],
)
def test_each_rank_on_a_cpu_has_a_cache_of_its_own(
    knowledge: Knowledge, sizes: tuple[str, ...], gib: str, fits: bool
) -> None:
    assert set(errors(knowledge, on_cpu(*sizes, env=space(gib)))) == (set() if fits else {"does-not-fit"})


def test_the_containers_limit_is_what_a_cpu_has(knowledge: Knowledge) -> None:
    def small() -> tuple[Object, Object]:
        value = on_cpu(memory="8Gi", env=space("10"))
        return value, value["spec"]["template"]["spec"]

    value, inner = small()
    inner["resources"] = {"requests": {"memory": "100Gi"}}
    assert "does-not-fit" in errors(knowledge, value)
    value, inner = small()
    inner["overhead"] = {"memory": "100Gi"}
    assert "does-not-fit" in errors(knowledge, value)
    value, inner = on_cpu(memory="", env=space("10")), {}
    value["spec"]["template"]["spec"]["resources"] = {"limits": {"memory": "64Gi"}}
    assert found(knowledge, value) == ()
    value["spec"]["template"]["spec"]["resources"] = {"limits": {"memory": "8Gi"}}
    assert "does-not-fit" in errors(knowledge, value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (on_cpu("--tensor-parallel-size=2"), "2 ranks"),
        (on_cpu(env=[{"name": "VLLM_CPU_KVCACHE_SPACE", "valueFrom": {}}]), "gets its value in the cluster"),
        (on_cpu(envFrom=[{"configMapRef": {"name": "sizes"}}]), "envFrom"),
    ],
    ids=["ranks", "valueFrom", "envFrom"],
)
def test_a_cache_on_a_cpu_whose_size_is_not_told_is_said(knowledge: Knowledge, value: Object, told: str) -> None:
    assert any(one.rule == "not-judged" and told in one.message for one in found(knowledge, value))


def test_a_cache_on_a_cpu_without_a_limit_is_as_large_as_its_node(knowledge: Knowledge) -> None:
    value = on_cpu()
    resources = value["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert "not-judged" not in notices(knowledge, value)
    resources["requests"] = resources.pop("limits")
    assert "whole node" in notices(knowledge, value)["not-judged"].message


UUID = "00000000-0cf1-11f1-857b-fd56668b7053"


def seen_as(text: str) -> list[Object]:
    return [{"name": "CUDA_VISIBLE_DEVICES", "value": text}]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (dense(env=[{"name": "VLLM_PORT", "value": "tcp://10.0.0.1:8000"}]), "variable-value"),
        (dense(env=[{"name": "VLLM_PORT", "value": "8000"}]), ""),
        (dense(env=[{"name": "VLLM_WORKER_MULTIPROC_METHOD", "value": "thread"}]), "variable-value"),
        (dense(env=[{"name": "VLLM_WORKER_MULTIPROC_METHOD", "value": "spawn"}]), ""),
        (dense(env=space("40.5")), "variable-value"),
        (on_cpu(env=space("40.5")), "variable-value"),
        (on_cpu(env=space("0")), "variable-value"),
        (on_cpu(env=space("+400")), "does-not-fit"),
        (experts(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]), "visible-devices"),
        (experts(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,-1,3"}]), "visible-devices"),
        (experts(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]), ""),
        (experts(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "4,5,6,7"}]), "visible-devices"),
        (dense(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]), ""),
        (dense(env=seen_as(f"GPU-{UUID}")), ""),
        (dense(env=seen_as(f"MIG-{UUID}")), ""),
        # From 0.24.0 on NVML is asked for a whole UUID alone: vllm-project/vllm#51677.
        (dense(env=seen_as("GPU-1b2c")), "variable-value"),
        (dense(env=seen_as("all")), "variable-value"),
        (dense(env=seen_as(f"GPU-{UUID}"), image="vllm/vllm-openai:v0.24.0"), ""),
        # Before, each name is a whole number: gpustack/gpustack#4844, vllm-project/vllm#41848.
        (dense(env=seen_as(f"GPU-{UUID}"), image="vllm/vllm-openai:v0.20.0"), "variable-value"),
        (dense(env=seen_as(f"MIG-{UUID}"), image="vllm/vllm-openai:v0.23.0"), "variable-value"),
        (dense(env=seen_as(" 0"), image="vllm/vllm-openai:v0.20.0"), ""),
        (experts(env=seen_as(f"0,1,2,GPU-{UUID}"), image="vllm/vllm-openai:v0.20.0"), "variable-value"),
        (dense(env=seen_as(f"GPU-{UUID}"), image="vllm/vllm-openai:latest"), ""),
        (dense(env=seen_as("GPU-1b2c"), image="vllm/vllm-openai:v0.99.0"), ""),
    ],
)
def test_variables_for_which_vllm_ends_are_found(knowledge: Knowledge, value: Object, rule: str) -> None:
    assert set(errors(knowledge, value)) == ({rule} if rule else set())


@pytest.mark.parametrize("words", [("--lora-modules=a=/x",), ("--decode-context-parallel-size=2",), ("--headless",)])
def test_what_hidden_words_may_put_right_is_no_error(knowledge: Knowledge, words: tuple[str, ...]) -> None:
    plain = deployment(f"--model={DENSE}", "--max-model-len=8192", *words)
    assert errors(knowledge, plain)
    hidden = deployment(
        f"--model={DENSE}", "--max-model-len=8192", *words, "$(MORE)", envFrom=[{"secretRef": {"name": "s"}}]
    )
    assert errors(knowledge, hidden) == {}
    assert "not-judged" in {finding.rule for finding in found(knowledge, hidden)}


@pytest.mark.parametrize("flag", ["--load-format", "--attention-backend", "--tool-call-parser", "--additional-config"])
def test_a_value_that_is_hidden_is_not_taken_for_a_wrong_one(knowledge: Knowledge, flag: str) -> None:
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    for words in ((f"{flag}=$(X)",), (flag, "$(X)")):
        value = deployment(f"--model={DENSE}", "--max-model-len=8192", *words, env=env)
        assert errors(knowledge, value) == {}
        assert "not-judged" in {finding.rule for finding in found(knowledge, value)}
    behind = deployment(f"--model={DENSE}", "--max-model-len=8192", f"{flag}=x", "--served-model-name=$(X)", env=env)
    assert errors(knowledge, behind)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_every_variable_that_hides_devices_of_amd_is_judged(knowledge: Knowledge, name: str) -> None:
    def on_amd(**variable: object) -> Object:
        value = experts(nodes={"amd.com/gpu.device-id": "74a1"}, env=[{"name": name, **variable}])
        container = value["spec"]["template"]["spec"]["containers"][0]
        container |= {"image": "vllm/vllm-openai-rocm:v0.32.0", "command": ["vllm", "serve"]}
        container["resources"]["limits"]["amd.com/gpu"] = container["resources"]["limits"].pop("nvidia.com/gpu")
        return value

    assert "visible-devices" not in errors(knowledge, on_amd(value="0,1,2,3"))
    assert f"{name}=0 shows vLLM 1 of the 4" in errors(knowledge, on_amd(value="0"))["visible-devices"].message
    by_uuid = errors(knowledge, on_amd(value=f"GPU-{UUID},1,2,3"))
    assert ("variable-value" in by_uuid) == (name == "CUDA_VISIBLE_DEVICES")  # ROCm's own variables name them like this
    hidden = on_amd(valueFrom={"configMapKeyRef": {"name": "a", "key": "b"}})
    assert any(one.rule == "not-judged" and name in one.message for one in found(knowledge, hidden))


def test_variables_whose_values_are_not_told_are_said(knowledge: Knowledge) -> None:
    for name in ("VLLM_PORT", "CUDA_VISIBLE_DEVICES"):
        value = dense(env=[{"name": name, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}])
        assert name in notices(knowledge, value)["not-judged"].message


def test_variables_of_a_script_count_as_those_of_the_container(knowledge: Knowledge) -> None:
    def script(text: str) -> Object:
        value = on_cpu()
        value["spec"]["template"]["spec"]["containers"][0] |= {
            "command": ["bash", "-c"],
            "args": [f"export VLLM_CPU_KVCACHE_SPACE={text}\nvllm serve {DENSE} --max-model-len=8192"],
        }
        return value

    assert errors(knowledge, script("10")) == {}
    assert "does-not-fit" in errors(knowledge, script("400"))
    assert "variable-value" in errors(knowledge, script("40.5"))


def service_named(name: str, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "team-alpha"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}], **spec}}


def test_a_service_of_the_name_vllm_gives_vllm_a_port_that_is_none(knowledge: Knowledge) -> None:
    service = service_named("vllm")
    assert "enableServiceLinks" in errors(knowledge, dense(), service)["variable-value"].fix
    assert found(knowledge, dense(), service_named("chat")) == ()
    assert found(knowledge, dense(), service_named("vllm", clusterIP="None")) == ()
    assert found(knowledge, dense(env=[{"name": "VLLM_PORT", "value": "9000"}]), service) == ()
    elsewhere = service_named("vllm")
    elsewhere["metadata"]["namespace"] = "team-beta"
    assert found(knowledge, dense(), elsewhere) == ()
    value = dense()
    value["spec"]["template"]["spec"]["enableServiceLinks"] = False
    assert found(knowledge, value, service) == ()
    kserve = inference_service(f"--model={DENSE}", "--max-model-len=8192", "--max-num-seqs=16")
    assert found(knowledge, kserve, service) == ()  # Knative switches the variables off
    kserve["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "Standard"}
    assert "variable-value" in errors(knowledge, kserve, service)


def leaders(*more: str, size: int = 2, gpus: int = 2) -> Object:
    pod = experts(*more, gpus=gpus)["spec"]["template"]
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "chat", "namespace": "team-alpha"},
        "spec": {
            "leaderWorkerTemplate": {
                "size": size,
                "leaderTemplate": pod,
                "workerTemplate": {"spec": {"containers": [{"name": "worker", "image": "vllm/vllm-openai:v0.32.0"}]}},
            }
        },
    }


def test_a_server_of_a_leader_and_its_workers_uses_the_pods_of_all(knowledge: Knowledge) -> None:
    def counted(value: Object) -> list[str]:
        template = value["spec"]["leaderWorkerTemplate"]
        template["workerTemplate"]["spec"]["containers"][0]["command"] = ["bash", "-c", "ray start --block"]
        return [one.message for one in found(knowledge, value) if one.rule == "accelerator-count"]

    assert counted(leaders()) == []
    assert "asks for 6" in counted(leaders(size=3))[0]
    # A command of each pod's own: its share of the data-parallel ranks stays in its pod.
    own = ("--data-parallel-size=2", "--data-parallel-size-local=1")
    assert counted(leaders(*own, gpus=4)) == []


def test_a_longer_context_than_the_models_is_taken_where_a_variable_allows_it(knowledge: Knowledge) -> None:
    def asked(value: str, length: int = 140000) -> tuple[Finding, ...]:
        env = [{"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": value}]
        args = (f"--model={DENSE}", f"--max-model-len={length}", "--max-num-seqs=16")
        return found(knowledge, deployment(*args, nodes=H100, env=env))

    for value in ("1", "true", " True "):
        assert [(one.rule, one.severity) for one in asked(value)] == [("context-length", Severity.NOTICE)]
    for value in ("0", "false", "yes"):
        assert [(one.rule, one.severity) for one in asked(value)] == [("context-length", Severity.ERROR)]
    assert "does-not-fit" in {one.rule for one in asked("1", 4_000_000)}


def test_each_committed_service_passes(knowledge: Knowledge) -> None:
    files = sorted((ROOT / "manifests").glob("*/*/inferenceservice.yaml"))
    for file in files:
        manifests = read_manifests(file.read_bytes(), str(file))
        assert not evaluate_fit(manifests, runtimes_of(SNAPSHOT), lambda: knowledge).findings, file


def catalog_files() -> dict[str, bytes]:
    kept = SNAPSHOT.entries("platform/catalog", "platform/settings.yaml")
    return {entry.path: SNAPSHOT.read(entry.path) or b"" for entry in kept}


def test_a_change_is_judged_by_the_facts_of_its_base() -> None:
    before, after = catalog_files(), catalog_files()
    card = "platform/catalog/accelerators/nvidia-l4.yaml"
    after[card] = after[card].replace(b"value: 21.96", b"value: 219.6")
    assert after[card] != before[card]
    changed = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert "does-not-fit" in errors(changed, dense("--max-model-len=131072"))  # type: ignore[arg-type]


def test_an_accelerator_whose_labels_move_keeps_the_memory_of_the_base() -> None:
    """Else a change could name its nodes by a new label and give them more memory, and the base would not know them."""
    before, after = catalog_files(), catalog_files()
    card, label = "platform/catalog/accelerators/nvidia-l4.yaml", b"  cloud.google.com/gke-accelerator: nvidia-l4"
    assert before[card].count(label) == 1
    after[card] = after[card].replace(label, b"  example.com/card: l4").replace(b"value: 21.96", b"value: 219.6")
    changed = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert changed is not None
    asked = dense("--max-model-len=131072", nodes={"example.com/card": "l4"})
    assert "does-not-fit" in errors(changed, asked)
    # A memory that the base does not give is the change's own.
    before[card] = re.sub(rb"memory_gib:\n  value: 21.96\n", b"memory_gib:\n  value: null\n", before[card])
    changed = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert changed is not None
    assert "new-accelerator" in notices(changed, asked)


def test_what_the_base_does_not_know_is_judged_by_the_changes_own_facts_and_it_is_said() -> None:
    before, after = catalog_files(), catalog_files()
    for path in [path for path in before if "Llama-3.1-8B" in path]:
        del before[path]
    new = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert new is not None
    assert set(notices(new, dense())) == {"new-model"}
    assert "does-not-fit" in errors(new, dense("--max-model-len=131072"))
    alone = read_knowledge(PlatformSources(MemorySnapshot(before)))
    assert set(notices(alone, dense())) == {"not-judged"}  # type: ignore[arg-type]


@pytest.mark.parametrize("left", ["all but the accelerator", "nothing that can be read"])
def test_an_accelerator_that_the_base_does_not_know_is_said_to_be_the_changes_own(left: str) -> None:
    before, after = catalog_files(), catalog_files()
    for path in [path for path in before if "nvidia-l4" in path or "/prices/" in path]:
        del before[path]
    if left != "all but the accelerator":
        before = dict.fromkeys(before, b"?")
    new = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert new is not None
    assert "new-accelerator" in notices(new, dense())
    assert "does-not-fit" in errors(new, dense("--max-model-len=131072"))


@pytest.mark.parametrize(("rule", "told"), sorted({one for trap in tripwires() for one in trap.wanted}))
def test_a_tripwire_that_comes_back_clean_ends_the_trust(monkeypatch: pytest.MonkeyPatch, rule: str, told: str) -> None:
    real = judge_container

    def blind(*given: Any) -> Judged:
        judged = real(*given)
        kept = tuple(one for one in judged.findings if one.rule != rule or told not in one.message)
        return Judged(kept, judged.whole, judged.fitted)

    monkeypatch.setattr(gate, "judge_container", blind)
    with pytest.raises(UntrustedError, match="tripwire"):
        evaluate_fit([], lambda _: None, lambda: None)
    result = guarded("fit", "Fit", lambda: evaluate_fit([], lambda _: None, lambda: None))
    assert result.check.outcome is Outcome.UNTRUSTED


@pytest.mark.parametrize("which", ["bad", "good"])
@pytest.mark.parametrize("policy", NAMES)
def test_of_no_command_that_is_judged_in_part_nothing_is_said(knowledge: Knowledge, policy: str, which: str) -> None:
    """The policies' resources run vLLM in every shape that somebody thought of."""
    for one in servers(fixture_manifests(policy, which), runtimes_of(SNAPSHOT)):
        judged = judge_container(one, knowledge)
        rules = {finding.rule for finding in judged.findings}
        description = isinstance(one, VllmContainer) and one.description
        assert judged.whole != ("not-judged" in rules), (one.subject, rules)
        if judged.whole and not description and "no-model" not in rules:
            assert isinstance(one, VllmContainer)
            assert knowledge.place(one, "").place.count >= 1
            assert knowledge.model(parsed_model(one), one.source).facts.total_params > 0


def parsed_model(server: VllmContainer) -> str:
    words = [word.text for word in server.command.words]
    return parse_arguments(words, server.command.version, program=server.command.program).arguments.model


def test_a_word_that_is_not_known_hides_no_wrong_value_before_it(knowledge: Knowledge) -> None:
    value = deployment(f'vllm serve {DENSE} --max-model-len=8192 --dtype=bad "$LATER"', command=["sh", "-c"])
    assert "bad" in errors(knowledge, value)["argument-value"].message
    assert "not-judged" in notices(knowledge, value)


def test_arguments_that_a_script_passes_on_keep_being_unknown(knowledge: Knowledge) -> None:
    secret = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
    value = deployment(f"vllm serve {DENSE} --max-model-len=8192 --max-num-seqs=16 $@", "--", "$(X)", env=[secret])
    value["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c"]
    assert set(errors(knowledge, value)) == set()
    assert "the variable X" in notices(knowledge, value)["not-judged"].message


def test_broken_manifests_never_break_the_gate(knowledge: Knowledge) -> None:
    good = inference_service(f"--model={DENSE}", "--max-model-len=8192")
    places: list[tuple[Any, ...]] = [
        ("spec",),
        ("spec", "predictor"),
        ("spec", "predictor", "model"),
        ("spec", "predictor", "nodeSelector"),
        *(("spec", "predictor", "model", key) for key in good["spec"]["predictor"]["model"]),
        ("spec", "predictor", "model", "resources", "limits", "nvidia.com/gpu"),
    ]
    for place in places:
        wrongs: tuple[Any, ...] = (None, 3, "text", [], [None], {}, {"a": {"b": None}}, [[]], -1)
        for wrong in wrongs:
            value = copy.deepcopy(good)
            inner = value
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            evaluation = evaluate_fit(
                read_manifests(dump(value).encode(), FILE), runtimes_of(SNAPSHOT), lambda: knowledge
            )
            assert evaluation.caught == evaluation.tripwires


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--lora-target-modules=q_proj", "LoRA adapters"),
        ('--speculative-config={"model": "org/draft", "num_speculative_tokens": 3}', "the draft model org/draft"),
        ('--hf-overrides={"num_hidden_layers": 200}', "the model's config"),
        ("--kv-cache-dtype-skip-layers=0", "the layers that it leaves as they are"),
        ('--compilation-config={"cudagraph_mode": "NONE"}', "CUDA graphs"),
        ("--performance-mode=interactivity", "CUDA graphs"),
        ("--enable-dbo", "second batch"),
        ("--kv-cache-dtype=turboquant_4bit_nc", "turboquant_4bit_nc"),
        ('--kv-transfer-config={"kv_connector": "NixlConnector", "kv_role": "kv_both"}', "connector"),
    ],
)
def test_an_argument_about_memory_that_is_not_counted_is_said(knowledge: Knowledge, argument: str, told: str) -> None:
    value = dense(argument)
    said = [one for one in found(knowledge, value) if one.rule == "not-judged"]
    assert any("does not count" in one.message and told in one.message for one in said)
    assert all(one.severity is Severity.NOTICE for one in said)


def test_a_draft_model_of_the_catalog_is_counted(knowledge: Knowledge) -> None:
    beside = '--speculative-config={"model": "MODEL", "num_speculative_tokens": 3}'.replace("MODEL", EXPERTS)
    value = dense(beside)
    said = {one.rule: one.message for one in found(knowledge, value)}
    assert "vocabulary" in said["does-not-fit"]
    assert "not-judged" not in said
    own = dense(beside.replace(EXPERTS, "meta-llama/Llama-3.1-70B-Instruct"))
    told = {one.rule: one.message for one in found(knowledge, own)}
    assert "vocabulary" not in told["does-not-fit"]
    assert "not-judged" not in told


def test_a_draft_that_the_change_itself_brings_is_named() -> None:
    before, after = catalog_files(), catalog_files()
    for path in [path for path in before if EXPERTS.rpartition("/")[2] in path]:
        del before[path]
    new = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert new is not None
    beside = '--speculative-config={"model": "MODEL", "num_speculative_tokens": 3}'.replace("MODEL", EXPERTS)
    said = {one.rule: one.message for one in found(new, dense(beside))}
    assert "vocabulary" in said["does-not-fit"]
    assert "this change itself brings the facts" in said["new-model"]


@pytest.mark.parametrize(
    ("arguments", "memory", "told"),
    [
        (("--cpu-offload-gb=12",), "4Gi", "12.00 GiB of weights or KV cache"),
        (("--kv-offloading-size=100",), "32Gi", "100.00 GiB of weights or KV cache"),
        (("--cpu-offload-gb=12",), "32Gi", ""),
        (("--kv-offloading-size=20",), "32Gi", ""),
    ],
)
def test_what_is_offloaded_is_held_against_the_containers_memory(
    knowledge: Knowledge, arguments: tuple[str, ...], memory: str, told: str
) -> None:
    value = dense(*arguments)
    value["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = memory
    said = [one.message for one in found(knowledge, value) if one.rule == "not-judged"]
    assert [told in message for message in said if "host memory" in message] == ([True] if told else [])


def test_weights_in_host_memory_are_a_notice_with_the_speed_that_is_left(knowledge: Knowledge) -> None:
    value = dense("--cpu-offload-gb=12")
    slow = notices(knowledge, value)["offloaded-weights"]
    assert re.search(r"at most [\d.]+ tokens per second", slow.message)
    assert "--cpu-offload-gb" in dump(value).splitlines()[(slow.line or 0) - 1]
    assert "offloaded-weights" not in notices(knowledge, dense())


@pytest.mark.parametrize(
    ("options", "user", "told"),
    [
        ("implicit-dirs", 1001, "belongs to root"),
        (None, 1001, "belongs to root"),
        ("uid=1002,gid=1001", 1001, "belongs to the user of uid=1002"),
        ("implicit-dirs, uid=1001,gid=1001", 1001, ""),
        ("implicit-dirs", 0, ""),
        ("implicit-dirs", None, ""),
        ("allow_other,file-mode=444,dir-mode=555", 1001, ""),
        ("file-mode=0644, dir-mode=0755", 1001, ""),
        ("file-mode=444", 1001, "belongs to root"),
        ("file-mode=440,dir-mode=550", 1001, "belongs to root"),
        ("file-mode=444,dir-mode=554", 1001, "belongs to root"),
    ],
)
def test_a_mounted_bucket_belongs_to_the_user_of_the_server(
    knowledge: Knowledge, options: str | None, user: int | None, told: str
) -> None:
    value = dense()
    spec = value["spec"]["template"]["spec"]
    attributes = {"bucketName": "models"} | ({"mountOptions": options} if options else {})
    spec["volumes"] = [{"name": "weights", "csi": {"driver": DRIVER, "volumeAttributes": attributes}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "weights", "mountPath": "/mnt/weights"}]
    if user is not None:
        spec["securityContext"] = {"runAsUser": user}
    said = notices(knowledge, value)
    assert ("mounted-bucket" in said) is bool(told)
    assert not told or told in said["mounted-bucket"].message


@pytest.mark.parametrize(
    "fields",
    [
        {"volumes": [{"name": ["x"], "csi": {"driver": DRIVER}}]},
        {"volumes": [{"name": "x", "csi": "text"}]},
        {"volumes": [{"name": "x", "csi": {"driver": DRIVER, "volumeAttributes": ["text"]}}]},
    ],
)
@pytest.mark.parametrize("mounts", [[], ["text"]])
def test_a_malformed_volume_costs_no_other_service_its_findings(
    knowledge: Knowledge, fields: Object, mounts: list[str]
) -> None:
    malformed, other = dense(), dense("--max-model-len=131072")
    spec = malformed["spec"]["template"]["spec"]
    spec |= {"securityContext": {"runAsUser": 1001}, **fields}
    spec["containers"][0]["volumeMounts"] = [{"name": ["a"]}, {"name": "x", "mountPath": "/dev/shm"}, *mounts]
    assert "does-not-fit" in errors(knowledge, malformed, other)
    said = [one.message for one in found(knowledge, malformed) if one.rule == "not-judged"]
    assert any("is not a mapping" in message for message in said) is bool(mounts)


def test_a_size_of_0_is_a_finding_and_no_crash(knowledge: Knowledge) -> None:
    for argument in ("--tensor-parallel-size=0", "--pipeline-parallel-size=0", "--num-gpu-blocks-override=0"):
        evaluate = found(knowledge, dense(argument))
        assert all(one.gate == "fit" for one in evaluate)
    assert "argument-range" in errors(knowledge, dense("--tensor-parallel-size=0"))


def test_a_number_of_blocks_is_the_cache(knowledge: Knowledge) -> None:
    assert "one request" in errors(knowledge, dense("--num-gpu-blocks-override=100"))["does-not-fit"].message.lower()
    assert "runs out of memory" in errors(knowledge, dense("--num-gpu-blocks-override=1000000"))["does-not-fit"].message
    assert found(knowledge, dense("--num-gpu-blocks-override=2000")) == ()
