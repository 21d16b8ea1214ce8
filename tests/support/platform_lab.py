"""The whole local platform for tests: what `neuroscale local up` starts, shared by all workers of a test run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from folder_in_memory import ON_DISK
from neuroscale.forge.http import Client
from neuroscale.kube.client import Cluster
from neuroscale.local.control_plane import cluster, kubeconfig
from neuroscale.local.forge_accounts import ADMIN
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.start_and_stop import Options, down, last_lines, up
from roots import ROOT
from waiting import wait_for

_DEMO_IS_OVER = "demo-is-over"
_DEMO_WITHIN = 2400.0
"""Seconds for the demo, before others use its platform: five minutes on a quiet machine."""


@dataclass(frozen=True)
class Platform:
    """The running platform."""

    local: LocalForge

    @property
    def folder(self) -> Path:
        """The state folder, for `neuroscale local --state`."""
        return self.local.state.folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return kubeconfig(self.local.state)

    def cluster(self) -> Cluster:
        """A client as administrator; the caller closes it."""
        return cluster(self.local.state)

    def logs(self, lines: int = 40) -> str:
        """The last lines of every process, for a failure's message."""
        parts = []
        for path in sorted(self.local.state.logs.glob("*.log")):
            parts += [f"--- {path.stem}", *last_lines(path, lines)]
        return "\n".join(parts)


@contextlib.contextmanager
def platform_folder(shared: Path) -> Iterator[Path]:
    """A folder for the platform that all workers share, whoever starts it; the last worker to leave ends it (or
    `one_is_done`).

    `shared` is a folder that all workers of one test run name.
    """
    users = shared / "platform-users"
    users.mkdir(parents=True, exist_ok=True)
    mine = users / str(os.getpid())
    with _locked(shared):
        link = shared / "platform-folder"
        if not link.exists():
            # Not pytest's own temporary folder, which the platform's users may not enter.
            folder = Path(tempfile.mkdtemp(prefix="neuroscale-platform-", dir=ON_DISK))
            folder.chmod(0o755)
            link.write_text(str(folder), encoding="utf-8")
        folder = Path(link.read_text(encoding="utf-8"))
        mine.touch()
    try:
        yield folder
    finally:
        with _locked(shared):
            mine.unlink()
            if not any(users.iterdir()):
                _end(shared)


def state_of(folder: Path) -> Path:
    """The platform's state folder, for `neuroscale local --state`."""
    return folder / "state"


def started(folder: Path, checkout: Path = ROOT) -> Platform:
    """Start the platform in that folder, or join the one that runs there. `checkout`: the repository that a new one
    deploys.
    """
    found = Platform(up(state_of(folder), checkout, Options(cluster=True), print))
    _let_tests_decide(found, folder)
    return found


@contextlib.contextmanager
def running_platform(shared: Path, checkout: Path = ROOT) -> Iterator[Platform]:
    """A platform that runs meanwhile."""
    with platform_folder(shared) as folder:
        yield started(folder, checkout)


def demo_is_over(folder: Path) -> None:
    """Say that the demo, which starts the platform in that folder, has ended."""
    (folder / _DEMO_IS_OVER).touch()


def await_demo(folder: Path) -> None:
    """Wait until the demo has ended: it shows a new platform, which nobody else may change."""
    wait_for((folder / _DEMO_IS_OVER).exists, _DEMO_WITHIN, "the demo has ended")


def one_is_done(shared: Path, of: int) -> None:
    """Count one more finished test of those that share the platform, and end the platform with the last: idle, it still
    takes a core.
    """
    with _locked(shared):
        count = shared / "platform-tests-done"
        done = int(count.read_text(encoding="utf-8")) + 1 if count.exists() else 1
        count.write_text(str(done), encoding="utf-8")
        if done == of:
            _end(shared)


def end_left(shared: Path) -> None:
    """End the platform that workers have left which were broken off."""
    with _locked(shared):
        _end(shared)


def _end(shared: Path) -> None:
    link = shared / "platform-folder"
    if link.exists():
        folder = Path(link.read_text(encoding="utf-8"))
        down(state_of(folder), print, delete=True)
        assert not state_of(folder).exists(), "`down --delete` leaves nothing behind"
        shutil.rmtree(folder, ignore_errors=True)
        link.unlink()


def _let_tests_decide(platform: Platform, folder: Path) -> None:
    """Switch the workflow of the smoke tests off, once: its schedule would test services that other tests break."""
    with _locked(folder):
        done = folder / "smoke-tests-are-off"
        if not done.exists():
            switch_smoke_tests(platform, "disable")
            done.touch()


def switch_smoke_tests(platform: Platform, how: str) -> None:
    """`enable` or `disable` the workflow of the smoke tests in the platform's repository."""
    client = Client(f"{platform.local.url}/api/v1", platform.local.account(ADMIN).token())
    path = f"/repos/{platform.local.platform.slug}/actions/workflows/smoke.yaml/{how}"
    client.send("PUT", path, idempotent=True, accept=(409,))


@contextlib.contextmanager
def _locked(shared: Path) -> Iterator[None]:
    with (shared / "platform-lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
