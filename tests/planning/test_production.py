"""A plan for production names what the gate would refuse, before anybody opens a pull request."""

from __future__ import annotations

import pytest

from neuroscale.planning.override_shortfalls import unmet_demands
from neuroscale.planning.planner import plan
from plan_factory import make_request
from platform_repository import CATALOG, SETTINGS

ON_THE_HUB, IN_A_STORE = "Qwen/Qwen3-0.6B", "google/gemma-4-26B-A4B-it-qat-w4a16-ct"


@pytest.mark.parametrize(
    ("model", "environment", "availability", "words"),
    [
        (ON_THE_HUB, "prod", "standard", ["no revision of Qwen/Qwen3-0.6B", "1 replica"]),
        (ON_THE_HUB, "prod", "high", ["`neuroscale catalog add Qwen/Qwen3-0.6B`"]),
        (IN_A_STORE, "prod", "high", []),
        (ON_THE_HUB, "dev", "standard", []),
    ],
)
def test_what_production_demands_and_a_plan_lacks_is_named(
    model: str, environment: str, availability: str, words: list[str]
) -> None:
    request = make_request(
        model=model, environment=environment, availability=availability, concurrent_users=2, p95_ttft_seconds=10
    )
    made = plan(request, CATALOG, SETTINGS)
    assert made.verdict != "refused"
    found = unmet_demands(made, CATALOG, SETTINGS)
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))
