"""`neuroscale keys`, as the user of the smoke tests, by a real API server."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from api_server import ApiServer
from cluster_lab import install_kinds, run
from live_lab import service_files
from neuroscale.rendering.platform import tenancy
from platform_repository import CATALOG
from repositories import Repository
from roots import ROOT

pytestmark = pytest.mark.tools

NAMESPACE = "team-alpha"


@pytest.fixture
def clone(tmp_path: Path) -> Repository:
    """A clone of the platform with two services of the environment local."""
    found = Repository(tmp_path / "clone")
    files: dict[str, bytes | str | None] = {**service_files("keyed-one"), **service_files("keyed-two")}
    for folder in ("platform", "templates", "policies"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file():
                files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    found.commit(files)
    return found


def in_cluster_of_teams(api_server: ApiServer) -> tuple[str | Path, ...]:
    """The command's arguments for a cluster with the teams' namespaces, as the user of the smoke tests."""
    install_kinds(api_server)
    found = [one for text in tenancy.render_tenancy(CATALOG).values() for one in yaml.safe_load_all(text)]
    for one in sorted(found, key=lambda one: one["kind"] != "Namespace"):
        api_server.cluster.apply(one)
    kubeconfig = api_server.kubeconfig_of("keys-test", (tenancy.SMOKE_TESTS,))
    return ("keys", "--environment", "local", "--kubeconfig", kubeconfig, "--context", api_server.context)


def test_a_key_that_external_secrets_writes_is_not_made(api_server: ApiServer, tmp_path: Path) -> None:
    clone = Repository(tmp_path / "clone")
    files: dict[str, bytes | str | None] = {**service_files("made-here"), **service_files("stored-key")}
    files["manifests/local/stored-key/externalsecret.yaml"] = "kind: ExternalSecret\n"
    for path in (path for folder in ("platform", "templates", "policies") for path in (ROOT / folder).rglob("*")):
        if path.is_file():
            files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    clone.commit(files)
    arguments = (*in_cluster_of_teams(api_server), "--repository", clone.root)
    said = run(*arguments)
    assert said.status == 0, said.out + said.err
    assert "local: External Secrets writes the keys of 1 service; none is made" in said.out
    assert "local: 1 of 1 services have a key" in said.out
    assert api_server.cluster.get("v1", "Secret", "made-here-api-key", NAMESPACE) is not None
    assert api_server.cluster.get("v1", "Secret", "stored-key-api-key", NAMESPACE) is None
    clone.commit({path: None for path in files if path.startswith("manifests/local/made-here/")})
    said = run(*arguments)
    assert (said.status, said.out) == (0, "local: External Secrets writes the keys of 1 service; none is made\n")


def test_missing_keys_are_made_once_and_shown_to_nobody(api_server: ApiServer, clone: Repository) -> None:
    arguments = in_cluster_of_teams(api_server)

    def keys() -> list[str]:
        secrets = [
            api_server.cluster.get("v1", "Secret", f"{name}-api-key", NAMESPACE) for name in ("keyed-one", "keyed-two")
        ]
        return [base64.b64decode(one["data"]["api-key"]).decode() for one in secrets if one is not None]

    assert keys() == []
    said = run(*arguments, "--repository", clone.root)
    assert said.status == 0, said.out + said.err
    made = keys()
    assert len(set(made)) == 2
    assert "local/keyed-one: made a key" in said.out
    assert not any(key in said.out + said.err for key in made)

    again = run(*arguments, "--repository", clone.root)
    assert (again.status, keys()) == (0, made)
    assert "made a key" not in again.out

    # One that cannot be used is told, and left.
    broken = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keyed-one-api-key", "namespace": NAMESPACE}}
    api_server.cluster.apply({**broken, "data": {"api-key": base64.b64encode(b"short").decode()}})
    said = run(*arguments, "--repository", clone.root)
    assert said.status == 1
    assert "local/keyed-one" in said.err
    assert "1 of 2 services have a key" in said.out
