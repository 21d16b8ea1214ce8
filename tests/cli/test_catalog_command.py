"""`neuroscale catalog add` and `catalog form`: entries from the Hub, a folder or a config.json, and the form's list."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoints import LLAMA, llama_tensors, safetensors, write_checkpoint
from command_line import Said
from hub_server import COMMIT, NAME, Hub, hub_environment, serving
from neuroscale.catalog import load_catalog
from neuroscale.catalog.settings import load_settings
from neuroscale.core.yaml_io import quoted
from neuroscale.rendering.scaffolder.form import check_form
from neuroscale.rendering.scaffolder.template import load_template
from neuroscale.repo.snapshot import FolderSnapshot
from roots import ROOT

pytestmark = pytest.mark.slow

ENTRY = "platform/catalog/models/Some-Model.yaml"
FORM = "templates/llm-inference-service/template.yaml"
HOSTILE = 'a: [b] # <c> "${{ parameters.x }}" \u2028 --- !!python/object'


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    for folder in ("platform/catalog", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / "platform-repository" / folder)
    shutil.copyfile(ROOT / "platform/settings.yaml", tmp_path / "platform-repository/platform/settings.yaml")
    return tmp_path / "platform-repository"


def add(platform: Path, *arguments: object, url: str = "http://127.0.0.1:9") -> Said:
    return run(platform, "catalog", "add", *arguments, url=url)


def run(platform: Path, *arguments: object, url: str = "http://127.0.0.1:9") -> Said:
    """In a process of its own: the Hub's library reads the Hub's address when it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "neuroscale", *map(str, arguments), "--repository", str(platform)],
        capture_output=True,
        text=True,
        env=hub_environment(platform.parent, url=url),
        timeout=120,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def files_of(platform: Path) -> dict[str, bytes]:
    return {str(path.relative_to(platform)): path.read_bytes() for path in platform.rglob("*") if path.is_file()}


def entry_of(platform: Path) -> Any:
    return yaml.safe_load((platform / ENTRY).read_text())


