"""The fit check on manifests of every kind: fit_cases.yaml holds objects, and what the check must say about each."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import dump
from neuroscale.gate.evaluation import Evaluation, guarded
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
from platform_repository import CATALOG, SNAPSHOT
from policies_support import NAMES, fixture_manifests
from roots import CHECKOUT, ROOT

Object = dict[str, Any]

FILE = "chat.yaml"
UNREAD = "readable-model-arguments"
DENSE, EXPERTS = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B"
GKE = "cloud.google.com/gke"
VLLM = "vllm/vllm-openai:v0.32.0"
ROCM_IMAGE = "vllm/vllm-openai-rocm:v0.32.0"
CPU_IMAGE = "vllm/vllm-openai-cpu:v0.32.0"  # it was tried with a read-only root
SMALL = ("--max-model-len=8192", "--max-num-seqs=16")
LONG, TWO = "--max-model-len=131072", "--tensor-parallel-size=2"
PLAIN_SCRIPT = f"X=1 exec vllm serve {DENSE} --max-model-len=8192 \\\n  --max-num-seqs 16"
SHM = {"name": "shared", "mountPath": "/dev/shm"}
IN_MEMORY = [{"name": "shared", "emptyDir": {"medium": "Memory"}}]
TINY = yaml.safe_load((ROOT / "manifests/local/tiny-moe/inferenceservice.yaml").read_text())
PLACES = {"pod": "spec.template.spec", "first": "spec.template.spec.containers.0", "model": "spec.predictor.model"}


def changed(value: Object, fields: Mapping[str, Any]) -> Object:
    """The object with other values at dotted places: see fit_cases.yaml."""
    value = copy.deepcopy(value)
    for place, new in fields.items():
        first, *parts = re.split(r"\.(?![^\[]*\])", place.removesuffix("+"))
        path = [*PLACES.get(first, first).split("."), *(part.strip("[]") for part in parts)]
        inner: Any = value
        for part in path[:-1]:
            inner = inner[int(part)] if isinstance(inner, list) else inner.setdefault(part, {})
        key = int(path[-1]) if isinstance(inner, list) else path[-1]
        if new is ...:
            del inner[key]
        else:
            inner[key] = [*inner[key], *new] if place.endswith("+") else new
    return value


# Objects. Options are fields of their container.


def container(*args: str, gpus: int = 1, image: str = VLLM, **more: Any) -> Object:
    resources: Object = {"limits": {"cpu": "4", "memory": "32Gi"}}
    if gpus:
        resources["limits"]["nvidia.com/gpu"] = gpus
    return {"name": "vllm", "image": image, "args": list(args), "resources": resources, **more}


def an_object(kind: str, version: str, **spec: Any) -> Object:
    metadata = {"name": "chat", "namespace": "team-alpha"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def deployment(*args: str, gpus: int = 1, nodes: Object | None = None, **more: Any) -> Object:
    """A server with shared memory, unless `volumeMounts` says otherwise."""
    vllm = container(*args, gpus=gpus, **{"volumeMounts": [SHM], **more})
    if "-cpu:" in vllm["image"]:
        vllm["securityContext"] = {"readOnlyRootFilesystem": True}
        vllm["env"] = [{"name": "TMPDIR", "value": "/dev/shm"}, *vllm.get("env", ())]
    spec = {"nodeSelector": _CARDS["L4"] if nodes is None else nodes, "containers": [vllm], "volumes": IN_MEMORY}
    return an_object("Deployment", "apps/v1", template={"spec": spec})


def dense(*more: str, **options: Any) -> Object:
    """8B parameters in 16 bits on one L4: it fits."""
    return deployment(f"--model={DENSE}", *SMALL, *more, **options)


def experts(*more: str, **options: Any) -> Object:
    """30B parameters of experts in 16 bits on four L4: they fit."""
    return deployment(f"--model={EXPERTS}", "--tensor-parallel-size=4", *SMALL, *more, **{"gpus": 4, **options})


def script(text: str, *behind: str, **options: Any) -> Object:
    return deployment(text, *behind, command=["/bin/bash", "-c"], **options)


def with_runtime(*args: str, **model: Any) -> Object:
    """An InferenceService. The last argument is the name of its runtime."""
    *own, runtime = args
    served = {**container(*own), "command": ["vllm", "serve"], "runtime": runtime, **model}
    if "gpus" in served:
        served["resources"]["limits"]["nvidia.com/gpu"] = served.pop("gpus")
    del served["name"]
    predictor = {"nodeSelector": _CARDS["L4"], "model": {"modelFormat": {"name": "huggingface"}, **served}}
    return an_object("InferenceService", "serving.kserve.io/v1beta1", predictor=predictor)


def service(*more: str, runtime: str = "neuroscale-vllm", **model: Any) -> Object:
    return with_runtime(f"--model={DENSE}", *SMALL, *more, runtime, **model)


def experts_service(*more: str, **model: Any) -> Object:
    return with_runtime(f"--model={EXPERTS}", *SMALL, TWO, *more, "neuroscale-vllm", gpus=2, **model)


def of_runtime(*args: str) -> Object:
    return changed(with_runtime(*args, "theirs"), {"model.command": ..., "model.image": ...})


def built_in(*args: str, **model: Any) -> Object:
    """A service of KServe's own runtime."""
    value = with_runtime(*args, "kserve-vllmserver", storageUri=f"hf://{DENSE}", **model)
    return changed(value, {"model.command": ..., "model.image": ...})


