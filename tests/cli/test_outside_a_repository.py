"""Commands in a folder that no platform repository is around: what answers, by whose settings, and what refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_line import commands
from neuroscale.actions.few_answers import request_of_few
from neuroscale.actions.open_repository import OpenedInputs, Repository, open_inputs
from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.repo.layout import is_outside
from neuroscale.request.service_request import Request
from plan_factory import ANSWERS

FEW = ("--model", "Qwen/Qwen3-8B", "--users", 8, "--prompt-tokens", 2000, "--answer-tokens", 300)
SHIPPED = "Settings: the shipped example's, and the catalog of neuroscale"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository: the delivered catalog and form, with the example organisation's files."""
    root = tmp_path / "own"
    for folder in ("platform/catalog", "templates/llm-inference-service"):
        own_facts = shutil.ignore_patterns("teams", "budgets")
        shutil.copytree(delivered.FOLDER / folder, root / folder, ignore=own_facts)
    return Path(shutil.copytree(delivered.EXAMPLE, root, dirs_exist_ok=True))


@pytest.fixture
def example(empty: Path) -> OpenedInputs:
    return open_inputs(None)


def request_file(folder: Path, **changes: Any) -> Path:
    path = folder / "request.yaml"
    path.write_text(yaml.safe_dump({**ANSWERS, **changes}))
    return path


@pytest.mark.parametrize(
    "command",
    [
        "new --answers request.yaml",
        "request --answers request.yaml",
        "update dev/support-chat --set concurrent_users=9",
        "promote support-chat --to prod",
        "retire dev/support-chat",
        "restore dev/support-chat",
        "render request.yaml",
        "replan support-chat",
        "upgrade dev/support-chat",
        "serve",
        "catalog add Qwen/Qwen3-8B",
        "catalog form",
        "prices update --from request.yaml",
        "platform render",
        "policy render",
        "keys --environment dev",
        "explain support-chat",
        "explain --log request.yaml --record",
        "compare dev/support-chat Qwen/Qwen3-8B@nvidia-l4",
    ],
)
def test_what_changes_a_repository_or_asks_of_its_services_refuses_and_says_what_to_do(
    empty: Path, run: Any, command: str
) -> None:
    request_file(empty)
    ended = run(*command.split())
    assert ended.status == 2, ended
    assert "--repository" in ended.err
    assert [path.name for path in empty.iterdir()] == ["request.yaml"]


def test_a_plan_says_whose_settings_it_took_in_its_first_line(empty: Path, run: Any) -> None:
    request = request_file(empty)
    assert run("plan", request).out.startswith(SHIPPED)
    ended = run("plan", request, "--json")
    assert ended.err.startswith(SHIPPED)
    assert [source.startswith(SHIPPED) for source in ended.json["sources"]] == [True]


def test_in_a_repository_nothing_speaks_of_the_example(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch, own: Path
) -> None:
    monkeypatch.chdir(own)
    ended = run("plan", request_file(tmp_path), "--json")
    assert not ended.err
    assert "sources" not in ended.json
    assert not run("model", "Qwen/Qwen3-8B").err
    assert not run("fit", "--model", "Qwen/Qwen3-4B", "--accelerator", "nvidia-l4").err
    settings = own / "platform/settings.yaml"
    settings.write_text(settings.read_text().replace("\n  dev:\n", "\n  lab:\n"))
    assert run("advise", *FEW).out.startswith("Assumed: the environment lab,")


