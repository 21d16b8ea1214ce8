"""Pull requests as people open them, down to the sentences of the comment, with the money worked out by hand.

Each one is a request that is planned and rendered, merged into a repository and judged by the gate. An L4 costs 0.72 US
dollars an hour, a vCPU 0.0864 and a GiB 0.009; an H100 with its CPU and memory 10.98. A month has 730 hours. In the
repository, `chat` and `other` of team-alpha run Qwen3-8B, each on one L4 with 4 vCPUs and 32 GiB:
0.72 + 4 x 0.0864 + 32 x 0.009 = 1.3536 an hour; x 730 = 988.128 a month. The team's budget is 3,000.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cost_examples import TODAY, inference_service, pod_spec, prices, repriced, service
from neuroscale.core.yaml_io import dump
from neuroscale.costs.difference import compare
from neuroscale.gate.check import Run, Subject, begin
from neuroscale.gate.checks.catalog import CatalogCheck
from neuroscale.gate.checks.cost import CostCheck
from neuroscale.gate.checks.drift import DriftCheck
from neuroscale.gate.checks.files import FilesCheck
from neuroscale.gate.make_verdict import make_verdict
from neuroscale.gate.merged_change import find_change, read_change
from neuroscale.gate.verdict import Outcome, Verdict
from neuroscale.planning import planner
from neuroscale.planning.plan import Plan
from neuroscale.rendering.service_folder import render
from neuroscale.report.markdown import markdown
from neuroscale.request.service_request import load_request
from platform_repository import SETTINGS, TEMPLATE
from report_examples import GEMMA_MOE
from repositories import Repository
from roots import ROOT

PRICES = "platform/catalog/prices/google-cloud.yaml"
SKELETON = "templates/llm-inference-service/skeleton/inferenceservice.yaml"
AUTOSCALED = ("autoscalerClass: none", "autoscalerClass: hpa")
BUDGET = 'cost_center: cc-ml-inference\nmonthly_usd: "3000"\nowner: team-alpha\n'

Files = dict[str, bytes | str | None]


def folder(
    name: str = "chat", model: str = "Qwen/Qwen3-8B", team: str = "team-alpha", l4: str = "0.72", **overridden: Any
) -> Files:
    """The folder that the form makes of these answers. `l4`: the price of an L4; `overridden`: fields of the plan, `_`
    for a point."""
    why = {"reason": "The owner asked for this.", "expires": "2027-01-31"}
    overrides = [{"field": key.replace("_", "."), "value": value, **why} for key, value in overridden.items()]
    answers = {
        "service": name,
        "model": model,
        "team": team,
        "environment": "dev",
        "availability": "standard",
        "concurrent_users": 4,
        "longest_prompt_tokens": 4096,
        "longest_answer_tokens": 512,
        # So patient that the memory decides, and no figure depends on what is known about speed.
        "p95_ttft_seconds": 60,
        "tokens_per_second_per_user": 0.1,
        **({"overrides": overrides} if overrides else {}),
    }
    request = load_request(dump(answers), "request.yaml")
    made = planner.plan(request, repriced("nvidia-l4", l4).catalog, SETTINGS, TEMPLATE.version)
    return {f"manifests/dev/{name}/{file}": text for file, text in render(request, made, TEMPLATE).items()}


def removed(name: str = "chat") -> Files:
    return dict.fromkeys(folder(name))


def dearer(usd: str) -> Files:
    """The price list with another price for an hour of an L4."""
    return {PRICES: (ROOT / PRICES).read_text().replace('"0.72"', f'"{usd}"')}


def autoscaled(files: Files) -> Files:
    """The files as a template with KServe's autoscaler renders them."""
    return {path: text.replace(*AUTOSCALED) if isinstance(text, str) else text for path, text in files.items()}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    made = Repository(tmp_path_factory.mktemp("golden") / "repository")
    for one in ("platform/catalog", "platform/serving/runtimes", "templates"):
        shutil.copytree(ROOT / one, made.root / one)
    shutil.copyfile(ROOT / "platform/settings.yaml", made.root / "platform/settings.yaml")
    budget: Files = {"platform/catalog/budgets/cc-ml-inference.yaml": BUDGET}
    made.commit({**folder(), **folder("other"), **budget}, "base")
    yield made
    made.git.close()


