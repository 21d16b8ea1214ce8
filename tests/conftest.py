"""Fixtures that many test modules share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forge_server import ForgeServer, running_forge


@pytest.fixture(scope="session")
def forge_server() -> Iterator[ForgeServer]:
    """A real forge with its runner, shared by all tests; each test makes repositories of its own in it."""
    with running_forge() as server:
        yield server
