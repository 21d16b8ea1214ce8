"""What tells why a server does not run: its logs and its pod's state, in the order of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from neuroscale.cluster.server_logs import seen_cause, service_lines
from neuroscale.explain import diagnose, load_causes
from neuroscale.kube.client import Cluster, RefusedError

OOM = "torch.OutOfMemoryError: CUDA out of memory."
START = "INFO:     Application startup complete."
KINDS = [
    {"kind": kind, "name": name, "namespaced": True, "verbs": ["get", "list"]}
    for kind, name in (("Pod", "pods"), ("Event", "events"))
]


def pod(name: str, ready: bool = False, created: str = "2026-11-28T10:00:00Z", **server: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}, {"type": "PodScheduled", "status": "True"}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created},
        "spec": {"nodeName": "node"},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [{"name": "kserve-container", "ready": ready, "restartCount": 1, **server}],
        },
    }


def event(
    name: str, reason: str, message: str, kind: str = "Warning", at: str = "2026-11-28T10:05:00Z"
) -> dict[str, Any]:
    return {
        "involvedObject": {"uid": f"uid-{name}"},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


def cluster(
    pods: list[dict[str, Any]], events: list[dict[str, Any]], logs: Callable[[str, bool], str | int]
) -> Cluster:
    """A cluster whose containers have these logs; a number is the status of a refusal."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/v1":
            return httpx.Response(200, json={"resources": KINDS})
        if path.endswith("/log"):
            told = logs(path.split("/")[-2], request.url.params.get("previous") == "true")
            return (
                httpx.Response(told, json={"message": "no"})
                if isinstance(told, int)
                else httpx.Response(200, text=told)
            )
        items = pods if path.endswith("/pods") else events
        return httpx.Response(200, json={"items": items, "metadata": {}})

    return Cluster("http://c", httpx.Client(base_url="http://c", transport=httpx.MockTransport(answer)), "test")


def cause_of(
    pods: list[dict[str, Any]],
    events: list[dict[str, Any]] = [],  # noqa: B006 - it is not changed
    logs: Callable[[str, bool], str | int] = lambda *_: "",
) -> tuple[str, str, list[str]]:
    """The pod that was read, its cause or verdict, and the texts of the evidence."""
    name, lines = service_lines(cluster(pods, events, logs), "team", "service")
    found = diagnose(lines, load_causes())
    return name, found.cause.name if found.cause else found.verdict, [one.text for one in found.evidence]


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def test_a_failing_probe_is_no_cause_while_the_server_starts() -> None:
    failing = event("a", "Unhealthy", "Startup probe failed: Connection refused")
    killed = event("a", "Killing", "Container kserve-container failed startup probe, will be restarted", "Normal")
    starting = pod("a", state={"running": {}})
    assert cause_of([starting], [failing], lambda *_: "INFO loading")[1] == "unknown"
    ending = pod("a", state={"running": {}}, lastState=ended(143))
    assert cause_of([ending], [failing, killed], lambda *_: "INFO loading")[1] == "probe_kill"


def test_the_log_before_a_restart_names_the_cause() -> None:
    def logs(_: str, previous: bool) -> str:
        return f"self.load_model()\n{OOM}" if previous else "INFO starting again"

    restarted = pod("a", state={"running": {}}, lastState=ended(1))
    assert cause_of([restarted], logs=logs) == ("a", "cuda_oom_weights", [OOM])


def test_a_container_killed_for_memory_is_told_by_its_state() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}
    name, cause, evidence = cause_of(
        [pod("a", state=waiting, lastState=ended(137, "OOMKilled"))], logs=lambda *_: "INFO loads"
    )
    assert (name, cause) == ("a", "oom_killed")
    assert evidence == ["kserve-container ended: OOMKilled: exit code 137"]


def test_a_container_before_the_server_that_was_killed_for_memory_is_not_the_server() -> None:
    killed = pod("a", state={"waiting": {"reason": "PodInitializing"}})
    initializer = {"name": "storage-initializer", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    killed["status"]["initContainerStatuses"] = [{**initializer, "lastState": ended(137, "OOMKilled")}]
    _, cause, evidence = cause_of([killed], logs=lambda *_: "INFO downloads")
    assert cause == "init_container_killed"
    assert evidence == ["storage-initializer, which runs before the server, ended: OOMKilled: exit code 137"]


def test_a_probe_that_ended_the_server_is_told_by_an_event() -> None:
    killing = "Container kserve-container failed startup probe, will be restarted"
    events = [event("a", "Killing", killing, "Normal"), event("b", "Killing", "another pod's")]
    assert (
        cause_of([pod("a", state={"running": {}}, lastState=ended(143))], events, lambda *_: "INFO loads")[1]
        == "probe_kill"
    )


def test_the_log_comes_before_the_probe() -> None:
    events = [event("a", "Killing", "Container kserve-container failed startup probe, will be restarted", "Normal")]
    logs = lambda _, previous: "vllm: error: unrecognized arguments: --omni" if previous else "INFO x"  # noqa: E731
    assert cause_of([pod("a", state={"running": {}}, lastState=ended(2))], events, logs)[1] == "unknown_flag"


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("ImagePullBackOff", 'Back-off pulling image "vllm/none"', "image_cannot_be_pulled"),
        ("CreateContainerConfigError", 'secret "hf-token" not found', "secret_missing"),
    ],
)
def test_a_container_that_waits_needs_no_log(reason: str, message: str, cause: str) -> None:
    waits = pod("a", state={"waiting": {"reason": reason, "message": message}})
    assert cause_of([waits], logs=lambda *_: 400)[1] == cause


