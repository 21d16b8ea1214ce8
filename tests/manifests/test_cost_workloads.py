"""What each kind of object costs: which pods it runs, how many, and on which accelerator."""

from __future__ import annotations

import copy
import re
from decimal import Decimal
from typing import Any

import pytest

from cost_examples import (
    GIB,
    GPU_POD,
    HOURLY,
    L4,
    TODAY,
    VCPU,
    added,
    at_lists,
    autoscaler,
    inference_service,
    llm_service,
    monthly,
    objects,
    pod_spec,
    reasons,
    service,
    workload,
)
from neuroscale.costs.difference import compare

KNATIVE = {"serving.kserve.io/deploymentMode": "Knative"}
EXTERNAL = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "external"}
NONE = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "none"}
KEDA = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "keda"}
SELECTOR = "cloud.google.com/gke-accelerator"
ANYWHERE = GPU_POD | {"nodeSelector": {}}


def replicas(*given: Any) -> list[tuple[int, int]]:
    """The bounds of every workload that has a price."""
    service, _ = added(*given)
    for one in service.workloads:
        assert (one.monthly.min, one.monthly.max) == tuple(
            (one.hourly * count * 730).quantize(Decimal("0.01")) for count in (one.replicas_min, one.replicas_max)
        )
    return [(one.replicas_min, one.replicas_max) for one in service.workloads]


def only_reason(*given: Any, environment: str = "dev") -> str:
    """Why the one thing among the objects has no price; nothing is counted for it."""
    service, cost = added(*given, environment=environment)
    assert (service.workloads, service.new, service.difference) == ((), None, None)
    (reason,) = reasons(cost).values()
    return reason


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"])
def test_replicas_of_a_workload_are_one_by_default(kind: str) -> None:
    service, cost = added(workload(kind))
    assert service.new is not None
    assert (service.new.min, service.new.max) == (monthly(HOURLY), monthly(HOURLY))
    assert (service.change, cost.unpriced) == ("added", ())
    assert replicas(workload(kind, replicas=3)) == [(3, 3)]


def test_a_pod_is_one() -> None:
    assert replicas(workload("Pod")) == [(1, 1)]


def test_a_workload_is_described_by_its_pod() -> None:
    service, _ = added(workload(replicas=2))
    (one,) = service.workloads
    assert (one.subject, one.accelerator, one.accelerators) == ("Deployment team-alpha/chat", "nvidia-l4", 1)
    assert (one.cpu, one.memory_gib, one.hourly) == (Decimal(4), Decimal(16), HOURLY)
    assert one.price_lists == ("google-cloud",)


@pytest.mark.parametrize("kind", ["DaemonSet", "Job", "CronJob"])
def test_what_runs_nobody_knows_how_often_is_named_and_not_priced(kind: str) -> None:
    assert "not known" in only_reason(workload(kind))


