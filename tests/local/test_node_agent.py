"""The local node's agent on a real API server: what a kubelet would do with pods, it does with processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from api_server import ApiServer
from neuroscale.kube.client import Cluster, RefusedError
from neuroscale.local.node import read_only_root
from neuroscale.local.process import belonging, end
from node_lab import IMAGE, NodeLab, exists, node_lab, probe

pytestmark = [pytest.mark.tools, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(api_server: ApiServer) -> Iterator[NodeLab]:
    with node_lab(api_server) as found:
        yield found


def test_a_pod_becomes_ready_only_when_its_server_answers_and_its_log_is_kept(lab: NodeLab) -> None:
    lab.run("slow", "slow")
    seen: list[str] = []

    def ready() -> bool:
        status = lab.status("slow")
        seen.append(f"{bool(status.get('started'))} {lab.condition('slow')}")
        return lab.is_ready("slow")

    lab.wait(ready, "it is ready")
    assert "False False" in seen
    pod = lab.pod("slow")
    assert pod is not None
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"].startswith("10.127.")
    assert pod["status"]["startTime"]
    assert lab.status("slow")["restartCount"] == 0
    assert f"listen on 127.{pod['status']['podIP'].removeprefix('10.')}:8080" in lab.log("slow")
    assert {"Pulled", "Started"} <= set(lab.events("slow"))
    for kind in ("Logs", "PortForward"):
        assert lab.cluster.get("kwok.x-k8s.io/v1alpha1", kind, "slow", lab.namespace)


def test_a_missing_secret_keeps_the_pod_waiting_until_it_is_made(lab: NodeLab) -> None:
    key = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "api-key"}}}
    lab.run("keyed", container={"env": [key]})
    lab.wait(lambda: lab.reason("keyed") == "CreateContainerConfigError", "it waits")
    assert lab.state("keyed")["waiting"]["message"] == 'secret "late" not found'
    assert not lab.is_ready("keyed")
    secret = {"metadata": {"name": "late", "namespace": lab.namespace}, "stringData": {"api-key": "0123456789"}}
    lab.cluster.create({"apiVersion": "v1", "kind": "Secret", **secret})
    lab.wait_ready("keyed")
    assert "the key has 10 characters" in lab.log("keyed")


def test_what_cannot_be_pulled_goes_from_one_of_kubelets_words_to_the_other_and_never_runs(lab: NodeLab) -> None:
    lab.run("foreign", container={"image": "vllm/vllm-openai:v1"})
    words: set[str] = set()

    def both() -> bool:
        words.add(lab.reason("foreign"))
        return {"ErrImagePull", "ImagePullBackOff"} <= words

    lab.wait(both, "it waits")
    assert "this machine pulls no images" in lab.state("foreign")["waiting"]["message"]
    assert lab.condition("foreign", "Initialized") == "True"


def test_an_init_container_that_cannot_run_here_keeps_the_others_from_starting(lab: NodeLab) -> None:
    first = {"name": "storage-initializer", "image": "kserve/storage-initializer:v0.20.0"}
    lab.run("stored", initContainers=[first])
    lab.wait(lambda: lab.reason("stored") == "PodInitializing", "it waits")
    pod = lab.pod("stored")
    assert pod is not None
    waiting = pod["status"]["initContainerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] in ("ErrImagePull", "ImagePullBackOff")
    assert pod["status"]["phase"] == "Pending"
    assert lab.condition("stored", "Initialized") == "False"


def test_what_crashes_is_started_again_at_once_and_then_later_and_later(lab: NodeLab) -> None:
    lab.run("crash", "crash", container={"terminationMessagePolicy": "FallbackToLogsOnError"})
    lab.wait(lambda: lab.reason("crash") == "CrashLoopBackOff", "it is held back")
    status = lab.status("crash")
    assert "back-off 10s restarting failed container=main" in status["state"]["waiting"]["message"]
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert "cannot load the model" in ended["message"]
    assert status["restartCount"] == 1
    assert not lab.is_ready("crash")
    lab.wait(lambda: lab.status("crash")["restartCount"] == 2, "it is tried again", 30)
    lab.wait(lambda: "back-off 20s" in str(lab.state("crash")), "it is held back for longer")
    assert "BackOff" in lab.events("crash")
    assert "cannot load the model" in lab.log("crash", "previous")


def test_a_killed_server_is_counted_and_comes_back(lab: NodeLab) -> None:
    lab.run("killed")
    lab.wait_ready("killed")
    first = lab.process("killed")
    os.kill(first, signal.SIGKILL)
    lab.wait(lambda: lab.status("killed").get("restartCount") == 1, "it is started again")
    lab.wait_ready("killed")
    assert lab.status("killed")["lastState"]["terminated"]["exitCode"] == 137
    assert lab.process("killed") != first


def test_a_server_that_stops_answering_is_ended_by_its_liveness_probe(lab: NodeLab) -> None:
    lab.run("sick", "sick")
    lab.wait_ready("sick")
    pod = lab.pod("sick")
    assert pod is not None
    folder = lab.folder / "pods" / pod["metadata"]["uid"] / "scratch" / "main"
    (folder / "sick").touch()
    lab.wait(lambda: "Killing" in lab.events("sick"), "it is ended")
    (folder / "sick").unlink()
    lab.wait(lambda: lab.status("sick").get("restartCount", 0) >= 1, "it is started again")
    lab.wait_ready("sick")
    assert "Unhealthy" in lab.events("sick")


def test_what_ends_well_and_is_not_to_be_started_again_has_succeeded(lab: NodeLab) -> None:
    lab.run("done", "done", restartPolicy="OnFailure")
    lab.wait(lambda: ((lab.pod("done") or {}).get("status") or {}).get("phase") == "Succeeded", "it has succeeded")
    assert not lab.is_ready("done")
    assert lab.status("done")["restartCount"] == 0


def test_a_deleted_pod_is_told_first_and_then_gone(lab: NodeLab) -> None:
    lab.run(
        "leaving", container={"lifecycle": {"preStop": {"sleep": {"seconds": 2}}}}, terminationGracePeriodSeconds=20
    )
    lab.wait_ready("leaving")
    process = lab.process("leaving")
    began = time.monotonic()
    lab.delete("leaving")
    lab.wait(
        lambda: "deletionTimestamp" in (lab.pod("leaving") or {"metadata": "deletionTimestamp"})["metadata"], "asked"
    )
    assert exists(process)
    lab.wait(lambda: lab.pod("leaving") is None, "it is gone")
    # Not before the hook has slept, and not only after the whole grace period.
    assert 2 <= time.monotonic() - began < 15
    assert not exists(process)
    assert lab.cluster.get("kwok.x-k8s.io/v1alpha1", "Logs", "leaving", lab.namespace) is None


def test_a_server_that_ignores_the_signal_is_killed_after_its_grace_period(lab: NodeLab) -> None:
    lab.run("stubborn", "stubborn", terminationGracePeriodSeconds=3)
    lab.wait_ready("stubborn")
    process = lab.process("stubborn")
    lab.delete("stubborn")
    lab.wait(lambda: lab.pod("stubborn") is None, "it is gone", 30)
    assert not exists(process)


def test_a_pod_that_is_removed_by_force_leaves_no_process(lab: NodeLab) -> None:
    lab.run("forced", "stubborn")
    lab.wait_ready("forced")
    process = lab.process("forced")
    lab.delete("forced", grace=0)
    lab.wait(lambda: not exists(process), "its process has ended", 30)


def ready_since(lab: NodeLab, name: str) -> str:
    conditions = (lab.pod(name) or {})["status"]["conditions"]
    return next(str(one["lastTransitionTime"]) for one in conditions if one["type"] == "Ready")


def test_an_agent_that_was_ended_leaves_servers_alone_and_the_next_one_goes_on_with_them(lab: NodeLab) -> None:
    lab.run("kept")
    lab.run("lost")
    lab.run("removed")
    for name in ("kept", "lost", "removed"):
        lab.wait_ready(name)
    kept, lost, removed = (lab.process(name) for name in ("kept", "lost", "removed"))
    gone = str((lab.pod("removed") or {})["metadata"]["uid"])
    since = ready_since(lab, "kept")
    lab.leave()
    assert exists(kept)
    os.kill(lost, signal.SIGKILL)
    lab.delete("removed", grace=0)
    os.kill(kept, signal.SIGSTOP)  # so that the next agent has no answer of it at once
    try:
        lab.start_again()
        lab.wait(lambda: lab.status("lost").get("restartCount") == 1, "what ended meanwhile is started again")
    finally:
        os.kill(kept, signal.SIGCONT)
    lab.wait_ready("lost")
    assert lab.status("lost")["lastState"]["terminated"]["exitCode"] == 137
    lab.wait(lambda: not exists(removed), "what was removed meanwhile is ended")
    lab.wait(lambda: not (lab.folder / "pods" / gone).exists(), "nothing is left of it")
    assert lab.process("kept") == kept
    assert lab.status("kept")["restartCount"] == 0
    assert lab.is_ready("kept")
    assert ready_since(lab, "kept") == since


def test_a_killed_shim_takes_its_server_with_it_and_is_counted(lab: NodeLab) -> None:
    lab.run("unshimmed")
    lab.wait_ready("unshimmed")
    process = lab.process("unshimmed")
    parent = psutil.Process(process).ppid()
    os.kill(parent, signal.SIGKILL)
    lab.wait(lambda: lab.status("unshimmed").get("restartCount") == 1, "it is started again")
    assert not exists(process)
    assert lab.status("unshimmed")["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_what_uses_more_memory_than_its_limit_is_ended_as_out_of_memory(lab: NodeLab) -> None:
    lab.run("large", container={"resources": {"limits": {"memory": "1Mi"}}})
    lab.wait(lambda: "terminated" in (lab.status("large").get("lastState") or {}), "it was ended")
    ended = lab.status("large")["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_a_ready_condition_that_somebody_else_took_away_is_given_back(lab: NodeLab) -> None:
    lab.run("doubted")
    lab.wait_ready("doubted")
    pod = lab.pod("doubted")
    assert pod is not None
    conditions = [{**one, "status": "False"} if one["type"] == "Ready" else one for one in pod["status"]["conditions"]]
    path = f"{lab.cluster.path('v1', 'Pod', lab.namespace, 'doubted')}/status"
    change = {"status": {"conditions": conditions}}
    lab.cluster.request("PATCH", path, None, change, "application/strategic-merge-patch+json")
    lab.wait_ready("doubted")


def test_two_containers_are_ready_together_or_not_at_all(lab: NodeLab) -> None:
    second = {
        "name": "second",
        "image": IMAGE,
        "args": ["--port=8081", "--served-model-name=slow"],
        "readinessProbe": probe(httpGet={"path": "/health", "port": 8081}),
    }
    first = {"name": "main", "image": IMAGE, "args": ["--port=8080", "--served-model-name=ok"]}
    lab.run("two", containers=[{**first, "readinessProbe": probe()}, second])
    lab.wait(lambda: bool(lab.status("two").get("ready")), "the first is ready")
    lab.wait_ready("two")
    pod = lab.pod("two")
    assert pod is not None
    assert [one["ready"] for one in pod["status"]["containerStatuses"]] == [True, True]


def test_a_node_may_read_the_secrets_of_its_own_pods_alone(lab: NodeLab) -> None:
    for name in ("mine", "foreign"):
        secret = {"metadata": {"name": f"{name}-key", "namespace": lab.namespace}, "stringData": {"k": "0123456789"}}
        lab.cluster.create({"apiVersion": "v1", "kind": "Secret", **secret})
    key = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "mine-key", "key": "k"}}}
    lab.run("mine", container={"env": [key]})
    lab.wait_ready("mine")
    own: Cluster = lab.own
    assert own.get("v1", "Secret", "mine-key", lab.namespace)
    with pytest.raises(RefusedError, match="no relationship found"):
        own.get("v1", "Secret", "foreign-key", lab.namespace)
    with pytest.raises(RefusedError, match="forbidden"):
        own.list("v1", "Secret", lab.namespace)


def test_where_vllm_is_not_installed_pods_wait_and_start_once_it_is(lab: NodeLab) -> None:
    lab.problem = "vLLM is not installed on this machine: run `make setup`."
    try:
        lab.run("early")
        lab.wait(lambda: "make setup" in str(lab.state("early")), "it waits")
        assert not lab.is_ready("early")
    finally:
        lab.problem = None
    lab.wait_ready("early")


def test_what_local_down_ends_are_servers_too_when_no_agent_is_there_any_more(lab: NodeLab) -> None:
    lab.run("left")
    lab.wait_ready("left")
    process = lab.process("left")
    lab.leave()
    try:
        assert exists(process)
        end(lambda: belonging(lab.instance), patience=5.0)
        assert not exists(process)
        assert lab.running() == 0
    finally:
        lab.start_again()
    # As after a machine's restart.
    lab.wait(lambda: lab.status("left").get("restartCount") == 1, "it is started again")
    lab.wait_ready("left")


def test_a_pods_empty_folders_last_as_long_as_it_does_and_begin_with_what_vllm_knows(lab: NodeLab) -> None:
    mounts = [{"name": "home", "mountPath": "/home/vllm"}, {"name": "shm", "mountPath": "/dev/shm"}]
    cache = [{"name": "VLLM_CACHE_ROOT", "value": "/home/vllm/cache/vllm"}]
    volumes = [{"name": "home", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}]
    lab.run("homely", container={"volumeMounts": mounts, "env": cache}, volumes=volumes)
    lab.wait_ready("homely")
    uid = (lab.pod("homely") or {})["metadata"]["uid"]
    home = lab.folder / "pods" / uid / "volumes" / "home"
    assert (home / "cache" / "vllm" / "modelinfos" / "model.json").read_text() == "{}"
    (home / "kept").touch()
    os.kill(lab.process("homely"), signal.SIGKILL)
    lab.wait(lambda: lab.status("homely").get("restartCount") == 1, "it is started again")
    assert (home / "kept").exists()
    lab.delete("homely")
    lab.wait(lambda: not home.exists(), "they are gone with it")


READ_ONLY = {"securityContext": {"readOnlyRootFilesystem": True}}
WRITING = {
    "env": [{"name": "HOME", "value": "/home/vllm"}, {"name": "MODELS", "value": "/mnt/models"}],
    "volumeMounts": [
        {"name": "home", "mountPath": "/home/vllm"},
        {"name": "temporary", "mountPath": "/tmp"},
    ],
}
VOLUMES = [{"name": "home", "emptyDir": {}}, {"name": "temporary", "emptyDir": {}}]


def writes(lab: NodeLab, name: str, **container: object) -> set[str]:
    """The folders to which the server of a pod can write, HOME and the models' by their names."""
    lab.run(name, "writes", container={**WRITING, **container}, volumes=VOLUMES)
    lab.wait_ready(name)
    lines = [line.split(" ", 3)[3] for line in lab.log(name).splitlines()]
    return {line.partition(":")[0].rpartition("/volumes/")[2] for line in lines if line.endswith(": can write")}


