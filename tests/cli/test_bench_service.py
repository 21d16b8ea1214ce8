"""`neuroscale bench SERVICE` by a real API server: the pod is found, its port forwarded, its key read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api_server import ApiServer
from bench_lab import FakeClient, model_endpoint
from cluster_lab import install_kinds
from command_line import Said, commands
from endpoint_lab import Pods, pods, running_kwok
from roots import ROOT

pytestmark = [pytest.mark.tools, pytest.mark.slow]

KEY = "key-of-the-service-0123456789"


@pytest.fixture
def lab(api_server: ApiServer) -> Iterator[Pods]:
    """A pod of this repository's service, whose server stands in for vLLM."""
    install_kinds(api_server)
    with (
        running_kwok(api_server),
        pods(api_server, "team-alpha") as found,
        model_endpoint(cache_tokens=65536) as (server, _),
    ):
        found.service, found.arguments = "tiny-moe", ("--served-model-name=tiny-llama",)
        found.put_service()
        secret = {"name": "tiny-moe-api-key", "namespace": found.namespace}
        data = {"api-key": base64.b64encode(KEY.encode()).decode()}
        found.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "data": data})
        found.add_server("tiny-moe-0", int(server.url.rpartition(":")[2]))
        yield found
        found.cluster.request(
            "DELETE", f"/apis/serving.kserve.io/v1beta1/namespaces/{found.namespace}/inferenceservices/tiny-moe"
        )


@pytest.fixture
def neuroscale(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.delenv("NEUROSCALE_API_KEY", raising=False)
    return commands(capsys, monkeypatch)


def test_a_service_of_a_cluster_is_measured_through_its_pod(
    lab: Pods, neuroscale: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = FakeClient()
    monkeypatch.setattr("neuroscale.actions.bench_run.Guidellm", lambda: client)
    where = ("--kubeconfig", lab.server.kubeconfig, "--context", lab.server.context, "--repository", ROOT)
    said = neuroscale("bench", "tiny-moe", *where, "--output", tmp_path, "--tokenizer", "owner/model")
    assert said.status == 0, said.err
    assert client.ran == ["u1-p1024-a256", "u4-p1024-a256"]
    assert client.targets[0].key is not None
    assert client.targets[0].key.secret == KEY
    assert KEY not in said.out + said.err
    result = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert (result["service"], result["model"], result["url"]) == ("local/tiny-moe", "tiny-qwen3-moe", "")
    assert result["promised_p95_ttft_seconds"] == 20.0