def test_groups_of_a_leader_and_its_workers_count_whole() -> None:
    group = {"size": 3, "leaderTemplate": {"spec": GPU_POD}, "workerTemplate": {"spec": GPU_POD}}
    value = workload(replicas=2, leaderWorkerTemplate=group)
    value |= {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    service, cost = added(value)
    assert [(one.accelerators, one.hourly, one.replicas_min) for one in service.workloads] == [(3, 3 * HOURLY, 2)]
    assert cost.unpriced == ()


def test_the_router_of_a_graph_is_priced_where_the_graph_says_what_it_takes() -> None:
    graph = {
        **inference_service(),
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "InferenceGraph",
        "spec": {"nodes": {}, "minReplicas": 2, "maxReplicas": 3},
    }
    assert "router" in only_reason(graph)
    graph["spec"]["resources"] = {"requests": {"cpu": 1, "memory": "1Gi"}}
    assert replicas(graph) == [(2, 3)]
    assert [one.hourly for one in added(graph)[0].workloads] == [VCPU + GIB]


def test_an_unknown_kind_with_containers_is_named() -> None:
    rollout = workload() | {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    assert "the number of pods of a Rollout" in only_reason(rollout)


@pytest.mark.parametrize(
    "spec",
    [
        {"templates": [{"container": {"image": "train:1", "resources": {"requests": {"nvidia.com/gpu": 8}}}}]},
        {"steps": [{"image": "train:1"}]},
        {"domain": {"resources": {"limits": {"nvidia.com/gpu": 8}}}},
    ],
)
def test_what_looks_like_pods_of_an_unknown_kind_is_named(spec: dict[str, Any]) -> None:
    value = {"apiVersion": "example.org/v1", "kind": "Training", "metadata": {"name": "big"}, "spec": spec}
    assert "the number of pods of a Training" in only_reason(value)


@pytest.mark.parametrize("kind", ["ServingRuntime", "LLMInferenceServiceConfig", "PodTemplate"])
def test_what_only_describes_pods_costs_nothing(kind: str) -> None:
    service, cost = added(workload(), workload() | {"apiVersion": "x/v1", "kind": kind})
    assert (len(service.workloads), cost.unpriced) == (1, ())


def test_volumes_and_load_balancers_are_named_beside_the_price() -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"}, "spec": {}}
    balancer = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"}, "spec": {"type": "LoadBalancer"}}
    volumes = workload("StatefulSet", name="db", volumeClaimTemplates=[{"metadata": {"name": "data"}}])
    service, cost = added(volumes, claim, balancer)
    assert service.difference is not None
    assert service.partly
    assert set(reasons(cost)) == {
        "PersistentVolumeClaim weights",
        "Service front",
        "StatefulSet team-alpha/db volume data",
    }


# InferenceService


@pytest.mark.parametrize(
    ("annotations", "predictor", "expected"),
    [
        (None, {}, (1, 1)),
        (None, {"minReplicas": 2}, (2, 2)),
        (None, {"minReplicas": 2, "maxReplicas": 5}, (2, 5)),
        (None, {"minReplicas": 0, "maxReplicas": 2}, (1, 2)),
        (None, {"minReplicas": 3, "maxReplicas": 2}, (3, 3)),
        (KEDA, {"minReplicas": 0, "maxReplicas": 2}, (0, 2)),
        (NONE, {"minReplicas": 2, "maxReplicas": 5}, (2, 2)),
        (NONE, {"minReplicas": 0, "maxReplicas": 5}, (0, 0)),
        (NONE, {"maxReplicas": 5}, (1, 1)),
        (None, {"minReplicas": 2, "maxReplicas": 5, "annotations": NONE}, (2, 2)),
        (KNATIVE, {"minReplicas": 0, "maxReplicas": 2}, (0, 2)),
        (KNATIVE, {"maxReplicas": 4}, (1, 4)),
        ({}, {"minReplicas": 0, "maxReplicas": 4}, (0, 4)),
        (KNATIVE, {"annotations": {"autoscaling.knative.dev/max-scale": "3"}}, (1, 3)),
        ({"serving.kserve.io/deploymentMode": "RawDeployment"}, {"minReplicas": 0}, (1, 1)),
        (KNATIVE, {"minReplicas": 0, "annotations": {"serving.kserve.io/deploymentMode": "Standard"}}, (0, 0)),
        (KNATIVE | {"serving.kserve.io/stop": "true"}, {"minReplicas": 2, "maxReplicas": 4}, (0, 0)),
    ],
)
def test_replicas_of_an_inference_service_follow_kserve(
    annotations: Any, predictor: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert replicas(inference_service(predictor, annotations)) == [expected]


def test_what_others_scale_has_one_pod_until_they_do() -> None:
    service, cost = added(inference_service({"minReplicas": 2, "maxReplicas": 5}, EXTERNAL))
    assert [(one.replicas_min, one.replicas_max) for one in service.workloads] == [(1, 1)]
    assert "nothing bounds its replicas" in reasons(cost)["InferenceService team-alpha/chat predictor"]


def test_a_class_of_autoscaler_that_kserve_refuses_is_named() -> None:
    assert "'kpa'" in only_reason(inference_service({}, NONE | {"serving.kserve.io/autoscalerClass": "kpa"}))


def test_a_knative_service_without_an_upper_bound_says_so() -> None:
    service, cost = added(inference_service({"minReplicas": 2}, KNATIVE))
    assert "nothing bounds its replicas" in reasons(cost)["InferenceService team-alpha/chat predictor"]
    assert service.partly
    assert service.new is not None
    assert service.new.max == monthly(HOURLY, 2)


def test_the_model_s_container_transformer_and_explainer_all_count() -> None:
    value = inference_service(
        transformer=pod_spec(cpu=2, memory="1Gi") | {"minReplicas": 2},
        explainer={"art": pod_spec(cpu=1, memory="1Gi")["containers"][0]},
    )
    del value["spec"]["predictor"]["containers"]
    value["spec"]["predictor"]["model"] = GPU_POD["containers"][0]
    service, cost = added(value)
    assert {one.subject.rpartition(" ")[2]: one.hourly for one in service.workloads} == {
        "predictor": HOURLY,
        "transformer": 2 * VCPU + GIB,
        "explainer": VCPU + GIB,
    }
    assert cost.unpriced == ()


def test_a_container_beside_the_model_counts_too() -> None:
    value = inference_service({"containers": pod_spec(cpu=1, memory="2Gi")["containers"]})
    value["spec"]["predictor"]["model"] = GPU_POD["containers"][0]
    service, _ = added(value)
    assert service.workloads[0].cpu == 5


def test_a_predictor_whose_runtime_brings_everything_is_named() -> None:
    value = inference_service()
    value["spec"]["predictor"] = {"sklearn": {"storageUri": "gs://models/iris"}, "minReplicas": 1}
    assert "asks for no resources" in only_reason(value)
    value["spec"]["predictor"] = {"minReplicas": 1}
    assert "its runtime brings them" in only_reason(value)


def test_model_mesh_is_named() -> None:
    value = inference_service(annotations={"serving.kserve.io/deploymentMode": "ModelMesh"})
    assert "ModelMesh" in only_reason(value)


@pytest.mark.parametrize(
    ("predictor", "canary", "expected"),
    [
        ({}, {"trafficPercent": 10}, [(1, 1), (1, 1)]),
        ({"minReplicas": 4}, {"trafficPercent": 30}, [(2, 2), (2, 2)]),
        ({"minReplicas": 4, "maxReplicas": 6}, {"trafficPercent": 10, "minReplicas": 3}, [(3, 3), (1, 6)]),
        ({"minReplicas": 2}, {"trafficPercent": 100, "maxReplicas": 9}, [(2, 2), (1, 1)]),
    ],
)
def test_a_canary_is_priced_as_a_second_revision(
    predictor: dict[str, Any], canary: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    named = {key: value for key, value in canary.items() if key != "trafficPercent"}
    value = inference_service(
        predictor, canary=[{"predictor": {"name": "next", **named}, "trafficPercent": canary["trafficPercent"]}]
    )
    service, cost = added(value)
    assert [one.subject.rpartition("/")[2] for one in service.workloads] == ["chat canary next", "chat predictor"]
    assert replicas(value) == expected
    assert {one.hourly for one in service.workloads} == {HOURLY}
    assert cost.unpriced == ()


def test_a_canary_changes_what_it_says_and_is_its_service_otherwise() -> None:
    half = pod_spec(gpu=1, cpu=2, memory="8Gi")["containers"]
    value = inference_service(canary=[{"predictor": {"name": "next", "containers": half}, "trafficPercent": 10}])
    service, _ = added(value)
    assert {one.subject.rpartition("/")[2]: one.cpu for one in service.workloads} == {
        "chat canary next": 2,
        "chat predictor": 4,
    }


def test_a_canary_that_kserve_does_not_take_is_named() -> None:
    canary = [{"predictor": {"name": "next"}, "trafficPercent": 10}]
    service, cost = added(inference_service({"minReplicas": 1, "maxReplicas": 2}, KNATIVE, canary=canary))
    assert service.difference is None
    assert "only in the deployment mode Standard" in reasons(cost)["InferenceService team-alpha/chat canary"]


@pytest.mark.parametrize(
    ("head", "worker", "sizes", "expected"),
    [
        # The accelerators of a node times the nodes are tensor times pipeline parallel size.
        (2, 2, (2, 2), [(2, 1), (2, 1)]),
        (2, 2, (2, 4), [(2, 1), (2, 3)]),
        (None, 4, (4, 2), [(4, 1), (4, 1)]),
        (None, None, (1, 3), [(1, 1), (1, 2)]),
        (2, None, (2, 2), [(2, 1), (1, 2)]),
        (4, 2, (2, 2), [(4, 1)]),
    ],
)
def test_a_predictor_on_several_nodes_has_a_head_and_workers(
    head: int | None, worker: int | None, sizes: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    def pods(count: int | None) -> dict[str, Any]:
        return pod_spec(cpu=4, memory="16Gi", **({"gpu": count} if count else {})) | {
            "nodeSelector": {SELECTOR: "nvidia-l4"}
        }

    worker_spec = pods(worker) | {"tensorParallelSize": sizes[0], "pipelineParallelSize": sizes[1]}
    service, cost = added(inference_service(pods(head) | {"workerSpec": worker_spec}))
    running = [one for one in service.workloads if one.replicas_max]
    assert [(one.accelerators, one.replicas_min) for one in running] == expected
    assert cost.unpriced == ()


def test_workers_that_the_runtime_sizes_are_named() -> None:
    service, cost = added(inference_service({"workerSpec": {"containers": GPU_POD["containers"]}}))
    assert service.new is None
    assert all("runtime sets" in reason for reason in reasons(cost).values())


# Serving runtimes


def runtime(**spec: Any) -> dict[str, Any]:
    """A runtime of the whole cluster that asks for what GPU_POD asks for."""
    containers = [{**GPU_POD["containers"][0], "name": "kserve-container"}]
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "theirs"},
        "spec": {**GPU_POD, "containers": containers, **spec},
    }


def modelled(**model: Any) -> dict[str, Any]:
    """An InferenceService whose containers its runtime brings."""
    value = inference_service()
    value["spec"]["predictor"] = {"model": {"modelFormat": {"name": "any"}, "runtime": "theirs", **model}}
    return value


def test_a_service_asks_for_what_its_runtime_does() -> None:
    service, cost = added(modelled(), runtime())
    assert [(one.accelerator, one.hourly) for one in service.workloads] == [("nvidia-l4", HOURLY)]
    assert cost.unpriced == ()
    smaller = {"requests": {"cpu": 2}}
    assert [one.hourly for one in added(modelled(resources=smaller), runtime())[0].workloads] == [HOURLY - 2 * VCPU]
    beside = [*runtime()["spec"]["containers"], {"name": "agent", "resources": {"requests": {"cpu": 1, "memory": 0}}}]
    assert [one.cpu for one in added(modelled(), runtime(containers=beside))[0].workloads] == [5]


def test_a_namespaced_runtime_comes_before_a_clusters() -> None:
    ours = runtime(containers=[{"name": "kserve-container", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}])
    ours |= {"kind": "ServingRuntime", "metadata": {"name": "theirs", "namespace": "team-alpha"}}
    service, _ = added(modelled(), runtime(), ours)
    assert [one.cpu for one in service.workloads] == [1]
    ours["metadata"]["namespace"] = "elsewhere"
    assert [one.cpu for one in added(modelled(), runtime(), ours)[0].workloads] == [4]


def test_a_runtime_that_is_not_known_is_named() -> None:
    full = GPU_POD["containers"][0]["resources"]
    service, cost = added(inference_service({"model": {"runtime": "other", "resources": full}, "containers": None}))
    assert [one.hourly for one in service.workloads] == [HOURLY]
    assert "runtime other is not among the files" in reasons(cost)["InferenceService team-alpha/chat predictor"]
    empty = runtime(containers=[{"name": "other"}])
    assert "no container with the name kserve-container" in only_reason(modelled(), empty)


def test_the_runtime_sizes_workers() -> None:
    worker = [{**GPU_POD["containers"][0], "name": "worker-container"}]
    sizes = {"tensorParallelSize": 1, "pipelineParallelSize": 3}
    value = modelled()
    value["spec"]["predictor"]["workerSpec"] = {}
    nodes = {"nodeSelector": GPU_POD["nodeSelector"]}
    service, cost = added(value, runtime(workerSpec={**nodes, "containers": worker, **sizes}))
    assert [(one.accelerators, one.replicas_min) for one in service.workloads] == [(1, 1), (1, 2)]
    assert cost.unpriced == ()
    value["spec"]["predictor"]["workerSpec"] = {"tensorParallelSize": 2}
    staged = runtime(
        workerSpec={**nodes, "containers": worker, **sizes}, annotations={"multinode/executor-backend": "mp"}
    )
    assert [(one.accelerators, one.replicas_min) for one in added(value, staged)[0].workloads] == [(2, 1), (2, 2)]
    for broken in (runtime(), runtime(workerSpec={"containers": [{"name": "other"}]})):
        assert added(value, broken)[0].new is None


# LLMInferenceService


def test_replicas_of_an_llm_inference_service() -> None:
    assert replicas(llm_service()) == [(1, 1)]
    assert replicas(llm_service(replicas=3)) == [(3, 3)]
    assert replicas(llm_service(scaling={"maxReplicas": 4, "wva": {"hpa": {}}})) == [(1, 4)]
    scaling = {"minReplicas": 3, "maxReplicas": 4, "wva": {"keda": {"idleReplicaCount": 1}}}
    assert replicas(llm_service(scaling=scaling)) == [(1, 4)]


def test_prefill_and_the_scheduler_have_pods_of_their_own() -> None:
    scheduler = {"template": pod_spec(cpu=1, memory="1Gi"), "replicas": 2}
    service, cost = added(
        llm_service(prefill={"template": GPU_POD, "replicas": 2}, router={"scheduler": scheduler}, replicas=3)
    )
    assert {
        one.subject.removeprefix("LLMInferenceService team-alpha/chat"): one.replicas_min for one in service.workloads
    } == {
        "": 3,
        " prefill": 2,
        " scheduler": 2,
    }
    assert cost.unpriced == ()
    service, cost = added(llm_service(router={"scheduler": {}}))
    assert service.difference is not None
    assert "scheduler" in next(iter(reasons(cost)))


@pytest.mark.parametrize(
    ("parallelism", "pods"),
    [({}, 1), ({"tensor": 4}, 1), ({"pipeline": 3}, 3), ({"data": 16, "dataLocal": 8}, 2), ({"data": 4}, 4)],
)
def test_a_group_of_workers_counts_whole_in_every_replica(parallelism: dict[str, int], pods: int) -> None:
    for leader in (GPU_POD, None):
        service, _ = added(llm_service(template=leader, worker=GPU_POD, parallelism=parallelism, replicas=2))
        (one,) = service.workloads
        assert (one.accelerators, one.hourly, one.replicas_min) == (pods, pods * HOURLY, 2)


def test_pods_out_of_a_shared_configuration_are_named() -> None:
    assert "LLMInferenceServiceConfig" in only_reason(llm_service(template=None, baseRefs=[{"name": "x"}]))
    assert "no containers" in only_reason(llm_service(template={"nodeSelector": {SELECTOR: "nvidia-l4"}}))


# Autoscalers and Knative


def test_an_autoscaler_bounds_its_target() -> None:
    hpa = autoscaler("HorizontalPodAutoscaler", "chat", minReplicas=2, maxReplicas=6)
    assert replicas(workload(replicas=4), hpa) == [(2, 6)]
    assert replicas(workload(replicas=0), hpa) == [(0, 0)]
    assert replicas(workload(), autoscaler("HorizontalPodAutoscaler", "chat", maxReplicas=6)) == [(1, 6)]
    keda = autoscaler("ScaledObject", "chat", maxReplicaCount=5)
    assert replicas(workload(replicas=3), keda) == [(0, 5)]
    assert replicas(workload(), autoscaler("ScaledObject", "chat")) == [(0, 100)]
    assert replicas(workload(), autoscaler("ScaledObject", "chat", minReplicaCount=2, idleReplicaCount=1)) == [(1, 100)]
    paused = {"autoscaling.keda.sh/paused-replicas": "7"}
    assert replicas(workload(), autoscaler("ScaledObject", "chat", annotations=paused)) == [(7, 7)]


def test_an_autoscaler_of_its_own_bounds_an_inference_service() -> None:
    keda = autoscaler("ScaledObject", "chat-predictor", minReplicaCount=1, maxReplicaCount=5)
    assert replicas(inference_service({"minReplicas": 2, "maxReplicas": 2}, EXTERNAL), keda) == [(1, 5)]
    assert replicas(llm_service(), autoscaler("ScaledObject", "chat-kserve", maxReplicaCount=5)) == [(0, 5)]


def test_an_autoscaler_of_another_kind_or_name_is_named_and_changes_nothing() -> None:
    for stray in (
        autoscaler("HorizontalPodAutoscaler", "other", maxReplicas=6),
        autoscaler("HorizontalPodAutoscaler", "chat", "StatefulSet", maxReplicas=6),
    ):
        service, cost = added(workload(), stray)
        assert (service.workloads[0].replicas_max, service.difference) == (1, None)
        assert "not among the files" in reasons(cost)["HorizontalPodAutoscaler team-alpha/scaler"]


def test_an_autoscaler_without_its_bounds_is_named() -> None:
    _, cost = added(workload(), autoscaler("HorizontalPodAutoscaler", "chat"))
    assert "maxReplicas" in reasons(cost)["HorizontalPodAutoscaler team-alpha/scaler"]


def test_a_knative_service_is_bounded_by_its_annotations() -> None:
    knative = {"apiVersion": "serving.knative.dev/v1", "kind": "Service"}
    value = workload() | knative
    service, _ = added(value)
    assert (service.workloads[0].replicas_min, service.partly) == (0, True)
    scale = {"autoscaling.knative.dev/min-scale": "1", "autoscaling.knative.dev/maxScale": "3"}
    value["spec"]["template"]["metadata"]["annotations"] = scale
    assert replicas(value) == [(1, 3)]


# Accelerators


def affinity(*terms: dict[str, list[str]]) -> dict[str, Any]:
    listed = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values} for key, values in term.items()]}
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    "nodes",
    [
        {"nodeSelector": {SELECTOR: "nvidia-h100-80gb", "zone": "a"}},
        affinity({SELECTOR: ["nvidia-h100-80gb"]}),
        affinity({SELECTOR: ["nvidia-h100-80gb"], "zone": ["a", "b"]}, {SELECTOR: ["nvidia-h100-80gb"]}),
        {"nodeSelector": {SELECTOR: "nvidia-h100-80gb"}, **affinity({SELECTOR: ["nvidia-l4", "nvidia-h100-80gb"]})},
    ],
)
def test_the_accelerator_is_found_by_the_nodes_that_the_pod_selects(nodes: dict[str, Any]) -> None:
    service, _ = added(workload(pod=pod_spec(gpu=2, cpu=8, memory="64Gi") | {"nodeSelector": {}} | nodes))
    (one,) = service.workloads
    assert (one.accelerator, one.accelerators, one.hourly) == ("nvidia-h100-80gb", 2, 2 * Decimal("10.98"))


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"nodeSelector": {}}, "may have any of nvidia-a100-80gb, nvidia-h100-80gb, nvidia-l4, nvidia-rtx-pro-6000"),
        ({"nodeSelector": {SELECTOR: "nvidia-tesla-p100"}}, "no accelerator for nodes with .*=nvidia-tesla-p100"),
        (affinity({SELECTOR: ["nvidia-l4", "nvidia-h100-80gb"]}), "may have any of nvidia-h100-80gb, nvidia-l4"),
        (affinity({SELECTOR: ["nvidia-l4"]}, {"zone": ["a"]}), "may have any of"),
        (affinity({SELECTOR: ["nvidia-l4", "nvidia-tesla-p100"]}), "no accelerator for nodes with"),
        (affinity({SELECTOR: []}), "may have any of"),
    ],
)
def test_an_accelerator_that_the_catalog_cannot_tell_is_named(nodes: dict[str, Any], words: str) -> None:
    assert re.search(words, only_reason(workload(pod=ANYWHERE | nodes)))


