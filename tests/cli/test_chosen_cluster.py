"""Which cluster a command asks: the one that is named, else the repository's own local platform while that runs."""

from __future__ import annotations

import fcntl
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_lab import run
from local_processes import local_state
from neuroscale.cli.chosen_cluster import Where, asked_cluster
from neuroscale.local import control_plane, prometheus
from neuroscale.local.control_plane import kubeconfig
from neuroscale.local.state import State
from repositories import Repository

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """A platform in the repository at `tmp_path`, whose supervisor holds its lock, and that serves dev and local."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for folder in ("platform", "policies", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    Repository(tmp_path).commit({".gitignore": ".state\n"})
    with local_state((*control_plane.PORTS, *prometheus.PORTS)) as state:
        (tmp_path / ".state").mkdir()
        (tmp_path / ".state/local").symlink_to(state.folder)
        with (state.folder / "supervisor.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield state


def test_a_platform_that_runs_is_asked_without_an_option_and_a_line_says_so(
    platform: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Where(state=tmp_path / ".state/local")
    for environment in ("", "dev", "local"):
        assert asked_cluster(Where(), tmp_path, environment) == here
    assert capsys.readouterr().err.count("Asking the local platform in .state/local") == 3
    assert here.options == [f"--state={tmp_path}/.state/local"]


def test_a_cluster_that_is_named_in_any_way_is_asked(
    platform: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for named in (Where(context="prod"), Where(kubeconfig=tmp_path / "config"), Where(state=tmp_path)):
        assert asked_cluster(named, tmp_path) == named
    assert asked_cluster(Where(), tmp_path, "prod") == Where(), "the platform does not have this environment"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another"))
    assert asked_cluster(Where(), tmp_path) == Where()
    assert capsys.readouterr().err == ""
    linked = State.read(tmp_path / ".state/local")
    assert linked is not None
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(linked)))
    assert asked_cluster(Where(), tmp_path) != Where()


def test_a_platform_that_does_not_run_or_cannot_be_read_is_not_asked(platform: State, tmp_path: Path) -> None:
    (platform.folder / "supervisor.lock").unlink()
    assert asked_cluster(Where(), tmp_path) == Where()
    (platform.folder / "instance.json").write_text("{}")
    assert asked_cluster(Where(), tmp_path) == Where()


@pytest.mark.parametrize(
    "line",
    ["status", "smoke --environment dev", "query chat hello", "key chat", "keys --environment dev", "metrics chat"],
)
def test_every_command_that_asks_a_cluster_finds_it(platform: State, tmp_path: Path, line: str) -> None:
    """It has no kubeconfig and no Prometheus here, so the error names what was found."""
    said = run(*shlex.split(line), "--repository", tmp_path)
    assert said.status == 2
    assert ".state/local" in said.err or f"http://127.0.0.1:{platform.instance.ports['prometheus']}" in said.err
