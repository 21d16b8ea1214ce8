"""Fixtures that many test modules share."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing

import examples
import lanes
from api_server import ApiServer, running_api_server
from comparisons import COMPARISONS, left_out
from folder_in_memory import use_memory
from forge_server import ForgeServer, running_forge
from gitops_lab import GitOps
from kyverno_once import cache_with_memory
from lane_servers import LaneServers
from live_lab import Live, live_service
from platform_lab import Platform, await_demo, demo_is_over, end_left, one_is_done, platform_folder, started

# No plan of a test may depend on the newest commit of a model of the Hub. Tests of the Hub start one, and name it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# To assemble the command line takes a tenth of a second, and each run of a command within a test would do it again.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command  # type: ignore[attr-defined]

pytest_plugins = ["times", "failures_at_once", "clean_checkout"]


def pytest_configure(config: pytest.Config) -> None:
    """Keep files in memory, bound generated cases by their number alone, and take interrupts as at a desk.

    A shell starts what runs in the background with interrupts ignored, and every program that a test starts would
    inherit that.
    """
    use_memory()
    examples.set_profile()
    for comparison in COMPARISONS:
        comparison.decide()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_LANE_SERVERS] = LaneServers()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> lanes.Lanes:
    """Hand tests out by lanes."""
    config.option.loadscopereorder = False
    return lanes.Lanes(config, log)


_SHARED = pytest.StashKey[Path]()
"""The folder that all workers of a run have in common."""

_LANE_SERVERS = pytest.StashKey[LaneServers]()

_SERVERS = frozenset({"forge_server", "api_server", "shared_platform", "gitops", "live", "oracle"})
"""Fixtures that start programs which set-up builds."""


_FOR_WORKERS = pytest.StashKey[Path]()
"""The same folder, as the process knows it that starts the workers."""


def pytest_configure_node(node: Any) -> None:
    """Name the shared folder to a worker."""
    stash = node.config.stash
    if _FOR_WORKERS not in stash:
        stash[_FOR_WORKERS] = Path(tempfile.mkdtemp(prefix="neuroscale-tests-"))
    node.workerinput["shared_folder"] = str(stash[_FOR_WORKERS])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the platform that workers have left because somebody broke the run off: they get ten seconds."""
    folder = session.config.stash.get(_FOR_WORKERS, None)
    if folder is not None:
        end_left(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the garbage collector the modules and thousands of tests that stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave out what is not in a sample, unless somebody names a test; mark tests that start built programs before
    pytest reads `-m`; afterwards put the dearest tests first.
    """
    unneeded = left_out() if not any("::" in asked for asked in config.args) else frozenset()
    if sampled_out := [one for one in items if _names(one) & unneeded]:
        config.hook.pytest_deselected(items=sampled_out)
        items[:] = [one for one in items if not _names(one) & unneeded]
    for item in items:
        if isinstance(item, pytest.Function) and _SERVERS.intersection(item.fixturenames):
            item.add_marker(pytest.mark.tools)
    yield
    items[:] = lanes.in_order(items)


def _names(item: pytest.Item) -> set[str]:
    """A test's file, and its function as `FILE::NAME`."""
    return {item.path.name, f"{item.path.name}::{getattr(item, 'originalname', None) or item.name}"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the shared platform after the last of the tests that use it."""
    result = yield
    if _uses_platform(item) and _SHARED in item.config.stash:
        one_is_done(item.config.stash[_SHARED], of=sum(map(_uses_platform, item.session.items)))
    return result


def _uses_platform(item: pytest.Item) -> bool:
    """Whether a test takes the platform of this file: others have fixtures of that name with platforms of their own."""
    return isinstance(item, pytest.Function) and "shared_platform" in item.fixturenames


@pytest.fixture(scope="module")
def kyverno_once(shared_folder: Path) -> Iterator[None]:
    """Let Kyverno's command line answer a repeated question from memory: `pytest.mark.usefixtures("kyverno_once")`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROSCALE_CACHE", str(cache_with_memory(shared_folder)))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Note which test follows, for the servers of a lane."""
    item.config.stash[_LANE_SERVERS].following = nextitem


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Iterator[LaneServers]:
    """The servers of this worker."""
    found = request.config.stash[_LANE_SERVERS]
    yield found
    found.end()


@pytest.fixture(scope="module")
def forge_server(servers: LaneServers, request: pytest.FixtureRequest) -> Iterator[ForgeServer]:
    """A real forge with its runner, shared by the tests of a lane; each makes repositories of its own in it."""
    yield from servers.used(running_forge, request)


@pytest.fixture(scope="module")
def api_server(servers: LaneServers, request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """A real API server with etcd behind it, shared by the tests of a lane; each uses namespaces of its own."""
    yield from servers.used(running_api_server, request)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder that all workers of a test run have in common."""
    told = getattr(request.config, "workerinput", {}).get("shared_folder")
    folder = Path(told) if told else tmp_path_factory.getbasetemp()
    request.config.stash[_SHARED] = folder
    return folder


@pytest.fixture(scope="session")
def shared_platform(shared_folder: Path) -> Iterator[Path]:
    """The folder of the platform that all workers share."""
    with platform_folder(shared_folder) as folder:
        yield folder


@pytest.fixture
def platform_of_the_demo(shared_platform: Path) -> Iterator[Path]:
    """The same folder, for the demo: it starts the platform, and the tests that use `platform` wait for its end."""
    yield shared_platform
    demo_is_over(shared_platform)


@pytest.fixture(scope="session")
def platform(shared_platform: Path, request: pytest.FixtureRequest) -> Platform:
    """The whole local platform, one for all workers; each test uses names of its own."""
    if any("platform_of_the_demo" in getattr(item, "fixturenames", ()) for item in request.session.items):
        await_demo(shared_platform)
    return started(shared_platform)


@pytest.fixture(scope="session")
def gitops(platform: Platform) -> Iterator[GitOps]:
    """The platform as its users see it: merges, and what Argo CD makes of them."""
    with contextlib.closing(GitOps(platform.local)) as found:
        yield found


@pytest.fixture(scope="session")
def live(
    tmp_path_factory: pytest.TempPathFactory, shared_folder: Path, platform: Platform, gitops: GitOps
) -> Iterator[Live]:
    """One service that answers, on real vLLM, for all workers: to ask, and not to break."""
    with live_service(shared_folder, platform, gitops, tmp_path_factory.mktemp("live")) as found:
        yield found