def runtime(kind: str = "ServingRuntime", name: str = "own", **more: Any) -> Object:
    value = an_object(kind, "serving.kserve.io/v1alpha1", containers=[{"name": "kserve-container", **more}])
    return changed(value, {"metadata.name": name} | ({"metadata.namespace": ...} if kind.startswith("Cluster") else {}))


def theirs(*more: str) -> Object:
    command = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    args = [f"--model={DENSE}", "--max-num-seqs=16", "--served-model-name={{.Name}}", *more]
    return runtime("ClusterServingRuntime", "theirs", image=VLLM, command=command, args=args)


def timed(*more: str, grace: int | None = 120, **probes: Object | None) -> Object:
    """A service whose probes and end leave it time."""
    alive, load = ({"failureThreshold": failures, "periodSeconds": 10} for failures in (7, 80))
    every = {"startupProbe": load, "livenessProbe": alive, **probes}
    kept: Object = {name: probe for name, probe in every.items() if probe is not None}
    value = service("--shutdown-timeout=90", *more, **kept)
    return value if grace is None else changed(value, {"spec.predictor.terminationGracePeriodSeconds": grace})


def asked(port: int | str, **more: Any) -> Object:
    """Probes that ask a port."""
    probe = {"httpGet": {"path": "/health", "port": port, **more}, "failureThreshold": 80}
    return {"startupProbe": probe, "readinessProbe": probe}


def served(*more: str, **model: Any) -> Object:
    """A service on port 8080, whose probes ask there."""
    return service("--port=8080", *more, **{"ports": [{"containerPort": 8080}], **asked(8080), **model})


def with_volume(path: str, limit: str | None, *args: str, medium: str = "", **more: Any) -> Object:
    """8B parameters in 16 bits, with an emptyDir at a path."""
    value = dense(*args, volumeMounts=[{"name": "room", "mountPath": path}], **more)
    empty = {"medium": medium} | ({"sizeLimit": limit} if limit else {})
    return changed(value, {"pod.volumes": [{"name": "room", "emptyDir": empty}]})


def unshared(*args: str, **more: Any) -> Object:
    """8B parameters on several accelerators, with nothing at /dev/shm."""
    return dense(*args, **{"gpus": 2, "volumeMounts": [], **more})


def canary(model: str) -> Object:
    """A service of a dense model with a canary of another one."""
    other = changed(timed(), {"model.args.0": f"--model={model}"})["spec"]["predictor"]
    return changed(timed(), {"spec.canary": [{"trafficPercent": 10, "predictor": other}]})


def llm(*args: str, **main: Any) -> Object:
    serving = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 4}}, "image": VLLM, **main}
    return an_object(
        "LLMInferenceService",
        "serving.kserve.io/v1alpha2",
        model={"uri": f"hf://{EXPERTS}", "name": "chat"},
        template={"nodeSelector": _CARDS["L4"], "containers": [serving | ({"args": list(args)} if args else {})]},
        parallelism={"tensor": 4},
    )


