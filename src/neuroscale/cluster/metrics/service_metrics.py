"""Reads the metrics of one service from Prometheus: now, and over a time."""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from neuroscale.cluster.endpoint.metrics import (
    END_TO_END,
    GENERATION_TOKENS,
    ITL,
    KV_CACHE,
    PROMPT_TOKENS,
    QUEUE,
    RUNNING,
    TTFT,
    WAITING,
)
from neuroscale.cluster.metrics.line_chart import Gap, Point, highest
from neuroscale.cluster.metrics.prometheus import Prometheus, PrometheusError, Series, duration, quoted, selector
from neuroscale.core.validation import suggest
from neuroscale.rendering.platform.monitoring import CONTAINER, JOB

FINISHED: Final = "vllm:request_success_total"
_NOW = 60.0  # seconds that "now" covers, for values that need a time span
_SAMPLES = 4  # samples that a rate needs, so that one lost scrape does not leave a hole
_SCRAPED_EVERY = 15.0  # seconds, as long as it is not known
_MOST_MOMENTS = 2000  # points in time of which a mean is taken, at most
_LATE = 3  # scrapes that may be missed before the newest sample counts as old
_LATE_AT_LEAST = 60.0
_FIRST_LOOK = 3600.0  # seconds in which the newest sample is looked for

Unit = Literal["seconds", "per second", "requests", "share"]


@dataclass(frozen=True)
class Quantile:
    """Seconds, interpolated in a bucket of the server's histogram.

    The exact value is unknown: more than `above` and at most `up_to` (None: the last bucket has no upper bound).
    """

    seconds: float
    above: float
    up_to: float | None


Value = Quantile | float


@dataclass(frozen=True)
class Row:
    """One measured value over time. None where there was nothing to measure.

    `whole`: over the whole time. `points`: one for each column, the last one now; quantiles are interpolated, in
    seconds. `highest`: the highest of the points.
    """

    name: str
    title: str
    unit: Unit
    now: Value | None
    whole: Value | None
    points: tuple[Point, ...]
    highest: Value | None


@dataclass(frozen=True)
class Pod:
    """A pod that Prometheus scrapes. `why`: the error of the scrape if the pod does not answer."""

    name: str
    node: str
    answers: bool
    why: str = ""


@dataclass(frozen=True)
class Counted:
    """The exact counts since their start of the servers that answer now."""

    requests: float
    prompt_tokens: float
    generation_tokens: float


@dataclass(frozen=True)
class ServiceMetrics:
    """The metrics of a service at `at` (seconds since 1970) over `since` seconds, in columns of `step` seconds.

    `age`: seconds since the newest sample of its server, None without a sample; `interval`: seconds between two
    samples. `restarts`: within the time, None if nothing counted them. `now`: the seconds that "now" covers.
    """

    namespace: str
    service: str
    at: float
    since: float
    step: float
    interval: float | None
    age: float | None
    pods: tuple[Pod, ...]
    restarts: int | None
    counted: Counted | None
    rows: tuple[Row, ...]
    now: float = _NOW

    @property
    def answering(self) -> int:
        return sum(pod.answers for pod in self.pods)

    @property
    def fresh(self) -> bool:
        """Whether a pod answers, and the newest sample is not old."""
        limit = max(_LATE_AT_LEAST, _LATE * (self.interval or 0.0))
        return self.answering > 0 and self.age is not None and self.age <= limit


def namespaces(prometheus: Prometheus, service: str, at: float, since: float) -> list[str]:
    """The namespaces in which Prometheus scraped pods of a service with this name."""
    seen = selector("up", {"job": JOB, "service": service}, since)
    samples = prometheus.vector(f"group by (namespace) (last_over_time({seen}))", at)
    return sorted(sample.labels.get("namespace", "") for sample in samples)


def finished_requests(prometheus: Prometheus, namespace: str, service: str, at: float, since: float) -> int | None:
    """About how many requests a service's servers finished in the `since` seconds before `at`: Prometheus extrapolates.
    None if none was scraped."""
    series = selector(FINISHED, {"job": JOB, "namespace": namespace, "service": service}, since)
    count = prometheus.scalar(f"sum(increase({series}))", at)
    return None if count is None else round(count)


def unseen(prometheus: Prometheus, service: str, at: float, since: float, look: str) -> str:
    """Why Prometheus has no metrics of a service, in sentences. `look`: the command that shows its state."""
    with contextlib.suppress(PrometheusError):
        label = "__meta_kubernetes_pod_label_serving_kserve_io_inferenceservice"
        dropped = [row.get("discoveredLabels") or {} for row in prometheus.targets("dropped")]
        own = [labels for labels in dropped if labels.get(label) == service]
        nodes = sorted({str(labels.get("__meta_kubernetes_pod_node_name") or "no node") for labels in own})
        if own and all(node.startswith("simulated-") for node in nodes):
            return f"Its pods are simulated ({', '.join(nodes)}): there is no server to measure."
        if own:
            return f"Prometheus leaves its pods out (on {', '.join(nodes)}): see platform/monitoring/scrape.yaml."
    known = prometheus.vector(f"group by (service) (last_over_time({selector('up', {'job': JOB}, since)}))", at)
    names = [sample.labels.get("service", "") for sample in known]
    if names:
        return f"Prometheus scrapes no pod of it. {suggest(service, names)}"
    return f"Prometheus scrapes no pods of any service. See: {look}"


