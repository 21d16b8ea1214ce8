"""A kubeconfig as people have them: relative files, tokens, plugins, several files; and broken ones."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from neuroscale.core.errors import InputError
from neuroscale.kube.certificates import LOOPBACK, Authority
from neuroscale.kube.kubeconfig_file import connect

LIMITS = httpx.Limits()
NOWHERE = f"https://{LOOPBACK}:1"


class Server(ThreadingHTTPServer):
    """Keeps the Authorization header of each request."""

    def __init__(self) -> None:
        self.authorizations: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.authorizations.append(self.headers.get("Authorization"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


def kubeconfig(path: Path, url: str, user: dict[str, Any], name: str = "here", **cluster: Any) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, **cluster}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.write_text(json.dumps(document))
    return path


def authorization(server: Server, path: Path | None, context: str | None = None) -> tuple[str | None, str]:
    found = connect(path, context, 5.0, LIMITS)
    with found.client as client:
        client.get("/version")
    return server.authorizations[-1], found.context


def plugin(folder: Path, script: str) -> dict[str, Any]:
    file = folder / "plugin"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(file), "interactiveMode": "Never"}}


def test_a_token_its_file_and_a_credential_plugin_are_used(server: Server, tmp_path: Path) -> None:
    assert authorization(server, kubeconfig(tmp_path / "a", server.url, {"token": "abc"})) == ("Bearer abc", "here")
    (tmp_path / "token").write_text("of-a-file\n")
    assert (
        authorization(server, kubeconfig(tmp_path / "b", server.url, {"tokenFile": "token"}))[0] == "Bearer of-a-file"
    )
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "made"},
    }
    made = plugin(tmp_path, f"echo '{json.dumps(credential)}'")
    assert authorization(server, kubeconfig(tmp_path / "c", server.url, made))[0] == "Bearer made"


def test_the_files_of_the_environment_are_merged_and_a_context_is_chosen(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kubeconfig(tmp_path / "one", server.url, {"token": "first"}, "one")
    two = kubeconfig(tmp_path / "two", server.url, {"token": "second"}, "two")
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}")
    assert authorization(server, None, "one") == ("Bearer first", "one")
    assert authorization(server, None, "two") == ("Bearer second", "two")


def test_the_first_current_context_and_the_first_entry_of_a_name_win(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kubeconfig(tmp_path / "one", server.url, {"token": "first"})
    two = kubeconfig(tmp_path / "two", server.url, {"token": "second"})
    three = kubeconfig(tmp_path / "three", server.url, {"token": "third"}, "three")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{one}:{two}:{three}")
    assert authorization(server, None) == ("Bearer first", "here")


def test_a_plugin_hears_of_the_cluster_and_gets_its_arguments_and_variables(server: Server, tmp_path: Path) -> None:
    version = "client.authentication.k8s.io/v1"
    script = f"""printf '%s' "$KUBERNETES_EXEC_INFO" > "$0.heard"
echo '{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{"token": "'$1-$ADDED'"}}}}'"""
    user = plugin(tmp_path, script)
    user["exec"] |= {"args": ["said"], "env": [{"name": "ADDED", "value": "too"}], "provideClusterInfo": True}
    user["exec"]["command"] = "./plugin"
    assert authorization(server, kubeconfig(tmp_path / "a", server.url, user))[0] == "Bearer said-too"
    heard = json.loads((tmp_path / "plugin.heard").read_text())
    assert heard["spec"] == {"interactive": False, "cluster": {"server": server.url}}


def test_certificates_decide_who_is_asked_and_who_asks(tmp_path: Path) -> None:
    """As data, as files beside the kubeconfig, and from a plugin."""
    authority = Authority.create("test")
    served, pair = authority.server("somebody", [LOOPBACK]), authority.client("somebody")
    (tmp_path / "served.pem").write_text(served.certificate + served.key)
    (tmp_path / "authority.pem").write_text(authority.pair.certificate)
    (tmp_path / "client.pem").write_text(pair.certificate)
    (tmp_path / "key.pem").write_text(pair.key)
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": pair.certificate, "clientKeyData": pair.key},
    }
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    in_data = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    in_files = {"client-certificate": "client.pem", "client-key": "key.pem"}
    by_data = {"certificate-authority-data": encoded(authority.pair.certificate)}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pair.certificate)
    context.load_cert_chain(tmp_path / "served.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with Server() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        url = server.url.replace("http:", "https:")
        try:
            for cluster, user in (
                (by_data, in_data),
                ({"certificate-authority": "authority.pem"}, in_files),
                ({"insecure-skip-tls-verify": True}, in_data),
                (by_data, plugin(tmp_path, f"cat {tmp_path / 'answer.json'}")),
            ):
                path = kubeconfig(tmp_path / "config", url, user, **cluster)
                assert authorization(server, path) == (None, "here")
            for cluster, user in (({}, in_data), (by_data, {})):
                with pytest.raises(httpx.TransportError):
                    authorization(server, kubeconfig(tmp_path / "config", url, user, **cluster))
        finally:
            server.shutdown()
            thread.join()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_proxy_of_the_file_is_asked(server: Server, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "http://elsewhere.invalid", {"token": "abc"}, **{"proxy-url": server.url})
    assert authorization(server, path)[0] == "Bearer abc"


def test_keys_in_the_file_are_used_and_left_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pair = Authority.create("test").client("somebody")
    texts = {"client-certificate-data": pair.certificate, "client-key-data": pair.key}
    user = {name: encoded(text) for name, text in texts.items()}
    for _ in range(2):
        connect(kubeconfig(tmp_path / "config", NOWHERE, user), None, 5.0, LIMITS).client.close()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("user", "context", "text", "said"),
    [
        ({"token": "abc"}, "elsewhere", None, "cannot be used: there is no context 'elsewhere'"),
        ({}, None, "", "empty"),
        ({}, None, "contexts: [", "cannot be used"),
        ({"client-certificate": "absent", "client-key": "absent"}, None, None, "absent"),
        ({"exec": "plugin"}, None, None, "it has no key"),
        ({"client-certificate-data": "no base64"}, None, None, "cannot be used"),
        # kubectl would ask as somebody else.
        ({"token": "abc", "as": "another"}, None, None, "the field as, which is not read here"),
        ({"auth-provider": {"name": "oidc"}}, None, None, "auth-provider"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(
    tmp_path: Path, user: dict[str, Any], context: str | None, text: str | None, said: str
) -> None:
    if user.get("exec"):
        user = plugin(tmp_path, "echo it has no key >&2; exit 3")
    path = kubeconfig(tmp_path / "config", NOWHERE, user)
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as refused:
        connect(path, context, 5.0, LIMITS)
    assert said in str(refused.value), refused.value