def on_nodes(*cards: Object, **labels: str) -> Object:
    """8B parameters on nodes with these labels."""
    return dense(nodes={**(cards[0] if cards else {}), **labels})


def affinity(key: str, operator: str, *values: str) -> Object:
    rule = {"key": key, "operator": operator} | ({"values": [*values]} if values else {})
    required = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    place = "pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    return changed(dense(), {place: required})


def on_amd(**more: Any) -> Object:
    options = {"nodes": {"amd.com/gpu.device-id": "74a1"}, "image": ROCM_IMAGE, **more}
    limits = {"memory": "32Gi", "amd.com/gpu": 4}
    return experts(**options, command=["vllm", "serve"], resources={"limits": limits})


def on_tpu(card: str, chips: int, *args: str) -> Object:
    nodes, limits = dict(CATALOG.accelerators[card].node_selector), {"memory": "32Gi", "google.com/tpu": chips}
    image = "vllm/vllm-tpu:v0.32.0"
    return deployment(*args, nodes=nodes, image=image, command=["vllm", "serve"], resources={"limits": limits})


def pods(kind: str, spec: Object | None = None) -> Object:
    return an_object(kind, "example.com/v1", **(spec or {}))


def before_others(*args: str, **more: Any) -> Object:
    """A pod with this init container."""
    others = [{"name": "web", "image": "nginx:1.29"}]
    return changed(dense(), {"pod.initContainers": [container(*args, **more)], "pod.containers": others})


def on_cpu(*more: str, memory: Any = "64Gi", **options: Any) -> Object:
    args = (f"--model={DENSE}", *SMALL, "--enforce-eager", *more)
    value = deployment(*args, gpus=0, nodes={}, image=CPU_IMAGE, **options)
    return changed(value, {"first.resources.limits.memory": memory})


def tiny(memory: str, **options: Any) -> Object:
    args = ("--model=/mnt/models/tiny-qwen3-moe", "--max-model-len=2048", "--enforce-eager")
    value = deployment(*args, gpus=0, nodes={}, image=CPU_IMAGE, **options)
    return changed(value, {"first.resources.limits.memory": memory})


def port_of(name: str, namespace: str) -> Object:
    value = an_object("Service", "v1", ports=[{"port": 80}])
    return {**value, "metadata": {"name": name, "namespace": namespace}}


def leaders(size: int, *more: str, gpus: int) -> Object:
    worker = {"name": "worker", "image": VLLM, "command": ["bash", "-c", "ray start --block"]}
    template = {
        "size": size,
        "leaderTemplate": experts(*more, gpus=gpus)["spec"]["template"],
        "workerTemplate": {"spec": {"containers": [worker]}},
    }
    return an_object("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", leaderWorkerTemplate=template)


def bucket(options: str | None, user: int | None) -> Object:
    attributes = {"bucketName": "models"} | ({"mountOptions": options} if options else {})
    volume = {"name": "weights", "csi": {"driver": DRIVER, "volumeAttributes": attributes}}
    value = dense(volumeMounts=[{"name": "weights", "mountPath": "/mnt/weights"}])
    context = {} if user is None else {"pod.securityContext": {"runAsUser": user}}
    return changed(value, {"pod.volumes": [volume], **context})


def malformed(volume: Object, *mounts: Any) -> Object:
    value = dense(volumeMounts=[{"name": ["a"]}, {"name": "x", "mountPath": "/dev/shm"}, *mounts])
    return changed(value, {"pod.volumes": [volume], "pod.securityContext": {"runAsUser": 1001}})


# The table.

_CARDS = {name: {f"{GKE}-accelerator": f"nvidia-{card}"} for name, card in (("L4", "l4"), ("A100", "a100-80gb"))}
_CARDS["H100"] = {f"{GKE}-accelerator": "nvidia-h100-80gb"}
_WORDS = {
    "DENSE": DENSE,
    "EXPERTS": EXPERTS,
    "GEMMA": "google/gemma-4-26B-A4B-it",
    "QUANTISED": "google/gemma-4-26B-A4B-it-qat-w4a16-ct",
    "PLAIN": PLAIN_SCRIPT,
    "LONG": LONG,
    "TWO": TWO,
    "VLLM": VLLM,
    "CPU_IMAGE": CPU_IMAGE,
    "ROCM_IMAGE": ROCM_IMAGE,
    "GKE": GKE,
    "UUID": "00000000-0cf1-11f1-857b-fd56668b7053",
    "HANDLER": "CUSTOM_FASTAPI_INVOCATION_HANDLER",
    "DRIVER": DRIVER,
    "TINY_MEMORY": TINY["spec"]["predictor"]["model"]["resources"]["limits"]["memory"],
}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")
_LISTS = {"SMALL": SMALL, "TLS": ("--ssl-keyfile=/tls/tls.key", "--ssl-certfile=/tls/tls.crt")}


