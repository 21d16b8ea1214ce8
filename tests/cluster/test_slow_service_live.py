"""A real vLLM under loads of several kinds, read through the API server: the bound that it hits is the one named."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from api_server import ApiServer
from cluster_lab import install_kinds
from endpoint_lab import Pods, pods, running_kwok
from neuroscale.cluster.endpoint.pod_loads import read_loads
from neuroscale.explain.slow_service import Promise, Serving, judge_serving
from neuroscale.kube.client import Cluster
from neuroscale.tools.model_server import ModelServer
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.live, pytest.mark.tools]

PLACES, BLOCKS, BLOCK = 8, 36, 32
READY_WITHIN = 900.0
"""Seconds: thirty on an idle machine."""
PROMISE = Promise(users=4, replica_users=4, replicas=1, asked_ttft=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a vLLM with eight places, and a cache for little more than one request of full length."""
    found = ModelServer.find()
    assert found.problem() is None, found.problem()
    folder = tmp_path_factory.mktemp("vllm")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(found.python), "-m", "vllm.entrypoints.openai.api_server", f"--model={found.models / 'tiny-llama'}"]
    command += ["--served-model-name=tiny", "--host=127.0.0.1", f"--port={port}", "--max-model-len=1024"]
    command += [f"--max-num-seqs={PLACES}", f"--num-gpu-blocks-override={BLOCKS}", f"--block-size={BLOCK}"]
    variables = {"HOME": str(folder), "VLLM_CACHE_ROOT": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    variables |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "PATH": os.environ["PATH"]}
    log = folder / "vllm.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--enforce-eager"], cwd=folder, env=variables, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/health", timeout=5).is_success
        return False

    try:
        wait_for(answers, READY_WITHIN, "vLLM answers")
        yield url
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def lab(api_server: ApiServer, server: str) -> Iterator[Pods]:
    """A pod whose server is that one."""
    install_kinds(api_server)
    with running_kwok(api_server), pods(api_server, "slow-service") as found:
        found.arguments = ("--served-model-name=tiny", f"--max-num-seqs={PLACES}")
        found.add_server("chat-0", int(server.rpartition(":")[2]))
        yield found


@contextlib.contextmanager
def asked(server: str, users: int, *, prompt: int, answer: int) -> Iterator[None]:
    """Within it, so many users ask one question after the other, of so many tokens each; no two are alike."""
    over = threading.Event()

    def one(number: int) -> None:
        words = random.Random(number)
        with httpx.Client(base_url=server, timeout=120) as http:
            while not over.is_set():
                tokens = [words.randrange(5, 2000) for _ in range(prompt)]
                body = {"model": "tiny", "prompt": tokens, "max_tokens": answer, "ignore_eos": True}
                http.post("/v1/completions", json=body).raise_for_status()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(users)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(2)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def judged(lab: Pods) -> Serving:
    with Cluster.of_kubeconfig(lab.server.kubeconfig, lab.server.context) as cluster:
        loads, unread = read_loads(cluster, lab.namespace, lab.service, 5.0)
    assert unread == ()
    return judge_serving(loads, PROMISE)


def test_nobody_asks_it(lab: Pods) -> None:
    found = judged(lab)
    assert found.verdict == "idle"
    assert found.pods[0].places == PLACES
    assert found.pods[0].cache_tokens == BLOCKS * BLOCK


def test_one_client_that_asks_one_question_after_the_other_leaves_room(lab: Pods, server: str) -> None:
    with asked(server, 1, prompt=8, answer=16):
        found = judged(lab)
    assert found.verdict == "client", found
    assert 0 < found.pods[0].running <= 1
    assert found.pods[0].rate


def test_more_users_than_places_wait(lab: Pods, server: str) -> None:
    with asked(server, 3 * PLACES, prompt=8, answer=20):
        found = judged(lab)
    assert found.bounds[0].name == "requests_waiting", found
    assert f"of {PLACES} at a time" in found.sentence
    assert found.pods[0].most_at_once > PLACES


def test_requests_that_fill_the_cache_lose_their_place_in_it(lab: Pods, server: str) -> None:
    with asked(server, PLACES, prompt=200, answer=300):
        found = judged(lab)
    assert found.bounds[0].name == "kv_cache_full", found
    assert found.pods[0].cache == pytest.approx(1, abs=0.1)


def test_a_server_that_has_ended_is_not_called_idle(lab: Pods) -> None:
    with Cluster.of_kubeconfig(lab.server.kubeconfig, lab.server.context) as cluster:
        lab.add_server("gone-0", 1)
        loads, unread = read_loads(cluster, lab.namespace, lab.service, 1.0)
    assert [load.pod for load in loads] == ["chat-0"]
    assert len(unread) == 1
    assert unread[0].startswith("gone-0: ")
    assert judge_serving(loads, PROMISE, unread).verdict == "unknown"
