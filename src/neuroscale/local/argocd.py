"""Runs Argo CD on this machine: its upstream settings and roles in the cluster, its programs as processes.

All are one binary, which takes its part from ARGOCD_BINARY_NAME. Each process has the account of its upstream pod: a
client certificate names the ServiceAccount that upstream's roles are bound to. A setting of the platform's
argocd-cmd-params-cm or argocd-cm reaches a process by the environment variable of upstream's pod.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import yaml

from neuroscale.core.files import text_if_there, write_private, write_public
from neuroscale.core.tool_cache import find_tool
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Cluster, Object
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local import webhook_relay
from neuroscale.local.cluster_parts import add_service_account, definitions, namespace
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copied, copy_tool
from neuroscale.local.process import Process, answers
from neuroscale.local.redis import NAME as REDIS
from neuroscale.local.redis import Redis
from neuroscale.local.state import PASSABLE, State
from neuroscale.local.workflow_runner import find_python, search_path

NAMESPACE: Final = "argocd"
REPO_SERVER: Final = "argocd-repo-server"
CONTROLLER: Final = "argocd-application-controller"
APPLICATION_SETS: Final = "argocd-applicationset-controller"
SERVER: Final = "argocd-server"
RELAY: Final = "webhook-relay"
PORTS = (
    *(REPO_SERVER, f"{REPO_SERVER}-metrics"),
    CONTROLLER,
    *(APPLICATION_SETS, f"{APPLICATION_SETS}-metrics"),
    *(SERVER, f"{SERVER}-metrics"),
    RELAY,
)
"""The names of its ports. The application controller's port serves only its metrics."""

_TOOL: Final = "argocd"
GROUP = "argoproj.io"
# The programs that talk to the API server.
_ACCOUNTS = (CONTROLLER, APPLICATION_SETS, SERVER)
# The kinds of upstream's installation that are not programs, and the programs that run here.
_CONFIGURATION = frozenset(
    ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Secret")
)
_NOT_RUN = ("argocd-dex-server", "argocd-notifications", "argocd-redis")
_INSTALLER = "argocd-install"
"""The field manager of upstream's installation; the platform's own settings have another one."""
_WEBHOOK_SECRETS = (
    *("webhook.gogs.secret", "webhook.github.secret", "webhook.gitlab.secret", "webhook.bitbucket.uuid"),
    *("webhook.bitbucketserver.secret", "webhook.azuredevops.username", "webhook.azuredevops.password"),
)
_SCRIPT = "git-verify-wrapper.sh"