def spelled_out(value: Any) -> Any:
    """A value of the table without its short words."""
    if isinstance(value, dict):
        return {spelled_out(key): spelled_out(each) for key, each in value.items()}
    if isinstance(value, list):
        return [item for each in value for item in _LISTS.get(str(each), (spelled_out(each),))]
    others = {**_CARDS, "DELETED": ..., "SECRET": {"valueFrom": {"secretKeyRef": {"name": "chat", "key": "mode"}}}}
    if not isinstance(value, str) or value in others:
        return others.get(value, value) if isinstance(value, str) else value
    return dense(LONG)["spec"]["template"]["spec"] if value == "POD" else _WORD.sub(lambda word: _WORDS[word[0]], value)


def built(row: Mapping[str, Any]) -> Object:
    """The object of a row."""
    (name, args), *options = ((key, each) for key, each in row.items() if key not in ("is", "in", "and", "known"))
    if name == "on_nodes":
        return on_nodes(*args, **dict(options))
    fields: Object = {key: each for key, each in options if "." in key}
    own: Object = {key: each for key, each in options if "." not in key}
    if "env" in own:
        values = own["env"].items()
        own["env"] = [
            {"name": key, **(value if isinstance(value, dict) else {"value": str(value)})} for key, value in values
        ]
    if (port := own.pop("asked", None)) is not None:
        own |= asked(**port) if isinstance(port, dict) else asked(port)
    builders: dict[str, Callable[..., Object]] = {"rendered": lambda: TINY, **globals()}
    return changed(builders[name](*args, **own), fields)


def table() -> Iterator[Any]:
    """Each row of fit_cases.yaml, with what the check says about it."""
    groups = yaml.safe_load(Path(__file__).with_name("fit_cases.yaml").read_text())
    for group, (*rows,) in groups.items():
        shared = [] if isinstance(rows[0], dict) else rows.pop(0)
        for number, row in enumerate(spelled_out(rows)):
            expected = [
                each for part in (shared, row.get("is", [])) for each in ([part] if isinstance(part, str) else part)
            ]
            yield pytest.param(row, expected or ["list"], id=f"{group}-{number}")


def holds(expectation: str, findings: Sequence[Finding]) -> bool:
    by_severity = {"!": (Severity.ERROR,), "~": (Severity.NOTICE,)}
    if (parts := re.fullmatch(r"([!~?-])([\w-]+)(?:([:>]) (.*))?", expectation)) is not None:
        sign, rule, of, text = parts.groups()
        seen = [
            finding
            for finding in findings
            if finding.rule == rule and finding.severity in by_severity.get(sign, tuple(Severity))
        ]
        texts = [finding.fix if of == ">" else finding.message for finding in seen]
        return any((text or "") in each for each in texts) is (sign != "-")
    word, *rules = expectation.split()
    if word.isdigit():
        return [finding.rule for finding in findings].count(rules[0]) == int(word)
    errors = {finding.rule for finding in findings if finding.severity is Severity.ERROR}
    return {
        "red": bool(errors),
        "errors": errors == {*rules},
        "notices": {finding.rule for finding in findings if finding.severity is Severity.NOTICE} == {*rules},
        "rules": {finding.rule for finding in findings} == {*rules},
        "list": [finding.rule for finding in findings] == rules,
    }[word]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    known = read_knowledge(PlatformSources(SNAPSHOT))
    assert known is not None
    return known


def judged_objects(knowledge: Knowledge | None, *objects: Object, environment: str = "") -> Evaluation:
    service = ServicePath(environment, "chat") if environment else None
    manifests = [manifest for value in objects for manifest in read_manifests(dump(value).encode(), FILE, service)]
    # Each call would judge all tripwires again, which takes most of its time. They have tests of their own.
    with mock.patch.object(gate, "tripwires", tuple):
        return evaluate_fit(manifests, runtimes_of(SNAPSHOT), lambda: knowledge)


