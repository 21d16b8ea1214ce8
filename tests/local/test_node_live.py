"""Real vLLM servers as pods of the local platform's own node: Ready, asked, killed, broken and gone."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

import live_lab
from gitops_lab import GitOps
from live_lab import ENVIRONMENT, NAMESPACE, READY_WITHIN, Live, is_ready, pods_of, server_logs
from neuroscale.cluster.endpoint import key
from neuroscale.kube.client import Identity, Object, RefusedError
from neuroscale.local.control_plane import cluster
from neuroscale.local.node import read_only_root
from neuroscale.local.node.addresses import loopback
from neuroscale.local.node.service import NAME, NODE
from neuroscale.local.process import PODS, belonging
from neuroscale.local.start_and_stop import look
from node_lab import exists
from waiting import wait_for

pytestmark = [pytest.mark.live, pytest.mark.platform, pytest.mark.slow, pytest.mark.tools]

SERVICE = "tiny-node"
KUBECTL = Path(sys.executable).with_name("kubectl")
MISSING = "/mnt/models/no-such-model"


@dataclass
class Own:
    """A service of these tests alone: they break it."""

    gitops: GitOps
    live: Live

    def merge(self, **changes: str) -> None:
        """Bring the service's manifest to main, its model's folder replaced where that is asked for."""
        files = live_lab.service_files(SERVICE)
        path = f"manifests/{ENVIRONMENT}/{SERVICE}/inferenceservice.yaml"
        manifest = yaml.safe_load(files[path])
        model = manifest["spec"]["predictor"]["model"]
        # Beside what other tests serve, so that all of it has room.
        model["resources"] = {"requests": {"cpu": "500m", "memory": "3Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}
        model["args"] = [changes.get(one.partition("=")[0], one) for one in model["args"]]
        self.gitops.merge({**files, path: yaml.safe_dump(manifest)}, f"Serve {SERVICE}")

    def pods(self) -> list[Object]:
        return pods_of(self.gitops.cluster, NAMESPACE, SERVICE)

    def pod(self) -> Object:
        """The newest pod."""
        return max(self.pods(), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def container(self) -> Object:
        statuses = self.pod().get("status", {}).get("containerStatuses") or [{}]
        return dict(statuses[0])

    def process(self) -> psutil.Process:
        """The process that stands for the container: the shim's child."""
        uid = self.pod()["metadata"]["uid"]
        found = [
            one
            for one in belonging(self.gitops.local.state.instance.id, PODS)
            if one.environ().get("NEUROSCALE_LOCAL_CONTAINER", "").startswith(uid) and "--port=8080" in one.cmdline()
        ]
        return min(found, key=lambda one: one.create_time())

    def wait(self, condition: object, what: str, seconds: float = READY_WITHIN) -> None:
        assert callable(condition)
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                raise AssertionError(f"after {seconds:g} s: {what}\n{self.pods()}\n{server_logs(self.live.platform)}")
            time.sleep(0.5)

    def kubectl(self, *arguments: str) -> str:
        command = [str(KUBECTL), f"--kubeconfig={self.live.kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def neuroscale(self, name: str, *more: str) -> str:
        """What a user sees who runs a command on the service."""
        command = [sys.executable, "-P", "-m", "neuroscale", name, SERVICE, "--state", str(self.live.folder), *more]
        done = subprocess.run(
            [*command, "--repository", str(self.live.checkout)],
            check=False,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert "Traceback" not in done.stderr
        return f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def own(live: Live, gitops: GitOps) -> Iterator[Own]:
    found = Own(gitops, live)
    yield found
    for path in live_lab.service_files(SERVICE):
        if gitops.exists(path):
            gitops.merge({path: None}, f"Remove {SERVICE}")


def test_the_services_server_is_a_process_of_another_user_who_cannot_read_the_clusters_keys(live: Live) -> None:
    (pod,) = [one for one in live.pods() if is_ready(one)]
    assert pod["spec"]["nodeName"] == NODE
    state = live.platform.local.state
    servers = [
        one
        for one in belonging(state.instance.id, PODS)
        if one.environ().get("NEUROSCALE_LOCAL_CONTAINER", "").startswith(pod["metadata"]["uid"])
        and "--port=8080" in one.cmdline()
    ]
    assert servers
    key_file = state.run / "cluster" / "administrator.key"
    for server in servers:
        if state.model_user is not None:
            assert set(server.uids()) == {state.model_user.uid}
            user, group = state.model_user.uid, state.model_user.gid
            for path in (key_file, state.run / "cluster" / f"{NAME}.kubeconfig", state.folder / "tokens" / "admin"):
                read = subprocess.run(["cat", str(path)], check=False, capture_output=True, user=user, group=group)
                assert read.returncode != 0
        # On no address of the machine but the loopback device's.
        ports = [one.laddr for one in server.net_connections("inet") if one.status == psutil.CONN_LISTEN]
        assert ports
        assert all(one.ip.startswith("127.") for one in ports)


@pytest.mark.skipif(bool(read_only_root.problem()), reason="this machine gives no process a read-only root")
def test_vllm_answers_chats_on_a_read_only_root_with_its_volumes_alone_to_write_to(live: Live) -> None:
    (pod,) = [one for one in live.pods() if is_ready(one)]
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"/tmp", "/home/vllm", "/dev/shm"} == {one["mountPath"] for one in container["volumeMounts"]}
    uid = pod["metadata"]["uid"]
    volumes = live.platform.local.state.run / "node" / "pods" / uid / "volumes"
    servers = [
        one
        for one in belonging(live.platform.local.state.instance.id, PODS)
        if one.environ().get("NEUROSCALE_LOCAL_CONTAINER", "").startswith(uid)
    ]
    assert any("--port=8080" in one.cmdline() for one in servers)
    for server in servers:
        if "NEUROSCALE_LOCAL_SHIM" in server.environ():
            continue
        mounted = [line.split() for line in Path(f"/proc/{server.pid}/mountinfo").read_text().splitlines()]
        # The last mount at a place is the one that a path leads to.
        options = {fields[4]: fields[5].split(",") for fields in mounted}
        assert "ro" in options["/"]
        writable = {place for place in options if "rw" in options[place]}
        kernels = ("/proc", "/sys", "/dev")
        own = {place for place in writable if not any(f"{place}/".startswith(f"{one}/") for one in kernels)}
        assert own == {"/tmp", str(volumes / "home"), *(str(volumes / one) for one in ("shared-memory", "temporary"))}
    with live.cluster() as found:
        secret = found.get("v1", "Secret", f"{live.service}-api-key", live.namespace)
    assert secret is not None
    bearer = base64.b64decode(secret["data"]["api-key"]).decode()
    answer = httpx.post(
        f"http://{loopback(pod['status']['podIP'])}:8080/v1/chat/completions",
        json={"model": live.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4},
        headers={"Authorization": f"Bearer {bearer}"},
        trust_env=False,
        timeout=120,
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 0


def test_the_node_may_not_read_what_its_pods_do_not_use(live: Live) -> None:
    with cluster(live.platform.local.state, NAME) as node:
        assert node.get("v1", "Secret", f"{live.service}-api-key", live.namespace)
        for name, place in (("argocd-secret", "argocd"),):
            with pytest.raises(RefusedError, match="no relationship found"):
                node.get("v1", "Secret", name, place)


def test_a_broken_model_folder_is_seen_as_a_crash_loop_and_never_as_ready(own: Own) -> None:
    own.merge(**{"--model": f"--model={MISSING}"})
    own.wait(lambda: bool(own.pods()), "the pod is there")
    key.ensure(own.gitops.cluster, NAMESPACE, SERVICE)
    ready: list[bool] = []

    def held_back() -> bool:
        ready.append(any(is_ready(pod) for pod in own.pods()))
        waiting: Object = (own.container().get("state") or {}).get("waiting") or {}
        return waiting.get("reason") == "CrashLoopBackOff"

    own.wait(held_back, "it is held back")
    assert not any(ready)

    def told() -> bool:
        # Between two waits, it is started once more.
        said = own.neuroscale("status")
        assert said.startswith("exit status 1")
        return "CrashLoopBackOff" in said and "(model_not_found)" in said and f"explain {SERVICE}" in said

    own.wait(told, "the status says so, with the cause")
    assert "(model_not_found)." in own.neuroscale("explain")
    # A container that has just started again has written nothing yet.
    own.wait(lambda: "no-such-model" in own.kubectl("logs", own.pod()["metadata"]["name"]), "its log says so")


def test_a_corrected_one_is_ready_only_when_its_own_health_says_so(own: Own) -> None:
    own.merge()

    def corrected() -> bool:
        arguments = [pod["spec"]["containers"][0]["args"] for pod in own.pods()]
        return any(MISSING not in " ".join(one) for one in arguments)

    own.wait(corrected, "the new pod is there")
    key.ensure(own.gitops.cluster, NAMESPACE, SERVICE)
    answers: list[int] = []

    def ready() -> bool:
        pod = own.pod()
        if not is_ready(pod):
            return False
        url = f"http://{loopback(pod['status']['podIP'])}:8080/health"
        answers.append(httpx.get(url, trust_env=False, timeout=10).status_code)
        return True

    own.wait(ready, "it is ready")
    assert answers == [200]
    own.wait(lambda: len(own.pods()) == 1, "the broken pod is gone", 120)
    said = own.neuroscale("explain", "--seconds", "2")
    assert said.startswith("exit status 0"), said
    assert "Healthy: the server started." in said
    assert "Nobody asks it now: nothing can be judged." in said


def test_kubectl_shows_its_log_and_reaches_its_port(own: Own) -> None:
    name = own.pod()["metadata"]["name"]
    log = own.kubectl("logs", name)
    assert "Starting vLLM server on http://127.127." in log
    command = [str(KUBECTL), f"--kubeconfig={own.live.kubeconfig}", f"--namespace={NAMESPACE}"]
    with subprocess.Popen([*command, "port-forward", name, ":8080"], stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            port = forward.stdout.readline().split("->")[0].rsplit(":", 1)[1].strip()
            base = f"http://127.0.0.1:{port}"
            assert httpx.get(f"{base}/health", trust_env=False, timeout=20).status_code == 200
            assert httpx.get(f"{base}/v1/models", trust_env=False, timeout=20).status_code == 401
        finally:
            forward.terminate()
    with subprocess.Popen(
        [*command, "logs", "--follow", "--tail=1", name], stdout=subprocess.PIPE, text=True
    ) as follow:
        ending = threading.Timer(120, follow.kill)
        ending.start()
        try:
            assert follow.stdout is not None
            assert follow.stdout.readline()
            # Its liveness probe is a line of its log every ten seconds.
            assert any("GET /health" in line for line in follow.stdout)
        finally:
            ending.cancel()
            follow.terminate()


def test_a_killed_agent_leaves_the_server_running_and_goes_on_with_it(own: Own) -> None:
    """It fails if a new agent of the node does not find the server that runs."""
    state = own.gitops.local.state
    before, process = own.container(), own.process()
    agent = next(row.pid for row in look(state).processes if row.name == NAME)
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: any(row.name == NAME and row.pid not in (None, agent) for row in look(state).processes), 60)
    wait_for(lambda: all(row.health == "healthy" for row in look(state).processes if row.name == NAME), 60)
    assert process.is_running()
    after = own.container()
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], before["restartCount"])


