"""Records the time of each test and each fixture for `scripts/test-times`, as properties in the JUnit file.

A test's `cpu` is the processor time in seconds of its worker and of the processes that ended meanwhile; processes that
keep running (a cluster, a model) are not in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator

import pytest


def _cpu() -> float:
    """Seconds of processor time that this process and its ended children have used."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember the processor time before the test."""
    item.stash[_BEFORE] = _cpu()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Record the test's processor time once its fixtures have ended."""
    yield
    item.user_properties.append(("cpu", f"{_cpu() - item.stash[_BEFORE]:.2f}"))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Record the set-up time of a fixture that several tests share, at the test that had to wait for it."""
    wall, cpu = time.monotonic(), _cpu()
    try:
        return (yield)
    finally:
        wall, cpu = time.monotonic() - wall, _cpu() - cpu
        if fixturedef.scope != "function" and wall > 0.5:
            item: pytest.Item = request._pyfuncitem
            item.user_properties.append(("fixture", f"{fixturedef.argname} {wall:.2f} {cpu:.2f}"))


_BEFORE = pytest.StashKey[float]()