@pytest.mark.parametrize(("row", "expected"), [*table()])
def test_each_object_of_the_table_is_judged_as_the_table_says(
    knowledge: Knowledge, row: Object, expected: list[str]
) -> None:
    objects = [built(each) for each in (*row.get("and", ()), row)]
    known = knowledge if row.get("known", True) else None
    findings = judged_objects(known, *objects, environment=row.get("in", "")).findings
    seen = [(each.severity.value, each.rule, each.message, each.fix) for each in findings]
    assert [text for text in expected if not holds(text, findings)] == [], seen
    assert all(each.gate == "fit" and each.file == FILE and each.line and each.fix for each in findings), seen


def errors(knowledge: Knowledge | None, *objects: Object) -> dict[str, Finding]:
    findings = judged_objects(knowledge, *objects).findings
    return {each.rule: each for each in findings if each.severity is Severity.ERROR}


def notices(knowledge: Knowledge | None, *objects: Object) -> dict[str, Finding]:
    findings = judged_objects(knowledge, *objects).findings
    return {each.rule: each for each in findings if each.severity is Severity.NOTICE}


@pytest.mark.parametrize(
    ("with_probe", "failures", "seconds", "part", "environment"),
    [
        (lambda probe: timed(startupProbe=probe), 10, 10, "", "dev"),
        (lambda probe: timed(startupProbe=probe), 3, 5, "waits 10 s", ""),
        (lambda probe: deployment("--model=example/unknown", startupProbe=probe), 3, 5, "waits 10 s", ""),
    ],
    ids=["in an environment", "a model of the catalog", "an unknown model"],
)
def test_what_the_fix_of_a_short_probe_says_passes(
    knowledge: Knowledge,
    with_probe: Callable[[Object], Object],
    failures: int,
    seconds: int,
    part: str,
    environment: str,
) -> None:
    value = with_probe({"failureThreshold": failures, "periodSeconds": seconds})
    findings = judged_objects(knowledge, value, environment=environment).findings
    (finding,) = (each for each in findings if each.severity is Severity.ERROR)
    assert finding.rule == "startup-probe-too-short"
    assert part in finding.message
    better = re.findall(r"failureThreshold: (\d+) with periodSeconds: (\d+)", finding.fix)[0]
    value = with_probe(dict(zip(("failureThreshold", "periodSeconds"), map(int, better), strict=True)))
    findings = judged_objects(knowledge, value, environment=environment).findings
    assert [each.rule for each in findings if environment or each.severity is Severity.ERROR] == []


def test_labels_that_the_planner_writes_are_those_of_the_models(knowledge: Knowledge) -> None:
    values = []
    for number, (name, entry) in enumerate(knowledge.catalog.models.items()):
        facts = entry.facts
        labels = {
            "model-architecture": facts.kind,
            "active-param-ratio": ratio_label(facts.kind, facts.active_params / facts.total_params),
            "total-params": parameters_label(facts.total_params),
        }
        # On an accelerator, what fits would be computed as well.
        value = deployment(f"--model={name}", nodes={})
        values.append(changed(value, {"metadata.name": f"chat-{number}", "metadata.labels": labels}))
    assert "model-labels" not in errors(knowledge, *values)
    values[-1]["metadata"]["labels"]["total-params"] = "1B"
    assert "model-labels" in errors(knowledge, values[-1])


def test_no_rule_goes_without_a_test() -> None:
    code = "".join(
        (ROOT / f"src/neuroscale/{name}.py").read_text()
        for name in (
            *("vllm/accelerator_rules", "vllm/command_rules", "vllm/model_rules"),
            *("gate/fit/judgement", "gate/fit/reachability", "gate/fit/vllm_containers"),
        )
    )
    rules = set(re.findall(r'(?:Fault|_say|_undivided)\(\s*"([a-z-]+)"', code)) | set(RULES.values())
    here = Path(__file__)
    tests = (
        here.read_text()
        + here.with_name("fit_cases.yaml").read_text()
        + (CHECKOUT / "tests/vllm/test_vllm_checks.py").read_text()
    )
    assert {rule for rule in rules if not re.search(rf'(?:[!~?]|errors ){rule}(?![\w-])|"{rule}"', tests)} == set()


