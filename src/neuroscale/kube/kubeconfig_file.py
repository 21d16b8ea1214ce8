"""Reads a kubeconfig's context into an HTTP client: address, certificates, token or credential plugin, proxy.

Fields and their order are those of kubectl:
https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/ and
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from neuroscale.core.errors import InputError, Problem

DEFAULT = "~/.kube/config"
"""The file that is read if neither an option nor `$KUBECONFIG` names one."""

_NOT_READ = ("auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a user that decide who asks, and that only kubectl reads: another user would ask without them."""


@dataclass(frozen=True)
class Connection:
    """A client of the API server at `url`; `context` is the name of the kubeconfig's context."""

    url: str
    client: httpx.Client
    context: str


def connect(path: Path | None, context: str | None, timeout: float, limits: httpx.Limits) -> Connection:
    """A connection by a context of a kubeconfig (None: `$KUBECONFIG` or `~/.kube/config`; its current context).

    `timeout`: seconds for each request. Nothing is sent yet, but a credential plugin that the context names is run.
    Raises InputError if the file or the context cannot be used.
    """
    where = str(path) if path else f"$KUBECONFIG or {DEFAULT}"
    files = [str(path)] if path else (os.environ.get("KUBECONFIG") or DEFAULT).split(os.pathsep)
    try:
        return _connect([Path(file).expanduser() for file in files if file], context, timeout, limits)
    except Exception as error:  # whatever a broken file, certificate, address or credential plugin raises
        # A ValueError here has words of its own, and the name of its kind says nothing.
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        problem = Problem(
            where,
            f"context {context}" if context else "current-context",
            f"cannot be used: {kind}{error}",
            "Try `kubectl --context NAME get namespaces` with the same file and context.",
        )
        raise InputError(problem) from error


@dataclass(frozen=True)
class _Part:
    """A cluster, a user or a context of a kubeconfig. Relative paths in it start at the file's `folder`."""

    value: dict[str, Any]
    folder: Path

    def data(self, field: str) -> bytes | None:
        """The content of FIELD-data (base64), else of the file FIELD; None without both."""
        if text := self.value.get(f"{field}-data"):
            return base64.b64decode("".join(text.split()), validate=True)
        return (self.folder / self.value[field]).read_bytes() if self.value.get(field) else None


def _connect(files: list[Path], context: str | None, timeout: float, limits: httpx.Limits) -> Connection:
    parts, current = _read(files)
    name = context or current
    if not name:
        raise ValueError("no context is named, and no file has a current-context")
    chosen = _named(parts, "context", name).value
    cluster = _named(parts, "cluster", chosen.get("cluster"))
    user = _named(parts, "user", chosen["user"]) if chosen.get("user") else _Part({}, Path())
    for field in _NOT_READ:
        if user.value.get(field):
            raise ValueError(f"the user {chosen['user']} has the field {field}, which is not read here; use a plugin")
    certificate, key = user.data("client-certificate"), user.data("client-key")
    token = user.value.get("token") or (user.value.get("tokenFile") and _token_of_file(user))
    if not token and user.value.get("exec"):
        status = _run_plugin(user, cluster)
        token = status.get("token")
        if status.get("clientCertificateData"):
            certificate, key = status["clientCertificateData"].encode(), status["clientKeyData"].encode()
        elif not token:
            raise ValueError("the credential plugin's answer has neither token nor clientCertificateData")
    url = str(cluster.value["server"]).rstrip("/")
    hooks: dict[str, Any] = {}
    if server_name := cluster.value.get("tls-server-name"):
        hooks["request"] = [lambda request: request.extensions.update(sni_hostname=server_name)]
    proxy = cluster.value.get("proxy-url") or None
    client = httpx.Client(
        base_url=url,
        verify=_tls(cluster, certificate, key),
        headers={"Authorization": f"Bearer {token.strip()}"} if token else {},
        proxy=proxy,
        timeout=timeout,
        trust_env=proxy is None,
        limits=limits,
        event_hooks=hooks,
    )
    return Connection(url, client, name)


def _read(files: list[Path]) -> tuple[dict[tuple[str, str], _Part], str]:
    """The parts of all files that exist, by kind and name, and the current context: the first file with one wins."""
    parts: dict[tuple[str, str], _Part] = {}
    current = ""
    there = [file for file in files if file.exists()]
    if not there:
        raise ValueError(f"there is no file {' or '.join(map(str, files))}")
    for file in there:
        value = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"{file} is empty or not a mapping")
        current = current or value.get("current-context") or ""
        for kind in ("context", "cluster", "user"):
            for entry in value.get(f"{kind}s") or ():
                parts.setdefault((kind, entry["name"]), _Part(entry.get(kind) or {}, file.absolute().parent))
    return parts, current


def _named(parts: dict[tuple[str, str], _Part], kind: str, name: str | None) -> _Part:
    if not name or (kind, name) not in parts:
        raise ValueError(f"there is no {kind} {name!r}" if name else f"the context names no {kind}")
    return parts[kind, name]


def _token_of_file(user: _Part) -> str:
    return Path(user.folder, user.value["tokenFile"]).read_text(encoding="utf-8")


def _tls(cluster: _Part, certificate: bytes | None, key: bytes | None) -> ssl.SSLContext:
    authority = cluster.data("certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") if authority else None)
    if cluster.value.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        # OpenSSL reads them from files alone. The folder is readable for this user only, and is removed at once.
        with tempfile.TemporaryDirectory(prefix="neuroscale-") as folder:
            file = Path(folder) / "client.pem"
            file.write_bytes(certificate + b"\n" + (key or b""))
            context.load_cert_chain(file)
    return context


def _run_plugin(user: _Part, cluster: _Part) -> dict[str, Any]:
    """The status of the ExecCredential that the user's credential plugin prints."""
    plugin = user.value["exec"]
    asks = plugin.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": asks}
    if plugin.get("provideClusterInfo"):
        authority = cluster.data("certificate-authority")
        told = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        spec["cluster"] = {field: cluster.value[field] for field in told if field in cluster.value}
        if authority:
            spec["cluster"]["certificate-authority-data"] = base64.b64encode(authority).decode()
        for extension in cluster.value.get("extensions") or ():
            if extension["name"] == "client.authentication.k8s.io/exec":
                spec["cluster"]["config"] = extension["extension"]
    version = plugin["apiVersion"]
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    added = {item["name"]: item["value"] for item in plugin.get("env") or ()}
    command = plugin["command"]
    done = subprocess.run(
        [str(user.folder / command) if "/" in command else command, *(plugin.get("args") or ())],
        stdin=None if asks else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if asks else subprocess.PIPE,
        text=True,
        env={**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        check=False,
    )
    if done.returncode != 0:
        raise ValueError(f"the credential plugin {command} ended with {done.returncode}: {(done.stderr or '').strip()}")
    answer = json.loads(done.stdout)
    if (answer.get("apiVersion"), answer.get("kind")) != (version, "ExecCredential"):
        raise ValueError(f"the credential plugin {command} did not answer with an ExecCredential of {version}")
    status = answer["status"]
    if not isinstance(status, dict):
        raise TypeError(f"the answer of the credential plugin {command} has no status")
    return status
