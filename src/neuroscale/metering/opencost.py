"""Asks OpenCost's HTTP API for the costs of a window, in steps.

Connects to an OpenCost: by its address, or through a cluster's API server.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx

from neuroscale.catalog.cluster_settings import OpenCost as Configured
from neuroscale.cluster.endpoint.connection import bounded, client
from neuroscale.cluster.endpoint.forward import forwarded
from neuroscale.cluster.metrics.prometheus import address
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import one_line
from neuroscale.core.waiting import repeatedly
from neuroscale.kube.client import Cluster
from neuroscale.metering.allocation import STEP, Meter, Metered, together
from neuroscale.metering.inference import NOT_THERE, PARAMETERS, PATH, InferenceCosts, inference_costs
from neuroscale.metering.opencost_answer import AGGREGATE, OpenCostError, read_answer, read_data
from neuroscale.metering.window import Window, joined

_TIMEOUT = 120.0  # seconds for a whole answer: a day of a large cluster takes OpenCost a minute
_ATTEMPTS = 3
_FIRST_PAUSE = 1.0  # seconds

_Answer = TypeVar("_Answer")


def without_samples(window: Window, rows: Sequence[Metered], step: timedelta) -> list[Window]:
    """The times at both ends of an answer's window that hold no samples; the whole window if there are no rows.

    OpenCost charges pods and nodes from their first sample to their last, so it leaves out what ran before and after
    without a word. Up to two of its steps are no gap: it looks once a step, and Prometheus takes samples between.
    Rows without times do not count, nor do unmounted volumes, which it charges for the whole window.
    """
    if not rows:
        return [window]
    spans = [span for row in rows if row.kind != "unmounted" for span in row.spans]
    if not spans:
        return []
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    found = []
    if first - window.start > 2 * step:
        found.append(Window(window.start, first))
    if window.end - last > 2 * step:
        found.append(Window(last, window.end))
    return found


class OpenCost:
    """An OpenCost at `url`; `place` names it in messages. The caller closes the client.

    `step`: its ETL_RESOLUTION_SECONDS. `unpriced`: its nodes without a price. `local`: whether it is the local
    platform's.
    """

    def __init__(
        self,
        url: str,
        http: httpx.Client,
        place: str = "",
        *,
        step: timedelta = STEP,
        unpriced: tuple[str, ...] = (),
        local: bool = False,
        first_pause: float = _FIRST_PAUSE,
    ) -> None:
        self.place = place or url
        self._base = url
        self._http = http
        self._step = step
        self._unpriced = unpriced
        self._local = local
        self._first_pause = first_pause

    def exact(self, window: Window) -> Window:
        """The window whose bounds are moved back to the moments at which OpenCost looks; it may be empty."""
        return window.on_grid(self._step)

    def meter(self, window: Window, cuts: Sequence[datetime] = ()) -> Meter:
        """The costs of a window whose bounds are moved back to multiples of OpenCost's step.

        `cuts`: full hours at which the costs before are kept apart from those after. Raises OpenCostError, also if
        OpenCost has no data for any part of the window, or the window is too short.
        """
        minutes = self._step // timedelta(minutes=1)
        window = self.exact(window)
        bounds = tuple(sorted({one for one in cuts if window.start < one < window.end}))
        if window.start == window.end:
            raise OpenCostError(
                f"That window is too short for OpenCost at {self.place}, which looks every {minutes} minutes: its "
                f"figures would be wrong. Ask about {12 * minutes}m or more."
            )
        found: list[Metered] = []
        empty: list[Window] = []
        warnings: dict[str, None] = {}
        idle_known = True
        for step in window.steps(bounds):
            part = bisect_right(bounds, step.start)
            rows, warning = self._again(lambda step=step: self._ask(step))  # type: ignore[misc]  # its own step
            if rows:
                idle_known = idle_known and any(row.kind == "idle" for row in rows)
            empty += without_samples(step, rows, self._step)
            if warning:
                warnings[warning] = None
            found += (replace(row, part=part) for row in rows)
        if not found:
            raise OpenCostError(
                f"OpenCost at {self.place} has no data of {window}: its Prometheus has no samples of that time, or no "
                "pod ran. A meter that has just been started answers after some minutes; choose a later window."
            )
        return Meter(
            window,
            together(found),
            joined(empty),
            idle_known,
            tuple(warnings),
            self._step,
            self._unpriced,
            self._local,
            bounds,
        )

    def _ask(self, step: Window) -> tuple[list[Metered], str]:
        parameters = {"window": step.parameter, "aggregate": AGGREGATE, "includeIdle": "true", "accumulate": "true"}
        return read_answer(*self._fetch("/allocation/compute", parameters, step), self.place, step)

    def _fetch(self, path: str, parameters: Mapping[str, str], step: Window) -> tuple[bytes, int]:
        """The body and the HTTP status of an answer. Raises OpenCostError if there is none."""
        try:
            with self._http.stream("GET", f"{self._base}{path}", params=parameters, timeout=_TIMEOUT) as response:
                bounded(response, time.monotonic() + _TIMEOUT)
                return response.read(), response.status_code
        except httpx.TimeoutException as error:
            raise OpenCostError(
                f"OpenCost at {self.place} does not answer about {step} within {duration(_TIMEOUT)}. Ask about a "
                "shorter window, or give OpenCost and its Prometheus more processors.",
                again=True,
            ) from error
        except httpx.HTTPError as error:
            told = one_line(str(error), 200) or type(error).__name__
            raise OpenCostError(
                f"OpenCost at {self.place} does not answer: {told}. Does it run, and is that its address?", again=True
            ) from error

    def _again(self, ask: Callable[[], _Answer]) -> _Answer:
        """The result of `ask`, tried anew where the fault may pass. Raises OpenCostError."""
        return repeatedly(
            ask,
            attempts=_ATTEMPTS,
            again=lambda error: isinstance(error, OpenCostError) and error.again,
            first_pause=self._first_pause,
        )

    def inference(self, window: Window) -> InferenceCosts | None:
        """OpenCost's own cost of tokens in a window; None if it does not compute any. Raises OpenCostError."""
        return inference_costs(window, self.place, self._ask_inference)

    def _ask_inference(self, step: Window) -> tuple[Any, int]:
        """OpenCost's own cost of tokens in one step, and the HTTP status. Raises OpenCostError."""

        def ask() -> tuple[Any, int]:
            body, status = self._fetch(PATH, PARAMETERS | {"window": step.parameter}, step)
            return None if status in NOT_THERE else read_data(body, status, self.place, step)[0], status

        return self._again(ask)


OPTION = "--opencost-url"
_FIX = (
    f"Name the Service of OpenCost in the settings, or give {OPTION}. platform/cost/README.md says how it is installed."
)


@contextlib.contextmanager
def by_address(url: str) -> Iterator[OpenCost]:
    """The OpenCost at an address. Raises InputError if `url` is not an address."""
    url = address(url, OPTION)
    with client(url) as http:
        yield OpenCost(url, http)


@contextlib.contextmanager
def of_local_platform(url: str, step: timedelta, unpriced: tuple[str, ...]) -> Iterator[OpenCost]:
    """The OpenCost of the local platform, with its step and its nodes without a price."""
    with client(url) as http:
        yield OpenCost(url, http, step=step, unpriced=unpriced, local=True)


@contextlib.contextmanager
def in_cluster(cluster: Cluster, wanted: Configured, environment: str) -> Iterator[OpenCost]:
    """The OpenCost that the settings name, through a port-forward to one of its pods.

    Raises InputError if the cluster does not have it, KubernetesError, EndpointError.
    """
    with forwarded(cluster, wanted, f"environments.{environment}.opencost", _FIX) as (url, place), client(url) as http:
        yield OpenCost(url, http, place)
