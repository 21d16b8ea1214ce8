"""The verdict on a deployed service, for every way in which it may not be what it seems."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.cluster.command_lines import CommandLines
from neuroscale.cluster.object_fields import condition, differences, served_model_name
from neuroscale.cluster.service_verdict import judge_service
from neuroscale.core.validation import part
from printed_lines import check_lines
from status_objects import BUDGET, ENVIRONMENT, NAME, NAMESPACE, NOW, REVISION, World, ago, condition_of


def test_a_service_is_ready_when_argo_cd_kserve_and_the_newest_pods_agree() -> None:
    status = World().status()
    assert status.verdict == "ready", status
    assert status.url == "http://support-chat.team-alpha.example.com"
    assert status.address == "http://support-chat-predictor.team-alpha.svc.cluster.local"
    assert status.next == ""
    assert status.replicas_ready == status.replicas_needed == 1


# ------------------------------------------------------------ starting


def loading(seconds: float) -> World:
    world = World()
    world.pods = [world.loading("new-0", seconds)]
    world.not_ready()
    return world


def test_a_load_within_the_startup_probes_budget_is_starting_with_its_seconds() -> None:
    status = loading(120).status()
    assert status.verdict == "starting"
    assert "2 min of 26 min used, 24 min left" in status.reason
    assert (status.pods[0].used_seconds, status.pods[0].budget_seconds) == (120, BUDGET)


def test_a_load_that_outlives_kubernetes_patience_is_starting_and_not_failed() -> None:
    world = loading(900)
    told = 'ReplicaSet "support-chat-predictor-new" has timed out progressing.'
    world.not_ready("ProgressDeadlineExceeded", told)
    condition_of(world.deployment, "Progressing").update(
        status="False", reason="ProgressDeadlineExceeded", message=told
    )
    assert world.application is not None
    world.application["status"]["health"]["status"] = "Degraded"
    status = world.status()
    assert status.verdict == "starting"
    assert "15 min of 26 min used" in status.reason
    assert any("10 min" in note and "not a failure" in note for note in status.notes)


def test_a_load_beyond_its_budget_is_failed() -> None:
    status = loading(BUDGET + 1).status()
    assert status.verdict == "failed"
    assert "used up" in status.reason


def test_without_a_startup_probe_kubernetes_own_patience_is_the_budget() -> None:
    world = loading(599)
    del world.pods[0]["spec"]["containers"][0]["startupProbe"]
    assert world.status().verdict == "starting"
    world = loading(601)
    del world.pods[0]["spec"]["containers"][0]["startupProbe"]
    assert world.status().verdict == "failed"


def test_a_download_before_the_start_has_the_same_budget() -> None:
    for seconds, verdict in ((700, "starting"), (BUDGET + 5, "failed")):
        world = loading(0)
        status = world.pods[0]["status"]
        status["initContainerStatuses"] = [
            {"name": "storage-initializer", "ready": False, "state": {"running": {"startedAt": ago(seconds)}}}
        ]
        status["containerStatuses"][0].update(state={"waiting": {"reason": "PodInitializing"}})
        assert world.status().verdict == verdict


NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def unscheduled(world: World, seconds: float, message: str = NO_GPU) -> None:
    """Leave the newest pod without a node for so many seconds, as the scheduler does."""
    pod = world.pods[0]
    del pod["spec"]["nodeName"]
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    pod["status"] = {"phase": "Pending", "conditions": [{**refused, "lastTransitionTime": ago(seconds)}]}


def test_a_pod_that_no_node_takes_names_the_schedulers_reason_and_fails_with_time() -> None:
    for seconds, verdict in ((30, "starting"), (901, "failed")):
        world = loading(0)
        unscheduled(world, seconds)
        status = world.status()
        assert status.verdict == verdict
        assert "no node takes it: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu" in status.reason
        assert check_lines(status.next) == ["kubectl -n team-alpha describe pod new-0"]  # it has no log


def pod_event(reason: str, seconds: float, message: str = "", component: str = "") -> dict[str, Any]:
    return {
        "type": "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": ago(seconds),
        "source": {"component": component},
        "involvedObject": {"name": "new-0", "uid": "new-0"},
    }


def test_a_new_version_without_an_accelerator_is_told_at_once_and_fails_after_the_time_of_the_settings() -> None:
    world = rolling()
    unscheduled(world, 20)
    status = world.status()
    assert (status.verdict, status.waits_for) == ("out of date", "an accelerator")
    assert status.reason == (
        "the new version waits for an accelerator: pod new-0: no node takes it: 0/3 nodes are available: 3 "
        "Insufficient nvidia.com/gpu; 1 pod of an earlier generation still serves"
    )
    assert "after 15 min" in status.next
    assert (
        "With an override of rollout with replace it starts, too: its merge ends pods that serve first." in status.next
    )
    assert judge_service(replace(world.observed(), node_wait=60), NOW).verdict == "out of date"
    unscheduled_longer = rolling()
    unscheduled(unscheduled_longer, 61)
    failed = judge_service(replace(unscheduled_longer.observed(), node_wait=60), NOW)
    assert failed.verdict == "failed"
    assert "the new version has waited for an accelerator for more than 1 min (node_wait_minutes" in failed.reason
    assert "still serves" in failed.reason


@pytest.mark.parametrize(
    ("events", "verdict", "words"),
    [
        ([pod_event("TriggeredScaleUp", 60, "pod triggered scale-up: [{g 0->1 (max: 4)}]")], "out of date", "60 s"),
        ([pod_event("Nominated", 60, "Pod should schedule on: nodeclaim/gpu-x")], "out of date", "nodeclaim/gpu-x"),
        ([pod_event("NotTriggerScaleUp", 60, "2 max node group size reached")], "failed", "no node is made for it"),
        ([pod_event("TriggeredScaleUp", 901)], "failed", "has not come"),
        ([pod_event("TriggeredScaleUp", 90), pod_event("NotTriggerScaleUp", 30)], "failed", "no node is made for it"),
        ([pod_event("NotTriggerScaleUp", 90), pod_event("TriggeredScaleUp", 30)], "out of date", "since 30 s"),
        (
            [pod_event("Nominated", 90), pod_event("FailedScheduling", 30, component="default-scheduler")],
            "out of date",
            "since 90 s",
        ),
        (
            [pod_event("Nominated", 90), pod_event("FailedScheduling", 30, "no instance type", component="karpenter")],
            "failed",
            "no instance type",
        ),
        ([{**pod_event("TriggeredScaleUp", 60), "involvedObject": {"uid": "other"}}], "failed", "no node takes it"),
    ],
)
def test_a_pod_is_not_failed_while_a_node_is_being_made_for_it(
    events: list[dict[str, Any]], verdict: str, words: str
) -> None:
    world = rolling()
    unscheduled(world, 2000)
    world.events = events
    status = world.status()
    assert status.verdict == verdict
    assert words in status.reason
    assert ("a node is being made" in status.next) == (verdict != "failed")


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "an accelerator"),
        ("0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient nvidia.com/gpu.", "an accelerator"),
        ("0/3 nodes are available: 3 Insufficient memory.", "a node"),
    ],
)
def test_what_a_pod_waits_for_is_what_the_scheduler_names(message: str, lacks: str) -> None:
    world = loading(0)
    unscheduled(world, 20, message)
    status = world.status()
    assert (status.verdict, status.waits_for) == ("starting", lacks)
    assert status.reason.startswith(f"it waits for {lacks}: ")


QUOTA = 'pods "x" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1, used: 4, limited: 4'


@pytest.mark.parametrize(("seconds", "verdict"), [(30, "out of date"), (901, "failed")])
def test_a_new_version_that_a_quota_refuses_waits_for_room_in_it(seconds: float, verdict: str) -> None:
    world = rolling()
    del world.pods[0]
    assert world.deployment is not None
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": QUOTA}
    world.deployment["status"]["conditions"].append({**refused, "lastTransitionTime": ago(seconds)})
    status = world.status()
    assert status.verdict == verdict
    assert "for room in the namespace's quota" in status.reason
    assert "exceeded quota: team" in status.reason
    assert "1 pod of an earlier generation still serves" in status.reason
    assert check_lines(status.next) == ["kubectl -n team-alpha get resourcequota"]


def test_a_service_that_git_no_longer_holds_is_being_removed_on_purpose() -> None:
    world = World(contains=None)
    told = judge_service(replace(world.observed(), removed=True), NOW)
    assert (told.verdict, "its folder is gone from Git" in told.reason) == ("removing", True)
    assert world.service is not None
    world.service["metadata"]["deletionTimestamp"] = ago(5)
    told = judge_service(replace(world.observed(), removed=True), NOW)
    assert told.verdict == "removing"
    assert told.reason == "it is being removed, because its folder is gone from Git; its pods end"
    assert told.next == "Wait until it is gone."
    world.wanted = {"metadata": {}, "spec": {}}
    told = world.status()
    assert told.verdict == "missing"
    assert "git fetch" in told.next


def test_a_service_that_kserve_has_not_seen_yet_is_starting_and_later_unknown() -> None:
    for seconds, verdict in ((5, "starting"), (600, "unknown")):
        world = World()
        assert world.service is not None
        world.service["status"] = {}
        world.service["metadata"].update(creationTimestamp=ago(seconds), managedFields=[])
        world.deployment, world.replica_sets, world.pods = None, [], []
        status = world.status()
        assert status.verdict == verdict
        assert "KServe has reported nothing" in status.reason


# ------------------------------------------------------------ failed


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


LOGS = "neuroscale explain support-chat --environment dev"


@pytest.mark.parametrize(
    ("change", "words", "do"),
    [
        (
            {"state": waiting("ImagePullBackOff", 'Back-off pulling image "vllm:none"')},
            "ImagePullBackOff: Back-off",
            "kubectl -n team-alpha describe pod new-0",
        ),
        (
            {"state": waiting("ErrImagePull", "vLLM for the CPU is not installed on this machine: run `make setup`.")},
            "ErrImagePull: vLLM for the CPU is not installed on this machine: run `make setup`",
            "kubectl -n team-alpha describe pod new-0",
        ),
        (
            {"state": waiting("CreateContainerConfigError", 'secret "hugging-face" not found')},
            'secret "hugging-face"',
            "the Secret hugging-face: kubectl -n team-alpha get secrets",
        ),
        (
            {"state": waiting("CreateContainerError", "no such user")},
            "CreateContainerError: no such user",
            "kubectl -n team-alpha describe pod new-0",
        ),
        (
            {
                "state": waiting("CrashLoopBackOff"),
                "restartCount": 4,
                "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "unrecognized arguments"}},
            },
            "CrashLoopBackOff: kserve-container ended with exit code 2: unrecognized arguments",
            LOGS,
        ),
        (
            {
                "state": {"running": {"startedAt": ago(20)}},
                "restartCount": 1,
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "needed more memory than its limit (OOMKilled); started again 20 s ago",
            LOGS,
        ),
        ({"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}, "ended with exit code 1", LOGS),
    ],
)
def test_a_container_that_does_not_start_is_failed_with_its_reason_and_what_to_do(
    change: dict[str, Any], words: str, do: str
) -> None:
    world = loading(20)
    world.pods[0]["status"]["containerStatuses"][0].update(change)
    status = world.status()
    assert status.verdict == "failed"
    assert words in status.reason
    assert do in status.next
    assert check_lines(status.next)


@pytest.mark.parametrize(
    "message",
    [f'secret "{NAME}-api-key" not found', f"couldn't find key api-key in Secret {NAMESPACE}/{NAME}-api-key"],
)
def test_a_pod_without_its_endpoints_key_waits_for_it_and_status_says_how_to_make_it(message: str) -> None:
    for seconds, verdict in ((20, "starting"), (601, "failed")):
        world = loading(20)
        condition_of(world.pods[0], "PodScheduled")["lastTransitionTime"] = ago(seconds)
        world.pods[0]["status"]["containerStatuses"][0]["state"] = waiting("CreateContainerConfigError", message)
        status = world.status()
        assert status.verdict == verdict
        assert f"pod new-0: waits for its Secret {NAME}-api-key" in status.reason
        assert status.next == f"Make its key: neuroscale key {NAME} --environment {ENVIRONMENT}"
    world.pods.append(world.pod("old-0", "old"))
    condition_of(world.pods[0], "PodScheduled")["lastTransitionTime"] = ago(20)
    status = world.status()
    assert (status.verdict, "old" in status.pods[-1].name) == ("out of date", True)
    assert "neuroscale key" in status.next


def test_the_key_of_another_service_is_nothing_that_a_pod_waits_for() -> None:
    world = loading(20)
    told = 'secret "other-chat-api-key" not found'
    world.pods[0]["status"]["containerStatuses"][0]["state"] = waiting("CreateContainerConfigError", told)
    status = world.status()
    assert status.verdict == "failed"
    assert "neuroscale key" not in status.next


def test_the_model_is_told_by_the_name_that_clients_use() -> None:
    world = World()
    assert world.service is not None
    assert world.status().model == ""
    world.service["spec"]["predictor"]["model"]["args"] += ["--served-model-name=gemma", "--max-model-len=8192"]
    assert world.status().model == "gemma"


def test_pods_that_the_cluster_refuses_are_failed_with_its_words() -> None:
    world = World()
    world.pods = []
    world.not_ready()
    rows = world.deployment["status"]["conditions"] if world.deployment else []
    rows.append({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "denied by a policy"})
    status = world.status()
    assert status.verdict == "failed"
    assert "denied by a policy" in status.reason


def test_a_service_that_kserve_cannot_use_is_failed_with_its_last_failure() -> None:
    world = World()
    assert world.service is not None
    world.deployment, world.replica_sets, world.pods = None, [], []
    world.not_ready()
    world.service["status"]["modelStatus"] = {
        "transitionStatus": "InvalidSpec",
        "lastFailureInfo": {"reason": "RuntimeNotRecognized", "message": "Waiting for runtime to become available"},
    }
    status = world.status()
    assert status.verdict == "failed"
    assert "RuntimeNotRecognized: Waiting for runtime" in status.reason


def test_what_keeps_kserve_from_making_a_deployment_is_told_from_its_event() -> None:
    world = World()
    assert world.service is not None
    world.service["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    world.deployment, world.replica_sets, world.pods = None, [], []
    world.events = [{"type": "Warning", "reason": "InternalError", "message": "StorageURI not supported"}]
    status = world.status()
    assert status.verdict == "failed"
    assert "StorageURI not supported" in status.reason


def test_a_failure_that_is_over_is_not_shown() -> None:
    world = World()
    assert world.service is not None
    world.service["status"]["modelStatus"]["lastFailureInfo"] = {"reason": "ModelLoadFailed", "exitCode": 1}
    status = world.status()
    assert status.verdict == "ready"
    assert status.last_failure == ""


# ------------------------------------------------------------ out of date


def rolling(seconds: float = 60) -> World:
    """A new generation loads while the old one serves; KServe and Argo CD call this ready."""
    world = World()
    world.pods = [world.loading("new-0", seconds), world.pod("old-0", "old")]
    return world


def test_the_commands_that_it_names_ask_the_same_cluster() -> None:
    world = loading(120)
    world.pods[0]["status"]["containerStatuses"][0].update(state=waiting("CrashLoopBackOff"), restartCount=2)
    lines = CommandLines("kubectl --kubeconfig=/tmp/local.kubeconfig", options="--kubeconfig=/tmp/local.kubeconfig")
    observed = replace(world.observed(), lines=lines)
    explain = f"neuroscale explain {observed.name} --environment {observed.environment}"
    assert judge_service(observed, NOW).next == f"Read the cause: {explain} --kubeconfig=/tmp/local.kubeconfig"


def test_events_have_their_age_and_a_ready_service_has_none() -> None:
    world = loading(120)
    event = {"type": "Warning", "reason": "Unhealthy", "message": "probe failed", "involvedObject": {"name": "new-0"}}
    world.events = [{**event, "lastTimestamp": ago(605)}, {**event, "reason": "Failed", "lastTimestamp": ago(7)}]
    assert world.status().events == (
        "10 min ago: new-0: Unhealthy: probe failed",
        "7 s ago: new-0: Failed: probe failed",
    )
    healthy = World()
    healthy.events = world.events
    assert healthy.status().events == ()


def test_an_old_generation_that_still_serves_is_out_of_date_although_kserve_says_ready() -> None:
    status = rolling().status()
    assert status.verdict == "out of date"
    assert "1 pod of an earlier generation still serves" in status.reason
    assert (status.replicas_ready, status.replicas_old) == (0, 1)
    assert status.unfinished
    assert World().status().unfinished is False
    assert World(contains=False).status().unfinished is None, "Git's newest version has not come to the cluster"


def test_a_new_generation_that_crashes_is_failed_and_says_that_the_old_one_serves() -> None:
    world = rolling()
    world.pods[0]["status"]["containerStatuses"][0].update(
        state=waiting("CrashLoopBackOff"), lastState={"terminated": {"exitCode": 1}}, restartCount=3
    )
    status = world.status()
    assert status.verdict == "failed"
    assert "earlier generation still serve" in status.reason


def test_old_pods_beside_enough_new_ones_are_out_of_date_until_they_end() -> None:
    world = World()
    world.pods.append(world.pod("old-0", "old"))
    assert world.status().verdict == "out of date"
    world.pods[-1]["metadata"]["deletionTimestamp"] = ago(3)
    assert world.status().verdict == "ready"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "image"), "vllm/vllm-openai:v0.33.0"),
        (("model", "args"), ["--model=another"]),
        (("model", "env"), [{"name": "HOME", "value": "/elsewhere"}]),
        (("model", "resources", "limits", "cpu"), 8),
        (("model", "startupProbe", "failureThreshold"), 300),
        (("model", "storageUri"), "gs://models/other"),
        (("nodeSelector",), {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}),
        (("minReplicas",), 3),
    ],
)
def test_a_change_that_kserve_has_not_carried_on_is_out_of_date(path: tuple[str, ...], value: Any) -> None:
    """KServe's status.observedGeneration is the Deployment's and cannot tell."""
    world = World()
    assert world.service is not None
    place = world.service["spec"]["predictor"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    status = world.status()
    assert status.verdict == "out of date"
    assert "KServe has not applied the newest generation to its Deployment" in status.reason


@pytest.mark.parametrize(("place", "verdict"), [("runtime", "out of date"), ("predictor", "starting")])
def test_replicas_are_compared_only_where_nothing_scales_them(place: str, verdict: str) -> None:
    """KServe reads the autoscaler's class of the service, of its predictor and of its runtime."""
    world = World()
    assert world.service is not None
    predictor = world.service["spec"]["predictor"]
    predictor["minReplicas"] = 3
    name = "serving.kserve.io/autoscalerClass"
    if place == "predictor":
        predictor["annotations"] = {name: "hpa"}
        runtime: dict[str, Any] = {}
    else:
        del world.service["metadata"]["annotations"][name]
        runtime = {"spec": {"annotations": {name: "none"}, "containers": []}}
    observed = world.observed()
    assert judge_service(replace(observed, runtime=runtime), NOW).verdict == verdict