def test_counts_tell_slices_apart_and_impossible_ones_are_named() -> None:
    slice_of = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    pod = pod_spec(cpu=4, memory="16Gi", **{"google.com/tpu": 4}) | {"nodeSelector": slice_of}
    service, _ = added(workload(pod=pod), environment="prod")
    assert (service.workloads[0].accelerator, service.workloads[0].hourly) == ("tpu-v6e-4", Decimal("5.50"))
    assert "cannot hold 3 x nvidia-l4" in only_reason(workload(pod=pod_spec(gpu=3, cpu=1, memory="1Gi")))
    assert "whole number" in only_reason(workload(pod=pod_spec(gpu="500m", cpu=1, memory="1Gi")))


def test_devices_that_the_catalog_lacks_are_named() -> None:
    assert "no accelerator of the catalog" in only_reason(workload(pod=pod_spec(cpu=1, **{"gpu.intel.com/xe": 1})))
    both = pod_spec(gpu=1, **{"google.com/tpu": 1})
    assert "several kinds of devices" in only_reason(workload(pod=both))
    claims = pod_spec(cpu=1, memory="1Gi") | {"resourceClaims": [{"name": "gpu"}]}
    assert "resource claims" in only_reason(workload(pod=claims))


def test_an_accelerator_without_a_price_is_named_and_never_gets_a_default_one() -> None:
    for kind in ("nvidia-b200", "nvidia-h200-141gb"):
        pod = GPU_POD | {"nodeSelector": {SELECTOR: kind}}
        service, cost = added(workload(pod=pod), workload(name="other"))
        assert f"has a price for 1 x {kind}" in reasons(cost)["Deployment team-alpha/chat"]
        assert [one.subject for one in service.workloads] == ["Deployment team-alpha/other"]
        assert "0.95" not in cost.model_dump_json()


