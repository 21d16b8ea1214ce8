"""`neuroscale bench-merged`: which services are measured after a merge, and what the comment then tells."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_lab import FakeClient, model_endpoint
from command_line import Said, commands
from neuroscale.actions.bench_run import added_services
from neuroscale.actions.bench_subject import Place, service_place
from neuroscale.actions.chosen_cluster import Service
from neuroscale.actions.open_repository import open_repository
from neuroscale.bench.result import short_text
from neuroscale.cluster.endpoint.errors import EndpointError
from repositories import Repository
from roots import ROOT


def _service(environment: str, name: str) -> dict[str, bytes | str | None]:
    folder = f"manifests/{environment}/{name}"
    return {f"{folder}/plan.yaml": f"service: {name}\n", f"{folder}/request.yaml": f"service: {name}\n"}


def test_a_service_is_new_where_the_newest_merge_added_its_plan(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(_service("dev", "one"))
    assert added_services(repository.root, "dev") == []  # there is nothing before it
    repository.commit({**_service("dev", "two"), **_service("prod", "three")})
    assert added_services(repository.root, "dev") == ["two"]
    assert added_services(repository.root, "prod") == ["three"]
    repository.commit({"manifests/dev/two/plan.yaml": "service: two\nchanged: true\n"})
    assert added_services(repository.root, "dev") == []


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs it for the service of this repository, as if the newest merge had added it."""
    opened = open_repository(ROOT)
    short = opened.settings.environments["local"].model_copy(update={"bench_after_merge": "short"})
    environments = {**opened.settings.environments, "local": short}
    settings = opened.settings.model_copy(update={"environments": environments})
    changed = replace(opened, settings=settings)
    monkeypatch.setattr("neuroscale.actions.open_repository.open_repository", lambda _: changed)
    monkeypatch.setattr("neuroscale.actions.bench_run.added_services", lambda *_: ["tiny-moe"])
    return commands(capsys, monkeypatch, "bench-merged", "--environment", "local", "--output", tmp_path)


def test_a_new_service_is_measured_once_with_the_load_of_its_form(
    bench: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = FakeClient()
    monkeypatch.setattr("neuroscale.actions.bench_run.Guidellm", lambda: client)

    @contextlib.contextmanager
    def opened_place(asked: Any, repository: Callable[[], Any], _: object) -> Iterator[Place]:
        assert asked.service == "local/tiny-moe"
        with model_endpoint(cache_tokens=8192) as (_, endpoint):
            monkeypatch.setattr("neuroscale.actions.bench_subject._tokenizer", lambda *_: ("/models/tiny", ""))
            found = Service("tiny-moe", "team-alpha", "local", True)
            yield service_place(asked, repository(), dataclasses.replace(endpoint, model="tiny-llama"), found)

    monkeypatch.setattr("neuroscale.actions.bench_subject.opened_place", opened_place)
    assert bench().status == 0
    assert client.ran == ["u4-p1024-a256"]
    result = json.loads((tmp_path / "tiny-moe" / "bench.json").read_text(encoding="utf-8"))
    assert short_text(result) == (
        "Measured on one replica with 4 users, 1,024 tokens in and 256 out: the first token came in 80 ms for 95 in "
        "100 of 12 requests; the form asks for 20 s; 68.8 tokens a second for all together. The plan has no estimate "
        "of them."
    )


def test_a_service_that_cannot_be_measured_leaves_the_reason_and_no_figure(
    bench: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise EndpointError("tiny-moe has no pod that is ready: it has no pods.")

    monkeypatch.setattr("neuroscale.actions.bench_subject.opened_place", refuse)
    assert bench().status == 1
    result = json.loads((tmp_path / "tiny-moe" / "bench.json").read_text(encoding="utf-8"))
    told = "A short benchmark measured nothing: failed. tiny-moe has no pod that is ready: it has no pods."
    assert short_text(result) == told


def test_it_measures_nothing_unless_the_settings_ask_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = commands(capsys, monkeypatch, "bench-merged", "--output", tmp_path, "--repository", ROOT)
    said = command("--environment", "local")
    assert (said.status, said.out) == (0, "local: bench_after_merge is off\n")
    assert list(tmp_path.iterdir()) == []
    assert "is not in the settings" in command("--environment", "lokal").err


def test_the_plans_estimates_stand_beside_what_was_measured() -> None:
    cell = {
        "users": 8,
        "prompt_tokens": 512,
        "answer_tokens": 128,
        "state": "measured",
        "requests": 40,
        "measured": {"ttft_seconds": {"p95": 0.4321}, "tokens_per_second": {"total": 412.3}},
        "predicted": {"ttft_seconds": {"p95": {"value": 0.61}}, "tokens_per_second": {"total": {"value": 380.2}}},
    }
    told = short_text({"cells": [cell], "promised_p95_ttft_seconds": 2.0})
    assert "in 432 ms for 95 in 100 of 40 requests; the form asks for 2 s; 412 tokens a second" in told
    assert told.endswith("The plan's estimates are 610 ms and 380 tokens a second.")
