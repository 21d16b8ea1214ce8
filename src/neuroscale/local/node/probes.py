"""Makes the probes of containers, by a kubelet's rules: when each is due, and what its results mean."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx

from neuroscale.core.errors import causes
from neuroscale.kube.client import Object
from neuroscale.local.node.waiting import CREATION, WaitingError

Kind = Literal["startup", "readiness", "liveness"]
KINDS: Final[tuple[Kind, ...]] = ("startup", "readiness", "liveness")


@dataclass(frozen=True)
class Probe:
    """A pod's settings for one probe. Times in seconds; `grace`: the grace period of a container that the probe
    ends."""

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
        """The URL of the probe for a pod with that address."""
        return f"http://{self.host or address}:{self.port}{self.path}"


def probes_of(container: Object) -> list[Probe]:
    """The probes of a container. Raises WaitingError for one that this node cannot make."""
    return [_probe(kind, container[f"{kind}Probe"], container) for kind in KINDS if container.get(f"{kind}Probe")]


def _probe(kind: Kind, told: Mapping[str, Any], container: Object) -> Probe:
    request = told.get("httpGet")
    if not request or (request.get("scheme") or "HTTP") != "HTTP":
        raise WaitingError(CREATION, f"this node makes a {kind} probe only by httpGet without TLS")
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
    raise WaitingError(CREATION, f"the container has no port with the name {port}")


class Results:
    """The results of the probes of one run of a container.

    `began` and every `now` are seconds of the same monotonic clock. `shown`: the probes that have succeeded already,
    which holds until they reach their failure threshold.
    """

    def __init__(self, probes: list[Probe], began: float, shown: Collection[Kind] = ()) -> None:
        self._began = began
        self._states: dict[str, _Series] = {
            probe.kind: _Series(probe, began, shown=probe.kind in shown) for probe in probes
        }

    @property
    def started(self) -> bool:
        """Whether the startup probe has succeeded, or does not exist."""
        return self._holds("startup", otherwise=True)

    @property
    def ready(self) -> bool:
        """Whether the container can take requests."""
        return self.started and self._holds("readiness", otherwise=True)

    @property
    def failed(self) -> Probe | None:
        """The probe whose failure requires the end of the container, or None."""
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
        """Note that a probe that was due is being made."""
        self._states[kind].ask(now)

    def record(self, kind: Kind, *, ok: bool) -> None:
        """Note the result of a probe that was made."""
        self._states[kind].record(ok=ok)

    def _holds(self, kind: Kind, *, otherwise: bool) -> bool:
        series = self._states.get(kind)
        return otherwise if series is None else series.result


class _Series:
    """One probe's successes and failures in a row."""

    def __init__(self, probe: Probe, began: float, *, shown: bool) -> None:
        self.probe = probe
        # A container is alive until a probe fails, but started and ready only after a probe succeeded.
        self.result = shown or probe.kind == "liveness"
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
    """Makes probes on an event loop in a thread of its own, so that slow probes do not delay others."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            # As with a kubelet, a probe's timeout covers all of it; httpx's timeout starts again with each read.
            timeout=httpx.Timeout(None),
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="probes", daemon=True)
        self._thread.start()

    def start(self, probe: Probe, address: str) -> Future[str]:
        """Make a probe. The result, the reason of a failure or "" for a success, comes after its timeout at the
        latest."""
        return asyncio.run_coroutine_threadsafe(self._ask(probe, address), self._loop)

    async def _ask(self, probe: Probe, address: str) -> str:
        url = probe.url(address)
        headers = {"User-Agent": "kube-probe", "Accept": "*/*", **dict(probe.headers)}
        try:
            async with asyncio.timeout(probe.timeout), self._client.stream("GET", url, headers=headers) as response:
                status = response.status_code
        except TimeoutError:
            return f'Get "{url}": context deadline exceeded'
        # A ValueError: a request that cannot be sent, such as one with a header that is not ASCII.
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return f'Get "{url}": {_reason(error)}'
        # As for a kubelet, a redirect is a success.
        return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"

    def close(self) -> None:
        """End the probes and connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        probes = asyncio.all_tasks() - {asyncio.current_task()}
        for one in probes:
            one.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
        await self._client.aclose()


def _reason(error: BaseException) -> str:
    """The system's message for the error if it has one, such as "Connection refused"."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause)  # a resolver's error numbers are below 0
    return str(error) or type(error).__name__
