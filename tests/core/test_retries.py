"""What is asked again, how often, and after which pauses."""

from __future__ import annotations

import time

import pytest

from neuroscale.core.waiting import repeatedly


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


class _Fails:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def _is_lookup(error: Exception) -> bool:
    return isinstance(error, LookupError)


def test_the_first_answer_is_enough(pauses: list[float]) -> None:
    ask = _Fails()
    assert repeatedly(ask, attempts=3, again=_is_lookup, first_pause=1.0) == "answer"
    assert (ask.asked, pauses) == (1, [])


def test_pauses_double_until_an_answer_comes(pauses: list[float]) -> None:
    ask = _Fails(KeyError(1), KeyError(2), KeyError(3))
    assert repeatedly(ask, attempts=4, again=_is_lookup, first_pause=0.5) == "answer"
    assert (ask.asked, pauses) == (4, [0.5, 1.0, 2.0])


def test_the_last_attempts_error_is_raised_without_a_pause(pauses: list[float]) -> None:
    ask = _Fails(KeyError(1), KeyError(2), KeyError(3))
    with pytest.raises(KeyError, match="2"):
        repeatedly(ask, attempts=2, again=_is_lookup, first_pause=0.5)
    assert (ask.asked, pauses) == (2, [0.5])


def test_what_may_not_be_repeated_is_raised_at_once(pauses: list[float]) -> None:
    ask = _Fails(KeyError(1), ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        repeatedly(ask, attempts=5, again=_is_lookup)
    assert (ask.asked, pauses) == (2, [0.0])