def test_a_pod_without_an_accelerator_is_priced_by_cpu_and_memory() -> None:
    service, _ = added(workload(pod=pod_spec(cpu="1500m", memory="512Mi")))
    (one,) = service.workloads
    assert (one.accelerator, one.accelerators) == ("", 0)
    assert one.hourly == Decimal("1.5") * VCPU + GIB / 2


def test_what_a_container_does_not_ask_for_is_named_and_counts_as_nothing() -> None:
    service, cost = added(workload(pod=pod_spec(gpu=1, cpu=4)))
    assert service.workloads[0].hourly == L4 + 4 * VCPU
    assert service.difference is not None
    assert reasons(cost) == {
        "Deployment team-alpha/chat": "a container does not request memory, which the price leaves out"
    }


def test_an_instance_is_assumed_for_a_pod_that_does_not_ask_for_memory() -> None:
    pod = pod_spec(gpu=8, cpu=4)
    pod["nodeSelector"] = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    aws = at_lists("aws-us-east-1")
    cost = compare([service((), (workload(pod=pod),))], aws, aws, TODAY)
    assert cost is not None
    assert cost.services[0].workloads[0].hourly == Decimal("55.04")
    assert reasons(cost) == {
        "Deployment team-alpha/chat": "a container does not request memory, so the cheapest instance that holds the "
        "rest is assumed (p5.48xlarge)"
    }


