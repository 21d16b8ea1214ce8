"""Writes Caddy's configuration: TLS on a loopback port, a redirect to it on another, and the router's answer for each
request.
"""

from __future__ import annotations

from pathlib import Path

from neuroscale.core.units import MIB
from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.client import Object
from neuroscale.local.gateway_routes import FIRST, SECOND, SOCKET, error

HEALTH = "/healthz"
LARGEST_BODY = 32 * MIB  # bytes
HEADER_WITHIN = 5  # seconds

_SERVED = ["/v1/*", "/health"]
_ANSWERS_WITHIN = "10m"  # until the first byte, which without streaming is the time of the whole answer
_FAILURES = "http.log.error"


def configuration(port: int, redirect_port: int, certificate: Path, key: Path) -> Object:
    """Caddy's configuration, for both ports and the files of a certificate and its key. Its administration interface is
    off.
    """
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
                            _route([_says(200, "ok")], [{"host": [LOOPBACK, "localhost"], "path": [HEALTH]}]),
                            _route([_body_limit(), _ask_router(), _proxy()], [{"path": _SERVED}]),
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
        "handle_response": [
            {"match": {"status_code": [200]}, "routes": [{"handle": [{"handler": "vars", **found}]}]},
        ],
    }


def _proxy() -> Object:
    return {
        "handler": "reverse_proxy",
        "upstreams": [{"dial": "{http.vars.first}"}, {"dial": "{http.vars.second}"}],
        # The answer of a pod is passed on at once.
        "flush_interval": -1,
        # Another pod is tried only if no connection could be made, so no request is sent twice.
        "load_balancing": {
            "selection_policy": {"policy": "random"},
            "try_duration": "2s",
            "try_interval": "100ms",
        },
        "transport": {
            "protocol": "http",
            "dial_timeout": "3s",
            "response_header_timeout": _ANSWERS_WITHIN,
            # vLLM's server closes idle connections after 5 s, when a request could be on its way.
            "keep_alive": {"idle_timeout": "2s"},
        },
    }


def _body_limit() -> Object:
    return {"handler": "request_body", "max_size": LARGEST_BODY}


def _to_https() -> Object:
    return {
        "handler": "static_response",
        "status_code": 308,
        "headers": {"Location": ["https://{http.request.host}{http.request.uri}"]},
    }


def _says(status: int, body: str) -> Object:
    return {"handler": "static_response", "status_code": status, "body": body}


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
