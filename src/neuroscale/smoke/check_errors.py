"""Defines how a check of `smoke-tests/` ends: it returns (passed), or raises one of these errors."""

from __future__ import annotations


class FindingError(AssertionError):
    """The check found a fault. `seen`: the observation; `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.seen = seen
        self.do = do


class NotApplicableError(Exception):
    """There is nothing to check in this environment, for the reason given. The report lists it as not checked."""


class NeedsError(Exception):
    """Not checked because another check of the same service failed: `check` is its id.

    If that check did not fail, this one counts as an error, so that the run is red.
    """

    def __init__(self, check: str, why: str) -> None:
        super().__init__(why)
        self.check = check


class CannotTellError(Exception):
    """The check could not decide. `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.do = do


def require(holds: object, seen: str, do: str) -> None:
    """Raises FindingError if the condition does not hold."""
    if not holds:
        raise FindingError(seen, do)
