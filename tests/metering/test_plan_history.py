"""Which plan a service had at which time, by the commits of a real git repository."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from neuroscale.metering.allocation import Meter, Metered, Place
from neuroscale.metering.plan_history import plan_history
from neuroscale.metering.services import (
    Estimate,
    Named,
    Promise,
    ServiceFacts,
    key_of,
    promises,
    service_facts,
)
from neuroscale.metering.window import Window
from neuroscale.planning.plan import Cost, Replicas, Tenancy, dump_plan
from plan_factory import make_plan, make_request
from repositories import Repository

START = datetime(2026, 11, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(days=7))
ENVIRONMENTS = ("dev", "prod")
ZERO = Decimal(0)
PLAN = "manifests/prod/chat/plan.yaml"
NAME = ("prod", "team-one", "chat")


def plan(replicas: int = 1, hourly: str | None = "2", namespace: str = "team-one", **changes: Any) -> str:
    cost = Cost(
        hourly=None if hourly is None else Decimal(hourly) * replicas,
        monthly_min=None,
        monthly_max=None,
        price_date=None,
        price_source="",
    )
    tenancy = Tenancy(team="one", owner="ann", cost_center="one", namespace=namespace)
    request = make_request(service="chat", environment="prod")
    of = {"cost": cost, "replicas": Replicas(min=replicas, max=8), "tenancy": tenancy, **changes}
    return dump_plan(make_plan(request, **of))


def at(days: float) -> str:
    """The time of a commit, in days after the window's start."""
    return f"{int((START + timedelta(days=days)).timestamp())} +0000"


def promised(root: Path) -> dict[Named, Promise]:
    with plan_history(root, "main", WINDOW) as history:
        return promises(history, ENVIRONMENTS)


def days(promise: Promise) -> list[tuple[float, float, int]]:
    """The days in which each plan begins and ends, and its replicas."""
    day = timedelta(days=1)
    return [
        ((one.window.start - START) / day, (one.window.end - START) / day, one.estimate.replicas)
        for one in promise.plans
    ]


def metered(cluster: str = "prod", part: int = 0) -> Metered:
    place = Place(cluster, "team-one", "one", "ann", "chat", "1")
    return Metered("pods", place, Decimal(1), Decimal(1), ZERO, ZERO, Decimal(1), ZERO, Decimal(1), part=part)


def test_a_plan_counts_from_its_merge_until_the_next_one_or_its_removal(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan(1)}, at=at(-9))
    repository.run("checkout", "--quiet", "-b", "two")
    # A commit of a branch counts when it is merged, and what it changed in between not at all.
    repository.commit({PLAN: plan(7)}, at=at(-8))
    repository.commit({PLAN: plan(2)}, at=at(-7))
    repository.run("checkout", "--quiet", "main")
    repository.run("merge", "--quiet", "--no-ff", "--message", "merge", "two", at=at(2))
    repository.commit({PLAN: None}, at=at(5))
    repository.commit({"README.md": "later", PLAN: plan(4)}, at=at(8))
    found = promised(repository.root)[NAME]
    assert days(found) == [(0, 2, 1), (2, 5, 2)]
    assert found.changes == (
        "changed on 2026-11-03 00:00 UTC (1 replica to 2 replicas)",
        "removed on 2026-11-06 00:00 UTC",
    )


def test_a_service_has_no_plan_before_it_was_merged(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({"README.md": "first"}, at=at(-1))
    repository.commit({PLAN: plan()}, at=at(6))
    (found,) = promised(repository.root).values()
    assert (days(found), found.changes) == ([(6, 7, 1)], ("merged on 2026-11-07 00:00 UTC",))
    with plan_history(repository.root, "main", WINDOW) as history:
        assert history.cuts(ENVIRONMENTS) == ()
        assert history.unknown_until is None


def test_the_merged_plan_counts_and_not_the_work_tree(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan(1)}, at=at(-1))
    repository.run("checkout", "--quiet", "-b", "draft")
    repository.commit({PLAN: plan(3)}, at=at(1))
    repository.write({PLAN: plan(5), "manifests/prod/other/plan.yaml": plan(1)})
    assert {name: days(one) for name, one in promised(repository.root).items()} == {NAME: [(0, 7, 1)]}


