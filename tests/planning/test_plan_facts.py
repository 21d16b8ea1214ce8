"""The one list of a plan's facts, from which everything that shows a plan chooses."""

from __future__ import annotations

from decimal import Decimal

from neuroscale.planning.plan import Band, Cost, FirstToken, PlannedLoad, Rate
from neuroscale.planning.plan_facts import facts
from plan_factory import make_plan

_P95 = Band(value=0.57, low=0.413, high=1.2)
_USER = Band(value=41.3, low=33.0, high=1240.4)
LOAD = PlannedLoad(
    users=4,
    replica_users=4,
    prompt_tokens=1024,
    answer_tokens=256,
    coverage="measured",
    ttft_seconds=FirstToken(p50=_P95, p95=_P95),
    tokens_per_second=Rate(user=_USER, replica=_USER),
    head_room_users=-2,
    usd_per_million_output_tokens=Decimal("3.4182"),
)


def test_every_figure_has_one_spelling_with_its_unit() -> None:
    known = {label: str(fact) for label, fact in facts(make_plan(load=LOAD), lambda name: f"<{name}>").items()}
    assert known["First token"] == "570 ms (413 ms to 1.2 s)"
    assert known["Tokens a second"] == "41.3 (33 to 1,240)"
    assert (known["Room"], known["A million output tokens"]) == ("2 users too many", "3.4182 USD")
    assert (known["Price a month"], known["Replicas"]) == ("988.13 to 1,976.26 USD", "1 to 2 replicas")
    assert (known["Start"], known["Memory"]) == ("up to 13 min 19 s", "18.7 of 19.8 GiB")
    assert (known["Accelerators"], known["Longest context"]) == ("1 x <nvidia-l4>", "5,248 tokens")


def test_what_is_not_known_is_said_and_never_a_number() -> None:
    free = Cost(hourly=None, monthly_min=None, monthly_max=None, price_date=None, price_source="")
    nothing = LOAD.model_copy(update={"coverage": "unknown", "ttft_seconds": None, "tokens_per_second": None})
    known = facts(make_plan(load=nothing, cost=free))
    assert (str(known["Speed"]), known["Speed"].more) == ("not known", "nobody measured anything like it")
    price = known["Price a month"]
    assert (str(price), price.more) == ("not known", "the catalog has no price for nvidia-l4")
    assert not {"First token", "Tokens a second", "Room", "A million output tokens"} & set(known)