def test_a_finding_stands_at_the_line_of_its_argument(knowledge: Knowledge) -> None:
    pod = dense("--swap-space", "4")["spec"]["template"]["spec"]
    text = dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat"}, "spec": pod})
    evaluation = evaluate_fit(read_manifests(text.encode(), FILE), lambda _: None, lambda: knowledge)
    (finding,) = evaluation.findings
    assert (finding.rule, finding.subject) == ("removed-argument", "Pod chat")
    assert "--swap-space" in text.splitlines()[(finding.line or 0) - 1]


def test_what_does_not_run_vllm_is_left_alone(knowledge: Knowledge) -> None:
    others = [
        {"name": "web", "image": "nginx:1.29", "args": ["--swap-space"]},
        {"name": "shell", "image": "busybox:1", "command": ["sh", "-c"], "args": ["echo vllm"]},
        {"name": "router", "image": "example.com/vllm-router:1", "args": ["--port=80"]},
    ]
    evaluation = judged_objects(knowledge, changed(dense(), {"pod.containers": others}))
    assert (evaluation.findings, evaluation.evaluated) == ((), 0)


def test_a_script_that_cannot_be_read_counts_as_not_judged(knowledge: Knowledge) -> None:
    assert "1 of 1 commands not judged" in judged_objects(knowledge, script(f"set -e; {PLAIN_SCRIPT}")).detail


def test_what_leaves_little_room_is_a_remark(knowledge: Knowledge) -> None:
    lengths = range(8192, 131072, 4096)
    seen = {length: judged_objects(knowledge, dense(f"--max-model-len={length}")).findings for length in lengths}
    rules = [tuple(each.rule for each in findings) for findings in seen.values()]
    # It fits, then it is tight, then it does not fit; and each of them at some length.
    assert list(dict.fromkeys(rules)) == [(), ("tight",), ("does-not-fit",)]
    # What the remark says to write leaves no remark.
    tight = next(each for findings in seen.values() for each in findings if each.rule == "tight")
    advised = re.search(r"at most ([\d,]+) tokens surely fit", tight.fix)
    assert advised is not None
    assert judged_objects(knowledge, dense(f"--max-model-len={advised[1].replace(',', '')}")).findings == ()


def test_weights_in_host_memory_are_a_notice_with_the_speed_that_is_left(knowledge: Knowledge) -> None:
    value = dense("--cpu-offload-gb=12")
    slow = notices(knowledge, value)["offloaded-weights"]
    assert re.search(r"at most [\d.]+ tokens per second", slow.message)
    assert "--cpu-offload-gb" in dump(value).splitlines()[(slow.line or 0) - 1]
    assert "offloaded-weights" not in notices(knowledge, dense())


def test_each_committed_service_passes(knowledge: Knowledge) -> None:
    for file in sorted((ROOT / "manifests").glob("*/*/inferenceservice.yaml")):
        manifests = read_manifests(file.read_bytes(), str(file))
        assert not evaluate_fit(manifests, runtimes_of(SNAPSHOT), lambda: knowledge).findings, file


# Facts of the base, and those that a change brings.


def catalog_files(*left_out: str) -> dict[str, bytes]:
    entries = SNAPSHOT.entries("platform/catalog", "platform/settings.yaml")
    paths = (entry.path for entry in entries if not any(part in entry.path for part in left_out))
    return {path: SNAPSHOT.read(path) or b"" for path in paths}


def knowledge_of(before: dict[str, bytes], after: dict[str, bytes]) -> Knowledge:
    known = read_knowledge(PlatformSources(MemorySnapshot(before)), PlatformSources(MemorySnapshot(after)))
    assert known is not None
    return known


L4_CARD = "platform/catalog/accelerators/nvidia-l4.yaml"


def replaced(files: dict[str, bytes], old: str, new: str) -> None:
    assert files[L4_CARD].count(old.encode()) == 1
    files[L4_CARD] = files[L4_CARD].replace(old.encode(), new.encode())


def test_a_change_is_judged_by_the_facts_of_its_base() -> None:
    before, after = catalog_files(), catalog_files()
    replaced(after, "value: 21.96", "value: 219.6")
    assert "does-not-fit" in errors(knowledge_of(before, after), dense(LONG))


