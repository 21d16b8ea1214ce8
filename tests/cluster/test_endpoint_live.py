"""A real vLLM, asked through the API server: its counts, its refusals, its queue, its death, and a new key for it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from cluster_lab import run
from command_line import Said
from live_lab import READY_WITHIN, Live, is_ready, pods_of, service_files
from neuroscale.cluster.endpoint import chat, key, metrics
from neuroscale.cluster.endpoint.access import open_endpoint
from neuroscale.cluster.endpoint.chat import Completion, Options, Part
from neuroscale.cluster.endpoint.connection import Endpoint
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.cluster.endpoint.key_rotation import rotate
from neuroscale.core.secret_text import SecretText
from neuroscale.kube.client import Cluster, Identity
from neuroscale.rendering.object_names import VARIABLE, secret_name
from neuroscale.repo.layout import RENDERED_KINDS
from neuroscale.tools.model_server import ModelServer
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.platform, pytest.mark.live]

LONG = Options(max_tokens=200, temperature=0, seed=1, extra={"ignore_eos": True})
SHORT = Options(max_tokens=12, temperature=0, seed=1)


@pytest.fixture(scope="module")
def answering(live: Live) -> Iterator[Endpoint]:
    with live.cluster() as cluster, open_endpoint(cluster, live.namespace, live.service) as endpoint:
        yield endpoint


# Counts ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens() -> dict[str, list[int]]:
    """Some texts, and the numbers that the model's own tokenizer makes of them."""
    texts = ["hello", "A sentence, with a comma.", "def f(x):\n    return x ** 2\n" * 20, "Ünïcode 🌍 text"]
    server = ModelServer.find()
    program = (
        "import json, sys; from tokenizers import Tokenizer\n"
        "found = Tokenizer.from_file(sys.argv[1])\n"
        "print(json.dumps([found.encode(text).ids for text in json.load(sys.stdin)]))"
    )
    argv = [str(server.python), "-c", program, str(server.models / "tiny-qwen3-moe" / "tokenizer.json")]
    done = subprocess.run(argv, input=json.dumps(texts), capture_output=True, text=True, check=True, timeout=120)
    return dict(zip(texts, json.loads(done.stdout), strict=True))


def test_the_tokens_of_a_prompt_are_those_of_the_models_own_tokenizer(
    answering: Endpoint, tokens: dict[str, list[int]]
) -> None:
    for text, numbers in tokens.items():
        assert chat.complete(answering, text, SHORT).prompt_tokens == len(numbers)
        assert chat.complete(answering, numbers, SHORT).prompt_tokens == len(numbers)


@pytest.mark.parametrize("longest", [1, 2, 17, 200])
def test_an_answer_has_as_many_tokens_as_were_asked_for_and_ends_for_its_length(
    answering: Endpoint, longest: int
) -> None:
    answer = chat.chat(answering, "hello", dataclasses.replace(LONG, max_tokens=longest))
    assert (answer.completion_tokens, answer.finish_reason) == (longest, "length")
    # vLLM sends tokens that wait for a slow reader in one part: an answer of two may have no time between its parts.
    assert longest == 2 or (answer.tokens_per_second is None) == (longest == 1)
    assert answer.ttft_seconds is not None
    assert 0 < answer.ttft_seconds <= answer.seconds


def test_the_rate_is_that_of_the_time_after_the_first_token(answering: Endpoint) -> None:
    parts: list[Part] = []
    answer = chat.chat(answering, "hello", LONG, on_part=parts.append)
    assert answer.tokens_per_second is not None
    assert answer.ttft_seconds is not None
    spent = answer.completion_tokens / answer.tokens_per_second
    assert spent == pytest.approx(answer.seconds - answer.ttft_seconds, rel=0.25)
    assert "".join(part.text for part in parts) == answer.text


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_streamed_answer_is_the_one_that_comes_at_once(answering: Endpoint, temperature: float) -> None:
    options = dataclasses.replace(LONG, max_tokens=40, temperature=temperature, seed=7)

    def same(answer: Completion) -> tuple[str, int, int, str]:
        return answer.text, answer.prompt_tokens, answer.completion_tokens, answer.finish_reason

    assert same(chat.chat(answering, "a b", options)) == same(chat.chat(answering, "a b", options, stream=False))
    assert same(chat.complete(answering, "a b", options)) == same(
        chat.complete(answering, "a b", options, stream=False)
    )


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [None, SecretText("wrong-" * 7)])
@pytest.mark.parametrize("streamed", [True, False])
def test_without_the_right_key_nothing_is_answered(
    answering: Endpoint, shown: SecretText | None, streamed: bool
) -> None:
    with pytest.raises(EndpointError) as caught:
        chat.chat(dataclasses.replace(answering, key=shown), "hello", SHORT, stream=streamed)
    assert (caught.value.status, caught.value.said) == (401, "Unauthorized")