def hub_of_llama(**told: Any) -> Hub:
    files = {
        "config.json": json.dumps({**LLAMA, "unheard_of": 1, "transformers_version": "5"}).encode(),
        "model.safetensors": safetensors(llama_tensors(LLAMA)),
        "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    }
    return Hub(files, told=told)


def test_a_model_of_the_hub_becomes_an_entry_that_the_form_offers_and_a_second_run_changes_nothing(
    platform: Path,
) -> None:
    hub = hub_of_llama(
        gated="manual", tags=["license:llama3.1", "base_model:quantized:meta-llama/Llama-3.1-8B-Instruct"]
    )
    with serving(hub):
        said = add(platform, NAME, "--json", url=hub.url)
        assert said.status == 0, said.err
        assert sorted(said.json["changed"]) == sorted([ENTRY, FORM])
        before = files_of(platform)
        again = add(platform, NAME, url=hub.url)
    assert "is up to date" in again.out
    assert files_of(platform) == before
    snapshot = FolderSnapshot(platform)
    catalog = load_catalog(snapshot)
    model = catalog.models[NAME]
    assert (model.weights.revision, model.weights.gated, model.weights.license) == (COMMIT, True, "llama3.1")
    assert model.variant_of == "meta-llama/Llama-3.1-8B-Instruct"
    assert model.weights.read_on is not None
    assert model.serving.chat_template is True
    size = len(hub.files["model.safetensors"])
    assert model.checkpoint.download_gib.value == pytest.approx(size / 2**30, rel=1e-4)
    assert f"{size:,} bytes" in model.checkpoint.download_gib.source
    assert "unheard_of" not in model.config
    assert check_form(load_template(snapshot), catalog, load_settings(snapshot)) == []
    assert {fit["accelerator"] for fit in said.json["fits"]["dev"]} >= {"nvidia-l4", "tpu-v6e-1"}
    assert any(fit["count"] == 1 for fit in said.json["fits"]["dev"])


def test_a_newer_revision_is_renewed_and_what_people_wrote_stays(platform: Path) -> None:
    hub = hub_of_llama(tags=["license:mit"])
    with serving(hub):
        add(platform, NAME, url=hub.url)
        values = entry_of(platform)
        values["title"] = "Ours"
        values["checkpoint"]["resident_gib"] = {"value": 0.0021, "source": "measured here, with vLLM 0.32.0"}
        values["serving"]["tool_call_parser"] = "hermes"
        (platform / ENTRY).write_text(yaml.safe_dump(values, sort_keys=False).replace(COMMIT, quoted(COMMIT)))
        text = (platform / ENTRY).read_text()
        (platform / ENTRY).write_text(text.replace(values["weights"]["read_on"], "2026-01-01"))
        hub.told["sha"] = "2" * 40
        said = add(platform, NAME, url=hub.url)
    assert said.status == 0, said.err
    now = entry_of(platform)
    assert now["weights"]["revision"] == "2" * 40
    assert now["title"] == "Ours"
    assert now["checkpoint"]["resident_gib"]["value"] == 0.0021
    assert now["serving"]["tool_call_parser"] == "hermes"


def test_a_folder_and_a_config_make_entries_that_say_what_was_not_told(platform: Path, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "Some-Model", LLAMA, llama_tensors(LLAMA))
    assert add(platform, folder).status == 0
    assert entry_of(platform)["weights"] | {"read_on": ""} == {
        "kind": "store",
        "path": "Some-Model",
        "revision": None,
        "gated": None,
        "license": None,
        "source": "the config.json of a folder that was given",
        "read_on": "",
    }
    (platform / ENTRY).unlink()
    nameless = add(platform, folder / "config.json")
    assert nameless.status == 2
    assert "--name" in nameless.err
    assert not (platform / ENTRY).exists()
    placeless = add(platform, folder / "config.json", "--name", NAME)
    assert placeless.status == 2
    assert f"does not say where the weights of {NAME} are. Add --store PATH" in placeless.err
    assert not (platform / ENTRY).exists()
    said = add(platform, folder / "config.json", "--name", NAME, "--hub")
    assert said.status == 0, said.err
    entry = entry_of(platform)
    assert (entry["weights"]["kind"], entry["checkpoint"]["download_gib"]["value"]) == ("hub", None)
    assert entry["weights"]["gated"] is None
    assert str(tmp_path) not in (platform / ENTRY).read_text()


def test_a_model_of_ones_own_comes_from_the_environments_store_where_the_hub_is_out_of_bounds(
    platform: Path, tmp_path: Path
) -> None:
    settings = platform / "platform/settings.yaml"
    first, dev = settings.read_text().split("\n  dev:\n")
    settings.write_text(f"{first}\n  dev:\n{dev.replace('hub: true', 'hub: false', 1)}")
    folder = write_checkpoint(tmp_path / "x", LLAMA, llama_tensors(LLAMA))
    said = add(platform, folder / "config.json", "--name", "acme/x", "--store", "acme/x-v2")
    assert said.status == 0, said.err
    weights = yaml.safe_load((platform / "platform/catalog/models/x.yaml").read_text())["weights"]
    assert (weights["kind"], weights["path"], weights["revision"]) == ("store", "acme/x-v2", None)
    assert "huggingface.co" not in weights["source"]
    answers = tmp_path / "answers.yaml"
    text = (ROOT / "templates/examples/gemma-4-26b-a4b-qat.yaml").read_text()
    form = {**yaml.safe_load(text), "model": "acme/x", "longest_prompt_tokens": 64, "longest_answer_tokens": 16}
    answers.write_text(yaml.safe_dump(form))
    planned = run(platform, "new", "--answers", answers)
    assert planned.status == 0, (planned.out, planned.err)
    service = yaml.safe_load((platform / "manifests/dev/support-chat/inferenceservice.yaml").read_text())
    assert service["spec"]["predictor"]["model"]["storageUri"] == "gs://neuroscale-models/acme/x-v2"
    # A later run over the same files keeps the place, and another place moves it.
    assert add(platform, folder / "config.json", "--name", "acme/x").status == 0
    moved = add(platform, folder / "config.json", "--name", "acme/x", "--store", "acme/x-v3")
    assert moved.status == 0, moved.err
    assert yaml.safe_load((platform / "platform/catalog/models/x.yaml").read_text())["weights"]["path"] == "acme/x-v3"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--store", "gs://bucket/x"), "is not a folder below the environments' store"),
        (("--store", "../x"), "is not a folder below the environments' store"),
        (("--store", "x", "--hub"), "name two places of the weights"),
        (("--name", "x", "--hub"), "'x' is not a name of the Hub"),
    ],
)
def test_a_place_that_cannot_be_is_refused(
    platform: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    config = write_checkpoint(tmp_path / "x", LLAMA) / "config.json"
    named = () if "--name" in arguments else ("--name", "acme/x")
    said = add(platform, config, *named, *arguments)
    assert said.status == 2
    assert words in said.err


def test_fields_of_a_file_win_and_a_mistake_in_them_writes_nothing(platform: Path, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "Some-Model", LLAMA)
    fields = tmp_path / "fields.yaml"
    fields.write_text(
        'title: "Some Model"\nfamily: Some\ngood_at: {text: "short answers", source: "its model card"}\n'
        "weights: {license: mit, gated: false}\nserving: {minimum_vllm_version: 0.20.0}\n"
    )
    assert add(platform, folder, "--fields", fields).status == 0
    entry = entry_of(platform)
    assert (entry["weights"]["license"], entry["serving"]["minimum_vllm_version"]) == ("mit", "0.20.0")
    assert "Some: Some Model (1" in (platform / FORM).read_text()
    assert "good at short answers" in (platform / FORM).read_text()
    before = files_of(platform)
    for text, words in (
        ("titel: x\n", "Did you mean 'title'?"),
        ("config: {}\n", "comes from the model's files"),
        ("variant_of: nobody/Nothing\n", "is not a model of the catalog"),
    ):
        fields.write_text(text)
        said = add(platform, folder, "--fields", fields)
        assert said.status == 2
        assert words in said.err
        assert files_of(platform) == before


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "no decoder"),
        (
            {**LLAMA, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            "has no name for the storage format",
        ),
        ({**LLAMA, "num_attention_heads": "many"}, "num_attention_heads"),
    ],
)
def test_a_model_that_cannot_be_planned_is_refused_in_words_and_nothing_is_written(
    platform: Path, tmp_path: Path, config: dict[str, Any], words: str
) -> None:
    before = files_of(platform)
    said = add(platform, write_checkpoint(tmp_path / "Some-Model", config))
    assert said.status == 2
    assert words in said.err
    assert files_of(platform) == before


