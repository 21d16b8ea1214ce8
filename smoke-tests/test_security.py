"""Checks who may ask the model: the API key, and TLS."""

from __future__ import annotations

import secrets
import socket
import ssl
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from neuroscale.cluster.endpoint.connection import Endpoint, way_that_failed
from neuroscale.cluster.endpoint.errors import EndpointError, UnreachedError
from neuroscale.cluster.endpoint.routes import OPTION, Routes
from neuroscale.core.errors import causes
from neuroscale.smoke import model_requests
from neuroscale.smoke.pytest_plugin import Notes
from neuroscale.smoke.results import CannotTellError, FindingError, NotApplicableError, require
from neuroscale.smoke.runner import Spec

_NO_URL = "no URL (--base-url, --connect-to): the service was asked through the API server"
_WITHIN = 10.0
# Paths that vLLM's key does not guard; each kind of model has its own.
_SCORING = ("/generative_scoring", "/score", "/rerank", "/classify", "/pooling")
# Only the development mode has this path; its other paths would put the server to sleep, or run code.
_DEVELOPMENT = "/is_sleeping"
_LEAST_DAYS = 7
_BROKEN = "The server runs without its key: is VLLM_API_KEY in the pod, from the Secret? See the skeleton's manifest."


def _questions(model: str) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Method, path and body of the requests that an OpenAI-compatible server may answer under /v1."""
    said = [{"role": "user", "content": "Hello"}]
    return [
        ("GET", "/v1/models", None),
        ("POST", "/v1/completions", {"model": model, "prompt": "Hello", "max_tokens": 1}),
        ("POST", "/v1/chat/completions", {"model": model, "messages": said, "max_tokens": 1}),
        ("POST", "/v1/responses", {"model": model, "input": "Hello", "max_output_tokens": 1}),
        ("POST", "/v1/messages", {"model": model, "messages": said, "max_tokens": 1}),
        ("POST", "/v1/embeddings", {"model": model, "input": "Hello"}),
        ("POST", "/v1/tokenize", {"model": model, "prompt": "Hello"}),
    ]


def _refused(endpoint: Endpoint, patience: float, key: str | None, what: str) -> str:
    """Raises FindingError if a path under /v1 does not answer 401."""
    assert endpoint.key is not None
    wrong: list[str] = []
    paths, ways = [], []
    for question in _questions(endpoint.model):
        path = question[1]
        try:
            status = model_requests.status(endpoint, *question, patience, key=key)
            # A path without an answer needs no guard.
            if status in (404, 405):
                status = model_requests.status(endpoint, *question, patience, key=endpoint.key.secret)
                if status in (404, 405):
                    continue
                status = 404
        except EndpointError:
            if wrong:
                break  # what was seen counts
            raise
        paths.append(path)
        if status != 401:
            wrong.append(f"{path} answers {status}")
            ways.append(endpoint.way_of(status))
    told = f"with {what}: {', '.join(wrong) or 'no path answers'}"
    require(not wrong and paths, told, _BROKEN, way=ways[0] if ways and all(ways) else "")
    return f"401 from {', '.join(paths)}"


def _need_key(endpoint: Endpoint) -> None:
    if endpoint.key is None:
        raise FindingError("the service has no API key", f"Make one: {endpoint.lines.own(f'key {endpoint.service}')}")


@pytest.mark.check("key-missing")
def test_who_shows_no_key_is_refused(endpoint: Endpoint, spec: Spec, note: Notes) -> None:
    """A missing API key is refused on every path under /v1."""
    _need_key(endpoint)
    note(_refused(endpoint, spec.patience, None, "no key"))


@pytest.mark.check("key-wrong")
def test_who_shows_a_wrong_key_is_refused(endpoint: Endpoint, spec: Spec, note: Notes) -> None:
    """A wrong API key is refused on every path under /v1."""
    _need_key(endpoint)
    note(_refused(endpoint, spec.patience, secrets.token_urlsafe(24), "a wrong key"))


@pytest.mark.check("keyless-paths")
def test_no_path_outside_v1_runs_the_model_for_anybody(endpoint: Endpoint, spec: Spec, note: Notes) -> None:
    """No path beside /v1 runs the model for a client without a key."""
    said = [{"role": "user", "content": "Hello"}]
    question = {"model": endpoint.model, "messages": said, "max_tokens": 1}
    status, text = model_requests.reply(endpoint, "POST", "/invocations", question, spec.patience, key=None)
    # vLLM guards only /v1, and answers chats on these paths too, unless the manifest replaces them.
    runs = ["/invocations"] if status < 300 and '"choices"' in text else []
    _none_runs(runs)
    if _lets_in(endpoint, "GET", _DEVELOPMENT, spec.patience):
        _none_runs([f"{_DEVELOPMENT} (vLLM's development mode)"])
    scoring = []
    for path in _SCORING:
        if _lets_in(endpoint, "POST", path, spec.patience):
            scoring.append(path)
            _none_runs(scoring if endpoint.how == "url" else [])
    told = ["/tokenize"] if _lets_in(endpoint, "POST", "/tokenize", spec.patience) else []
    told += [path for path in ("/metrics", "/openapi.json") if _lets_in(endpoint, "GET", path, spec.patience)]
    if scoring:
        # vLLM does not guard these paths. NetworkPolicy and gateway do, but this request passed neither.
        raise NotApplicableError(
            f"{_NO_URL}; it answers {', '.join(scoring + told)} to clients that the NetworkPolicy lets in"
        )
    note(f"without a key it answers {', '.join(told)}" if told else "nothing else answers")


def _none_runs(paths: list[str]) -> None:
    """Raises FindingError at once, since a later request may not be answered."""
    require(
        not paths,
        f"without a key, {' and '.join(paths)} runs the model",
        "Let the gateway route only /v1, and render the service again: vLLM asks for the key nowhere else.",
    )


def _lets_in(endpoint: Endpoint, method: str, path: str, patience: float) -> bool:
    """Whether a path takes a request without a key. An answer that complains about the content counts as well."""
    status = model_requests.status(endpoint, method, path, None if method == "GET" else {}, patience, key=None)
    return status < 300 or status in (400, 422)


@pytest.mark.check("tls")
def test_its_certificate_is_verified(endpoint: Endpoint, note: Notes) -> None:
    """TLS: certificate and host name are verified."""
    if endpoint.how == "port-forward":
        raise NotApplicableError(_NO_URL)
    url = urlsplit(endpoint.url)
    told = f"the address {endpoint.url} is not https: keys and prompts are sent unencrypted"
    require(url.scheme == "https", told, _see_tls(endpoint))
    host, port = url.hostname or "", url.port or 443

    def ask() -> tuple[Any, str | None]:
        try:
            with (
                socket.create_connection(endpoint.routes.place(host, port), _WITHIN) as plain,
                endpoint.routes.context(host, port).wrap_socket(plain, server_hostname=host) as secure,
            ):
                return secure.getpeercert() or {}, secure.version()
        except ssl.SSLCertVerificationError as error:
            told = f"the certificate of {host} is not trusted: {error.verify_message}"
            raise FindingError(told, _see_tls(endpoint)) from error
        except OSError as error:
            raise UnreachedError(
                f"{host} does not speak TLS: {error}", _see_tls(endpoint), way_that_failed(error)
            ) from error

    certificate, version = endpoint.asking(ask)
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
    left = (ends - datetime.now(UTC)).days
    require(left >= _LEAST_DAYS or _is_short(certificate), f"its certificate ends in {left} days", _see_tls(endpoint))
    note(f"{version}, {host} verified, until {ends:%Y-%m-%d}")


def _see_tls(endpoint: Endpoint) -> str:
    kubectl = endpoint.lines.kubectl
    return f"See the gateway's listener and its certificate: {kubectl} get gateways,certificates --all-namespaces"


def _is_short(certificate: Any) -> bool:
    """Whether the certificate lasts only a few days, as those of some authorities do."""
    begins, ends = (ssl.cert_time_to_seconds(str(certificate[name])) for name in ("notBefore", "notAfter"))
    return (ends - begins) / 86400 <= 2 * _LEAST_DAYS


@pytest.mark.check("plain-http")
def test_it_does_not_answer_in_the_clear(endpoint: Endpoint, note: Notes) -> None:
    """Plain HTTP is refused or redirected."""
    if endpoint.how == "port-forward":
        raise NotApplicableError(_NO_URL)
    url = urlsplit(endpoint.url)
    ports = dict.fromkeys((80, url.port or 443))
    routes = endpoint.routes
    seen = {port: _plainly(f"http://{url.hostname}:{port}/v1/models", routes) for port in ports}
    open_ = [f"port {port} {told}" for port, (fine, told) in seen.items() if not fine]
    require(
        not open_,
        f"without TLS, {url.hostname} {'; '.join(open_)}",
        "Close the HTTP listener, or let it redirect to https: a client would send its key unencrypted.",
    )
    note("; ".join(f"port {port} {told}" for port, (_, told) in seen.items()))


def _plainly(url: str, routes: Routes) -> tuple[bool, str]:
    """Whether plain HTTP at an address is safe, and the reaction of the address in words. No key is sent."""
    try:
        # A proxy would answer by itself.
        with httpx.Client(timeout=_WITHIN, trust_env=False, transport=routes.transport(url)) as http:
            answer = http.get(url)
    except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
        told = f"{url} takes a connection and does not answer within {_WITHIN:g} s"
        raise CannotTellError(told, "Try it by hand: curl --verbose") from error
    except httpx.HTTPError as error:
        if any(isinstance(cause, socket.gaierror) for cause in causes(error)):
            told = f"the name in {url} does not resolve, so nothing was asked there"
            raise CannotTellError(told, f"Say where that port is, too: {OPTION} :80:ADDRESS:PORT") from error
        return True, f"does not answer ({type(error).__name__})"
    status, place = answer.status_code, answer.headers.get("Location", "")
    if 300 <= status < 400:
        return place.startswith("https://"), f"redirects to {place.split('?')[0][:100] or 'nowhere'}"
    return status in (400, 403, 404, 410, 421, 426), f"answers {status}"