def test_a_wrong_or_broken_repository_is_never_replaced_by_the_example(
    empty: Path, run: Any, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_file(empty)
    for repository in (empty, empty / "missing"):
        for words in (("plan", request), ("model", "Qwen/Qwen3-8B"), ("advise", *FEW)):
            ended = run(*words, "--repository", repository)
            assert (ended.status, ended.out) == (2, "")
            assert "is not inside a platform repository" in ended.err
    monkeypatch.chdir(own / "platform")
    settings = own / "platform/settings.yaml"
    text = settings.read_text()
    settings.write_text(text.replace("environments:", "environment:", 1))
    assert "Did you mean 'environments'?" in run("plan", request).err
    settings.unlink()  # the models of its catalog are still there
    assert "no platform/settings.yaml here or above" in run("plan", request).err
    settings.symlink_to(own / "nowhere.yaml")
    (own / "platform/catalog/models").rename(own / "moved")
    assert "no platform/settings.yaml here or above" in run("plan", request).err


def test_a_place_that_cannot_be_looked_at_may_hold_a_repository(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    assert is_outside(empty)
    monkeypatch.setattr(Path, "lstat", refuse)
    with pytest.raises(InputError, match=r"may be there.*--repository"):
        is_outside(empty)


def test_unknown_names_are_told_with_those_of_the_example(empty: Path, run: Any, own: Path) -> None:
    request = request_file(empty, team="blue", environment="staging")
    ended = run("plan", request)
    assert ended.status == 2
    for line, field, names in zip(
        ended.err.splitlines(), ("team", "environment"), ("platform, team-alpha", "dev, local, prod"), strict=True
    ):
        assert f": {field}: " in line
        assert names in line
        assert "These are the shipped example's: name your platform repository with --repository" in line
    assert "shipped example" not in run("plan", request, "--repository", own).err


# the few answers of `advise`


def answers(**changes: Any) -> dict[str, Any]:
    return {
        "model": "Qwen/Qwen3-8B",
        "concurrent_users": 8,
        "longest_prompt_tokens": 2000,
        "longest_answer_tokens": 300,
        "environment": None,
        **changes,
    }


def test_few_answers_make_the_request_that_a_form_with_its_defaults_makes(example: OpenedInputs) -> None:
    request, assumed = request_of_few(answers(), example)
    assert request == Request(
        service="advice",
        model="Qwen/Qwen3-8B",
        team="platform",
        environment="dev",  # `local` comes before it, and has the CPU alone
        concurrent_users=8,
        longest_prompt_tokens=2000,
        longest_answer_tokens=300,
        p95_ttft_seconds=2,
        availability="standard",
    )
    for words in ("environment dev", "team platform", "standard availability", "first token in 2 s"):
        assert words in assumed
    request, assumed = request_of_few(answers(environment="prod"), example)
    assert (request.environment, request.availability) == ("prod", "high")
    assert "environment" not in assumed


def test_advice_by_few_answers_is_that_by_a_file_of_the_same_answers(empty: Path, run: Any) -> None:
    few = run("advise", *FEW, "--json").json
    request, _ = request_of_few(answers(), open_inputs(None))
    whole = request_file(empty, **request.model_dump(mode="json", exclude={"schema_version", "overrides"}))
    assert run("advise", "--answers", whole, "--json").json["choices"] == few["choices"]
    assert [source.split(":")[0] for source in few["sources"]] == ["Settings", "Assumed"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), ["Give --answers FILE alone, or --model, --users"]),
        (("--answers", "request.yaml", "--users", 3), ["Give --answers FILE alone, or --model, --users"]),
        (("--model", "Qwen/Qwen3-8B", "--users", 3), ["lacks --prompt-tokens, --answer-tokens."]),
        (
            (*FEW, "--users", 0, "--answer-tokens", 10**9, "--model", "Qwen/Qwen3-8", "--environment", "devv"),
            [
                "--model: 'Qwen/Qwen3-8' is not a model of the catalog. Did you mean 'Qwen/Qwen3-8B'?",
                "the command line: --environment: 'devv' is not an environment of the settings. Did you mean 'dev'?",
                "the command line: --users: 0 is wrong",
                "the command line: --answer-tokens: 1000000000 is wrong",
            ],
        ),
    ],
)
def test_wrong_answers_are_told_by_their_options(
    empty: Path, run: Any, words: tuple[Any, ...], told: list[str]
) -> None:
    request_file(empty)
    ended = run("advise", *words)
    assert ended.status == 2
    assert not ended.out
    for sentence in told:
        assert sentence in ended.err


# other accelerators and prices, for one plan


def test_a_plan_considers_the_named_accelerators_alone(example: OpenedInputs) -> None:
    request, _ = request_of_few(answers(), example)
    usual = example.plan(request)
    for accelerator in ("nvidia-h100-80gb", "nvidia-a100-80gb"):
        considered = example.considering("dev", [accelerator, accelerator], None)
        assert usual.accelerator != considered.plan(request).accelerator == accelerator
        assert considered.settings.environments["prod"] == example.settings.environments["prod"]
    assert example.plan(request) == usual


def test_a_plan_takes_its_prices_from_the_named_list_alone(example: OpenedInputs) -> None:
    request, _ = request_of_few(answers(), example)
    listed = example.prices("google-cloud")
    dearer = [price.model_copy(update={"usd": price.usd * 10}) for price in listed.prices]
    usual, other = (
        example.considering("dev", ["nvidia-l4"], prices).plan(request).cost.monthly_min
        for prices in (listed, listed.model_copy(update={"prices": tuple(dearer)}))
    )
    assert usual is not None
    assert other is not None
    assert other > usual
    aws = example.considering("dev", ["tpu-v6e-1"], example.prices("aws-us-east-1"))
    assert aws.plan(request).cost.monthly_min is None  # that list has no TPU, and no other list is asked


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--accelerators", "nvidia-l5"), "--accelerators: 'nvidia-l5' is not in the catalog. Did you mean"),
        (("--accelerators", "nvidia-l5"), f"platform/catalog/accelerators. That folder lies in {delivered.FOLDER}."),
        (("--accelerators", "nvidia-l4,"), "--accelerators: '' is not in the catalog"),
        (("--accelerators", "nvidia-l40s"), "--accelerators: clusters of the kind 'gke' do not have 'nvidia-l40s'"),
        (("--prices", "google"), "--prices: 'google' is neither a price list of the catalog nor a file. Did you mean"),
        (("--prices", "request.yaml"), "request.yaml:1: region: is missing"),
        (("--prices", "list.yaml"), "list.yaml:8: prices[0].accelerator: 'nvidia-l5' is not an accelerator"),
        (("--prices", "."), ".: is a folder. Name a file that holds a price list."),
    ],
)
def test_wrong_accelerators_and_prices_are_told(empty: Path, run: Any, words: tuple[str, str], told: str) -> None:
    request = request_file(empty)
    price = '{accelerator: nvidia-l5, count: 1, unit: instance-hour, usd: "1", includes: [cpu, memory]}'
    head = 'name: own\nsource: A contract.\ndate: "2026-11-01"\nregion: one\ntier: on-demand\n'
    (empty / "list.yaml").write_text(f"{head}vcpu_hour: null\nmemory_gib_hour: null\nprices: [{price}]\n")
    ended = run("plan", request, *words)
    assert ended.status == 2
    assert told in ended.err


def test_a_repository_is_more_than_inputs(example: OpenedInputs) -> None:
    assert example.is_example
    assert not isinstance(example, Repository)
