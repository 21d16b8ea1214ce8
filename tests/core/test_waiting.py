"""How often, and for how long, something is asked again until it is there."""

from __future__ import annotations

import time

import pytest

from neuroscale.core.waiting import attempts


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_the_last_attempt_comes_after_the_time(clock: list[float]) -> None:
    assert [clock[0] for _ in attempts(1.0, pause=0.4)] == pytest.approx([100.0, 100.4, 100.8, 101.2])


def test_nothing_waits_after_a_success(clock: list[float]) -> None:
    for _ in attempts(60.0, pause=5.0):
        break
    assert clock == [100.0]


def test_there_is_one_attempt_when_there_is_no_time(clock: list[float]) -> None:
    assert len(list(attempts(0.0, pause=5.0))) == 1


def test_the_time_of_the_attempts_counts(clock: list[float]) -> None:
    count = 0
    for _ in attempts(10.0, pause=1.0):
        count += 1
        clock[0] += 6.0
    assert count == 2