def test_a_clock_that_was_late_does_not_turn_the_order_of_plans(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan(1)}, at=at(-1))
    repository.commit({PLAN: plan(2)}, at=at(3))
    repository.commit({PLAN: plan(3)}, at=at(2))
    assert days(promised(repository.root)[NAME]) == [(0, 3, 1), (3, 7, 3)]


def test_where_the_history_is_cut_off_it_says_from_when_on_plans_are_known(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan(1)}, at=at(-1))
    repository.commit({PLAN: plan(2)}, at=at(4))
    shallow = tmp_path / "shallow"
    repository.run("clone", "--quiet", "--depth=1", f"file://{repository.root}", str(shallow))
    with plan_history(shallow, "main", WINDOW) as history:
        assert history.unknown_until == START + timedelta(days=4)
        assert days(promises(history, ENVIRONMENTS)[NAME]) == [(0, 7, 2)]
    folder = tmp_path / "folder" / PLAN
    folder.parent.mkdir(parents=True)
    folder.write_text(plan(2))
    with plan_history(tmp_path / "folder", "main", WINDOW) as history:
        assert history.unknown_until == WINDOW.end
        assert days(promises(history, ENVIRONMENTS)[NAME]) == [(0, 7, 2)]


def test_a_plan_that_cannot_be_read_or_has_no_price_promises_nothing(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan(1)}, at=at(-1))
    repository.commit({PLAN: "nothing: [", "manifests/prod/README.md": "text"}, at=at(3))
    repository.commit({PLAN: plan(2, hourly=None)}, at=at(5))
    found = promised(repository.root)[NAME]
    assert days(found) == [(0, 3, 1), (5, 7, 2)]
    assert [one.estimate.hourly for one in found.plans] == [Decimal(2), None]


def test_costs_count_by_the_plan_of_their_time(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan(1, model="old/model", accelerator="nvidia-h100-80gb")}, at=at(-1))
    repository.commit({PLAN: plan(2, model="old/model", accelerator="nvidia-h100-80gb")}, at=at(1))
    swapped = START + timedelta(days=3, hours=5, minutes=40)
    repository.commit({PLAN: plan(2, model="new/model")}, at=f"{int(swapped.timestamp())} +0000")
    hour = START + timedelta(days=3, hours=6)
    with plan_history(repository.root, "main", WINDOW) as history:
        # More replicas need no cut: a replica costs the same before and after.
        assert history.cuts(ENVIRONMENTS) == (hour,)
        assert history.cuts(["dev"]) == ()
    near = Window(swapped - timedelta(minutes=30), swapped + timedelta(hours=9))
    with plan_history(repository.root, "main", near) as history:
        assert history.cuts(ENVIRONMENTS) == ()
        rows = (metered(), metered(part=1))
        facts = service_facts(Meter(WINDOW, rows, cuts=(hour,)), history, ENVIRONMENTS)
        assert [(facts[key_of(row)].model, facts[key_of(row)].accelerator) for row in rows] == [
            ("old/model", "nvidia-h100-80gb"),
            ("new/model", "nvidia-l4"),
        ]
        elsewhere = metered("another-cluster")
        (known,) = service_facts(Meter(WINDOW, (elsewhere,)), history, ENVIRONMENTS).values()
        assert (known.environment, known.model) == ("prod", "new/model")


def test_a_service_keeps_its_facts_after_its_removal(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit({PLAN: plan()}, at=at(-1))
    repository.commit({PLAN: None}, at=at(1))
    with plan_history(repository.root, "main", WINDOW) as history:
        facts = service_facts(Meter(WINDOW, (metered(),)), history, ENVIRONMENTS)
    estimate = Estimate(Decimal(2), 1, 1, Decimal(make_plan().resources.cpu))
    model = make_request().model
    assert facts == {key_of(metered()): ServiceFacts("prod", model, "nvidia-l4", estimate=estimate)}
