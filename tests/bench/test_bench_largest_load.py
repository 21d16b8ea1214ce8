"""The search of the largest load: where it ends, that single runs do not decide, and how sure it is."""

from __future__ import annotations

import random

import pytest

from neuroscale.bench.largest_load import EDGE_RUNS, OverError, Trial, search, upper_share

PROMISE = 1.0


def _trial(users: int, p95: float, requests: int = 100) -> Trial:
    return Trial(users, p95, requests, 0 if p95 <= PROMISE else requests // 5)


@pytest.mark.parametrize("edge", [1, 2, 7, 40, 41, 200, 511])
@pytest.mark.parametrize("first", [1, 4, 60, 512])
def test_the_edge_is_found_from_wherever_it_begins(edge: int, first: int) -> None:
    found = search(lambda users, run: _trial(users, 0.5 if users <= edge else 2.0), PROMISE, first, 512)
    assert found.users <= edge
    assert found.missed_users is not None
    assert edge < found.missed_users <= found.users + max(1, found.users // 20)
    assert (found.kept_runs, found.missed_runs, found.sure) == (EDGE_RUNS, (2, 2), "sure")
    assert len(found.trials) <= 24


def test_not_even_one_user_is_a_result_of_its_own() -> None:
    found = search(lambda users, run: _trial(users, 5.0), PROMISE, 8, 512)
    assert (found.users, found.missed_users, found.kept_runs, found.late_share) == (0, 1, 0, None)
    assert found.sure == "sure"


def test_the_search_goes_no_further_than_the_server_can_hold() -> None:
    found = search(lambda users, run: _trial(users, 0.1), PROMISE, 4, 48, "The KV cache holds 48 requests.")
    assert (found.users, found.missed_users, found.ended) == (48, None, "The KV cache holds 48 requests.")
    assert max(trial.users for trial in found.trials) == 48


def test_one_lucky_run_is_not_the_result() -> None:
    def measure(users: int, run: int) -> Trial:
        lucky = users == 40 and run == 1
        return _trial(users, 0.5 if users <= 32 or lucky else 2.0)

    found = search(measure, PROMISE, 40, 512)
    assert 30 <= found.users <= 32
    assert found.kept_runs == EDGE_RUNS


def test_few_requests_make_it_likely_and_not_sure() -> None:
    found = search(lambda users, run: _trial(users, 0.5 if users <= 6 else 2.0, requests=10), PROMISE, 4, 64)
    assert (found.users, found.sure) == (6, "likely")
    assert found.late_share == pytest.approx(upper_share(0, 30))


def test_a_load_above_the_edge_that_sometimes_keeps_it_makes_it_unsure() -> None:
    def measure(users: int, run: int) -> Trial:
        return _trial(users, 0.5 if users <= 6 or (users == 7 and run == 2) else 2.0)

    found = search(measure, PROMISE, 4, 64)
    assert (found.users, found.missed_users, found.missed_runs, found.sure) == (6, 7, (2, 1), "unsure")


def test_a_failure_ends_the_search_and_is_no_load_that_missed() -> None:
    def measure(users: int, run: int) -> Trial:
        if users > 8:
            raise OverError("The search ended at 16 users: the server is gone.")
        return _trial(users, 0.5)

    found = search(measure, PROMISE, 4, 64)
    assert (found.users, found.missed_users, found.sure) == (8, None, "unsure")
    assert "the server is gone" in found.ended


def test_noise_never_makes_it_claim_a_load_that_was_not_kept_in_each_run() -> None:
    for seed in range(200):
        noise = random.Random(seed)

        def measure(users: int, run: int, noise: random.Random = noise) -> Trial:
            return _trial(users, users / 50 * noise.uniform(0.8, 1.25))

        found = search(measure, PROMISE, noise.randint(1, 128), 256)
        there = [trial for trial in found.trials if trial.users == found.users]
        assert len(there) == EDGE_RUNS
        assert all(trial.p95 <= PROMISE for trial in there)
        assert found.missed_users is None or found.missed_users > found.users


def test_the_upper_bound_of_a_share_is_wilsons() -> None:
    # One-sided 95 % bounds: 3 / n is the rule of three for none, of which Wilson's is a little below.
    assert upper_share(0, 120) == pytest.approx(0.0221, abs=0.0002)
    assert upper_share(6, 120) == pytest.approx(0.0938, abs=0.0005)
    assert 0 < upper_share(1, 1) <= 1