@dataclass(frozen=True)
class ArgoCD:
    """Argo CD of a local platform: its files and its processes. The ports must have been chosen."""

    state: State
    _configuring: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _configured: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def url(self) -> str:
        """The address of its API, by TLS."""
        return f"https://{LOOPBACK}:{self._port(SERVER)}"

    @property
    def webhooks(self) -> tuple[str, ...]:
        """The addresses for the forge's push events: for the Applications, and for the ApplicationSets."""
        return (f"{self.url}{webhook_relay.PATH}", f"http://{LOOPBACK}:{self._port(RELAY)}{webhook_relay.PATH}")

    @property
    def folder(self) -> Path:
        return self.state.run / "argocd"

    @property
    def settings(self) -> Path:
        """The settings that its processes read and must not change."""
        return self.state.run / "argocd-settings"

    def webhook_secret(self) -> str:
        """The secret with which the forge signs its push events."""
        return self._secret("webhook")

    def prepare(self, configuration: Iterable[Object]) -> None:
        """Write its programs, certificates and settings. Secrets are made once and kept.

        `configuration`: the platform's objects for Argo CD, of which the ConfigMaps in its namespace are its settings.
        Raises UntrustedError if set-up has not built it.
        """
        user, plane = self.state.cluster_user, control_plane(self.state)
        copy_tool(self.state, _TOOL)
        self.state.make_folder(self.folder, user)
        for name in (REPO_SERVER, *_ACCOUNTS, RELAY):
            self.state.make_folder(self.folder / name, user)
        for name in ("tls", "ssh", "gpg", "gpg-keys", "plugins"):
            self.state.make_folder(self.folder / name, user)
        self.state.make_folder(self.settings, None, PASSABLE)
        for name in ("server.secretkey", "webhook"):
            path = self.settings / name
            if not path.exists():
                write_private(path, secrets.token_urlsafe(32), user if name == "webhook" else None)
        for name in _ACCOUNTS:
            add_service_account(plane, name, NAMESPACE, name)
        plane.server_certificate(f"{SERVER}-server")
        path = self.state.make_folder(self.settings / "path", None, 0o755)
        (path / "python3").unlink(missing_ok=True)
        (path / "python3").symlink_to(find_python(user))
        self._prepare_repo_server(path)
        relay = Path(webhook_relay.__file__).read_text(encoding="utf-8")
        write_public(self.settings / "webhook_relay.py", relay)
        upstream = _upstream(find_tool(_TOOL).files / "manifests" / "install.yaml")
        own = [one for one in configuration if _is_setting(one)]
        variables = _variables(upstream, [*(one for one in upstream if _is_setting(one)), *own])
        write_public(self.settings / "variables.json", json.dumps(variables, indent=2) + "\n")
        installed = [
            _without(one, own)
            for one in upstream
            if one["kind"] in _CONFIGURATION and not one["metadata"]["name"].startswith(_NOT_RUN)
        ]
        write_public(self.settings / "installed.json", json.dumps(installed, indent=2) + "\n")
        write_public(self.settings / "configuration.json", json.dumps(own, indent=2) + "\n")

    def _prepare_repo_server(self, path: Path) -> None:
        """Write its certificate to the place where it looks, and the script that it calls for every commit."""
        certificate, key = control_plane(self.state).server_certificate(f"{REPO_SERVER}-server")
        folder = self.settings
        for part in ("app", "reposerver", "tls"):
            folder = self.state.make_folder(folder / part, None, PASSABLE)
        write_private(folder / "tls.crt", certificate.read_text(encoding="utf-8"), self.state.cluster_user)
        write_private(folder / "tls.key", key.read_text(encoding="utf-8"), self.state.cluster_user)
        script = find_tool(_TOOL).files / "hack" / _SCRIPT
        write_public(path / _SCRIPT, script.read_text(encoding="utf-8"))
        (path / _SCRIPT).chmod(0o755)

    def processes(self) -> list[Process]:
        """The processes for the supervisor, without Redis. `prepare` must have run before."""
        return [
            self._process(
                REPO_SERVER,
                (
                    f"--address={LOOPBACK}",
                    f"--port={self._port(REPO_SERVER)}",
                    f"--metrics-address={LOOPBACK}",
                    f"--metrics-port={self._port(f'{REPO_SERVER}-metrics')}",
                    f"--client-ca-path={control_plane(self.state).authority_file}",
                    f"--redis={Redis(self.state).address}",
                ),
                lambda: answers(f"http://{LOOPBACK}:{self._port(f'{REPO_SERVER}-metrics')}/healthz?full=true"),
                needs=(REDIS,),
            ),
            self._process(
                CONTROLLER,
                (
                    *self._client_options(CONTROLLER, "repo-server"),
                    f"--metrics-port={self._port(CONTROLLER)}",
                    f"--redis={Redis(self.state).address}",
                ),
                lambda: answers(f"http://{LOOPBACK}:{self._port(CONTROLLER)}/healthz"),
                needs=(API_SERVER, REDIS, REPO_SERVER),
            ),
            self._process(
                APPLICATION_SETS,
                (
                    *self._client_options(APPLICATION_SETS, "argocd-repo-server"),
                    f"--webhook-addr={LOOPBACK}:{self._port(APPLICATION_SETS)}",
                    f"--metrics-addr={LOOPBACK}:{self._port(f'{APPLICATION_SETS}-metrics')}",
                    "--probe-addr=0",
                ),
                self._application_sets_problem,
                needs=(API_SERVER, REPO_SERVER),
            ),
            self._process(
                SERVER,
                (
                    *self._client_options(SERVER, "repo-server"),
                    f"--address={LOOPBACK}",
                    f"--port={self._port(SERVER)}",
                    f"--metrics-address={LOOPBACK}",
                    f"--metrics-port={self._port(f'{SERVER}-metrics')}",
                    f"--staticassets={self.folder / SERVER}",
                    f"--redis={Redis(self.state).address}",
                    f"--repo-server-redis={Redis(self.state).address}",
                ),
                lambda: answers(f"{self.url}/healthz", control_plane(self.state).client_context(ADMINISTRATOR)),
                needs=(API_SERVER, REDIS, REPO_SERVER),
            ),
            self._relay(),
        ]

    def _relay(self) -> Process:
        port = self._port(RELAY)
        return Process(
            name=RELAY,
            argv=(
                str(self.settings / "path" / "python3"),
                "-I",
                str(self.settings / "webhook_relay.py"),
                str(port),
                str(self._port(APPLICATION_SETS)),
                str(self.settings / "webhook"),
            ),
            environment=environment(self.folder / RELAY),
            folder=self.folder / RELAY,
            user=self.state.cluster_user,
            ready=lambda: answers(f"http://{LOOPBACK}:{port}/healthz"),
            port=port,
            settings=text_if_there(self.settings / "webhook_relay.py"),
        )

    def _process(
        self, name: str, options: tuple[str, ...], ready: Callable[[], str | None], needs: tuple[str, ...]
    ) -> Process:
        account = name in _ACCOUNTS
        return Process(
            name=name,
            argv=(str(copied(self.state, _TOOL)), *options),
            environment=self._environment(name),
            folder=self.folder / name,
            user=self.state.cluster_user,
            ready=ready,
            port=self._port(name),
            needs=needs,
            settings=text_if_there(self.settings / "installed.json")
            + text_if_there(self.settings / "configuration.json"),
            prepare=self.configure_cluster if account else lambda: None,
        )

    def _client_options(self, name: str, server: str) -> tuple[str, ...]:
        """The options of a client of the API server and of the repo server, to which it shows its certificate."""
        plane = control_plane(self.state)
        return (
            f"--kubeconfig={plane.kubeconfig_of(name)}",
            f"--namespace={NAMESPACE}",
            f"--{server}={LOOPBACK}:{self._port(REPO_SERVER)}",
            f"--repo-server-ca-cert-path={plane.authority_file}",
            f"--repo-server-client-cert-path={plane.folder / f'{name}.crt'}",
            f"--repo-server-client-cert-key-path={plane.folder / f'{name}.key'}",
        )

    def _environment(self, name: str) -> dict[str, str]:
        variables = json.loads(text_if_there(self.settings / "variables.json") or "{}")
        return {
            **environment(self.folder / name),
            **variables.get(name, {}),
            "PATH": os.pathsep.join([str(self.settings / "path"), *search_path(self.state.cluster_user)]),
            "ARGOCD_BINARY_NAME": name,
            # The cluster that Applications call kubernetes.default.svc is the one of the kubeconfig.
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "KUBECONFIG": str(control_plane(self.state).kubeconfig_of(name)),
            "KUBECACHEDIR": str(self.folder / name / "kubecache"),
            "REDIS_CREDS_DIR_PATH": str(Redis(self.state).credentials),
            "ARGOCD_APP_CONF_PATH": str(self.settings / "app"),
            "ARGOCD_TLS_DATA_PATH": str(self.folder / "tls"),
            "ARGOCD_SSH_DATA_PATH": str(self.folder / "ssh"),
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_GPG_DATA_PATH": str(self.folder / "gpg"),
            "ARGOCD_GNUPGHOME": str(self.folder / "gpg-keys"),
            "ARGOCD_PLUGINSOCKFILEPATH": str(self.folder / "plugins"),
            "ARGOCD_ASK_PASS_SOCK": str(self.folder / name / "ask-pass.sock"),
            # A push event names the files of its last commits only. The server would keep the manifests of the
            # former revision for the new one, and an Application whose files it did not name would never change.
            "ARGOCD_WEBHOOK_MANIFEST_CACHE_WARM_DISABLED": "true",
        }

    def _application_sets_problem(self) -> str | None:
        """Why it cannot be used yet, or None: it listens for events at its start, but has metrics only once it
        works."""
        try:
            socket.create_connection((LOOPBACK, self._port(APPLICATION_SETS)), timeout=3.0).close()
        except OSError as error:
            return f"its webhook does not answer ({type(error).__name__})"
        return answers(f"http://{LOOPBACK}:{self._port(f'{APPLICATION_SETS}-metrics')}/metrics")

    # ------------------------------------------------------------ the cluster

    def configure_cluster(self) -> None:
        """Apply the objects that Argo CD reads from the cluster, once for all processes that wait for them."""
        with self._configuring:
            if not self._configured.is_set():
                with cluster(self.state) as found:
                    configure(found, self._objects("installed"), self._objects("configuration"), self._secrets())
                self._configured.set()

    def _objects(self, name: str) -> list[Object]:
        return cast("list[Object]", json.loads(text_if_there(self.settings / f"{name}.json")))

    def _secrets(self) -> list[Object]:
        certificate, key = control_plane(self.state).server_certificate(f"{SERVER}-server")
        # Gitea's events carry the headers of Gogs, and for the ApplicationSets they become events of GitHub.
        # Without a secret, it would believe anybody's events of another kind of forge.
        webhook = self.webhook_secret()
        data = {"server.secretkey": self._secret("server.secretkey"), **dict.fromkeys(_WEBHOOK_SECRETS, webhook)}
        pair = {name: path.read_text(encoding="utf-8") for name, path in (("tls.crt", certificate), ("tls.key", key))}
        return [_secret("argocd-secret", data), _secret("argocd-server-tls", pair, "kubernetes.io/tls")]

    def _secret(self, name: str) -> str:
        return (self.settings / name).read_text(encoding="utf-8")

    def _port(self, name: str) -> int:
        return self.state.instance.ports[name]


