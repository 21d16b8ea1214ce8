"""Finding a model by its name: the catalog, a path, the Hub; the Hub only where nothing else has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA, llama_tensors, safetensors, write_checkpoint
from hub_server import COMMIT, NAME, Hub, hub_environment, serving
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.validation import suggest
from neuroscale.models import hub
from neuroscale.models.config import read_config
from roots import ROOT

pytestmark = pytest.mark.slow  # it starts a program for each case


def model(
    name: str | Path, home: Path, *, url: str = "http://127.0.0.1:9", folder: Path | None = None, offline: bool = False
) -> Any:
    """What `neuroscale model --json` says, in a process of its own: the Hub's library reads its address then."""
    return subprocess.run(
        [sys.executable, "-m", "neuroscale", "model", str(name), "--json"],
        capture_output=True,
        text=True,
        cwd=folder or home,
        env=hub_environment(home, url=url, offline=offline),
        timeout=120,
        check=False,
    )


def test_a_model_of_the_hub_is_told_by_its_config_and_headers_and_its_weights_stay_there(tmp_path: Path) -> None:
    wide = {**LLAMA, "intermediate_size": 384 * 64}
    tensors = llama_tensors(wide)
    files = {"config.json": json.dumps(wide).encode(), "model.safetensors": safetensors(tensors)}
    with serving(Hub(files)) as hub:
        said = model(NAME, tmp_path, url=hub.url)
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert (answer["basis"], answer["name"]) == ("headers", NAME)
    assert answer["weight_bytes_by_group"] == dict(read_config(wide, "model").weight_bytes)
    assert COMMIT[:12] in answer["source"]
    assert len(files["model.safetensors"]) > 40 * 2**20
    assert hub.sent < 2**20
    assert said.stderr == ""


def test_shards_of_the_hub_are_told_by_their_headers(tmp_path: Path) -> None:
    tensors = llama_tensors(LLAMA)
    folder = write_checkpoint(
        tmp_path / "there", LLAMA, tensors, {"model.layers.4.eh_proj.weight": ("BF16", [128, 256])}
    )
    with serving(Hub({path.name: path.read_bytes() for path in folder.iterdir()})) as hub:
        said = model(NAME, tmp_path, url=hub.url)
    assert json.loads(said.stdout)["weight_bytes_by_group"]["mtp"] == 2 * 128 * 256
    assert said.stderr == ""


def test_a_repository_without_safetensors_is_told_by_its_config(tmp_path: Path) -> None:
    with serving(Hub({"config.json": json.dumps(LLAMA).encode()})) as hub:
        said = model(NAME, tmp_path, url=hub.url)
    assert json.loads(said.stdout)["basis"] == "config"


@pytest.mark.parametrize(
    ("hub", "words"),
    [
        (Hub({}, 401, "GatedRepo"), "accept"),
        (Hub({}, 403, "GatedRepo"), "accept"),
        (Hub({}, 404, "RepoNotFound"), "is not a model of the Hub"),
        (Hub({}, 401, "RepoNotFound"), "is not a model of the Hub"),
        (Hub({}, 500), "the Hub answered 500"),
        (Hub({}), "has no config.json"),
        (Hub({"config.json": b"{"}), "is not valid JSON"),
        (Hub({"config.json": b" " * (5 * 2**20)}), "is larger than 4 MiB"),
        (Hub({"config.json": json.dumps(LLAMA).encode(), "model.safetensors": b"\xff" * 64}), "headers cannot be read"),
    ],
)
@pytest.mark.slow
def test_what_the_hub_refuses_or_has_not_is_told_in_words(tmp_path: Path, hub: Hub, words: str) -> None:
    with serving(hub):
        said = model(NAME, tmp_path, url=hub.url)
    assert said.returncode == 2
    assert words in said.stderr
    assert NAME in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("offline", [True, False])
def test_without_the_hub_a_name_is_refused_with_what_works_instead(tmp_path: Path, offline: bool) -> None:
    said = model(NAME, tmp_path, offline=offline)
    assert said.returncode == 2
    assert "Name a folder" in said.stderr
    assert len(said.stderr.splitlines()) <= 3


def test_the_hub_is_not_asked_for_what_is_in_the_catalog_or_on_disk(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "google" / "gemma-4-31B-it", LLAMA)
    with serving(Hub({})) as hub:
        of_catalog = model("google/gemma-4-31B-it", tmp_path, url=hub.url, folder=ROOT)
        of_path = model("google/gemma-4-31B-it", tmp_path, url=hub.url)
        of_file = model(folder / "config.json", tmp_path, url=hub.url)
        gone = model("google/nothing.json", tmp_path, url=hub.url)
    assert json.loads(of_catalog.stdout)["total_params"] > 30e9
    assert json.loads(of_path.stdout)["total_params"] == read_config(LLAMA, "model").total_params
    assert json.loads(of_file.stdout)["name"] == "gemma-4-31B-it"
    assert gone.returncode == 2
    assert hub.asked == []


def test_a_model_that_the_catalog_has_of_another_owner_is_named(tmp_path: Path) -> None:
    with serving(Hub({})) as hub:
        said = model("Qwen/Qwen3.6-27B-NVFP4", tmp_path, url=hub.url, folder=ROOT)
    assert said.returncode == 2
    assert "Did you mean 'nvidia/Qwen3.6-27B-NVFP4' of the catalog?" in said.stderr


def test_another_owner_comes_before_another_model() -> None:
    names = ["Qwen/Qwen3.6-27B", "Qwen/Qwen3.6-27B-FP8", "nvidia/Qwen3.6-27B-NVFP4"]
    assert suggest("qwen/Qwen3.6-27b-NVFP4", names).startswith("Did you mean 'nvidia/Qwen3.6-27B-NVFP4'?")
    assert suggest("Qwen3.6-27B", names).startswith("Did you mean 'Qwen/Qwen3.6-27B'?")


def test_a_name_that_is_nothing_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    said = model("gemma-4-31B", tmp_path, folder=ROOT)
    assert said.returncode == 2
    assert "Did you mean 'google/gemma-4-31B-it'" in said.stderr


def test_the_newest_commit_of_a_model_is_asked_for_once_and_a_hub_out_of_reach_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Stand:
        revision = COMMIT

        def __init__(self, name: str, timeout: float) -> None:
            asked.append(name)
            assert timeout <= 5
            if name == "a/far":
                raise hub.HubOutOfReachError(Problem(name, "", "was not looked up", ""))
            if name == "a/none":
                raise InputError.at(name, "", "is not a model of the Hub", "")

    monkeypatch.setattr(hub, "HubModel", Stand)
    newest = hub.NewestRevisions()
    assert (newest("a/b"), newest("a/b")) == (COMMIT, COMMIT)
    for _ in range(2):
        with pytest.raises(InputError, match="is not a model"):
            newest("a/none")
    for name in ("a/far", "a/other"):
        with pytest.raises(InputError, match="was not looked up"):
            newest(name)
    assert newest("a/b") == COMMIT
    assert asked == ["a/b", "a/none", "a/far"]