def read(prometheus: Prometheus, namespace: str, service: str, at: float, since: float, columns: int) -> ServiceMetrics:
    """Read all metrics of the `since` seconds before `at`, cut into so many columns. Raises PrometheusError."""
    return _Reader(prometheus, namespace, service, at, since, columns).read()


class _Reader:
    def __init__(
        self, prometheus: Prometheus, namespace: str, service: str, at: float, since: float, columns: int
    ) -> None:
        self._prometheus = prometheus
        self._namespace = namespace
        self._service = service
        self._labels = {"job": JOB, "namespace": namespace, "service": service}
        self._at = at
        self._since = since
        self._size = columns
        self._step = round(since / columns, 3)
        self._interval: float | None = None
        self._seen: tuple[bool, ...] = (False,) * columns
        self._counting: tuple[bool, ...] = (False,) * columns

    def read(self) -> ServiceMetrics:
        pods = self._pods()
        looked = self._prometheus.samples(self._of(RUNNING, min(self._since, _FIRST_LOOK)), self._at)
        newest = max((series.points[-1][0] for series in looked if series.points), default=None)
        self._interval = _interval(looked)
        up = self._columns(f"max({self._of('up')})")
        self._seen = tuple(value is not None and value > 0 for value in up)
        return ServiceMetrics(
            self._namespace,
            self._service,
            self._at,
            self._since,
            self._step,
            self._interval,
            None if newest is None else max(0.0, self._at - newest),
            pods,
            self._restarts(),
            self._counted(),
            self._rows(),
            self._window(_NOW),
        )

    # ------------------------------------------------------------ parts

    def _pods(self) -> tuple[Pod, ...]:
        up = self._prometheus.vector(self._of("up"), self._at)
        why: dict[str, str] = {}
        if not up or any(sample.value == 0 for sample in up):
            with contextlib.suppress(PrometheusError):
                for target in self._prometheus.targets("active"):
                    labels: Mapping[str, Any] = target.get("labels") or {}
                    if {key: labels.get(key) for key in self._labels} == self._labels:
                        why[str(labels.get("pod"))] = str(target.get("lastError") or "")
        pods = [
            Pod(pod.labels.get("pod", ""), pod.labels.get("node", ""), pod.value > 0, why.get(pod.labels["pod"], ""))
            for pod in up
            if "pod" in pod.labels
        ]
        return tuple(sorted(pods, key=lambda pod: pod.name))

    def _restarts(self) -> int | None:
        """Kubernetes' count if kube-state-metrics exports it, else how often a server's start time changed."""
        labels = {"namespace": self._namespace, "container": CONTAINER}
        restarts = selector("kube_pod_container_status_restarts_total", labels)
        # PromQL matches a regular expression with the whole value. Special characters are quoted once for the
        # expression and once for PromQL.
        pattern = quoted(f"{_literal(self._service)}-predictor-.*")
        restarts = f"{restarts.removesuffix('}')},pod=~{pattern}}}[{duration(self._since)}]"
        began = self._of("process_start_time_seconds", self._since)
        query = f"sum(max_over_time({restarts}) - min_over_time({restarts})) or sum(changes({began}))"
        count = self._prometheus.scalar(query, self._at)
        return None if count is None else round(count)

    def _counted(self) -> Counted | None:
        counts = [
            self._prometheus.scalar(f"sum({self._of(name)})", self._at)
            for name in (FINISHED, PROMPT_TOKENS, GENERATION_TOKENS)
        ]
        requests, prompt, generated = counts
        return None if requests is None or prompt is None or generated is None else Counted(requests, prompt, generated)

    def _rows(self) -> tuple[Row, ...]:
        finished = self._rate("requests_finished", "requests", FINISHED)
        # Without a count, zero restarts cannot be claimed.
        self._counting = tuple(point is not Gap.UNSEEN for point in finished.points)
        return (
            *self._latency("time_to_first_token", "first token", TTFT),
            *self._latency("end_to_end_latency", "end to end", END_TO_END),
            *self._latency("inter_token_latency", "inter-token", ITL),
            *self._latency("queue_time", "in the queue", QUEUE, shares=(0.95,)),
            self._rate("tokens_in", "tokens in", PROMPT_TOKENS),
            self._rate("tokens_out", "tokens out", GENERATION_TOKENS),
            finished,
            self._gauge("requests_running", "running", f"sum({self._of(RUNNING)})", "requests"),
            self._gauge("requests_waiting", "waiting", f"sum({self._of(WAITING)})", "requests"),
            self._gauge("kv_cache_usage", "KV cache used", f"max({self._of(KV_CACHE)})", "share"),
        )

    # ------------------------------------------------------------ rows

    def _latency(self, name: str, title: str, metric: str, shares: tuple[float, ...] = (0.5, 0.95)) -> list[Row]:
        buckets = f"last_over_time({self._of(f'{metric}_bucket', self._since)})"
        samples = self._prometheus.vector(f"group by (le) ({buckets})", self._at)
        bounds = sorted(float(sample.labels["le"]) for sample in samples if "le" in sample.labels)
        rows = []
        for share in shares:
            now, whole = (
                self._prometheus.scalar(self._quantile(share, metric, within), self._at)
                for within in (self._window(_NOW), self._since)
            )
            values = self._columns(self._quantile(share, metric, self._window(self._step)))
            part = f"p{share * 100:.0f}"
            rows.append(
                Row(
                    f"{name}_{part}",
                    f"{title} {part}",
                    "seconds",
                    _bounded(now, bounds),
                    _bounded(whole, bounds),
                    points := self._points(values, idle=True),
                    _bounded(highest(points), bounds),
                )
            )
        return rows

    def _rate(self, name: str, title: str, metric: str) -> Row:
        def rate(within: float) -> str:
            return f"sum(rate({self._of(metric, within)}))"

        now, whole = (self._prometheus.scalar(rate(one), self._at) for one in (self._window(_NOW), self._since))
        values = self._columns(rate(self._window(self._step)))
        points = self._points(values)
        return Row(name, title, "per second", now, whole, points, highest(points))

    def _gauge(self, name: str, title: str, query: str, unit: Unit) -> Row:
        """A gauge: its mean over the whole time, and its highest value in each column, so that no peak is lost."""
        between = max(self._interval or _SCRAPED_EVERY, self._since / _MOST_MOMENTS)

        def over(function: str, seconds: float) -> str:
            within = f"{duration(max(seconds, between))}:{duration(between)}"
            return f"{function}_over_time(({query})[{within}])"

        points = self._points(self._columns(over("max", self._window(self._step))))
        now, mean = (self._prometheus.scalar(one, self._at) for one in (query, over("avg", self._since)))
        return Row(name, title, unit, now, mean, points, highest(points))

    def _quantile(self, share: float, metric: str, within: float) -> str:
        return f"histogram_quantile({share}, sum by (le) (rate({self._of(f'{metric}_bucket', within)})))"

    # ------------------------------------------------------------ time

    def _of(self, metric: str, within: float | None = None) -> str:
        return selector(metric, self._labels, within)

    def _window(self, seconds: float) -> float:
        """The given seconds, or more if a rate needs more to hold enough samples."""
        return max(seconds, _SAMPLES * (self._interval or 0.0))

    def _columns(self, query: str) -> tuple[float | None, ...]:
        """A value for each column; None where there is no value, or it is not finite."""
        start = self._at - (self._size - 1) * self._step
        series = self._prometheus.over(query, start, self._at, self._step)
        values: list[float | None] = [None] * self._size
        for at, value in series[0].points if series else ():
            column = round((at - start) / self._step)
            if 0 <= column < self._size:
                values[column] = value
        return tuple(values)

    def _points(self, values: tuple[float | None, ...], *, idle: bool = False) -> tuple[Point, ...]:
        """`idle`: a column that was counted but has no value had nothing to measure."""
        seen = zip(self._seen, self._counting, strict=True)
        gaps = (Gap.IDLE if idle and up and counting else Gap.UNSEEN for up, counting in seen)
        points: list[Point] = []
        for value, up, gap in zip(values, self._seen, gaps, strict=True):
            points.append(value if up and value is not None else gap)
        return tuple(points)


def _interval(looked: list[Series]) -> float | None:
    """Seconds between two samples: the median of the intervals that were seen."""
    between = sorted(
        later - earlier
        for series in looked
        for (earlier, _), (later, _) in zip(series.points, series.points[1:], strict=False)
    )
    return between[len(between) // 2] if between else None


def _bounded(seconds: float | None, bounds: list[float]) -> Quantile | None:
    """The quantile with the bucket that it lies in. The upper bounds rise."""
    if seconds is None:
        return None
    finite = [bound for bound in bounds if math.isfinite(bound)]
    # Prometheus gives a value beyond the last bound as that bound.
    at = bisect.bisect_left(finite, seconds)
    above = finite[at - 1] if at > 0 else 0.0
    if finite and seconds >= finite[-1]:
        return Quantile(seconds, finite[-1], None)
    return Quantile(seconds, above, finite[at] if at < len(finite) else None)


def _literal(text: str) -> str:
    """`text` as a regular expression of RE2 that matches it alone."""
    return "".join(character if character.isalnum() or character in "-_" else f"\\{character}" for character in text)
