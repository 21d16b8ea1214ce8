"""Argo CD of the local platform: who may reach it, what it tells whom, and that starting it again changes nothing."""

from __future__ import annotations

import json
import socket
import ssl
from ipaddress import ip_address
from typing import Any

import httpx
import psutil
import pytest

from gitops_lab import NAMESPACE, GitOps
from neuroscale.core.tool_cache import find_tool
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local.argocd import (
    APPLICATION_SETS,
    CONTROLLER,
    RELAY,
    REPO_SERVER,
    SERVER,
    _upstream,
    _variables,
    _without,
)
from neuroscale.local.control_plane import cluster, control_plane
from neuroscale.local.process import PROCESS_VARIABLE, belonging
from neuroscale.local.processes import notes
from neuroscale.local.redis import NAME as REDIS
from neuroscale.local.redis import Redis
from neuroscale.local.webhook_relay import signature
from neuroscale.rendering.platform.argocd import VALUES, config_maps
from roots import ROOT

PROCESSES = (REPO_SERVER, CONTROLLER, APPLICATION_SETS, SERVER, RELAY, REDIS)
whole = [pytest.mark.tools, pytest.mark.platform, pytest.mark.slow]


def platform_test(function: Any) -> Any:
    for mark in whole:
        function = mark(function)
    return function