@pytest.mark.skipif(bool(read_only_root.problem()), reason="this machine gives no process a read-only root")
def test_a_server_with_a_read_only_root_writes_to_its_volumes_alone(lab: NodeLab) -> None:
    assert writes(lab, "read-only", **READ_ONLY) == {"/tmp", "/dev/shm", "home"}
    assert "temporary files lie in /tmp" in lab.log("read-only")
    assert lab.messages("read-only", "RootFileSystemWritable") == []
    # It ends as others do, and its folder at /tmp was its own.
    before = lab.process("read-only")
    os.kill(before, signal.SIGKILL)
    lab.wait(lambda: lab.status("read-only").get("restartCount") == 1, "it is started again")
    lab.wait_ready("read-only")
    lab.delete("read-only")
    lab.wait(lambda: lab.pod("read-only") is None, "it is gone")
    assert not exists(before)


def test_another_server_writes_wherever_its_user_may(lab: NodeLab) -> None:
    assert {"/var/tmp", "home", "."} <= writes(lab, "writable")


def test_where_a_root_cannot_be_made_read_only_the_pod_and_its_log_say_so_and_it_runs(lab: NodeLab) -> None:
    lab.leave()
    before, lab.root_problem = lab.root_problem, "Only root may do that."
    lab.start_again()
    try:
        assert "/var/tmp" in writes(lab, "told", **READ_ONLY)
        told = "This node does not make the container's root file system read-only. Only root may do that."
        assert told in lab.log("told").splitlines()[0]
        assert lab.messages("told", "RootFileSystemWritable") == [told]
    finally:
        lab.leave()
        lab.root_problem = before
        lab.start_again()
