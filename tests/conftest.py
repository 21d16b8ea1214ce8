"""Fixtures that many test modules share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from api_server import ApiServer, running_api_server
from forge_server import ForgeServer, running_forge
from gitops_lab import GitOps
from live_lab import Live, live_service
from platform_lab import Platform, running_platform


@pytest.fixture(scope="session")
def forge_server() -> Iterator[ForgeServer]:
    """A real forge with its runner, shared by all tests; each test makes repositories of its own in it."""
    with running_forge() as server:
        yield server


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A real API server with etcd behind it, shared by all tests; each test uses namespaces of its own."""
    with running_api_server() as server:
        yield server


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Platform]:
    """The whole local platform, one for all workers; each test uses names of its own."""
    base = tmp_path_factory.getbasetemp()
    with running_platform(base if worker_id == "master" else base.parent) as found:
        yield found


@pytest.fixture(scope="session")
def gitops(platform: Platform) -> Iterator[GitOps]:
    """The platform as its users see it: merges, and what Argo CD makes of them."""
    with contextlib.closing(GitOps(platform.local)) as found:
        yield found


@pytest.fixture(scope="session")
def live(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str, platform: Platform, gitops: GitOps
) -> Iterator[Live]:
    """One service that answers, on real vLLM, for all workers: to ask, and not to break."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    with live_service(shared, platform, gitops, tmp_path_factory.mktemp("live")) as found:
        yield found