def test_a_removed_argument_is_seen_where_the_runtime_can_be_read() -> None:
    world = World()
    assert world.service is not None
    world.service["spec"]["predictor"]["model"]["args"] = ["--tensor-parallel-size=1"]
    runtime = {"spec": {"containers": [{"name": "kserve-container", "image": "vllm"}]}}
    observed = world.observed()
    found = judge_service(type(observed)(**{**vars(observed), "runtime": runtime}), NOW)
    assert found.verdict == "out of date"
    assert "predictor.model.args" in found.reason


def test_a_removal_is_not_ready_before_kserve_could_have_seen_it() -> None:
    world = World()
    assert world.service is not None
    world.service["spec"]["predictor"]["model"]["env"] = []
    world.service["metadata"]["managedFields"][0]["time"] = ago(2)
    assert world.status().verdict == "out of date"


def test_quantities_that_kubernetes_writes_otherwise_are_no_difference() -> None:
    world = World()
    assert world.service is not None
    world.service["spec"]["predictor"]["model"]["resources"]["limits"]["memory"] = "32768Mi"
    assert world.status().verdict == "ready"


# ------------------------------------------------------------ not synced


def test_a_commit_that_lacks_the_last_change_is_not_synced_although_argo_cd_says_so() -> None:
    world = World(contains=False)
    status = world.status()
    assert status.verdict == "not synced"
    assert "lacks the service's last change" in status.reason
    assert any("ready" in note for note in status.notes)