def _deployment(*rows: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": "argocd-server", "env": list(rows)}]
    return {"kind": "Deployment", "spec": {"template": {"spec": {"containers": containers}}}}


def _row(name: str, map_name: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": map_name, "key": key, "optional": True}}}


def _map(name: str, **data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


def test_a_setting_reaches_a_process_by_the_variable_that_upstreams_pod_gets_it_by() -> None:
    upstream = [_deployment(_row("A", "argocd-cm", "a"), _row("B", "argocd-cm", "b"), {"name": "C", "value": "c"})]
    settings = [_map("argocd-cm", a="upstream's"), _map("argocd-cm", a="ours"), _map("argocd-other", b="another")]
    assert _variables(upstream, settings) == {"argocd-server": {"A": "ours"}}


@pytest.mark.tools
def test_argo_cd_follows_no_submodule() -> None:
    upstream = _upstream(find_tool("argocd").files / "manifests" / "install.yaml")
    variables = _variables(upstream, config_maps((ROOT / VALUES).read_text()))
    for name in (REPO_SERVER, APPLICATION_SETS):
        assert variables[name]["ARGOCD_GIT_MODULES_ENABLED"] == "false"


def test_upstreams_settings_make_room_for_the_platforms_own() -> None:
    assert _without(_map("argocd-cm", a="1", b="2"), [_map("argocd-cm", a="3"), _map("argocd-other", b="4")])[
        "data"
    ] == {"b": "2"}


def _processes(gitops: GitOps, name: str) -> list[psutil.Process]:
    return list(belonging(gitops.local.state.instance.id, name))


def _listening(process: psutil.Process) -> list[Any]:
    """Its listening sockets. A child, such as a git of the repo-server, may end while it is looked at."""
    try:
        return [each for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    except psutil.NoSuchProcess:
        return []


@platform_test
def test_each_part_listens_on_the_loopback_device_alone(gitops: GitOps) -> None:
    found = {
        name: {connection.laddr.ip for process in _processes(gitops, name) for connection in _listening(process)}
        for name in PROCESSES
    }
    # Upstream has no setting for the address of the application controller's metrics.
    assert found.pop(CONTROLLER) <= {"0.0.0.0", "::"}
    assert set().union(*found.values()) == {"127.0.0.1"}, found


@platform_test
def test_every_port_that_other_machines_can_reach_is_told_of(gitops: GitOps) -> None:
    state = gitops.local.state
    found = {
        connection.laddr.port
        for process in belonging(state.instance.id)
        for connection in _listening(process)
        if not ip_address(connection.laddr.ip).is_loopback
    }
    told = " ".join(notes(state))
    assert found
    assert [port for port in found if str(port) not in told] == []


@platform_test
def test_no_secret_can_be_read_by_others_off_a_process(gitops: GitOps) -> None:
    state = gitops.local.state
    secrets = [
        gitops.argocd.webhook_secret(),
        (gitops.argocd.settings / "server.secretkey").read_text(),
        (Redis(state).credentials / "auth").read_text(),
    ]
    for name in PROCESSES:
        for process in _processes(gitops, name):
            try:
                seen = json.dumps([process.cmdline(), process.environ()])
            except psutil.NoSuchProcess:  # a child that ended meanwhile
                continue
            assert PROCESS_VARIABLE in seen
            assert not [secret for secret in secrets if secret in seen], name
    for path in gitops.argocd.settings.rglob("*"):
        if path.is_file() and any(secret in path.read_text(errors="replace") for secret in secrets):
            assert path.stat().st_mode & 0o077 == 0, path


@platform_test
def test_the_repo_server_speaks_to_nobody_without_a_certificate_of_the_cluster(gitops: GitOps) -> None:
    """It reads every repository that Argo CD may read, and asks nobody for a password."""
    port = gitops.local.state.instance.ports[REPO_SERVER]
    plane = control_plane(gitops.local.state)
    stranger = ssl.create_default_context(cafile=str(plane.authority_file))
    for context, accepted in ((stranger, False), (plane.client_context(ADMINISTRATOR), True)):
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as channel,
        ):
            try:
                # What every HTTP/2 client says first; the answer is the server's settings.
                channel.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
                answered = bool(channel.recv(9))
            except (ssl.SSLError, ConnectionError):
                answered = False
        assert answered is accepted


@platform_test
def test_redis_answers_nobody_without_its_password(gitops: GitOps) -> None:
    with socket.create_connection(("127.0.0.1", gitops.local.state.instance.ports[REDIS]), timeout=10) as connection:
        connection.sendall(b"KEYS *\r\n")
        assert connection.recv(512).startswith(b"-NOAUTH")


@platform_test
def test_only_the_forge_can_make_argo_cd_look(gitops: GitOps) -> None:
    web = gitops.repository.clone_url.removesuffix(".git")
    event = json.dumps({"ref": "refs/heads/main", "repository": {"html_url": web, "default_branch": "main"}}).encode()
    plane = control_plane(gitops.local.state)
    applications, application_sets = gitops.argocd.webhooks
    for secret, refused in ((b"guessed", True), (gitops.argocd.webhook_secret().encode(), False)):
        signed = signature(secret, event)
        headers = {"X-Gitea-Event": "push", "X-Hub-Signature-256": signed}
        told = httpx.post(application_sets, content=event, headers=headers, trust_env=False)
        assert told.is_client_error is refused, told.text
        headers = {"X-Gogs-Event": "push", "X-Gogs-Signature": signed.removeprefix("sha256=")}
        told = httpx.post(
            applications, content=event, headers=headers, trust_env=False, verify=plane.client_context(ADMINISTRATOR)
        )
        assert told.is_client_error is refused, told.text
    # Nor does it believe what seems to come from forges that nobody has set up.
    for headers in ({"X-Gitlab-Event": "Push Hook"}, {"X-Event-Key": "repo:push", "X-Hook-UUID": "a"}):
        for url in (applications, application_sets):
            told = httpx.post(
                url, content=event, headers=headers, trust_env=False, verify=plane.client_context(ADMINISTRATOR)
            )
            assert told.is_client_error, told.text


@platform_test
def test_configuring_argo_cd_again_changes_nothing(gitops: GitOps) -> None:
    def versions() -> dict[tuple[str, str], str]:
        kinds = (("v1", "ConfigMap"), ("v1", "Secret"), ("rbac.authorization.k8s.io/v1", "RoleBinding"))
        return {
            (kind, one["metadata"]["name"]): one["metadata"]["resourceVersion"]
            for version, kind in kinds
            for one in live.list(version, kind, NAMESPACE)
        }

    with cluster(gitops.local.state) as live:
        before = versions()
        assert ("Secret", "argocd-server-tls") in before
        gitops.argocd.configure_cluster()
        assert versions() == before