def judged(repository: Repository, folder_of_run: Path, files: Files, before: Files | None = None) -> Verdict:
    """The verdict of the gate's checks of files, plans and money. `before`: what the base branch has beside."""
    repository.run("checkout", "--quiet", "-B", "base", "main")
    if before:
        repository.commit(before)
    repository.run("checkout", "--quiet", "-B", "head", "base")
    repository.commit(files)
    change = find_change(repository.git, "base", "head")
    run = Run(Subject(read_change(change), list, change.before, change), TODAY, folder_of_run)
    for check in (FilesCheck(), CatalogCheck(), DriftCheck(), CostCheck()):
        result = begin(check, run)()
        run = run.ended_with(check.name, result, check.value)
        if result is not None:
            assert check.name == "cost" or result.check.outcome is Outcome.PASSED, result.findings
    return make_verdict(run, [])


@dataclass(frozen=True)
class Golden:
    """A change, the lines that the comment must have, and whether a rule on money refuses it."""

    files: Callable[[], Files]
    lines: tuple[str, ...]
    refused: bool = False
    before: Callable[[], Files] | None = None


def over(new: str, past: str = "1,976.26") -> str:
    amounts = f"{new} USD a month with the most replicas ({past} before the change), and its budget is 3,000.00"
    return f"the services of cc-ml-inference would cost {amounts}"


def uses(usd: str) -> str:
    return f"- Budget of cc-ml-inference: all its services take {usd} of 3,000.00 USD a month with the most replicas."


