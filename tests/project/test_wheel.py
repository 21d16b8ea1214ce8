"""The wheel alone, in a bare environment and an empty folder: it carries its data, and answers without a checkout."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscale import __version__
from neuroscale.rendering.new_repository import STARTS
from plan_factory import ANSWERS
from roots import CHECKOUT
from wheel_lab import built_wheel

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
MOST_SECONDS = 3
"""Processor time (user and system) of a command. Machines that run tests are shared, so the clock says less."""
DELIVERED = "neuroscale/delivered"
LOG = (
    "(APIServer pid=1) INFO [api_server.py:1] vLLM API server version 0.11.0\n"
    "(APIServer pid=1) INFO [utils.py:253] non-default args: {"
    "'model': 'openai/gpt-oss-120b', 'max_model_len': 131072}\n"
    "(EngineCore_DP0 pid=1094) ValueError: To serve at least one request with the models's max seq len (131072), "
    "(4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1.71 GiB). Based on the "
    "available memory, the estimated maximum model length is 49152. Try increasing `gpu_memory_utilization`.\n"
)
SHIPPED = "Settings: the shipped example's"


@dataclass(frozen=True)
class Ended:
    """A command that ended with 0 or 1: its output, and its seconds of processor time."""

    out: str
    err: str
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Bare:
    """An environment that holds the wheel with what it requires, and an empty folder to run it in."""

    python: Path
    folder: Path

    @property
    def variables(self) -> Mapping[str, str]:
        """A home of its own, no path to the checkout, and a proxy that nobody answers at."""
        nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder.parent / "home"), "LANG": "C.UTF-8", **nowhere}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), *words]
        return subprocess.run(
            command, cwd=self.folder, env=dict(self.variables), capture_output=True, text=True, timeout=120, check=False
        )

    def neuroscale(self, *words: str) -> Ended:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run("-I", "-m", "neuroscale", *words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode in (0, 1), done.stderr
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Ended(done.stdout, done.stderr, seconds)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    root = tmp_path_factory.mktemp("bare")
    made = Bare(root / "environment/bin/python", root / "empty")
    for folder in (made.folder, root / "home"):
        folder.mkdir()
    uv = str(BIN / "uv")
    install = [uv, "pip", "install", "--quiet", "--python", str(made.python), "--no-deps", "--compile-bytecode"]
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(root / "environment")],
        [*install, "--require-hashes", "--requirement", str(CHECKOUT / "requirements/runtime.txt")],
        [*install, str(wheel)],
    ):
        subprocess.run(command, check=True, timeout=300)
    (root / "server.log").write_text(LOG)
    (root / "request.yaml").write_text(yaml.safe_dump(ANSWERS))
    return made


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_carries_the_files_that_git_has_of_each_delivered_folder(wheel: Path) -> None:
    carried = names(wheel)
    for folder, least in {
        "policies": 100,
        "templates/llm-inference-service": 7,
        "platform/local/tools": 20,
        "platform/catalog/models": 100,
        "platform/catalog/accelerators": 30,
        "platform/catalog/prices": 4,
        "platform/catalog/runtimes": 3,
        "platform/portal": 10,
        "requirements": 5,
        "smoke-tests": 10,
        "milestones": 90,
        ".github/workflows": 5,
        ".github/actions": 4,
    }.items():
        listed = subprocess.run(
            ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--", folder], capture_output=True, text=True, check=True
        )
        files = {name for name in listed.stdout.split("\0") if name and not name.startswith("policies/exceptions/")}
        assert len(files) >= least, folder
        assert {f"{DELIVERED}/{name}" for name in files} <= carried
    assert {
        f"{DELIVERED}/policies/non-root/{name}.yaml" for name in ("policy", "cases", "good", "mutations")
    } <= carried
    starts = {f"neuroscale/repo/start/{name}" for name in STARTS.values()}
    assert {f"{DELIVERED}/catalog-info.yaml", *starts} <= carried


def test_the_wheel_carries_nothing_that_an_organisation_decides_for_itself_or_that_set_up_makes(wheel: Path) -> None:
    carried = names(wheel)
    own = ("platform/settings.yaml", "platform/catalog/teams", "platform/catalog/budgets", "platform/tenancy")
    made = ("manifests", "templates/examples", "policies/exceptions", "tests", ".state")
    # A lesson reads the recorded starts; the READMEs in folders of an organisation's own are the tool's.
    delivered = {name for name in carried if not name.endswith(("/README.md", "/ground_truth/starts/seeds.yaml"))}
    assert not [name for name in delivered if name.startswith(tuple(f"{DELIVERED}/{place}" for place in (*own, *made)))]
    assert not [name for name in carried if "node_modules" in name or "__pycache__" in name]
    example = {name.removeprefix("neuroscale/repo/example/") for name in carried if "/repo/example/" in name}
    assert {"platform/settings.yaml", "platform/catalog/teams/team-alpha.yaml"} <= example


def test_it_knows_no_checkout(bare: Bare) -> None:
    code = "import sys; from neuroscale.core import delivered; print(delivered.CHECKOUT, delivered.FOLDER, *sys.path)"
    done = bare.run("-I", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"None {bare.python.parents[1]}")
    assert str(CHECKOUT) not in done.stdout
    installed = subprocess.run(
        [bare.python.with_name("neuroscale"), "--version"],
        cwd=bare.folder,
        env=dict(bare.variables),
        capture_output=True,
        text=True,
        check=True,
    )
    assert installed.stdout.strip() == __version__


LOAD = ("--users", "8", "--prompt-tokens", "2000", "--answer-tokens", "300")
ON_L4 = ("--model", "Qwen/Qwen3-4B", "--accelerator", "nvidia-l4")
ANSWERED = {
    "advise": (("advise", "--model", "Qwen/Qwen3-8B", *LOAD), ("Qwen/Qwen3-8B for 8 users at once", "nvidia-l4")),
    "fit": (("fit", *ON_L4), ("Qwen/Qwen3-4B on 1 x nvidia-l4: ", "KV cache: ")),
    "speed": (("speed", *ON_L4, *LOAD), ("Qwen/Qwen3-4B on 1 x nvidia-l4", "users")),
    "compare": (("compare", "Qwen/Qwen3-4B@nvidia-l4", "Qwen/Qwen3-8B@nvidia-h100-80gb"), ("TTFT mean", "tokens/s")),
    "model": (("model", "Qwen/Qwen3-4B"), ("Qwen/Qwen3-4B: dense", "parameters")),
    "explain": (
        ("explain", "--log", "../server.log", "--accelerator", "nvidia-h100-80gb"),
        ("The longest context does not fit the KV cache", "--max-model-len=49152"),
    ),
    "plan": (("plan", "../request.yaml"), ("dev/support-chat fits", "USD a month")),
}


@pytest.mark.parametrize("command", ANSWERED)
def test_a_command_answers_in_an_empty_folder_soon_and_says_whose_facts_it_used(bare: Bare, command: str) -> None:
    words, contents = ANSWERED[command]
    ended = bare.neuroscale(*words)
    for content in contents:
        assert content in ended.out
    if command in ("plan", "advise"):
        assert ended.out.startswith(SHIPPED)
        assert not ended.err
    else:
        assert ended.err.startswith("This folder is in no platform repository: the catalog")
        assert ended.err.count("\n") == 1
    assert ended.seconds < MOST_SECONDS
    assert not list(bare.folder.iterdir())


def test_a_plan_takes_other_accelerators_and_an_own_price_list(bare: Bare) -> None:
    prices = yaml.safe_load((CHECKOUT / "platform/catalog/prices/google-cloud.yaml").read_text())
    price = next(each for each in prices["prices"] if each["accelerator"] == "nvidia-rtx-pro-6000")
    own = prices | {"name": "own", "prices": [price | {"usd": "0.01"}]}
    (bare.folder.parent / "own.yaml").write_text(yaml.safe_dump(own, sort_keys=False))
    considered = ("--accelerators", "nvidia-rtx-pro-6000,nvidia-l4", "--prices", "../own.yaml", "--json")
    ended = bare.neuroscale("plan", "../request.yaml", *considered)
    assert ended.json["accelerator"] == "nvidia-rtx-pro-6000"
    assert ended.json["sources"][0].startswith(SHIPPED)
    assert "nvidia-rtx-pro-6000, nvidia-l4 and prices of ../own.yaml" in ended.json["sources"][1]
    assert ended.err.splitlines() == ended.json["sources"]
