"""Runs the gateway to this machine's services: Caddy, with TLS, and a router that knows which pods answer for a
host.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core.files import text_if_there, write_public
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Object
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local import gateway_caddy, gateway_routes
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.kserve import NAME as KSERVE
from neuroscale.local.node.service import NODE
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State
from neuroscale.local.tool_copies import copied, copy_tool
from neuroscale.local.upstream import rights
from neuroscale.local.workflow_runner import find_python

NAME: Final = "gateway"
ROUTES: Final = "gateway-routes"
REDIRECT: Final = "gateway-http"
PORTS = (NAME, REDIRECT)

_TOOL: Final = "caddy"
_USER = "neuroscale:gateway"


@dataclass(frozen=True)
class Gateway:
    """The gateway of a local platform: its files and its processes. The ports must have been chosen."""

    state: State

    @property
    def folder(self) -> Path:
        """The folder of the files that are written before it starts; it runs in `work` below it."""
        return self.state.run / NAME

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def settings(self) -> Path:
        return self.folder / "settings.json"

    @property
    def configuration(self) -> Path:
        return self.folder / "caddy.json"

    @property
    def _script(self) -> Path:
        return self.folder / "gateway_routes.py"

    @property
    def _python(self) -> Path:
        return self.folder / "python3"

    def prepare(self, domain: str) -> None:
        """Write programs, settings and a certificate for the hosts one label below the domain.

        Raises UntrustedError if set-up has not built Caddy.
        """
        user, plane, ports = self.state.cluster_user, control_plane(self.state), self.state.instance.ports
        copy_tool(self.state, _TOOL)
        self.state.make_folder(self.folder, None, PASSABLE)
        self.state.make_folder(self.work, user)
        self._python.unlink(missing_ok=True)
        self._python.symlink_to(find_python(user))
        plane.add_user(NAME, _USER)
        # Another domain has another certificate. Probes of its health use the names of the loopback.
        certificate, key = plane.server_certificate(f"{NAME}-{domain}", (f"*.{domain}", "localhost", LOOPBACK))
        found = gateway_routes.Settings(
            api=f"{LOOPBACK}:{plane.ports.api}",
            authority=str(plane.authority_file),
            client_certificate=str(plane.folder / f"{NAME}.crt"),
            client_key=str(plane.folder / f"{NAME}.key"),
            node=NODE,
        )
        caddy = gateway_caddy.configuration(ports[NAME], ports[REDIRECT], certificate, key)
        write_public(self.configuration, json.dumps(caddy, indent=1) + "\n")
        write_public(self.settings, json.dumps(dataclasses.asdict(found), indent=2) + "\n")
        write_public(self._script, Path(gateway_routes.__file__).read_text(encoding="utf-8"))

    def processes(self) -> list[Process]:
        """The processes: the router, and Caddy."""
        plane, port = control_plane(self.state), self.state.instance.ports[NAME]
        health = f"https://{LOOPBACK}:{port}{gateway_caddy.HEALTH}"
        return [
            Process(
                name=ROUTES,
                argv=(str(self._python), "-I", str(self._script), str(self.settings)),
                environment=environment(self.work),
                folder=self.work,
                user=self.state.cluster_user,
                ready=lambda: None if (self.work / gateway_routes.SYNCED).exists() else "it has not read the cluster",
                # KServe brings the kind that it watches.
                needs=(API_SERVER, KSERVE),
                settings=text_if_there(self.settings) + text_if_there(self._script),
                prepare=self._prepare_routes,
                stops_within=5.0,
            ),
            Process(
                name=NAME,
                argv=(str(copied(self.state, _TOOL)), "run", "--config", str(self.configuration)),
                environment=environment(self.work),
                folder=self.work,
                user=self.state.cluster_user,
                ready=lambda: answers(health, plane.client_context(ADMINISTRATOR)),
                port=port,
                needs=(ROUTES,),
                settings=text_if_there(self.configuration),
                # It would wait for the end of the last stream.
                stops_within=3.0,
            ),
        ]

    def _prepare_routes(self) -> None:
        (self.work / gateway_routes.SYNCED).unlink(missing_ok=True)
        with cluster(self.state) as found:
            apply_all(found, access())


def access() -> list[Object]:
    """Its rights in the cluster: to read services and the addresses of their pods."""
    verbs = ["list", "watch"]
    rules = [
        {"apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]
    return rights(_USER, "neuroscale:gateway", rules)
