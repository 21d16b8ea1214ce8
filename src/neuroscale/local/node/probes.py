"""Probes of containers, by a kubelet's rules: when each is due, and what its successes and failures come to."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx

from neuroscale.kube.client import Object
from neuroscale.local.node.waiting import CREATION, WaitingError

Kind = Literal["startup", "readiness", "liveness"]
KINDS: Final[tuple[Kind, ...]] = ("startup", "readiness", "liveness")


@dataclass(frozen=True)
class Probe:
    """What a pod says of one probe. Times in seconds; `grace`: that of a container which the probe ends."""

    kind: Kind
    port: int
    path: str
    host: str
    headers: tuple[tuple[str, str], ...]
    initial_delay: float
    period: float
    timeout: float
    failures: int
    successes: int
    grace: int | None

    def url(self, address: str) -> str:
        """What is asked of a pod with that address."""
        return f"http://{self.host or address}:{self.port}{self.path}"


def probes_of(container: Object) -> list[Probe]:
    """The probes of a container. Raises WaitingError for one that this node cannot make."""
    return [_probe(kind, container[f"{kind}Probe"], container) for kind in KINDS if container.get(f"{kind}Probe")]


def _probe(kind: Kind, told: Mapping[str, Any], container: Object) -> Probe:
    request = told.get("httpGet")
    if not request or (request.get("scheme") or "HTTP") != "HTTP":
        raise WaitingError(CREATION, f"this node makes no {kind} probe but httpGet without TLS")
    path = request.get("path") or "/"
    return Probe(
        kind=kind,
        port=_port(request["port"], container),
        path=path if path.startswith("/") else f"/{path}",
        host=request.get("host") or "",
        headers=tuple((one["name"], one["value"]) for one in request.get("httpHeaders") or ()),
        initial_delay=float(told.get("initialDelaySeconds") or 0),
        period=float(told.get("periodSeconds") or 10),
        timeout=float(told.get("timeoutSeconds") or 1),
        failures=told.get("failureThreshold") or 3,
        successes=told.get("successThreshold") or 1,
        grace=told.get("terminationGracePeriodSeconds"),
    )


def _port(port: int | str, container: Object) -> int:
    if isinstance(port, int):
        return port
    for one in container.get("ports") or ():
        if one.get("name") == port:
            return int(one["containerPort"])
    raise WaitingError(CREATION, f"no port of the container is called {port}")


class Results:
    """What the probes of one run of a container come to.

    `began` and every `now` are seconds of the same clock, which never goes back.
    """

    def __init__(self, probes: list[Probe], began: float) -> None:
        self._began = began
        self._states: dict[str, _Series] = {probe.kind: _Series(probe, began) for probe in probes}

    @property
    def started(self) -> bool:
        """Whether the startup probe has succeeded; at once where there is none."""
        return self._holds("startup", otherwise=True)

    @property
    def ready(self) -> bool:
        """Whether the container can take requests."""
        return self.started and self._holds("readiness", otherwise=True)

    @property
    def failed(self) -> Probe | None:
        """The probe because of which the container must be ended, or None."""
        for kind in ("startup", "liveness"):
            series = self._states.get(kind)
            if series is not None and series.given_up:
                return series.probe
        return None

    def due(self, now: float) -> list[Probe]:
        """The probes to make now. Each must be answered by `record` before it is due again."""
        if self.failed is not None:
            return []
        first = self._states.get("startup")
        if first is not None and not first.result:
            return [first.probe] if first.is_due(now) else []
        return [one.probe for kind, one in self._states.items() if kind != "startup" and one.is_due(now)]

    def asked(self, kind: Kind, now: float) -> None:
        """A probe that was due is being made."""
        self._states[kind].ask(now)

    def record(self, kind: Kind, *, ok: bool) -> None:
        """How a probe that was asked ended."""
        self._states[kind].record(ok=ok)

    def _holds(self, kind: Kind, *, otherwise: bool) -> bool:
        series = self._states.get(kind)
        return otherwise if series is None else series.result


class _Series:
    """One probe's successes and failures in a row."""

    def __init__(self, probe: Probe, began: float) -> None:
        self.probe = probe
        # Alive until the opposite is shown; started and ready only once that is shown.
        self.result = probe.kind == "liveness"
        self.given_up = False
        self._next = began + probe.initial_delay
        self._open = False
        self._row = 0
        self._last = self.result

    def is_due(self, now: float) -> bool:
        return not self._open and now >= self._next

    def ask(self, now: float) -> None:
        self._open = True
        self._next = now + self.probe.period

    def record(self, *, ok: bool) -> None:
        self._open = False
        self._row = self._row + 1 if ok == self._last and self._row else 1
        self._last = ok
        if self._row >= (self.probe.successes if ok else self.probe.failures):
            self.result = ok
            self.given_up = not ok and self.probe.kind != "readiness"


class Prober:
    """Makes probes in threads of their own, so that a slow answer holds up nothing."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._client = httpx.Client(
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def start(self, probe: Probe, address: str) -> Future[str]:
        """Make a probe; its result is why it failed, empty where it succeeded."""
        return self._pool.submit(self._ask, probe, address)

    def _ask(self, probe: Probe, address: str) -> str:
        url = probe.url(address)
        headers = {"User-Agent": "kube-probe", "Accept": "*/*", **dict(probe.headers)}
        try:
            with self._client.stream("GET", url, headers=headers, timeout=probe.timeout) as response:
                status = response.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            slow = isinstance(error, httpx.TimeoutException)
            why = "context deadline exceeded" if slow else str(error) or type(error).__name__
            return f'Get "{url}": {why}'
        # As a kubelet: a redirect is an answer too.
        return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"

    def close(self) -> None:
        """End its connections."""
        self._client.close()