def test_an_accelerator_whose_labels_move_keeps_the_memory_of_the_base() -> None:
    """Else a change could name its nodes by a new label and give them more memory, and the base would not know them."""
    before, after = catalog_files(), catalog_files()
    replaced(after, f"  {GKE}-accelerator: nvidia-l4", "  example.com/card: l4")
    replaced(after, "value: 21.96", "value: 219.6")
    moved = dense(LONG, nodes={"example.com/card": "l4"})
    assert "does-not-fit" in errors(knowledge_of(before, after), moved)
    # A memory that the base does not give is the change's own.
    replaced(before, "memory_gib:\n  value: 21.96\n", "memory_gib:\n  value: null\n")
    assert "new-accelerator" in notices(knowledge_of(before, after), moved)


def test_what_the_base_does_not_know_is_judged_by_the_changes_own_facts_and_it_is_said() -> None:
    before = catalog_files("Llama-3.1-8B")
    new = knowledge_of(before, catalog_files())
    assert set(notices(new, dense())) == {"new-model"}
    assert "does-not-fit" in errors(new, dense(LONG))
    assert set(notices(read_knowledge(PlatformSources(MemorySnapshot(before))), dense())) == {"not-judged"}


@pytest.mark.parametrize("is_readable", [True, False])
def test_an_accelerator_that_the_base_does_not_know_is_said_to_be_the_changes_own(is_readable: bool) -> None:
    before = catalog_files("nvidia-l4", "/prices/")
    new = knowledge_of(before if is_readable else dict.fromkeys(before, b"?"), catalog_files())
    assert "new-accelerator" in notices(new, dense())
    assert "does-not-fit" in errors(new, dense(LONG))


def test_a_draft_that_the_change_itself_brings_is_named() -> None:
    new = knowledge_of(catalog_files(EXPERTS.rpartition("/")[2]), catalog_files())
    drafted = dense('--speculative-config={"model": "MODEL", "num_speculative_tokens": 3}'.replace("MODEL", EXPERTS))
    messages = {each.rule: each.message for each in judged_objects(new, drafted).findings}
    assert "vocabulary" in messages["does-not-fit"]
    assert "this change itself brings the facts" in messages["new-model"]


# The check itself.


@pytest.mark.parametrize(("rule", "part"), sorted({pair for trap in tripwires() for pair in trap.wanted}))
def test_a_tripwire_that_comes_back_clean_ends_the_trust(monkeypatch: pytest.MonkeyPatch, rule: str, part: str) -> None:
    real = judge_container

    def blind(*arguments: Any) -> Judged:
        judged = real(*arguments)
        kept = tuple(each for each in judged.findings if each.rule != rule or part not in each.message)
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
    for server in servers(fixture_manifests(policy, which), runtimes_of(SNAPSHOT)):
        judged = judge_container(server, knowledge)
        rules = {finding.rule for finding in judged.findings}
        description = isinstance(server, VllmContainer) and server.description
        assert judged.whole != bool(rules & {"not-judged", UNREAD}), (server.subject, rules)
        if judged.whole and not description and "no-model" not in rules:
            assert isinstance(server, VllmContainer)
            assert knowledge.place(server, "").place.count >= 1
            words = [word.text for word in server.command.words]
            model = parse_arguments(words, server.command.version, program=server.command.program).arguments.model
            assert knowledge.model(model, server.source).facts.total_params > 0


def test_broken_manifests_never_break_the_gate(knowledge: Knowledge) -> None:
    good = service()
    places = [
        *("spec", "spec.predictor", "spec.predictor.model", "spec.predictor.nodeSelector"),
        *(f"model.{key}" for key in good["spec"]["predictor"]["model"]),
        "model.resources.limits.[nvidia.com/gpu]",
    ]
    for place in places:
        wrongs: tuple[Any, ...] = (None, 3, "text", [], [None], {}, {"a": {"b": None}}, [[]], -1)
        for wrong in wrongs:
            text = dump(changed(good, {place: wrong}))
            evaluation = evaluate_fit(read_manifests(text.encode(), FILE), runtimes_of(SNAPSHOT), lambda: knowledge)
            assert evaluation.caught == evaluation.tripwires
