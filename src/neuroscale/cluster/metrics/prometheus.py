"""Asks Prometheus' HTTP API, as far as a service's metrics need it.

Builds Prometheus queries so that no name can become part of their syntax.

Reaches a Prometheus by its address, or through a cluster's API server.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from neuroscale.catalog.cluster_settings import Prometheus as Configured
from neuroscale.cluster.endpoint.connection import bounded, client
from neuroscale.cluster.endpoint.forward import forwarded
from neuroscale.core.errors import InputError, NeuroscaleError
from neuroscale.core.json_text import finite
from neuroscale.core.printable import one_line
from neuroscale.core.validation import items
from neuroscale.kube.client import Cluster


def quoted(text: str) -> str:
    """`text` as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def selector(metric: str, labels: Mapping[str, str], within: float | None = None) -> str:
    """The series of a metric with exactly these labels; with `within`, their samples of the last `within` seconds."""
    matchers = ",".join(f"{name}={quoted(value)}" for name, value in labels.items())
    return f"{metric}{{{matchers}}}{'' if within is None else f'[{duration(within)}]'}"


def duration(seconds: float) -> str:
    """A time as PromQL writes it, to the millisecond."""
    return f"{max(1, round(seconds * 1000))}ms"


_TIMEOUT = 30.0  # seconds for a whole answer


class PrometheusError(NeuroscaleError):
    """Prometheus cannot be asked, or refuses; the message names its address and what to do."""


@dataclass(frozen=True)
class Sample:
    """One value of one series, which may not be finite. `at`: seconds since 1970."""

    labels: Mapping[str, str]
    value: float
    at: float


@dataclass(frozen=True)
class Series:
    """Finite values of one series over time: pairs of seconds since 1970 and value, in the order of time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus:
    """A Prometheus server. `url`: the address for requests; `place`: its name in messages. The caller closes the
    client."""

    def __init__(self, url: str, http: httpx.Client, place: str = "") -> None:
        self.url = url
        self.place = place or url
        self._http = http

    def now(self) -> float:
        """The server's own time, in seconds since 1970: other clocks differ. Raises PrometheusError, as all these
        methods do."""
        found = self._query("query", {"query": "time()"})
        try:
            now = finite(float(found["result"][1]))
        except (KeyError, IndexError, TypeError, ValueError):
            now = None
        if now is None:
            raise self._is_none("does not answer with its time")
        return now

    def vector(self, query: str, at: float) -> list[Sample]:
        """The values of an expression at a time."""
        rows = self._rows("query", {"query": query, "time": f"{at:.3f}"}, "vector")
        return [Sample(row["metric"], float(row["value"][1]), float(row["value"][0])) for row in rows]

    def scalar(self, query: str, at: float) -> float | None:
        """The value of an expression that has at most one; None if it has no value, or the value is not finite."""
        found = self.vector(query, at)
        return finite(found[0].value) if found else None

    def samples(self, selector: str, at: float) -> list[Series]:
        """The raw samples of a selector with a range."""
        return [_series(row) for row in self._rows("query", {"query": selector, "time": f"{at:.3f}"}, "matrix")]

    def over(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The values of an expression from `start` to `end`, every `step` seconds."""
        parameters = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return [_series(row) for row in self._rows("query_range", parameters, "matrix")]

    def targets(self, state: str) -> list[dict[str, Any]]:
        """The targets that it scrapes ("active") or leaves out ("dropped"). Not every server that speaks PromQL lists
        them."""
        return items(self._answer("GET", "targets", {"params": {"state": state}}), f"{state}Targets")

    def _rows(self, path: str, parameters: Mapping[str, str], kind: str) -> list[Any]:
        found = self._query(path, parameters)
        if found.get("resultType") != kind or not isinstance(found.get("result"), list):
            raise self._is_none(f"answers something else than a {kind}")
        return list(found["result"])

    def _query(self, path: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        # In the body: a query may be longer than an address.
        found = self._answer("POST", path, {"data": dict(parameters)})
        if not isinstance(found, dict):
            raise self._is_none("answers without a result")
        return found

    def _answer(self, method: str, path: str, options: Mapping[str, Any]) -> Any:
        try:
            with self._http.stream(method, f"{self.url}/api/v1/{path}", **options) as response:
                bounded(response, time.monotonic() + _TIMEOUT)
                response.read()
        except httpx.HTTPError as error:
            told = one_line(str(error), 200) or type(error).__name__
            raise PrometheusError(
                f"Prometheus at {self.place} does not answer: {told}. Does it run, and is that its address?"
            ) from error
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("status") not in ("success", "error"):
            raise self._is_none(f"answers {response.status_code}, and not as Prometheus does")
        if found["status"] == "error":
            raise PrometheusError(f"Prometheus at {self.place} refuses: {one_line(str(found.get('error')), 400)}")
        return found.get("data")

    def _is_none(self, what: str) -> PrometheusError:
        return PrometheusError(
            f"{self.place} {what}. Name the address below which /api/v1/query answers, such as http://127.0.0.1:9090."
        )


def address(url: str, where: str) -> str:
    """`url` without a slash at its end. Raises InputError if it is not a web address, or holds a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, usable = urlsplit(""), False
    if not usable or parts.query or parts.fragment:
        raise InputError.at(where, "", "is not a web address", "Write something like http://127.0.0.1:9090.")
    if parts.username is not None or parts.password is not None:
        message = "holds a user name or a password, which everybody who can list the processes can read"
        raise InputError.at(where, "", message, "Remove it, and use a port-forward (--context).")
    return url.rstrip("/")


def _series(row: Any) -> Series:
    points = ((float(at), float(value)) for at, value in row["values"])
    return Series(row["metric"], tuple((at, value) for at, value in points if math.isfinite(value)))


OPTION = "--prometheus-url"
_FIX = f"Name the Service of Prometheus in the settings, give {OPTION}, or --state for the platform of this machine."


@contextlib.contextmanager
def by_address(url: str) -> Iterator[Prometheus]:
    """The Prometheus at an address. Raises InputError if it is not a web address."""
    url = address(url, OPTION)
    with client(url) as http:
        yield Prometheus(url, http)


@contextlib.contextmanager
def in_cluster(cluster: Cluster, wanted: Configured, environment: str) -> Iterator[Prometheus]:
    """The Prometheus that the settings name, by a port-forward to one of its pods.

    Raises InputError if the cluster does not have it, KubernetesError, EndpointError.
    """
    field = f"environments.{environment}.prometheus"
    with forwarded(cluster, wanted, field, _FIX) as (url, place), client(url) as http:
        yield Prometheus(url, http, place)
