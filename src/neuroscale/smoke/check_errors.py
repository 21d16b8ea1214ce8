"""How a check of `smoke-tests/` ends: it returns (passed), or raises one of these."""

from __future__ import annotations


class FindingError(AssertionError):
    """The check looked, and it is not as it should be. `seen`: what was seen; `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.seen = seen
        self.do = do


class NotApplicableError(Exception):
    """Nothing to look at in this environment, for the reason given. It is listed as not checked."""


class NeedsError(Exception):
    """Not looked at because another check of the same service failed: `check` is its id.

    Where that one did not fail, this is an error: nothing else makes the run red.
    """

    def __init__(self, check: str, why: str) -> None:
        super().__init__(why)
        self.check = check


class CannotTellError(Exception):
    """It could not be looked at. `do`: what to do next."""

    def __init__(self, seen: str, do: str) -> None:
        super().__init__(seen)
        self.do = do


def require(holds: object, seen: str, do: str) -> None:
    """Raises FindingError where it does not hold."""
    if not holds:
        raise FindingError(seen, do)
