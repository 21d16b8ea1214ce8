"""Which cluster a command asks: the one that is named, else the repository's own local platform while that runs."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_lab import run
from local_processes import local_state
from neuroscale.actions.chosen_cluster import Where, asked_cluster, clone_for, open_cluster
from neuroscale.actions.progress import Progress
from neuroscale.actions.retirement import what_remains
from neuroscale.actions.workflow_environment import GATEWAY_VARIABLE
from neuroscale.catalog.cluster_settings import SecretStore
from neuroscale.cluster.command_lines import command_lines
from neuroscale.core.files import write_private
from neuroscale.local import control_plane, prometheus
from neuroscale.local.control_plane import kubeconfig
from neuroscale.local.state import State
from plan_factory import make_plan
from repositories import Repository
from roots import ROOT


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """A platform in the repository at `tmp_path`, whose supervisor holds its lock, and that serves dev and local."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for folder in ("platform", "policies", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    Repository(tmp_path).commit({".gitignore": ".state\n"})
    with local_state((*control_plane.PORTS, *prometheus.PORTS)) as state:
        state.update(environments=("dev", "local"))
        (tmp_path / ".state").mkdir()
        (tmp_path / ".state/local").symlink_to(state.folder)
        with (state.folder / "supervisor.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield state


def test_a_platform_that_runs_is_asked_without_an_option_and_a_line_says_so(platform: State, tmp_path: Path) -> None:
    here = Where(state=tmp_path / ".state/local")
    notes: list[str] = []
    for environment in ("", "dev", "local"):
        assert asked_cluster(Where(), tmp_path, environment, Progress(note=notes.append)) == here
    assert notes == ["Asking the local platform in .state/local; --context names another cluster."] * 3
    assert here.options == [f"--state={tmp_path}/.state/local"]


def test_a_cluster_that_is_named_in_any_way_is_asked(
    platform: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    progress = Progress(note=notes.append)
    for named in (Where(context="prod"), Where(kubeconfig=tmp_path / "config"), Where(state=tmp_path)):
        assert asked_cluster(named, tmp_path, progress=progress) == named
    assert asked_cluster(Where(), tmp_path, "prod") == Where(), "the platform does not have this environment"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another"))
    assert asked_cluster(Where(), tmp_path, progress=progress) == Where()
    assert notes == []
    linked = State.read(tmp_path / ".state/local")
    assert linked is not None
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(linked)))
    assert asked_cluster(Where(), tmp_path) != Where()


def test_a_platform_that_does_not_run_or_cannot_be_read_is_not_asked(platform: State, tmp_path: Path) -> None:
    (platform.folder / "supervisor.lock").unlink()
    assert asked_cluster(Where(), tmp_path) == Where()
    (platform.folder / "instance.json").write_text("{}")
    assert asked_cluster(Where(), tmp_path) == Where()