@pytest.mark.parametrize(
    ("environment", "words"), [("staging", "do not name"), ("", "do not name"), ("local", "no price list")]
)
def test_without_price_lists_nothing_is_priced(environment: str, words: str) -> None:
    assert words in only_reason(workload(), environment=environment)


def test_numbers_beyond_measure_are_named() -> None:
    assert "cannot be meant" in only_reason(workload(replicas=2**31 - 1))
    assert "cannot be meant" in only_reason(workload(pod=pod_spec(cpu="1E", memory="1Ei")))
    assert "is not a count" in only_reason(workload(replicas=2**31))
    assert "is not a quantity" in only_reason(workload(pod=pod_spec(cpu="lots")))


# Cost centres


def test_the_cost_centre_is_the_object_s_then_the_pods_then_the_team_s() -> None:
    centers = {
        "object": workload(labels={"cost-center": "object"}, pod_labels={"cost-center": "pods"}),
        "pods": workload(pod_labels={"cost-center": "pods"}),
        "cc-ml-inference": workload(),
    }
    for center, value in centers.items():
        assert [one.cost_center for one in added(value)[1].cost_centers] == [center]
    elsewhere = copy.deepcopy(workload())
    elsewhere["metadata"]["namespace"] = "elsewhere"
    assert [one.cost_center for one in added(elsewhere)[1].cost_centers] == ["(no cost centre)"]
    labelled = inference_service({"labels": {"cost-center": "component"}})
    assert [one.cost_center for one in added(labelled)[1].cost_centers] == ["component"]


def test_objects_of_a_stream_that_are_not_what_they_seem_are_named_and_never_crash() -> None:
    broken = objects(
        """
kind: Deployment
apiVersion: apps/v1
metadata: {name: a}
spec: []
---
kind: InferenceService
apiVersion: serving.kserve.io/v1beta1
metadata: {name: b, labels: 3, annotations: [x]}
spec: {predictor: {containers: [{}]}, transformer: 7}
---
kind: ScaledObject
apiVersion: keda.sh/v1alpha1
metadata: {name: c}
spec: {scaleTargetRef: {name: [1]}}
---
kind: LLMInferenceService
apiVersion: serving.kserve.io/v1alpha1
metadata: {name: d}
spec: {worker: {}, parallelism: [], router: {scheduler: []}, prefill: x}
---
kind: Deployment
apiVersion: apps/v1
metadata: {name: e}
spec: {replicas: many, template: {spec: {containers: [{resources: {requests: {cpu: {}}}}]}}}
"""
    )
    service, cost = added(*broken)
    assert service.workloads == ()
    assert {subject.split()[1] for subject in reasons(cost)} == {"a", "b", "c", "d", "e"}
