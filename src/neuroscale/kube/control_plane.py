"""Prepares etcd and an API server on this machine: their files, command lines and readiness.

Every connection uses TLS and both sides show a certificate. The files are in one folder that only its owner may enter.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from neuroscale.core import tool_cache
from neuroscale.core.files import Owner, write_private
from neuroscale.core.tool_cache import ToolName
from neuroscale.kube.certificates import LOOPBACK, Authority, Pair, signing_key

SERVICE_NETWORK = "10.96.0.0/16"
ADMINISTRATORS = "system:masters"
"""The group to which Kubernetes allows everything."""
ADMINISTRATOR = "administrator"

# etcd trusts an authority of its own: it allows everything to every certificate, and the cluster's authority also signs
# certificates of users with few rights.
_ETCD_AUTHORITY, _ETCD, _ETCD_CLIENT = "etcd-authority", "etcd-server", "api-server-etcd-client"
_ETCD_FILES = (f"{_ETCD_AUTHORITY}.crt", f"{_ETCD}.crt", f"{_ETCD}.key")


@dataclass(frozen=True)
class Ports:
    """The loopback ports of a control plane."""

    etcd: int
    etcd_peer: int
    api: int

    @classmethod
    def free(cls) -> Ports:
        """Three ports that are free now; another program may take one before etcd or the API server listens on it."""
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.socket()) for _ in range(3)]
            for one in sockets:
                one.bind((LOOPBACK, 0))
            return cls(*(int(one.getsockname()[1]) for one in sockets))


@dataclass(frozen=True)
class ControlPlane:
    """The files of a control plane, and the command lines of etcd and the API server.

    `owner` gets the files, and runs the processes (None: the user of this program). `service_accounts`: whether pods
    get a service account, which needs the controllers that make them. `nodes`: whether nodes may join, each with only
    its own rights. `program` finds the binaries.
    """

    folder: Path
    ports: Ports
    program: Callable[[ToolName], Path] = tool_cache.find
    owner: Owner | None = None
    service_accounts: bool = False
    nodes: bool = False

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.ports.api}"

    @property
    def etcd_url(self) -> str:
        return f"https://{LOOPBACK}:{self.ports.etcd}"

    @property
    def authority_file(self) -> Path:
        return self.folder / "authority.crt"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.kubeconfig_of(ADMINISTRATOR)

    def kubeconfig_of(self, name: str) -> Path:
        """The file that `add_user` wrote."""
        return self.folder / f"{name}.kubeconfig"

    def prepare(self) -> None:
        """Write missing certificates, keys and the administrator's kubeconfig; a second call changes nothing."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.owner is not None:
            os.chown(self.folder, self.owner.uid, self.owner.gid, follow_symlinks=False)
        authority = self.authority()
        self._pair("api-server", lambda: authority.server("kube-apiserver", _API_SERVER_HOSTS))
        etcd = Authority(self._pair(_ETCD_AUTHORITY, lambda: Authority.create("neuroscale-etcd").pair))
        self._pair(_ETCD, lambda: etcd.server("etcd"))
        self._pair(_ETCD_CLIENT, lambda: etcd.client("kube-apiserver"))
        self._pair("kubelet-client", lambda: authority.client("kube-apiserver-kubelet-client", (ADMINISTRATORS,)))
        self._pair("service-accounts", signing_key)
        self.add_user(ADMINISTRATOR, ADMINISTRATOR, (ADMINISTRATORS,))

    def authority(self) -> Authority:
        """The cluster's own authority, made once."""
        return Authority(self._pair("authority", lambda: Authority.create("neuroscale").pair))

    def server_certificate(self, name: str, hosts: Sequence[str] = ("localhost", LOOPBACK)) -> tuple[Path, Path]:
        """The files of a server's certificate and key that the cluster's authority signed, made once."""
        self._pair(name, lambda: self.authority().server(name, hosts))
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def add_user(self, name: str, user: str, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig file of a user, with a client certificate in it, made once for each address."""
        pair = self._pair(name, lambda: self.authority().client(user, groups))
        path = self.kubeconfig_of(name)
        text = kubeconfig(self.url, self.authority().pair.certificate, user, pair)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_private(path, text, self.owner)
        return path

    def etcd_argv(self) -> tuple[str, ...]:
        """etcd's command line. Its data survives a crash of etcd, but not a crash of the machine."""
        peer = f"https://{LOOPBACK}:{self.ports.etcd_peer}"
        authority, certificate, key = (self.folder / name for name in _ETCD_FILES)
        return (
            str(self.program("etcd")),
            "--name=etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=etcd={peer}",
            f"--cert-file={certificate}",
            f"--key-file={key}",
            "--client-cert-auth",
            f"--trusted-ca-file={authority}",
            # etcd passes what it is asked in JSON over HTTP on to itself, as this client.
            f"--client-cert-file={self.folder / _ETCD_CLIENT}.crt",
            f"--client-key-file={self.folder / _ETCD_CLIENT}.key",
            # There are no peers. A program that could speak as a peer could write any data, past the API server.
            f"--peer-cert-file={certificate}",
            f"--peer-key-file={key}",
            "--peer-client-cert-auth",
            f"--peer-trusted-ca-file={authority}",
            "--auto-compaction-retention=1h",
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
            "--unsafe-no-fsync",
        )

    def api_server_argv(self) -> tuple[str, ...]:
        """The API server's command line."""
        return (
            str(self.program("kube-apiserver")),
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self.ports.api}",
            f"--etcd-servers={self.etcd_url}",
            f"--etcd-cafile={self.folder / _ETCD_FILES[0]}",
            f"--etcd-certfile={self.folder / _ETCD_CLIENT}.crt",
            f"--etcd-keyfile={self.folder / _ETCD_CLIENT}.key",
            f"--tls-cert-file={self.folder / 'api-server.crt'}",
            f"--tls-private-key-file={self.folder / 'api-server.key'}",
            f"--client-ca-file={self.authority_file}",
            f"--kubelet-certificate-authority={self.authority_file}",
            f"--kubelet-client-certificate={self.folder / 'kubelet-client.crt'}",
            f"--kubelet-client-key={self.folder / 'kubelet-client.key'}",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={self.folder / 'service-accounts.crt'}",
            f"--service-account-signing-key-file={self.folder / 'service-accounts.key'}",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            f"--authorization-mode={'Node,RBAC' if self.nodes else 'RBAC'}",
            *(["--enable-admission-plugins=NodeRestriction"] if self.nodes else []),
            "--anonymous-auth=false",
            # As on every common cluster: the policies refuse such pods.
            "--allow-privileged=true",
            "--profiling=false",
            *([] if self.service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
            "--endpoint-reconciler-type=none",
            "--event-ttl=1h",
        )

    def client_context(self, user: str) -> ssl.SSLContext:
        """TLS to the cluster's servers as one of its users."""
        return client_context(self.authority_file, self.folder / f"{user}.crt", self.folder / f"{user}.key")

    def etcd_context(self) -> ssl.SSLContext:
        """TLS to etcd as the API server, its only client."""
        files = (_ETCD_FILES[0], f"{_ETCD_CLIENT}.crt", f"{_ETCD_CLIENT}.key")
        return client_context(*(self.folder / name for name in files))

    def etcd_problem(self) -> str | None:
        """Why etcd cannot be used yet, or None."""
        try:
            context = self.etcd_context()
        except OSError as error:  # an older etcd was started before its files had these names
            return f"the certificates of {self.etcd_url} cannot be read: {error.strerror}"
        return _answers(f"{self.etcd_url}/health", context, '"health":"true"')

    def api_server_problem(self) -> str | None:
        """Why the API server cannot be used yet, or None."""
        return _answers(f"{self.url}/readyz", self.client_context(ADMINISTRATOR), "ok")

    def _pair(self, name: str, make: Callable[[], Pair]) -> Pair:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        # The key is written first, so an existing certificate has its key.
        if not certificate.exists():
            pair = make()
            write_private(key, pair.key, self.owner)
            write_private(certificate, pair.certificate, self.owner)
        return Pair(certificate.read_text(encoding="utf-8"), key.read_text(encoding="utf-8"))


_API_SERVER_HOSTS = (
    *("localhost", LOOPBACK, "10.96.0.1"),
    *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
)


def _answers(url: str, context: ssl.SSLContext, wanted: str) -> str | None:
    try:
        response = httpx.get(url, timeout=3.0, trust_env=False, verify=context)
    except httpx.HTTPError as error:
        return f"{url} does not answer ({type(error).__name__})"
    if response.status_code != 200 or wanted not in response.text:
        return f"{url} answers {response.status_code}: {response.text.strip()[-200:]}"
    return None


def client_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS that trusts only one authority and shows a certificate; the same object while the files are the same."""
    written = tuple(path.stat().st_mtime_ns for path in (authority, certificate, key))
    return _client_context(authority, certificate, key, written)


@functools.lru_cache(maxsize=64)
def _client_context(authority: Path, certificate: Path, key: Path, _: tuple[int, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(certificate, key)
    return context


def kubeconfig(url: str, authority: str, user: str, pair: Pair, name: str = "neuroscale-local") -> str:
    """A kubeconfig of one cluster and one user, in JSON, which is YAML."""

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    return (
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": name, "cluster": {"server": url, "certificate-authority-data": encoded(authority)}}
                ],
                "users": [
                    {
                        "name": user,
                        "user": {
                            "client-certificate-data": encoded(pair.certificate),
                            "client-key-data": encoded(pair.key),
                        },
                    }
                ],
                "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
                "current-context": name,
            },
            indent=2,
        )
        + "\n"
    )
