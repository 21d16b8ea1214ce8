"""Runs the gateway to this machine's services: Caddy, with TLS, and a router that knows which pods answer for a
host.

Writes Caddy's configuration: TLS on a loopback port, a redirect to it on another, and the router's answer for each
request.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroscale.core.files import text_if_there, write_public
from neuroscale.core.units import MIB
from neuroscale.kube.apply import apply_all
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Object
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local import gateway_routes
from neuroscale.local.cluster_parts import rights
from neuroscale.local.control_plane import API_SERVER, cluster, control_plane, environment
from neuroscale.local.copied_programs import copied, copy_tool
from neuroscale.local.gateway_routes import FIRST, SECOND, SOCKET, error
from neuroscale.local.kserve import NAME as KSERVE
from neuroscale.local.node.service import NODE
from neuroscale.local.process import Process, answers
from neuroscale.local.state import PASSABLE, State
from neuroscale.local.workflow_runner import find_python

HEALTH = "/healthz"
LARGEST_BODY = 32 * MIB  # bytes
HEADER_WITHIN = 5  # seconds

_SERVED = ["/v1/*", "/health"]
_ANSWERS_WITHIN = "10m"  # until the first byte, which without streaming is the time of the whole answer
_FAILURES = "http.log.error"


def configuration(port: int, redirect_port: int, certificate: Path, key: Path) -> Object:
    """Caddy's configuration, for both ports and the files of a certificate and its key. Its administration interface is
    off."""
    limit = {"handler": "request_body", "max_size": LARGEST_BODY}
    healthy = {"handler": "static_response", "status_code": 200, "body": "ok"}
    not_served = "This path is not open to clients. Open paths: /v1/... and /health."
    return {
        "admin": {"disabled": True, "config": {"persist": False}},
        "logging": {"logs": _logs()},
        "storage": {"module": "file_system", "root": "storage"},
        "apps": {
            "http": {
                "servers": {
                    "https": {
                        **_server(port),
                        "protocols": ["h1", "h2"],
                        "tls_connection_policies": [{}],
                        "routes": [
                            _route([healthy], [{"host": [LOOPBACK, "localhost"], "path": [HEALTH]}]),
                            _route([limit, _ask_router(), _proxy()], [{"path": _SERVED}]),
                            _route([_error(404, not_served, "NotFoundError")]),
                        ],
                        "errors": {"routes": _failures()},
                    },
                    "http": {**_server(redirect_port), "protocols": ["h1"], "routes": [_route([_to_https()])]},
                }
            },
            "tls": {"certificates": {"load_files": [{"certificate": str(certificate), "key": str(key)}]}},
        },
    }


def _server(port: int) -> Object:
    return {
        "listen": [f"{LOOPBACK}:{port}"],
        "automatic_https": {"disable": True},
        "read_header_timeout": f"{HEADER_WITHIN}s",
        "idle_timeout": "2m",
        "max_header_bytes": 32 * 1024,
    }


def _route(handlers: list[Object], match: list[Object] | None = None) -> Object:
    return {**({"match": match} if match else {}), "handle": handlers, "terminal": True}


def _ask_router() -> Object:
    """Continue with the addresses that the router names, or give its answer. The router does not see a key."""
    found = {"first": f"{{http.reverse_proxy.header.{FIRST}}}", "second": f"{{http.reverse_proxy.header.{SECOND}}}"}
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": f"unix/{SOCKET}"}],
        "rewrite": {"method": "GET", "uri": "/"},
        "headers": {"request": {"delete": ["Authorization", "Cookie"]}},
        "handle_response": [{"match": {"status_code": [200]}, "routes": [{"handle": [{"handler": "vars", **found}]}]}],
    }


def _proxy() -> Object:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": "{http.vars.first}"}, {"dial": "{http.vars.second}"}],
        # No flush_interval: Caddy passes streams on at once without it. With it, the head of each answer goes to the
        # client before the answer's body is read. vLLM refuses a wrong key at the headers, and on HTTP/1 Go's server
        # then takes the rest of the request's body from the transport that still sends it, to keep the connection
        # (chunkWriter.writeHeader in net/http/server.go). The transport so fails, and closes the connection to the pod
        # (persistConn.writeLoop in net/http/transport.go) before the refusal's body has come.
        # Another pod is tried only if no connection could be made, so no request is sent twice.
        "load_balancing": {"selection_policy": {"policy": "random"}, "try_duration": "2s", "try_interval": "100ms"},
        "transport": {
            "protocol": "http",
            "dial_timeout": "3s",
            "response_header_timeout": _ANSWERS_WITHIN,
            # vLLM's server closes idle connections after 5 s, when a request could be on its way.
            "keep_alive": {"idle_timeout": "2s"},
        },
    }


def _to_https() -> Object:
    return {
        "handler": "static_response",
        "status_code": 308,
        "headers": {"Location": ["https://{http.request.host}{http.request.uri}"]},
    }


def _error(status: int, message: str, kind: str) -> Object:
    headers = {"Content-Type": ["application/json"]}
    # Caddy reads a name in braces as a placeholder; a space before the name prevents that.
    body = error(status, message, kind).decode().replace("{", "{ ")
    return {"handler": "static_response", "status_code": status, "headers": headers, "body": body}


def _failures() -> list[Object]:
    """The answers for a pod that could not be asked, in place of an empty answer."""

    def when(status: int, message: str, kind: str) -> Object:
        return _route([_error(status, message, kind)], [{"vars": {"{http.error.status_code}": [str(status)]}}])

    told = "The pod did not answer. Try again; `neuroscale status` shows the fault."
    return [
        when(413, f"The request is larger than {LARGEST_BODY} bytes.", "BadRequestError"),
        when(502, told, "BadGatewayError"),
        when(503, told, "ServiceUnavailableError"),
        when(504, told, "GatewayTimeoutError"),
    ]


def _logs() -> Object:
    """The log of failed requests only, without the content that clients sent.

    A key may stand in a header or, by mistake, in the address.
    """
    fields = {name: {"filter": "delete"} for name in ("request>headers", "request>uri")}
    encoder = {"format": "filter", "wrap": {"format": "json"}, "fields": fields}
    return {
        "default": {"level": "WARN", "encoder": encoder, "exclude": [_FAILURES]},
        # Caddy logs a failure for which we configured an answer at the level debug.
        "failures": {"level": "DEBUG", "encoder": encoder, "include": [_FAILURES]},
    }


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
        caddy = configuration(ports[NAME], ports[REDIRECT], certificate, key)
        write_public(self.configuration, json.dumps(caddy, indent=1) + "\n")
        write_public(self.settings, json.dumps(dataclasses.asdict(found), indent=2) + "\n")
        write_public(self._script, Path(gateway_routes.__file__).read_text(encoding="utf-8"))

    def processes(self) -> list[Process]:
        """The processes: the router, and Caddy."""
        plane, port = control_plane(self.state), self.state.instance.ports[NAME]
        health = f"https://{LOOPBACK}:{port}{HEALTH}"
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
