"""A plan for production names what the gate would refuse, before anybody opens a pull request."""

from __future__ import annotations

import pytest

from neuroscale.catalog import Catalog
from neuroscale.core.errors import InputError
from neuroscale.planning.model_revision import keeping_revision, with_revision
from neuroscale.planning.override_shortfalls import unmet_demands
from neuroscale.planning.planner import plan
from neuroscale.request.service_request import dump_request, load_request
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


COMMIT = "a1" * 20


@pytest.mark.parametrize(
    ("model", "environment", "revision"),
    [(ON_THE_HUB, "prod", COMMIT), (ON_THE_HUB, "dev", None), (IN_A_STORE, "prod", None)],
)
def test_a_request_takes_the_newest_commit_where_production_demands_one(
    model: str, environment: str, revision: str | None
) -> None:
    asked: list[str] = []

    def newest(name: str) -> str:
        asked.append(name)
        return COMMIT

    request = make_request(
        model=model, environment=environment, availability="high", concurrent_users=2, p95_ttft_seconds=10
    )
    pinned, said = with_revision(request, CATALOG, SETTINGS, newest)
    assert (pinned.model_revision, bool(said), bool(asked)) == (revision, bool(revision), bool(revision))
    made = plan(pinned, CATALOG, SETTINGS)
    assert [one for one in made.vllm_args if one.startswith("--revision=")] == ([f"--revision={COMMIT}"] * len(asked))
    assert unmet_demands(made, CATALOG, SETTINGS) == ()
    # The commit is a part of the request: nobody is asked again, whatever is newest then.
    assert with_revision(pinned, CATALOG, SETTINGS, lambda _: "0" * 40)[0] == pinned
    assert load_request(dump_request(pinned), "request.yaml") == pinned


@pytest.mark.parametrize("answer", ["main", "", None])
def test_a_request_stays_as_it_is_where_the_hub_names_no_commit(answer: str | None) -> None:
    def newest(name: str) -> str:
        if answer is None:
            raise InputError.at(name, "", "was not looked up: the Hub cannot be reached", "")
        return answer

    request = make_request(model=ON_THE_HUB, environment="prod")
    same, (told,) = with_revision(request, CATALOG, SETTINGS, newest)
    assert same == request
    assert (f"neuroscale catalog add {ON_THE_HUB}" in told) is (answer is None)
    assert with_revision(request, CATALOG, SETTINGS, None) == (request, ())


def test_a_commit_belongs_to_its_model() -> None:
    there = make_request(model=ON_THE_HUB).model_copy(update={"model_revision": COMMIT})
    assert keeping_revision(make_request(model=ON_THE_HUB), there).model_revision == COMMIT
    assert keeping_revision(make_request(model=IN_A_STORE), there).model_revision is None


def test_a_commit_that_the_owners_of_the_catalog_reviewed_goes_before_a_requests_own() -> None:
    entry = CATALOG.models[ON_THE_HUB]
    reviewed = entry.model_copy(update={"weights": entry.weights.model_copy(update={"revision": "b2" * 20})})
    facts = (CATALOG.accelerators, CATALOG.prices, CATALOG.runtimes, CATALOG.teams)
    catalog = Catalog({**CATALOG.models, ON_THE_HUB: reviewed}, *facts)
    request = make_request(
        model=ON_THE_HUB, environment="prod", availability="high", concurrent_users=2, p95_ttft_seconds=10
    )
    made = plan(request.model_copy(update={"model_revision": COMMIT}), catalog, SETTINGS)
    assert f"--revision={'b2' * 20}" in made.vllm_args
