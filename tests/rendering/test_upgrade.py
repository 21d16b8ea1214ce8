"""What planning a service anew changes: nothing where the lock alone is older, and what gets worse by its name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from neuroscale.core.errors import InputError
from neuroscale.planning.plan import Plan, Replicas
from neuroscale.planning.planner import plan
from neuroscale.rendering.planning_inputs import PlanningInputs
from neuroscale.rendering.service_folder import render
from neuroscale.rendering.upgrade import Upgrade, _worse, look, upgrade
from neuroscale.repo.layout import CATALOG_INFO, ServicePath
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.report.upgrade_view import differences, sentences
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS, TEMPLATE

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


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (cost("1"), "dearer: 1.00 -> "),
        (cost("99999"), ""),
        (cost(None), ""),
        ({"speed": FRESH.speed.model_copy(update={"ttft_seconds": 0.001})}, "slower: first token after 0.00 -> "),
        ({"speed": FRESH.speed.model_copy(update={"decode_tokens_per_second": 9999.0})}, "slower: 9,999 -> "),
        ({"speed": FRESH.speed.model_copy(update={"ttft_seconds": 9999.0})}, ""),
        ({"speed": FRESH.speed.model_copy(update={"decode_tokens_per_second": 0.1})}, ""),
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
    assert _worse(FRESH, FRESH.model_copy(update={"speed": unknown})) == [
        "its time to the first token is no longer known",
        "its tokens/s are no longer known",
    ]
    assert _worse(FRESH.model_copy(update={"speed": unknown}), FRESH) == []
    free = FRESH.model_copy(update=cost(None))
    assert _worse(FRESH, free) == ["its price is no longer known"]
    two = free.model_copy(update={"replicas": Replicas(min=2, max=2)})
    assert (_worse(free, two), _worse(two, free)) == (["more accelerators: 1 -> 2"], [])


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
