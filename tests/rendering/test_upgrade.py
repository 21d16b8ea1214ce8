"""What planning a service anew changes: nothing where the lock alone is older, and what gets worse by its name."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from neuroscale.core.errors import InputError
from neuroscale.gate.checks.drift import evaluate_drift
from neuroscale.gate.judged_files import ServiceFolder
from neuroscale.planning.plan import Plan, Replicas, Speed
from neuroscale.planning.planner import plan
from neuroscale.planning.speed import Load, ReplicaSpeed, SpeedUnderLoad
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render
from neuroscale.rendering.upgrade import Upgrade, _worse, look, upgrade
from neuroscale.repo.layout import CATALOG_INFO, ServicePath
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.report.upgrade_view import differences, print_upgrades, sentences
from neuroscale.request.service_request import Request
from plan_factory import make_request
from platform_repository import CATALOG, PLATFORM, SETTINGS, TEMPLATE

INPUTS = PlanningInputs(CATALOG, SETTINGS, TEMPLATE)
REQUEST = make_request(model="google/gemma-4-26B-A4B-it-qat-w4a16-ct")
FRESH = plan(REQUEST, CATALOG, SETTINGS, TEMPLATE.version)
OLDER = FRESH.lock.model_copy(update={"planner_version": "0.1.0"})


def files(made: Plan) -> dict[str, bytes]:
    return {name: text.encode() for name, text in render(REQUEST, made, TEMPLATE).items()}


def of(locked: Plan, there: dict[str, bytes] | None = None) -> Upgrade | None:
    return upgrade(REQUEST, locked, files(locked) if there is None else there, INPUTS)


def earlier(**changes: Any) -> Upgrade:
    """The upgrade of a service that was planned with these other fields."""
    found = of(FRESH.model_copy(update={"lock": OLDER, **changes}))
    assert found is not None
    return found


assert FRESH.rollout is not None
GAPLESS = FRESH.rollout.model_copy(update={"kind": "surge", "max_surge": 1, "max_unavailable": 0, "gap_minutes": 0})


def cost(monthly: str | None) -> dict[str, Any]:
    amount = None if monthly is None else Decimal(monthly)
    return {"cost": FRESH.cost.model_copy(update={"monthly_min": amount, "monthly_max": amount})}


def test_nothing_is_to_be_done_where_only_the_lock_and_the_reasons_are_older() -> None:
    assert of(FRESH) is None
    assert earlier(vllm_args=(*FRESH.vllm_args, "--enforce-eager")).missed == ()  # it keeps what is asked for
    assert of(FRESH.model_copy(update={"lock": OLDER, "reasons": ("Another sentence.",)})) is None


def test_a_folder_from_before_a_file_gets_it_and_no_pod_restarts() -> None:
    there = files(FRESH)
    del there[CATALOG_INFO]
    found = of(FRESH, there)
    assert found is not None
    assert (found.moved, found.worse, found.same_pods) == (("the files alone",), (), True)
    assert differences(found) == {"memory": "", "speed": "", "money": "", "rollout": "nothing restarts"}


def test_what_moved_is_named_and_another_image_restarts_the_pods() -> None:
    image = "vllm/vllm-openai:v0.31.0"
    found = earlier(runtime=FRESH.runtime.model_copy(update={"image": image}))
    assert f"image {image} -> {FRESH.runtime.image}" in found.moved
    assert f"planner 0.1.0 -> {FRESH.lock.planner_version}" in found.moved
    assert not found.same_pods
    assert differences(found)["rollout"].startswith("a gap of")
    assert image in sentences(found)[0]


def test_what_moved_for_all_services_of_an_environment_stands_once_in_the_table() -> None:
    base = earlier(runtime=FRESH.runtime.model_copy(update={"image": "vllm/vllm-openai:v0.31.0"}))
    moved = {
        "dev/one": ("settings of dev", "model a", "planner 1 -> 2"),
        "dev/two": ("settings of dev", "planner 1 -> 2"),
        "prod/one": ("settings of prod", "planner 1 -> 2"),
    }
    upgrades = {ServicePath(*name.split("/")): replace(base, moved=items) for name, items in moved.items()}
    console = Console(file=io.StringIO(), width=200, highlight=False)
    print_upgrades(upgrades, console)
    assert isinstance(console.file, io.StringIO)
    rows = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert [row.split("  ")[-1].strip() for row in rows[:4]] == ["what else moved", "model a", "-", "settings of prod"]
    assert rows[4:] == ["Moved for all of them: planner 1 -> 2", "Moved for all of dev: settings of dev"]


def idle(**figures: float) -> dict[str, Any]:
    """A plan from before the load counted, with these figures of an idle replica."""
    return {"load": None, "speed": FRESH.speed.model_copy(update=figures)}


def at_load(first: float | None = None, rate: float | None = None) -> dict[str, Any]:
    """Other figures at the asked load: seconds to the first token at p95, and tokens per second of a user."""
    load = FRESH.load
    assert load is not None
    assert load.ttft_seconds is not None
    assert load.tokens_per_second is not None
    p95, user = load.ttft_seconds.p95, load.tokens_per_second.user
    figures = {
        "ttft_seconds": load.ttft_seconds.model_copy(
            update={"p95": p95.model_copy(update={"value": p95.value if first is None else first})}
        ),
        "tokens_per_second": load.tokens_per_second.model_copy(
            update={"user": user.model_copy(update={"value": user.value if rate is None else rate})}
        ),
    }
    return {"load": load.model_copy(update=figures)}


OTHER_SERVER: dict[str, Any] = {"vllm_args": (*FRESH.vllm_args, "--enforce-eager")}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (cost("1"), "dearer: 1.00 -> "),
        (cost("99999"), ""),
        (cost(None), ""),
        # A plan from before the load counted has figures of another kind.
        (idle(ttft_seconds=0.001, decode_tokens_per_second=9999.0), ""),
        # The same server is as fast as before, whatever the planner thinks of it now.
        (at_load(first=0.001, rate=9999.0), ""),
        (at_load(first=0.001) | OTHER_SERVER, "slower at the asked load: first token after 1 ms -> "),
        (at_load(rate=9999.0) | OTHER_SERVER, "slower at the asked load: 9,999 -> "),
        (at_load(first=9999.0, rate=0.1) | OTHER_SERVER, ""),
        ({"max_model_len": FRESH.max_model_len + 1}, "shorter context: "),
        ({"max_model_len": FRESH.max_model_len - 1}, ""),
        ({"rollout": GAPLESS}, "a gap of about "),
        ({"rollout": None}, ""),
        ({"tenancy": FRESH.tenancy.model_copy(update={"namespace": "elsewhere"})}, "another address: "),
    ],
)
def test_what_gets_worse_is_named_and_what_gets_better_is_not(changes: dict[str, Any], told: str) -> None:
    found = earlier(**changes)
    assert [one[: len(told)] for one in found.worse] == ([told] if told else [])


def test_a_figure_that_is_no_longer_known_and_more_accelerators_without_a_price_are_worse() -> None:
    unknown = FRESH.speed.model_copy(update={"ttft_seconds": None, "decode_tokens_per_second": None})
    old = FRESH.model_copy(update={"load": None})
    assert _worse(old, old.model_copy(update={"speed": unknown})) == [
        "its time to the first token is no longer known",
        "its tokens/s are no longer known",
    ]
    assert _worse(old.model_copy(update={"speed": unknown}), old) == []
    nothing = {"coverage": "unknown", "ttft_seconds": None, "tokens_per_second": None}
    assert FRESH.load is not None
    assert len(_worse(old, FRESH.model_copy(update={"load": FRESH.load.model_copy(update=nothing)}))) == 2
    assert _worse(FRESH, FRESH.model_copy(update={"load": FRESH.load.model_copy(update=nothing)})) == [
        "its time to the first token at the asked load is no longer known",
        "its tokens/s at the asked load are no longer known",
    ]
    free = FRESH.model_copy(update=cost(None))
    assert _worse(FRESH, free) == ["its price is no longer known"]
    two = free.model_copy(update={"replicas": Replicas(min=2, max=2)})
    assert (_worse(free, two), _worse(two, free)) == (["more accelerators: 1 -> 2"], [])


def by_memory_alone(monkeypatch: pytest.MonkeyPatch) -> tuple[Request, Plan]:
    """A form whose accelerators the load changes, and its plan as planner 2.6.0 made it."""
    request = make_request(
        model="Qwen/Qwen3-8B",
        concurrent_users=16,
        longest_prompt_tokens=4096,
        longest_answer_tokens=512,
        p95_ttft_seconds=1.5,
        tokens_per_second_per_user=30,
    )
    unknown = SpeedUnderLoad(Load(1, 1, 1), "unknown", ("Nobody measured it.",))
    with monkeypatch.context() as patched:
        patched.setattr(ReplicaSpeed, "under", lambda self, load: unknown)
        made = plan(request, CATALOG, SETTINGS, TEMPLATE.version)
    lock = made.lock.model_copy(update={"planner_version": "2.6.0"})
    idle_replica = Speed(ttft_seconds=1.24, decode_tokens_per_second=27.9)
    return request, made.model_copy(update={"load": None, "speed": idle_replica, "lock": lock})


def test_a_plan_from_before_the_load_stands_and_planning_anew_shows_what_the_load_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request, old = by_memory_alone(monkeypatch)
    written = {name: text.encode() for name, text in render(request, old, TEMPLATE).items()}
    path = ServicePath(request.environment, request.service)
    snapshot = MemorySnapshot({f"{path.folder}/{name}": data for name, data in written.items()})

    def drift(*, plan_changed: bool) -> list[tuple[str, str]]:
        service = ServiceFolder(path, "changed", tuple(snapshot.entries()), plan_changed=plan_changed)
        found = evaluate_drift(snapshot, (service,), PLATFORM, date(2026, 11, 28))[0].findings
        return [(one.severity, one.rule) for one in found]

    assert drift(plan_changed=False) == [("notice", "old-lock")]
    assert drift(plan_changed=True) == [("error", "edited-plan")]  # it stands, and no change may bring it in

    found = upgrade(request, old, written, INPUTS)
    assert found is not None
    assert f"planner 2.6.0 -> {FRESH.lock.planner_version}" in found.moved
    assert [one.split(":")[0] for one in found.worse] == ["dearer"]
    assert (old.accelerator, found.after.accelerator) == ("nvidia-l4", "nvidia-rtx-pro-6000")
    # Why it is worth more: the cheaper servers do not keep what is asked for.
    assert sentences(found)[2].startswith(
        "The plan until now does not keep what is asked for: with 16 users at once the first token comes after "
    )
    assert " tokens per second, and 30 are asked for" in found.missed[-1]
    told = sentences(found)[1]
    assert "1.24 s to the first token of the longest prompt" in told
    assert "-> with 16 users at once first token within " in told
    assert "USD a million output tokens (interpolated from measurements of " in told


def test_a_service_that_cannot_be_planned_any_more_only_gets_worse() -> None:
    poor = SETTINGS.environments["dev"].model_copy(update={"accelerators": ("nvidia-l4",)})
    settings = SETTINGS.model_copy(update={"environments": {**SETTINGS.environments, "dev": poor}})
    request = make_request(model="deepseek-ai/DeepSeek-V3")
    locked = plan(request, CATALOG, SETTINGS, TEMPLATE.version)
    found = upgrade(request, locked, {}, PlanningInputs(CATALOG, settings, TEMPLATE))
    assert found is not None
    assert found.worse[0].startswith("cannot be served any more: ")
    assert set(differences(found).values()) == {""}


def test_a_plan_of_other_answers_is_refused_and_so_is_a_folder_without_one() -> None:
    other = make_request(model=REQUEST.model, concurrent_users=9)
    with pytest.raises(InputError, match="other answers"):
        upgrade(other, FRESH, {}, INPUTS)
    path = ServicePath(REQUEST.environment, REQUEST.service)
    there = {f"{path.folder}/{name}": data for name, data in files(FRESH).items()}
    assert look(MemorySnapshot(there), path, INPUTS) == (REQUEST, None)
    del there[f"{path.folder}/plan.yaml"]
    with pytest.raises(InputError, match="is missing"):
        look(MemorySnapshot(there), path, INPUTS)