def test_argo_cds_word_is_not_taken_for_an_object_that_differs_from_its_commit() -> None:
    world = World()
    assert world.service is not None
    world.wanted = {key: copy.deepcopy(world.service[key]) for key in ("metadata", "spec")}
    assert world.status().verdict == "ready"
    world.wanted["spec"]["predictor"]["model"]["image"] = "vllm/vllm-openai:v0.33.0"
    status = world.status()
    assert status.verdict == "not synced"
    assert "predictor.model.image" in status.reason


def test_argo_cds_own_words_say_why_it_is_not_synced() -> None:
    world = World()
    assert world.application is not None
    world.application["status"].update(
        sync={"status": "Unknown", "revision": REVISION},
        conditions=[{"type": "ComparisonError", "message": "failed to unmarshal manifest"}],
    )
    status = world.status()
    assert status.verdict == "not synced"
    assert "failed to unmarshal manifest" in status.reason


def test_without_argo_cds_words_the_content_of_the_clone_decides() -> None:
    world = World(contains=None)
    world.application = None
    world.unreadable = {"Application": 'applications is forbidden: User "alice"'}
    status = world.status()
    assert status.verdict == "unknown", "nothing to compare with"
    assert world.service is not None
    world.wanted = {key: copy.deepcopy(world.service[key]) for key in ("spec",)}
    assert world.status().verdict == "ready"
    world.wanted["spec"]["predictor"]["model"]["image"] = "vllm/vllm-openai:v0.33.0"
    status = world.status()
    assert status.verdict == "unknown"
    assert "git fetch" in status.next