def configure(
    found: Cluster, installed: Iterable[Object], configuration: Iterable[Object], secret_objects: Iterable[Object]
) -> None:
    """Apply upstream's installation without its programs, and on top the platform's settings and secrets.

    Safe to repeat. Raises KubernetesError.
    """
    apply_all(found, [namespace(NAMESPACE), *definitions((GROUP,))])
    for wanted in installed:
        found.apply(wanted, manager=_INSTALLER)
    apply_all(found, [*configuration, *secret_objects])


def _upstream(path: Path) -> list[Object]:
    """The objects of upstream's installation but the definitions, which take most of its five megabytes."""
    documents = path.read_text(encoding="utf-8").split("\n---\n")
    small = (text for text in documents if "\nkind: CustomResourceDefinition\n" not in text[:200])
    return [_in_namespace(yaml.load(text, Loader=yaml.CSafeLoader)) for text in small]


def _in_namespace(one: Object) -> Object:
    if not one["kind"].startswith("Cluster"):
        one["metadata"].setdefault("namespace", NAMESPACE)
    for subject in one.get("subjects", []):
        subject.setdefault("namespace", NAMESPACE)
    return one


def _is_setting(one: Mapping[str, Any]) -> bool:
    return bool(one["kind"] == "ConfigMap" and one["metadata"].get("namespace") == NAMESPACE)


