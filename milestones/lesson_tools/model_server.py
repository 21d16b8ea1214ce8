"""Serves a tiny model with this machine's vLLM, for the programs of lessons."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from lesson_tools.program import Done, Program
from neuroscale.cluster.endpoint.chat import Options, complete
from neuroscale.cluster.endpoint.connection import Endpoint, client
from neuroscale.core.errors import UntrustedError
from neuroscale.core.waiting import attempts
from neuroscale.tools.model_server import ModelServer

MODEL = "tiny-llama"
PROMPT_TOKENS = 1900
_VOCABULARY = range(10, 2000)
_START_SECONDS = 400.0  # ten to twenty on two idle cores
_HITS = re.compile(r"^vllm:prefix_cache_hits_total\{[^}]*\} (\S+)$", re.MULTILINE)
_OPTIONS = Options(max_tokens=2, temperature=0.0, seconds=120.0, silence=60.0, extra={"ignore_eos": True})


class TinyServer:
    """A running vLLM server, reached at `endpoint`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def first_token(self, prompt: Sequence[int]) -> tuple[float, int]:
        """Seconds until the first token of an answer, and the tokens of the prompt that came from the prefix cache."""
        before = self._hits()
        seconds = complete(self.endpoint, prompt, _OPTIONS).ttft_seconds
        if seconds is None:
            raise UntrustedError("vLLM sent an answer without text, so its first token cannot be timed")
        return seconds, self._hits() - before

    def status_of(self, prompt: Sequence[int], answer_tokens: int) -> tuple[int, str]:
        """The status and the message with which vLLM answers a prompt, asked for so many tokens; no message for 200."""
        asked = {"model": MODEL, "prompt": list(prompt), "max_tokens": answer_tokens, "ignore_eos": True}
        answer = self.endpoint.http.post("/v1/completions", json=asked, timeout=120.0)
        message = "" if answer.status_code == 200 else str(answer.json()["error"]["message"])
        return answer.status_code, message

    def _hits(self) -> int:
        found = _HITS.search(self.endpoint.http.get("/metrics").text)
        if found is None:
            raise UntrustedError("vLLM's metrics do not count the hits of its prefix cache")
        return int(float(found[1]))


def random_prompt(seed: int, tokens: int = PROMPT_TOKENS) -> list[int]:
    """So many random tokens of the tiny models; another seed gives other tokens from the first on."""
    return random.Random(seed).choices(_VOCABULARY, k=tokens)  # noqa: S311 - not a secret


def start_alone(program: Program, *options: str, only: Sequence[str]) -> Done:
    """Start vLLM with options that it refuses, and print the lines of its output that contain one of the texts `only`.

    Raises UntrustedError if vLLM is not installed, and subprocess.TimeoutExpired if it keeps running.
    """
    found = _found()
    program.say(f"vLLM {found.version} for the CPU starts with the model {MODEL}.")
    return program.command(
        f"vllm serve {MODEL}",
        _argv(found, free_port(), options),
        options,
        _environment(found, program.folder),
        only=only,
        seconds=_START_SECONDS,
    )


@contextlib.contextmanager
def tiny_server(program: Program, *options: str) -> Iterator[TinyServer]:
    """Serve MODEL until the end of the block. vLLM's own defaults hold beside `options`: its prefix cache is on.

    Raises UntrustedError if vLLM is not installed or does not answer.
    """
    found = _found()
    log = program.folder / "vllm.log"
    port = free_port()
    settings = f"with {' '.join(options)}" if options else "with its default settings"
    program.say(f"vLLM {found.version} serves the model {MODEL} on the CPU, {settings}.")
    with log.open("wb") as output:
        process = subprocess.Popen(
            _argv(found, port, ("--max-num-seqs", "4", *options)),
            cwd=program.folder,
            env={**os.environ, **_environment(found, program.folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with client(f"http://127.0.0.1:{port}") as http:
            _wait(http, process, log)
            yield TinyServer(Endpoint(str(http.base_url).rstrip("/"), MODEL, None, http, "url"))
    finally:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _found() -> ModelServer:
    found = ModelServer.find()
    if (problem := found.problem()) is not None:
        raise UntrustedError(problem)
    return found


def _argv(found: ModelServer, port: int, options: Sequence[str]) -> list[str]:
    return [
        str(found.python),
        *("-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)),
        *("--model", str(found.models / MODEL), "--served-model-name", MODEL, "--enforce-eager"),
        *options,
    ]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _environment(found: ModelServer, folder: Path) -> dict[str, str]:
    cache = folder / "vllm-cache"
    if found.cache.is_dir():
        shutil.copytree(found.cache, cache)
    return {
        "VLLM_CACHE_ROOT": str(cache),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        # The engine in the server's own process: another one would import all of it once more.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "",
    }


def _wait(http: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in attempts(_START_SECONDS, pause=0.2):
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if http.get("/health", timeout=5.0).status_code == 200:
                return
    said = " / ".join(log.read_text(errors="replace").splitlines()[-3:])
    raise UntrustedError(f"vLLM does not answer on this machine. It printed: {said[-500:]}")