def forge_with(newest: str, platform: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the platform a forge whose main is this commit."""
    platform.update(cluster=True, ports={**platform.instance.ports, "gitea": 1})
    (platform.folder / "tokens").mkdir(exist_ok=True)
    write_private(platform.folder / "tokens/developer", "a" * 40)
    monkeypatch.setattr("neuroscale.forge.branches.Branches.fetch", lambda *_: newest)


def test_keys_are_made_for_the_services_of_the_newest_commit_of_that_forge(
    platform: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Repository(tmp_path)
    known = here.run("rev-parse", "HEAD").strip()
    newest = here.commit({"manifests/local/chat/inferenceservice.yaml": "{}\n"})
    here.run("reset", "--quiet", "--soft", known)
    forge_with(newest, platform, monkeypatch)
    said = run("keys", "--environment", "local", "--repository", tmp_path)
    assert said.status == 2
    assert "manifests/local/chat" in said.err, "the service of the newest commit, which has no answers"


def test_the_clone_has_the_newest_commit_of_the_forge_of_the_platform_that_is_asked(
    platform: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Argo CD reads that forge, for which a clone has no remote."""
    here = Repository(tmp_path)
    known = here.run("rev-parse", "HEAD").strip()
    newest = here.commit({"manifests/local/chat/inferenceservice.yaml": "{}\n"})
    here.run("reset", "--quiet", "--soft", known)
    forge_with(newest, platform, monkeypatch)
    for where, tip in ((Where(state=tmp_path / ".state/local"), newest), (Where(context="prod"), known)):
        clone = clone_for(where, tmp_path, "main")
        try:
            assert clone.tip == tip
            assert [one.name for one in clone.services] == (["local/chat"] if tip == newest else [])
        finally:
            clone.close()


def test_the_line_that_removes_a_retired_services_key_asks_the_platform_whose_forge_is_changed(
    platform: State, tmp_path: Path
) -> None:
    platform.update(cluster=True)
    here, _ = what_remains(make_plan(environment="dev"), tmp_path, local=True)
    named = f"--kubeconfig={platform.folder}/run/cluster/administrator.kubeconfig --namespace team-alpha delete secret"
    assert named in here.replace(f"{tmp_path}/.state/local", str(platform.folder))
    elsewhere, _ = what_remains(make_plan(environment="dev"), tmp_path, local=False)
    assert "gone: kubectl --namespace team-alpha delete secret" in elsewhere, "others read it on their own machines"
    assert "the cluster deletes it with the service" in elsewhere, "as its owner, where `key.ensure` made it"


def test_a_retired_services_key_remains_in_the_store_that_it_comes_from(tmp_path: Path) -> None:
    made, store = make_plan(environment="dev"), SecretStore(kind="external-secrets", store="vault")
    around = made.surroundings.model_copy(update={"secret_store": store})
    told, _ = what_remains(made.model_copy(update={"surroundings": around}), tmp_path, local=False)
    assert f"Its entry team-alpha/{made.service}-api-key in the store vault remains." in told


@pytest.mark.parametrize(
    "line",
    ["status", "smoke --environment dev", "query chat hello", "key chat", "keys --environment dev", "metrics chat"],
)
def test_every_command_that_asks_a_cluster_finds_it(platform: State, tmp_path: Path, line: str) -> None:
    """It has no kubeconfig and no Prometheus here, so the error names what was found."""
    said = run(*shlex.split(line), "--repository", tmp_path)
    assert said.status == 2
    assert ".state/local" in said.err or f"http://127.0.0.1:{platform.instance.ports['prometheus']}" in said.err


def test_the_commands_of_a_report_are_for_those_who_read_it_and_not_for_the_job_that_writes_it(
    platform: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"name": "one", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "local", "context": {"cluster": "one", "user": "one"}}  # as the workflow names it
    user = {"name": "one", "user": {"token": "x"}}
    config = {"clusters": [server], "contexts": [context], "users": [user], "current-context": "local"}
    write_private(tmp_path / "config", json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    def lines() -> tuple[str, str]:
        with open_cluster(Where(context="local")) as cluster:
            told = command_lines(cluster)
            assert cluster.context == "local", "the job itself asks by it"
        return told.own("status chat").partition("neuroscale ")[2], told.kubectl.partition("kubectl ")[2]

    assert lines() == ("status chat --context=local", "--context=local")
    monkeypatch.setenv(GATEWAY_VARIABLE, "")
    assert lines() == ("status chat", "")
    # The job's user may not read the platform's state.
    authority = str(control_plane.control_plane(platform).authority_file)
    gateway = {"state": "/of/somebody/else", "authority": authority, "port": 24443}
    monkeypatch.setenv(GATEWAY_VARIABLE, json.dumps(gateway))
    monkeypatch.setattr(State, "read", lambda _: pytest.fail("the job read the platform's state"))
    assert lines() == ("status chat --state=/of/somebody/else", f"--kubeconfig={kubeconfig(platform)}")