GOLDEN = {
    # 3 x 988.13 = 2964.39
    "new service": Golden(
        lambda: folder("new"),
        (
            "**0 errors** · 0 notices · 1 service · **+988.13 USD a month**",
            "| dev/new added | 0.00 | 988.13 | +988.13 |",
            "| **Total** | 0.00 | 988.13 | +988.13 |",
            "| cc-ml-inference | 0.00 | 988.13 | +988.13 |",
            uses("2,964.39"),
        ),
    ),
    # 10.98 x 730 = 8015.40; - 988.13 = 7027.27; 8015.40 + 988.13 = 9003.53
    "bigger accelerator": Golden(
        lambda: folder(accelerator="nvidia-h100-80gb"),
        ("| dev/chat changed | 988.13 | 8,015.40 | +7,027.27 |", uses("9,003.53"), over("9,003.53")),
        refused=True,
    ),
    # 988.128 x 3 = 2964.384; - 988.13 = 1976.25; 2964.38 + 988.13 = 3952.51
    "replicas up": Golden(
        lambda: folder(replicas_min=3),
        ("| dev/chat changed | 988.13 | 2,964.38 | +1,976.25 |", uses("3,952.51"), over("3,952.51")),
        refused=True,
    ),
    # 31B in place of 8B takes two L4, 8 vCPUs and 56 GiB: 1.44 + 0.6912 + 0.504 = 2.6352; x 730 = 1923.696
    "model swapped": Golden(
        lambda: folder(model="google/gemma-4-31B-it-qat-w4a16-ct"),
        (
            "| dev/chat changed | 988.13 | 1,923.70 | +935.57 |",
            uses("2,911.83"),
            " USD for a million output tokens, estimated for 4 users at a time on each replica without a pause (",
            "<br>**Speed** with 4 users at once first token within ",
        ),
    ),
    "service removed": Golden(
        removed,
        (
            "**0 errors** · 1 notice · 1 service · **-988.13 USD a month**",
            "| dev/chat removed | 988.13 | 0.00 | -988.13 |",
            "| cc-ml-inference | 988.13 | 0.00 | -988.13 |",
            uses("988.13"),
        ),
    ),
    "team moved": Golden(
        lambda: folder(team="team-beta"),
        (
            "| dev/chat changed | 988.13 | 988.13 | 0.00 |",
            "| cc-ml-inference | 988.13 | 0.00 | -988.13 |",
            "| cc-search | 0.00 | 988.13 | +988.13 |",
            uses("988.13"),
            "- Budget of cc-search: all its services take 988.13 of 40,000.00 USD a month with the most replicas.",
        ),
    ),
    # 988.128 x 3 = 2964.384 and x 10 = 9881.28; 9881.28 - 2964.38 = 6916.90; 9881.28 + 988.13 = 10869.41
    "autoscaler raised": Golden(
        lambda: autoscaled(folder(replicas_max=10)),
        (
            "| dev/chat changed | 988.13 to 2,964.38 | 988.13 to 9,881.28 | 0.00 to +6,916.90 |",
            uses("10,869.41"),
            over("10,869.41", "3,952.51"),
        ),
        refused=True,
        before=lambda: {
            SKELETON: (ROOT / SKELETON).read_text().replace(*AUTOSCALED),
            **autoscaled({**folder(replicas_max=3), **folder("other")}),
        },
    ),
    # 1.80 + 0.3456 + 0.288 = 2.4336; x 730 = 1776.528; x 2 = 3553.06. No service changes, so nothing is refused.
    "price changed in the catalog": Golden(
        lambda: dearer("1.80"),
        (over("3,553.06") + ". Prices changed, and nothing that is deployed",),
    ),
    # 1776.528 x 3 = 5329.584; - 1776.53 = 3553.05; at the price before 1976.25, as above; 5329.58 + 1776.53 = 7106.11,
    # and before the change, at the price before, 988.13 x 2 = 1976.26
    "price changed with a service": Golden(
        lambda: {**dearer("1.80"), **folder(l4="1.80", replicas_min=3)},
        (
            "| dev/chat changed | 1,776.53 | 5,329.58 | +3,553.05 |",
            "the prices that it brings. At the prices before, the difference is +1,976.25 USD a month.",
            over("7,106.11", "1,976.26"),
        ),
        refused=True,
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_comment_says_what_a_person_works_out(repository: Repository, tmp_path: Path, name: str) -> None:
    golden = GOLDEN[name]
    verdict = judged(repository, tmp_path, golden.files(), golden.before and golden.before())
    comment = markdown(verdict)
    for line in golden.lines:
        assert line in comment, comment
    (check,) = [one for one in verdict.checks if one.name == "cost"]
    assert check.outcome is (Outcome.FINDINGS if golden.refused else Outcome.PASSED)


def test_more_replicas_to_which_nothing_scales_cost_nothing(repository: Repository, tmp_path: Path) -> None:
    verdict = judged(repository, tmp_path, folder(replicas_max=10))
    assert verdict.cost is None
    assert "### Cost" not in markdown(verdict)
    # The next service of the cost centre pays for one replica of it, too: 3 x 988.13.
    verdict = judged(repository, tmp_path, folder("new"), folder(replicas_max=10))
    assert uses("2,964.39") in markdown(verdict)


def served(memory: str) -> dict[str, Any]:
    """An InferenceService with one L4 and 4 vCPUs."""
    return inference_service({**pod_spec(gpu=1, cpu=4, memory=memory), "minReplicas": 1, "maxReplicas": 1})


def plan(tokens_per_second: float) -> Plan:
    """A plan for one L4 with this speed for one user."""
    resources = GEMMA_MOE.resources.model_copy(update={"accelerator_resource": "nvidia.com/gpu"})
    speed = GEMMA_MOE.speed.model_copy(update={"decode_tokens_per_second": tokens_per_second})
    return GEMMA_MOE.model_copy(
        update={"resources": resources, "speed": speed, "accelerator": "nvidia-l4", "accelerator_count": 1}
    )


@pytest.mark.parametrize(
    ("memory", "speed", "hourly", "per_million"),
    [
        # Cloud Run: 4 x 0.000024 + 16 x 0.0000025 + 0.0002 = 0.000336 a second; / 80 x 10^6 = 4.20.
        ("16Gi", 80.0, "1.2096", "4.20"),
        # 4 x 0.000024 + 32 x 0.0000025 + 0.0002 = 0.000376 a second; / 61.67 x 10^6 = 6.097.
        ("32Gi", 61.67, "1.3536", "6.10"),
    ],
    ids=["12B QAT at 80 tokens/s", "26B QAT at 61.67 tokens/s"],
)
def test_gemma_on_an_l4_costs_what_was_published_of_it(
    memory: str, speed: float, hourly: str, per_million: str
) -> None:
    """1.21 dollars an hour and 4.20 a million tokens; 1.35 and 6.10 with 32 GiB."""
    change = service((), (served(memory),), plan=plan(speed))
    cost = compare([change], prices(), prices(), TODAY)
    assert cost is not None
    (row,) = cost.services
    assert str(row.workloads[0].hourly) == hourly
    assert row.output_tokens is not None
    assert str(row.output_tokens.usd_per_million) == per_million