def test_a_killed_server_is_counted_and_becomes_ready_again(own: Own) -> None:
    """It fails if restarts are not counted."""
    restarts = own.container()["restartCount"]
    own.process().kill()
    own.wait(lambda: own.container()["restartCount"] == restarts + 1, "it is started again", 60)
    assert own.container()["lastState"]["terminated"]["exitCode"] == 137
    own.wait(lambda: is_ready(own.pod()), "it is ready again")
    assert "Starting vLLM server" in own.kubectl("logs", "--previous", own.pod()["metadata"]["name"])


def test_scaled_to_nothing_and_removed_it_leaves_no_process(own: Own) -> None:
    uid = own.pod()["metadata"]["uid"]
    processes = [
        one
        for one in belonging(own.gitops.local.state.instance.id, PODS)
        if one.environ().get("NEUROSCALE_LOCAL_CONTAINER", "").startswith(uid)
    ]
    assert len(processes) >= 3  # shim, server, engine
    own.kubectl("scale", "deployment", f"{SERVICE}-predictor", "--replicas=0")
    own.wait(lambda: not any(exists(one.pid) for one in processes), "its processes have ended", 400)
    own.gitops.merge(dict.fromkeys(live_lab.service_files(SERVICE)), f"Remove {SERVICE}")
    own.wait(lambda: not own.pods(), "its pods are gone", 300)
    identity = Identity("serving.kserve.io/v1beta1", "InferenceService", NAMESPACE, SERVICE)
    own.wait(
        lambda: own.gitops.cluster.get(identity.group_version, identity.kind, SERVICE, NAMESPACE) is None, "gone", 300
    )
    assert not (own.gitops.local.state.run / "node" / PODS / uid).exists()
