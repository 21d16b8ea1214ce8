"""How a change reaches the pods that run: what a plan decides, what is rendered, and what a merge is told to do."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import yaml

from neuroscale.catalog.settings import Rollouts
from neuroscale.core.errors import InputError
from neuroscale.planning.override_shortfalls import shortfalls_of
from neuroscale.planning.plan import Plan, Replicas, Rollout, dump_plan, load_plan
from neuroscale.planning.planner import plan
from neuroscale.rendering.service_folder import render
from neuroscale.report.change_phrases import rollout
from neuroscale.request.service_request import Override, Request
from plan_factory import make_plan, make_request
from platform_repository import CATALOG, SETTINGS, TEMPLATE

LATER = date(2099, 12, 31)


def asked(availability: str = "standard", **overrides: Any) -> Request:
    exceptions = tuple(
        Override(field=field.replace("__", "."), value=value, reason="asked by the test of rollouts", expires=LATER)
        for field, value in overrides.items()
    )
    return make_request(availability=availability, p95_ttft_seconds=20, overrides=exceptions)


def planned(request: Request, **rollouts: Any) -> Plan:
    environment = SETTINGS.environments["dev"].model_copy(update={"rollout": Rollouts(**rollouts)})
    environments = SETTINGS.environments | {"dev": environment}
    return plan(request, CATALOG, SETTINGS.model_copy(update={"environments": environments}))


def strategy(made: Plan, request: Request) -> Any:
    text = render(request, made, TEMPLATE)["inferenceservice.yaml"]
    return yaml.load(text, yaml.CSafeLoader)["spec"]["predictor"].get("deploymentStrategy")


def rolling(surge: int, unavailable: int) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@pytest.mark.parametrize(
    ("request_", "rollouts", "kind", "surge", "gap"),
    [
        (asked(), {}, "replace", 0, True),
        (asked(replicas__min=3, replicas__max=3), {}, "replace", 0, False),
        (asked(), {"standard": "surge"}, "surge", 1, False),
        (asked("high"), {}, "surge", 1, False),
        (asked("high"), {"high": "replace"}, "replace", 0, False),
        # The settings never take the only replica of a service away that asks for high availability.
        (asked("high", replicas__min=1), {"high": "replace"}, "surge", 1, False),
        (asked("high", replicas__min=1, rollout="replace"), {}, "replace", 0, True),
        (asked(rollout="surge"), {}, "surge", 1, False),
    ],
)
def test_the_plan_decides_the_rollout_by_availability_settings_and_override(
    request_: Request, rollouts: dict[str, str], kind: str, surge: int, gap: bool
) -> None:
    made = planned(request_, **rollouts)
    assert made.rollout is not None
    assert (made.rollout.kind, made.rollout.gap_minutes > 0) == (kind, gap)
    assert made.rollout.extra_accelerators == surge * made.accelerator_count
    assert made.rollout.minutes * 60 >= made.replicas.min * made.startup.expected_seconds
    assert strategy(made, request_) == rolling(surge, 1 - surge)
    (reason,) = [one for one in made.reasons if one.startswith("A later change")]
    assert f"about {made.rollout.minutes} min" in reason


def test_an_override_that_gives_high_availability_a_gap_is_a_shortfall() -> None:
    request = asked("high", replicas__min=1, rollout="replace")
    made = planned(request)
    told = f"nothing answers for about {made.rollout.gap_minutes if made.rollout else 0} min of each change"
    assert made.verdict == "tight"
    assert any(told in clause for clause in shortfalls_of(request, made))
    assert any(told in reason for reason in made.reasons)


def test_an_unknown_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match="'recreate' does not suit rollout"):
        asked(rollout="recreate")


def test_a_plan_from_before_is_read_written_and_rendered_as_it_was() -> None:
    request = make_request()
    made = make_plan(request)
    text = dump_plan(made)
    assert "rollout" not in text
    assert load_plan(text, "plan.yaml") == made
    assert strategy(made, request) is None


def test_a_rollout_that_could_never_move_is_not_rendered() -> None:
    request = make_request()
    still = Rollout(
        kind="replace",
        availability="standard",
        max_surge=0,
        max_unavailable=0,
        extra_accelerators=0,
        minutes=1,
        gap_minutes=0,
    )
    with pytest.raises(InputError, match="neither one pod more nor one pod fewer"):
        render(request, make_plan(request, rollout=still), TEMPLATE)


def running(replicas: int = 1, each: int = 1, kind: str = "replace", **changes: Any) -> Plan:
    """A plan of so many replicas; its rollout takes 14 minutes for each."""
    surge = kind == "surge"
    minutes = 14 * replicas
    way = Rollout(
        kind=kind,  # type: ignore[arg-type]
        availability="standard",
        max_surge=int(surge),
        max_unavailable=int(not surge),
        extra_accelerators=each if surge else 0,
        minutes=minutes,
        gap_minutes=0 if surge or replicas > 1 else minutes,
    )
    return make_plan(
        replicas=Replicas(min=replicas, max=replicas),
        accelerator_count=each,
        tensor_parallel_size=each,
        rollout=way,
        **changes,
    )


OTHER: dict[str, Any] = {"vllm_args": ("--model=other",)}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (running(), running(), "Nothing: the running pods stay as they are."),
        (None, running(2), "The service is new: it starts with 2 replicas and needs 2 nvidia-l4."),
        (
            running(),
            running(**OTHER),
            "A restart with a gap of about 14 min: the only replica ends before the new one starts. "
            "No more accelerators are needed.",
        ),
        (
            running(2),
            running(2, **OTHER),
            "No gap: 1 of 2 replicas does not answer for about 28 min, in turn. No more accelerators are needed.",
        ),
        (
            running(each=2),
            running(each=2, kind="surge", **OTHER),
            "No gap: each old pod answers until a new one is ready (about 14 min). "
            "The rollout needs 2 more nvidia-l4 for about 14 min.",
        ),
        # The new pod is larger than what the old one gives back.
        (
            running(),
            running(each=2, **OTHER),
            "A restart with a gap of about 14 min: the only replica ends before the new one starts. "
            "The new one needs 1 more nvidia-l4: nothing answers until it is free. "
            "The old version goes on answering until then with an override of rollout with surge.",
        ),
        (
            running(2),
            running(2, each=2, **OTHER),
            "No gap: 1 of 2 replicas does not answer for about 28 min, in turn. "
            "The rollout needs 2 more nvidia-l4, and waits until they are free.",
        ),
        (
            running(),
            running(accelerator="nvidia-h100-80gb", **OTHER),
            "A restart with a gap of about 14 min: the only replica ends before the new one starts. The new one needs "
            "1 nvidia-h100-80gb in place of the 1 x nvidia-l4 that each replica holds now: nothing answers until it is "
            "free. The old version goes on answering until then with an override of rollout with surge.",
        ),
        (
            running(),
            running(each=2, kind="surge", **OTHER),
            "No gap: each old pod answers until a new one is ready (about 14 min). "
            "The rollout needs 2 more nvidia-l4 at once, and 1 of them from then on.",
        ),
        (
            running(),
            running(kind="surge", accelerator="nvidia-h100-80gb", **OTHER),
            "No gap: each old pod answers until a new one is ready (about 14 min). "
            "The rollout needs 1 nvidia-h100-80gb beside the 1 x nvidia-l4 that each replica holds now.",
        ),
        (
            running(1),
            running(3),
            "No restart: 3 in place of 1 replica. That needs 2 more nvidia-l4 within about 14 min.",
        ),
        (running(3), running(1), "No restart: 1 in place of 3 replicas."),
        # Kubernetes starts the pods of the growth first, and ends no old one before they are ready.
        (
            running(1),
            running(8, **OTHER),
            "No gap: each old pod answers until a new one is ready (about 28 min). The rollout needs 7 more nvidia-l4.",
        ),
        (
            running(1),
            running(3, kind="surge", **OTHER),
            "No gap: each old pod answers until a new one is ready (about 14 min). "
            "The rollout needs 3 more nvidia-l4 at once, and 2 of them from then on.",
        ),
        # KServe's own strategy, with which a plan from before rolls out.
        (
            make_plan(replicas=Replicas(min=1, max=1)),
            make_plan(replicas=Replicas(min=1, max=1), **OTHER),
            "No gap: each old pod answers until a new one is ready (about 14 min). "
            "The rollout needs 1 more nvidia-l4 for about 14 min.",
        ),
    ],
)
def test_one_line_says_what_a_merge_does_to_the_running_service(before: Plan | None, after: Plan, told: str) -> None:
    assert rollout(before, after) == told


@pytest.mark.parametrize("kind", ["replace", "surge"])
def test_a_service_of_another_namespace_is_no_rollout(kind: str) -> None:
    after = running(2, kind=kind)
    after = after.model_copy(update={"tenancy": after.tenancy.model_copy(update={"namespace": "team-beta"})})
    assert rollout(running(), after, quota=8) == (
        "A gap of about 14 min, another address and another API key: the service moves from namespace team-alpha to "
        "team-beta. Argo CD deletes the old pods at once. The service needs 2 nvidia-l4 there. "
        "The team's quota holds 8 nvidia.com/gpu."
    )


def test_high_availability_alone_changes_the_pods_and_a_known_template_decides() -> None:
    after = running()
    assert after.rollout is not None
    spread = after.model_copy(update={"rollout": after.rollout.model_copy(update={"availability": "high"})})
    assert rollout(running(), spread).startswith("A restart with a gap")
    assert rollout(running(), spread, same_pods=True).startswith("Nothing")
    assert rollout(running(), running(), same_pods=False).startswith("A restart with a gap")


UNKNOWN, WAITS, RUNS = None, True, False


@pytest.mark.parametrize(
    ("before", "after", "unfinished", "told"),
    [
        # The way out of a rollout that waits in a full pool: the files alone cannot say which of the two happens.
        (
            running(kind="surge"),
            running(),
            UNKNOWN,
            "Nothing while the newest version runs. While the newest version waits or loads, pods that serve end so "
            "that it can start: a gap of about 14 min.",
        ),
        (
            running(kind="surge"),
            running(),
            WAITS,
            "A gap of about 14 min: the newest version does not run yet, and pods that serve end so that it can start.",
        ),
        (running(kind="surge"), running(), RUNS, "Nothing: the running pods stay as they are."),
        (
            running(2, kind="surge"),
            running(2),
            WAITS,
            "1 of 2 replicas does not answer for about 28 min, in turn: the newest version does not run yet, and pods "
            "that serve end so that it can start.",
        ),
        # KServe's own strategy has no pod fewer, either: a new plan that decides the rollout frees it.
        (
            make_plan(replicas=Replicas(min=1, max=1)),
            running(),
            WAITS,
            "A gap of about 14 min: the newest version does not run yet, and pods that serve end so that it can start.",
        ),
        (
            running(1, kind="surge"),
            running(2),
            UNKNOWN,
            "No restart: 2 in place of 1 replica. That needs 1 more nvidia-l4 within about 14 min. While the newest "
            "version waits or loads, pods that serve end so that it can start: 1 of 2 replicas does not "
            "answer for about 28 min, in turn.",
        ),
        # Nothing that serves may end earlier than before.
        (running(), running(kind="surge"), WAITS, "Nothing: the running pods stay as they are."),
        (running(), running(), WAITS, "Nothing: the running pods stay as they are."),
        # Another version of the pods takes the place of the one that waits.
        (
            running(),
            running(**OTHER),
            WAITS,
            "A restart with a gap of about 14 min: the only replica ends before the new one starts. "
            "No more accelerators are needed.",
        ),
        # The autoscaler ends what is beyond the new highest number.
        (
            running().model_copy(update={"replicas": Replicas(min=1, max=5)}),
            running().model_copy(update={"replicas": Replicas(min=1, max=2)}),
            UNKNOWN,
            "No restart: at most 2 replicas from then on; pods beyond that end.",
        ),
    ],
)
def test_a_change_of_the_rollout_alone_restarts_what_serves_while_the_newest_version_waits(
    before: Plan, after: Plan, unfinished: bool | None, told: str
) -> None:
    same_pods = before.vllm_args == after.vllm_args
    assert rollout(before, after, same_pods=same_pods, unfinished=unfinished) == told
