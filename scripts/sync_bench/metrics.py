"""Reads the metrics of the platform's programs, in Prometheus' format."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import httpx

from neuroscale.kube.certificates import LOOPBACK
from neuroscale.kube.control_plane import ADMINISTRATOR
from neuroscale.local import argocd, control_plane, kserve
from neuroscale.local.state import State

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by name and labels."""


def parse(text: str, wanted: Iterable[str]) -> Samples:
    """The samples with the wanted names."""
    names, found = frozenset(wanted), Samples()
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match and match[1] in names:
            found[match[1], tuple(sorted(_LABEL.findall(match[2] or "")))] = float(match[3])
    return found


def total(samples: Samples, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The sums of a metric by the values of some of its labels."""
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for (found, pairs), value in samples.items():
        if found == name:
            known = dict(pairs)
            sums[tuple(known.get(label, "") for label in labels)] += value
    return sums


QUEUES = ("workqueue_depth", "scheduler_pending_pods", "argocd_repo_pending_request_total")
_QUEUE_TIMES = (
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds_sum",
    "workqueue_work_duration_seconds_sum",
    "workqueue_work_duration_seconds_count",
)
_REQUESTS = (
    "apiserver_request_total",
    "apiserver_request_duration_seconds_sum",
    "apiserver_admission_webhook_admission_duration_seconds_sum",
    "apiserver_admission_webhook_admission_duration_seconds_count",
)


@dataclass
class Metrics:
    """The programs' metrics: the deepest queues so far, and the counts since `begin`."""

    state: State
    deepest: dict[tuple[str, str], float] = field(default_factory=dict)
    first: dict[str, Samples] = field(default_factory=dict)
    _clients: dict[str, httpx.Client] = field(default_factory=dict)

    def begin(self) -> None:
        """Count from now on."""
        self.deepest.clear()
        self.first = self.read((*_QUEUE_TIMES, *_REQUESTS), self._sources())

    def sample(self) -> None:
        """Look at the queues once."""
        sources = {name: source for name, source in self._sources().items() if name != control_plane.API_SERVER}
        for name, samples in self.read(QUEUES, sources).items():
            for queue in QUEUES:
                for (label,), depth in total(samples, queue, "queue" if queue.startswith("sched") else "name").items():
                    key = name, label or queue
                    self.deepest[key] = max(self.deepest.get(key, 0.0), depth)

    def counted(self) -> dict[str, Samples]:
        """The counts since `begin`, by program."""
        now = self.read((*_QUEUE_TIMES, *_REQUESTS), self._sources())
        return {
            name: {key: value - self.first.get(name, {}).get(key, 0.0) for key, value in samples.items()}
            for name, samples in now.items()
        }

    def read(self, wanted: Iterable[str], sources: Mapping[str, Callable[[], str]]) -> dict[str, Samples]:
        """The wanted samples by program; a program that does not answer has none."""
        names, found = tuple(wanted), {}
        for name, source in sources.items():
            try:
                found[name] = parse(source(), names)
            except httpx.HTTPError:
                found[name] = {}
        return found

    def close(self) -> None:
        """End the connections."""
        for client in self._clients.values():
            client.close()

    def _sources(self) -> dict[str, Callable[[], str]]:
        ports = self.state.instance.ports
        secure = (control_plane.API_SERVER, control_plane.CONTROLLER_MANAGER, control_plane.SCHEDULER)
        plain = {
            kserve.NAME: ports[kserve.METRICS],
            argocd.CONTROLLER: ports[argocd.CONTROLLER],
            **{name: ports[f"{name}-metrics"] for name in (argocd.APPLICATION_SETS, argocd.REPO_SERVER, argocd.SERVER)},
        }
        addresses = {name: f"https://{LOOPBACK}:{ports[name]}/metrics" for name in secure}
        addresses |= {name: f"http://{LOOPBACK}:{port}/metrics" for name, port in plain.items()}
        return {name: partial(self._text, name, url) for name, url in addresses.items()}

    def _text(self, name: str, url: str) -> str:
        if name not in self._clients:
            context = control_plane.control_plane(self.state).client_context(ADMINISTRATOR)
            self._clients[name] = httpx.Client(verify=context, timeout=30.0, trust_env=False)
        return self._clients[name].get(url).raise_for_status().text