def test_a_hub_that_is_out_of_reach_writes_nothing(platform: Path) -> None:
    before = files_of(platform)
    said = add(platform, NAME)
    assert said.status == 2
    assert "cannot be reached" in said.err or "out of reach" in said.err
    assert files_of(platform) == before


def test_what_a_hub_tells_never_becomes_structure(platform: Path) -> None:
    hub = hub_of_llama(tags=[f"license:{HOSTILE}"])
    with serving(hub):
        said = add(platform, NAME, url=hub.url)
    assert said.status == 0, said.err
    assert load_catalog(FolderSnapshot(platform)).models[NAME].weights.license == HOSTILE
    form = yaml.safe_load((platform / FORM).read_text())["spec"]["parameters"][0]["properties"]["model"]
    assert len(form["enum"]) == len(form["enumNames"])
    assert load_template(FolderSnapshot(platform))


def test_two_models_of_one_file_name_are_told_apart(platform: Path, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "one", LLAMA)
    assert add(platform, folder, "--name", "someone/Llama-3.1-8B-Instruct").status == 2
    said = add(platform, folder, "--name", "someone/Llama-3.1-8B-Instruct")
    assert "Rename one of the two models" in said.err


def test_an_entry_is_not_replaced_by_a_model_of_another_architecture(platform: Path, tmp_path: Path) -> None:
    assert add(platform, write_checkpoint(tmp_path / "one", LLAMA), "--name", NAME, "--hub").status == 0
    before = (platform / ENTRY).read_bytes()
    other = {**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    said = add(platform, write_checkpoint(tmp_path / "two", other), "--name", NAME)
    assert said.status == 2
    assert "is the entry of another architecture (llama), and the files are of qwen2" in said.err
    assert (platform / ENTRY).read_bytes() == before


def test_a_new_service_records_the_newest_commit_and_keeps_it_when_the_hub_moves_on(platform: Path) -> None:
    answers = platform.parent / "answers.yaml"
    text = (ROOT / "templates/examples/llama-3.1-8b-highly-available.yaml").read_text()
    answers.write_text(text)
    without = run(platform, "new", "--answers", answers)
    assert without.status == 0
    command = "neuroscale catalog add meta-llama/Llama-3.1-8B-Instruct"
    assert "prod demands a revision of meta-llama/Llama-3.1-8B-Instruct" in without.out
    assert without.out.count(command) == 2  # what happened, and what a merge then needs
    shutil.rmtree(platform / "manifests")
    for newest in (COMMIT, "2" * 40):
        with serving(hub_of_llama(sha=newest)) as hub:
            said = run(platform, "new", "--answers", answers, url=hub.url)
        assert said.status == 0, said.err
        assert ["/api/models/" in path for path in hub.asked].count(True) == (newest == COMMIT)
        folder = platform / "manifests/prod/help-desk"
        assert yaml.safe_load((folder / "request.yaml").read_text())["model_revision"] == COMMIT
        assert f"--revision={COMMIT}" in (folder / "inferenceservice.yaml").read_text()
        assert command not in said.out