def _without(one: Object, settings: Iterable[Object]) -> Object:
    """Upstream's object without the fields that the platform's own settings replace."""
    for other in settings:
        if (one["kind"], one["metadata"]["name"]) == (other["kind"], other["metadata"]["name"]) and one.get("data"):
            return {**one, "data": {key: one["data"][key] for key in one["data"].keys() - (other.get("data") or {})}}
    return one


def _variables(upstream: Iterable[Object], settings: Iterable[Object]) -> dict[str, dict[str, str]]:
    """The environment variables that upstream's pods get from the settings, by the name of the program."""
    values: dict[tuple[str, str], str] = {}
    for one in settings:
        for key, value in (one.get("data") or {}).items():
            values[one["metadata"]["name"], key] = str(value)
    found: dict[str, dict[str, str]] = {}
    for one in upstream:
        if one["kind"] not in ("Deployment", "StatefulSet"):
            continue
        for container in one["spec"]["template"]["spec"]["containers"]:
            for row in container.get("env", []):
                named = row.get("valueFrom", {}).get("configMapKeyRef", {})
                value = values.get((named.get("name"), named.get("key")))
                if value is not None:
                    found.setdefault(container["name"], {})[row["name"]] = value
    return found


def _secret(name: str, data: Mapping[str, str], kind: str = "Opaque") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "argocd"}},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }
