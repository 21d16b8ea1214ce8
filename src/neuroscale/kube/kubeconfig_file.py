"""Reads a kubeconfig's context into an HTTP client: address, certificates, token or credential plugin, proxy.

The official `kubernetes` package reads the file as kubectl does; requests go through httpx.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from neuroscale.core.errors import InputError, Problem

DEFAULT = "~/.kube/config"
"""The file that is read if neither an option nor `$KUBECONFIG` names one."""


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
    try:
        return _connect(str(path or os.environ.get("KUBECONFIG") or DEFAULT), context, timeout, limits)
    except Exception as error:  # the package raises many kinds of errors for a broken file or credential plugin
        problem = Problem(
            where,
            f"context {context}" if context else "current-context",
            f"cannot be used: {type(error).__name__}: {error}",
            "Try `kubectl --context NAME get namespaces` with the same file and context.",
        )
        raise InputError(problem) from error


def _connect(files: str, context: str | None, timeout: float, limits: httpx.Limits) -> Connection:
    from kubernetes.client import Configuration
    from kubernetes.config import kube_config

    found: Any = Configuration()
    # The package writes certificates and keys of the kubeconfig to files of this folder, which is removed at once.
    with tempfile.TemporaryDirectory(prefix="neuroscale-") as folder, _errors_raised():
        kube_config.load_kube_config(files, context, found, persist_config=False, temp_file_path=folder)  # type: ignore[no-untyped-call]
        verify = _tls(found)
    name = context or kube_config.list_kube_config_contexts(files)[1]["name"]  # type: ignore[no-untyped-call]
    token = (found.api_key.get("BearerToken") or "").strip()
    hooks: dict[str, Any] = {}
    if found.tls_server_name:
        hooks["request"] = [lambda request: request.extensions.update(sni_hostname=found.tls_server_name)]
    client = httpx.Client(
        base_url=found.host,
        verify=verify,
        headers={"Authorization": token} if token else {},
        proxy=found.proxy,
        timeout=timeout,
        trust_env=found.proxy is None,
        limits=limits,
        event_hooks=hooks,
    )
    return Connection(found.host, client, name)


def _tls(found: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=found.ssl_ca_cert)
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    return context


@contextlib.contextmanager
def _errors_raised() -> Iterator[None]:
    """Raise what the package only logs, such as a credential plugin that fails: it would go on without credentials."""
    logged: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    collector = Collector(logging.ERROR)
    root = logging.getLogger()
    root.addHandler(collector)
    try:
        yield
    finally:
        root.removeHandler(collector)
    if logged:
        raise ValueError("; ".join(logged))