def test_a_service_that_is_not_there_is_missing_with_the_reason() -> None:
    world = World()
    world.service, world.deployment, world.replica_sets, world.pods = None, None, [], []
    assert world.status().verdict == "missing", "Argo CD calls it Synced, and it is not there"
    assert world.application is not None
    world.application["status"]["sync"]["status"] = "OutOfSync"
    assert world.status().verdict == "not synced"
    world.application, world.wanted = None, {"spec": {}}
    status = world.status()
    assert status.verdict == "missing"
    assert "Argo CD has no application for it in dev" in status.reason


def test_an_environment_that_nothing_deploys_here_is_named_for_a_service_that_is_not_there_or_is_left_over() -> None:
    world = World()
    world.application = None
    left_over = replace(world.observed(), deployed=frozenset({"local", "prod"}))
    absent = replace(left_over, service=None, deployment=None, replica_sets=(), pods=(), wanted={"spec": {}})
    for observed, verdict in ((left_over, "not synced"), (absent, "missing")):
        status = judge_service(observed, NOW)
        assert status.verdict == verdict
        assert "nothing deploys dev to this cluster; Argo CD deploys local, prod to it" in status.reason
        assert "with --environment dev" in status.next
        other = judge_service(replace(observed, deployed=frozenset({"dev"})), NOW)
        assert "nothing deploys" not in other.reason


