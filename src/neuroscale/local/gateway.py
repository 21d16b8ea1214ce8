"""The way in to the services of this machine: Caddy, with TLS, and what tells it which pods answer for which host."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuroscale.files import write_public
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Object
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local import gateway_routes
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.kserve import NAME as KSERVE
from neuroscale.local.process import Process, answers
from neuroscale.local.runner import find_python
from neuroscale.local.state import PASSABLE, State, read_json
from neuroscale.local.tool_copies import copied, copy_tool

NAME: Final = "gateway"
ROUTES: Final = "gateway-routes"
REDIRECT: Final = "gateway-http"
PORTS = (NAME, REDIRECT)
NODE: Final = "this-machine"
"""The node whose pods are processes of this machine."""

_TOOL: Final = "caddy"
_USER = "neuroscale:gateway"


@dataclass(frozen=True)
class Gateway:
    """Where the gateway of a local platform lies, and how it is run. The ports must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        """What is written before it starts; `work` below it is what it writes itself."""
        return self.state.run / NAME

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def settings(self) -> Path:
        return self.folder / "settings.json"

    @property
    def _script(self) -> Path:
        return self.folder / "gateway_routes.py"

    @property
    def _python(self) -> Path:
        return self.folder / "python3"

    def prepare(self, domain: str) -> None:
        """Write programs, settings and a certificate for the hosts one label below the domain.

        Raises UntrustedError where set-up has not built Caddy.
        """
        user, plane, ports = self.state.cluster_user, control_plane(self.state), self.state.instance.ports
        copy_tool(self.state, _TOOL)
        self.state.make_folder(self.folder, None, PASSABLE)
        self.state.make_folder(self.work, user)
        self._python.unlink(missing_ok=True)
        self._python.symlink_to(find_python(user))
        plane.add_user(NAME, _USER)
        # Another domain has another certificate. The loopback's names are those that its health is asked by.
        certificate, key = plane.server_certificate(f"{NAME}-{domain}", (f"*.{domain}", "localhost", LOOPBACK))
        found = gateway_routes.Settings(
            api=f"{LOOPBACK}:{plane.ports.api}",
            authority=str(plane.authority_file),
            client_certificate=str(plane.folder / f"{NAME}.crt"),
            client_key=str(plane.folder / f"{NAME}.key"),
            node=NODE,
            port=ports[NAME],
            redirect_port=ports[REDIRECT],
            certificate=str(certificate),
            key=str(key),
        )
        write_public(self.settings, json.dumps(dataclasses.asdict(found), indent=2) + "\n")
        write_public(self._script, Path(gateway_routes.__file__).read_text(encoding="utf-8"))

    def processes(self) -> list[Process]:
        """What follows the cluster, and Caddy."""
        plane, port = control_plane(self.state), self.state.instance.ports[NAME]
        health = f"https://{LOOPBACK}:{port}{gateway_routes.HEALTH}"
        facts: dict[str, Any] = read_json(self.settings)
        script = self._script.read_text(encoding="utf-8") if self._script.exists() else ""
        return [
            Process(
                name=ROUTES,
                argv=(str(self._python), "-I", str(self._script), str(self.settings)),
                environment=environment(self.work),
                folder=self.work,
                user=self.state.cluster_user,
                ready=lambda: None if (self.work / gateway_routes.SYNCED).exists() else "it has not read the cluster",
                # Which brings the kind that it watches.
                needs=(API_SERVER, KSERVE),
                settings=json.dumps(facts) + script,
                prepare=self._prepare_routes,
                stops_within=5.0,
            ),
            Process(
                name=NAME,
                argv=(str(copied(self.state, _TOOL)), "run", "--config", gateway_routes.CONFIGURATION),
                environment={**environment(self.work), "XDG_DATA_HOME": str(self.work)},
                folder=self.work,
                user=self.state.cluster_user,
                ready=lambda: answers(health, plane.client_context(ADMINISTRATOR)),
                port=port,
                needs=(ROUTES,),
                settings=json.dumps(facts),
                # It would wait for the end of the last stream.
                stops_within=3.0,
            ),
        ]

    def _prepare_routes(self) -> None:
        (self.work / gateway_routes.SYNCED).unlink(missing_ok=True)
        with cluster(self.state) as found:
            apply_all(found, access())


def access() -> list[Object]:
    """What it may do in the cluster: see services and the addresses of their pods."""
    name = "neuroscale:gateway"
    group = "rbac.authorization.k8s.io"
    verbs = ["list", "watch"]
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices"], "verbs": verbs},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": _USER}],
        },
    ]