def test_no_path_of_the_server_lets_its_model_speak_without_the_key(answering: Endpoint) -> None:
    """vLLM guards some prefixes only; what else it serves is in its own description."""
    paths = httpx.get(f"{answering.url}/openapi.json", trust_env=False, timeout=60).json()["paths"]
    assert "/v1/chat/completions" in paths
    asked: dict[str, Any] = {"model": answering.model, "max_tokens": 3, "temperature": 0}
    open_paths = []
    for path, methods in paths.items():
        if "post" not in methods or "scale" in path:
            continue
        for question in ({"messages": [{"role": "user", "content": "hello"}]}, {"prompt": "hello"}, {"input": "hello"}):
            response = httpx.post(f"{answering.url}{path}", json={**asked, **question}, trust_env=False, timeout=60)
            if response.is_success and any(word in response.text for word in ("choices", "embedding", "output")):
                open_paths.append(path)
    assert open_paths == []


def test_health_and_metrics_ask_for_no_key(answering: Endpoint) -> None:
    for path in ("/health", "/metrics"):
        assert httpx.get(f"{answering.url}{path}", trust_env=False, timeout=60).status_code == 200


def test_a_prompt_that_is_one_token_too_long_is_refused_in_the_servers_words(answering: Endpoint) -> None:
    (model,) = chat.models(answering)
    assert model.max_model_len is not None
    fitting = [5] * (model.max_model_len - 1)
    assert chat.complete(answering, fitting, dataclasses.replace(SHORT, max_tokens=1)).completion_tokens == 1
    with pytest.raises(EndpointError, match="Shorten the prompt") as caught:
        chat.complete(answering, [*fitting, 5, 5], dataclasses.replace(SHORT, max_tokens=1))
    assert caught.value.status == 400
    assert str(model.max_model_len) in caught.value.said


# The queue ------------------------------------------------------------------------------------------------------------


def test_more_users_than_the_server_takes_wait_and_are_seen_to(answering: Endpoint) -> None:
    most = 4  # what the service was asked for
    answers: list[Completion] = []
    options = dataclasses.replace(LONG, max_tokens=150)
    before = metrics.read(answering)
    assert before.missing == ()

    def ask() -> None:
        answers.append(chat.chat(answering, "hello", options))

    with metrics.Sampler(answering, every=0.05) as sampler:
        threads = [threading.Thread(target=ask) for _ in range(3 * most)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sampler.problem == ""
    assert len(answers) == 3 * most
    running = max(one.running or 0 for one in sampler.snapshots)
    assert running >= most
    assert max(one.waiting or 0 for one in sampler.snapshots) >= 1
    assert max(one.kv_cache_usage or 0 for one in sampler.snapshots) > 0
    after = sampler.snapshots[-1]
    for name, now, then in (("ttft", after.ttft, before.ttft), ("e2e", after.e2e, before.e2e)):
        assert now is not None
        assert then is not None
        came = now.since(then)
        assert came.count >= 3 * most, name
        assert came.quantile(0.5) is not None
    assert after.generation_tokens is not None
    assert before.generation_tokens is not None
    assert after.generation_tokens - before.generation_tokens >= 150 * 3 * most


# The commands ---------------------------------------------------------------------------------------------------------


def query(live: Live, prompt: str, *more: object) -> Said:
    return run("query", live.service, prompt, "--state", live.folder, "--repository", live.checkout, *more)


def test_query_prints_the_answer_and_then_what_it_took(live: Live) -> None:
    said = query(live, "hello", "--max-tokens", 12, "--temperature", 0)
    assert said.status == 0, said.err
    assert said.out.strip()
    for word in ("first token", "tokens/s", " in, ", "12 out", "length", "requests running", "KV cache used", "peak"):
        assert word in said.err


def test_query_prints_json_for_programs(live: Live) -> None:
    said = query(live, "hello", "--max-tokens", 12, "--temperature", 0, "--json")
    assert said.status == 0, said.err
    found = said.json
    assert (found["completion_tokens"], found["finish_reason"], found["how"]) == (12, "length", "port-forward")
    assert found["ttft_seconds"] > 0
    assert found["meanwhile"]["running"]["peak"] >= 0
    again = query(live, "hello", "--max-tokens", 12, "--temperature", 0, "--json", "--no-stream")
    assert (again.json["text"], again.json["ttft_seconds"]) == (found["text"], None)


def test_query_refuses_a_prompt_that_is_too_long_and_a_service_that_is_not_there(live: Live) -> None:
    long = query(live, "word " * 5000)
    assert long.status == 1
    assert "Shorten the prompt" in long.err
    missing = run("query", "tiny-chit", "hello", "--state", live.folder, "--repository", live.checkout)
    assert missing.status == 2
    assert "tiny-chat" in missing.err


def test_key_prints_the_key_when_asked_and_nothing_else(live: Live) -> None:
    common = ("key", live.service, "--state", live.folder, "--repository", live.checkout)
    silent, shown = run(*common), run(*common, "--print")
    with live.cluster() as cluster:
        held = key.read(cluster, live.namespace, live.service).secret
    assert (silent.status, silent.out) == (0, "")
    assert (shown.status, shown.out) == (0, f"{held}\n")
    assert held not in silent.err + shown.err


# A service of its own, which is changed and broken --------------------------------------------------------------------


FRAGILE, ELSEWHERE = "tiny-fragile", "team-beta"


@pytest.fixture(scope="module")
def fragile(live: Live) -> Iterator[Cluster]:
    """A second service, as the template renders it but not in Git: others test what Git says, and must not see it."""
    files = service_files(FRAGILE, team=ELSEWHERE)
    wanted = [yaml.safe_load(text) for path, text in files.items() if Path(path).name in RENDERED_KINDS]
    for one in wanted:
        del one["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    with live.cluster() as cluster:
        try:
            key.ensure(cluster, ELSEWHERE, FRAGILE)
            for one in wanted:
                cluster.apply(one)
            try:
                wait_for(lambda: _is_ready(cluster), READY_WITHIN, f"{FRAGILE} is ready")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{live.logs()}") from None
            yield cluster
        finally:
            for one in wanted:
                cluster.delete(Identity.of(one))
            cluster.delete(Identity("v1", "Secret", ELSEWHERE, secret_name(FRAGILE)))
            wait_for(lambda: not pods_of(cluster, ELSEWHERE, FRAGILE), 180, f"the pods of {FRAGILE} are gone")


def _is_ready(cluster: Cluster) -> bool:
    return any(is_ready(pod) for pod in pods_of(cluster, ELSEWHERE, FRAGILE))


def test_a_key_is_replaced_with_the_pod_that_takes_it(fragile: Cluster) -> None:
    before = key.read(fragile, ELSEWHERE, FRAGILE)
    (old,) = pods_of(fragile, ELSEWHERE, FRAGILE)
    told: list[str] = []
    done = rotate(fragile, ELSEWHERE, FRAGILE, told.append, seconds=READY_WITHIN, with_outage=True)
    assert done.proven, done.unproven
    assert done.replaced == (old["metadata"]["name"],)
    assert "does not answer until the next pod" in " ".join(told)
    after = key.read(fragile, ELSEWHERE, FRAGILE)
    assert after != before
    assert not any(secret.secret in " ".join(told) for secret in (before, after))
    with open_endpoint(fragile, ELSEWHERE, FRAGILE) as endpoint:
        assert chat.chat(endpoint, "hello", SHORT).completion_tokens == 12
        with pytest.raises(EndpointError, match="401"):
            chat.chat(dataclasses.replace(endpoint, key=before), "hello", SHORT)


def test_a_server_that_is_killed_while_it_answers_says_what_had_arrived(fragile: Cluster) -> None:
    """The last of this module: nobody waits until it is back."""
    parts: list[Part] = []
    own_key = key.read(fragile, ELSEWHERE, FRAGILE)

    def kill_after_some(part: Part) -> None:
        parts.append(part)
        if len(parts) == 5:
            kill_server(own_key)

    with open_endpoint(fragile, ELSEWHERE, FRAGILE) as endpoint, pytest.raises(EndpointError) as caught:
        chat.chat(endpoint, "hello", dataclasses.replace(LONG, max_tokens=1000), on_part=kill_after_some)
    assert caught.value.arrived.startswith("".join(part.text for part in parts[:5]))
    assert "had arrived" in str(caught.value)
    assert f" logs -n {ELSEWHERE}" in str(caught.value)


def kill_server(own_key: SecretText) -> None:
    """End at once the server of the pod that was started with this key, and what that started."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(VARIABLE) == own_key.secret:
                process.kill()