def test_a_stopped_service_is_stopped() -> None:
    world = World()
    assert world.service is not None
    world.service["metadata"]["annotations"]["serving.kserve.io/stop"] = "true"
    assert world.status().verdict == "stopped"


# ------------------------------------------------------------ never falsely ready


def change(path: tuple[str, ...], value: Any) -> Callable[[World], None]:
    """Set a field of the world's objects; None removes it."""

    def apply(world: World) -> None:
        place: Any = getattr(world, path[0])
        if len(path) == 1:
            setattr(world, path[0], value)
            return
        for key in path[1:-1]:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return apply


def on_condition(owner: str, kind: str, status: str | None) -> Callable[[World], None]:
    def apply(world: World) -> None:
        found = getattr(world, owner)
        found = found[0] if isinstance(found, list) else found
        if status is None:
            found["status"]["conditions"] = [row for row in found["status"]["conditions"] if row["type"] != kind]
        else:
            condition_of(found, kind)["status"] = status

    return apply


def otherwise_in_the_clone(world: World) -> None:
    world.contains = None
    world.wanted = {"spec": {"predictor": {"model": {"image": "other:1"}}}}


FAULTS: dict[str, Callable[[World], None]] = {
    **{
        f"{kind} is {status}": on_condition("service", kind, status)
        for kind in ("Ready", "PredictorReady", "IngressReady")
        for status in ("False", "Unknown", None)
    },
    "the service is stopped": on_condition("service", "Stopped", "True"),
    "a condition that nobody knows is False": lambda world: world.service["status"]["conditions"].append(  # type: ignore[index]
        {"type": "SomethingNew", "status": "False"}
    ),
    "no conditions": change(("service", "status", "conditions"), None),
    "no status": change(("service", "status"), None),
    "no model status": change(("service", "status", "modelStatus"), None),
    **{
        f"the model is {state}": change(("service", "status", "modelStatus", "transitionStatus"), state)
        for state in ("InProgress", "BlockedByFailedLoad", "InvalidSpec", "")
    },
    "the target model is not loaded": change(
        ("service", "status", "modelStatus", "states", "targetModelState"), "FailedToLoad"
    ),
    "KServe speaks of an earlier Deployment": change(("service", "status", "observedGeneration"), 1),
    "KServe has not seen the change": change(("service", "spec", "predictor", "model", "image"), "other:1"),
    "the service is being deleted": change(("service", "metadata", "deletionTimestamp"), ago(1)),
    "the mode is Knative": change(("service", "status", "deploymentMode"), "Knative"),
    "the service is gone": change(("service",), None),
    "the Deployment is gone": change(("deployment",), None),
    "the Deployment is another's": change(("deployment", "metadata", "ownerReferences"), []),
    "the Deployment is newer": change(("deployment", "metadata", "generation"), 3),
    "the Deployment has been looked at before": change(("deployment", "status", "observedGeneration"), 1),
    "the Deployment asks for no pods": change(("deployment", "spec", "replicas"), 0),
    "there is no ReplicaSet": change(("replica_sets",), []),
    "the ReplicaSet is another Deployment's": change(("replica_sets", "0", "metadata", "ownerReferences"), []),
    "the pod is an earlier generation's": change(("pods", "0", "metadata", "ownerReferences"), [{"uid": "old"}]),
    "the pod is nobody's": change(("pods", "0", "metadata", "ownerReferences"), []),
    "the pod is ending": change(("pods", "0", "metadata", "deletionTimestamp"), ago(1)),
    "the pod is not ready": on_condition("pods", "Ready", "False"),
    "the pod says nothing of ready": on_condition("pods", "Ready", None),
    "the pod's node is lost": change(("pods", "0", "status", "phase"), "Unknown"),
    "the pod has failed": change(("pods", "0", "status", "phase"), "Failed"),
    "there are no pods": change(("pods",), []),
    "another pod serves an earlier generation": lambda world: world.pods.append(world.pod("old-0", "old")),
    "there is no application": change(("application",), None),
    "the application is OutOfSync": change(("application", "status", "sync", "status"), "OutOfSync"),
    "the application says nothing": change(("application", "status", "sync", "status"), None),
    "the application is Degraded": change(("application", "status", "health", "status"), "Degraded"),
    "the application has no health": change(("application", "status", "health"), None),
    "the application does not hold the service": change(("application", "status", "resources"), []),
    "the application is being deleted": change(("application", "metadata", "deletionTimestamp"), ago(1)),
    "Argo CD's commit is older": change(("contains",), False),
    "the clone holds something else than an unknown commit": otherwise_in_the_clone,
    **{
        f"{kind} cannot be read": change(("unreadable",), {kind: f"{kind} is forbidden"})
        for kind in ("Pod", "Deployment", "ReplicaSet", "Application")
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_single_fault_is_called_ready(fault: str) -> None:
    world = World()
    FAULTS[fault](world)
    status = world.status()
    assert status.verdict != "ready", fault
    assert status.reason
    check_lines(status.next)


@settings(max_examples=examples(400), deadline=None)
@given(st.sets(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=6), st.integers(1, 3))
def test_no_combination_of_faults_is_called_ready(faults: set[str], replicas: int) -> None:
    world = World(replicas)
    for fault in sorted(faults):
        try:
            FAULTS[fault](world)
        except (KeyError, TypeError, IndexError, AttributeError, StopIteration):
            continue  # an earlier fault has removed what this one changes
    status = world.status()
    assert status.verdict != "ready"


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += paths(item, (*path, key))
    return found


OBJECTS = ("service", "deployment", "application")


@settings(max_examples=examples(600), deadline=None)
@given(st.data())
def test_whatever_is_missing_or_malformed_nothing_breaks_and_ready_needs_its_grounds(data: st.DataObject) -> None:
    world = World(data.draw(st.integers(1, 2)))
    for _ in range(data.draw(st.integers(1, 4))):
        rows = [getattr(world, name) for name in OBJECTS] + [*world.replica_sets, *world.pods]
        target = data.draw(st.sampled_from([row for row in rows if row]))
        path = data.draw(st.sampled_from(paths(target)))
        place: Any = target
        for key in path[:-1]:
            place = place[key]
        if data.draw(st.booleans()) and isinstance(place, dict):
            del place[path[-1]]
        else:
            place[path[-1]] = data.draw(st.sampled_from([None, "", "False", "Unknown", 0, 7, [], {}, "2026-09-01"]))
    status = world.status()
    if status.verdict == "ready":
        assert world.service is not None
        assert world.application is not None
        conditions = [row for row in world.service["status"]["conditions"] if isinstance(row, dict)]
        assert all(
            any(row.get("type") == kind and row.get("status") == "True" for row in conditions)
            for kind in ("Ready", "PredictorReady", "IngressReady")
        )
        assert world.service["status"]["modelStatus"]["transitionStatus"] == "UpToDate"
        assert world.application["status"]["sync"]["status"] == "Synced"
        assert world.application["status"]["health"]["status"] == "Healthy"
        answering = [
            pod
            for pod in world.pods
            if part(pod, "status").get("phase") == "Running" and condition(pod, "Ready").get("status") == "True"
        ]
        minimum = world.service["spec"]["predictor"].get("minReplicas")
        assert len(answering) >= max(1, minimum if isinstance(minimum, int) else 1)


@given(st.integers(1, 5), st.data())
def test_fewer_ready_pods_than_the_fewest_replicas_are_never_ready(replicas: int, data: st.DataObject) -> None:
    world = World(replicas)
    ready = data.draw(st.integers(0, replicas))
    world.pods = [
        world.pod(f"new-{index}") if index < ready else world.loading(f"new-{index}", 30) for index in range(replicas)
    ]
    status = world.status()
    assert (status.verdict == "ready") == (ready == replicas)
    assert status.replicas_ready == ready


def test_containing_ignores_what_is_more_and_finds_what_is_less() -> None:
    wanted = {"a": 1, "b": [{"name": "x", "value": "1"}], "c": {}, "limits": {"cpu": "1000m"}}
    actual = {"a": 1, "b": [{"name": "y"}, {"name": "x", "value": "1", "more": 2}], "limits": {"cpu": 1}, "d": 4}
    assert differences(wanted, actual) == []
    assert differences(actual, wanted) == ["b[y]", "b[x]", "d"]
    assert differences({"a": True}, {"a": 1}) == ["a"]
    assert (NAMESPACE, NAME) == ("team-alpha", "support-chat")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--served-model-name=a"], "a"),
        (["--served-model-name", "a", "--port=1"], "a"),
        (["--served-model-name=a", "--served-model-name", "b"], "b"),
        (["--served-model-name"], ""),
        ([], ""),
        (None, ""),
    ],
)
def test_the_name_of_a_served_model_is_the_one_that_vllm_takes(arguments: list[str] | None, name: str) -> None:
    assert served_model_name(arguments) == name