def test_a_pod_without_a_node() -> None:
    waits = pod("a")
    waits["spec"], waits["status"]["containerStatuses"] = {}, []
    waits["status"]["conditions"][1] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/6 nodes are available: 6 Insufficient nvidia.com/gpu.",
    }
    assert cause_of([waits])[1] == "no_node"


def test_that_a_pod_waited_for_a_node_is_no_cause_once_it_has_one() -> None:
    waited = event("a", "FailedScheduling", "0/6 nodes are available: 6 Insufficient nvidia.com/gpu.")
    assert cause_of([pod("a", state={"running": {}})], [waited], lambda *_: "INFO loading")[1] == "unknown"


def test_the_pod_that_fails_is_read_and_not_the_one_that_answers() -> None:
    answers = pod("old", ready=True, state={"running": {}}, created="2026-11-28T09:00:00Z")
    fails = pod("new", state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(1))
    assert cause_of([answers, fails], logs=lambda name, _: OOM if name == "new" else START)[:2] == ("new", "cuda_oom")
    assert cause_of([answers], logs=lambda *_: START)[:2] == ("old", "healthy")
    assert cause_of([])[0] == ""


def test_logs_that_may_not_be_read_are_refused() -> None:
    with pytest.raises(RefusedError):
        cause_of([pod("a", state={"running": {}})], logs=lambda *_: 403)


def test_a_verdict_is_told_the_line_of_the_log_and_nothing_that_may_not_be_read() -> None:
    crashed = pod("a", state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(2))
    told = "vllm: error: unrecognized arguments: --omni hf_abcdefghijklmnop \x1b[2J" + "x" * 9000
    shown = seen_cause(cluster([], [], lambda *_: told), "team", [crashed], ())
    assert shown.startswith("An argument that this version does not take (unknown_flag): vllm: error: unrecognized")
    assert "hf_abc" not in shown
    assert len(shown) < 400
    assert seen_cause(cluster([], [], lambda *_: 403), "team", [crashed], ()) == ""
    killed = pod("a", state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(137, "OOMKilled"))
    assert seen_cause(cluster([], [], lambda *_: "INFO"), "team", [killed], ()) == "", "its state tells it"
    probed = pod("a", state={"running": {}}, lastState=ended(143))
    killing = event("a", "Killing", "Container kserve-container failed startup probe, will be restarted", "Normal")
    shown = seen_cause(cluster([], [], lambda *_: "INFO"), "team", [probed], (killing,))
    assert "(probe_kill): Killing: Container kserve-container failed startup probe" in shown


def test_a_pod_of_many_containers_with_long_logs_costs_bounded_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("neuroscale.cluster.server_logs._MOST_BYTES", 20_000)
    monkeypatch.setattr("neuroscale.cluster.server_logs._MOST_OF_POD", 60_000)
    crashed: dict[str, Any] = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(1)}
    many = pod("a", **crashed)
    many["status"]["initContainerStatuses"] = [{"name": f"init-{number}", **crashed} for number in range(50)]

    def endless(_: str, previous: bool) -> str:
        asked.append(1)
        return f"{'x' * 99}\n" * 5_000  # a node that knows no limit

    _, lines = service_lines(cluster([many], [], endless), "team", "service")
    assert sum(len(line.text) for line in lines) < 100_000
    assert len(asked) <= 12
    monkeypatch.setattr("neuroscale.cluster.server_logs._MOST_SECONDS", 0.0)
    asked.clear()
    service_lines(cluster([many], [], endless), "team", "service")
    assert not asked


def test_a_log_that_takes_too_long_is_told_as_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscale.explain.diagnosis.SECONDS", 0.0)
    crashed = pod("a", state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended(1))
    assert "was not judged" in seen_cause(cluster([], [], lambda *_: OOM), "team", [crashed], ())
    _, verdict, evidence = cause_of([crashed], logs=lambda *_: OOM)
    assert (verdict, evidence) == ("not_judged", [])
