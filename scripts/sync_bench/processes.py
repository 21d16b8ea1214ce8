"""Measures the processor time and the memory of each process of a local platform, with its children."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import psutil

from neuroscale.local.process import read_report
from neuroscale.local.state import State


@dataclass
class Usage:
    """The usage of one process: seconds of processor time since its start, and its highest MiB of resident memory."""

    cpu: float = 0.0
    peak: float = 0.0


@dataclass
class Sampler:
    """Looks at the processes again and again. `first` is their usage at `begin`."""

    state: State
    usage: dict[str, Usage] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Count from now on."""
        self.usage.clear()
        self.sample()
        self.first = {name: usage.cpu for name, usage in self.usage.items()}

    def sample(self) -> None:
        """Look once."""
        report = read_report(self.state)
        roots = {name: record.pid for name, record in report.processes.items()} if report else {}
        if report:
            roots["supervisor"] = report.pid
        roots["this measurement"] = os.getpid()
        for name, pid in roots.items():
            if pid is None:
                continue
            try:
                cpu, memory = _family(psutil.Process(pid), alone=name in ("supervisor", "this measurement"))
            except psutil.NoSuchProcess:
                continue
            usage = self.usage.setdefault(name, Usage())
            usage.cpu = max(usage.cpu, cpu)
            usage.peak = max(usage.peak, memory)

    def spent(self) -> dict[str, Usage]:
        """The usage since `begin`."""
        return {name: Usage(usage.cpu - self.first.get(name, 0.0), usage.peak) for name, usage in self.usage.items()}


def _family(root: psutil.Process, *, alone: bool) -> tuple[float, float]:
    """Seconds of processor time and MiB of a process, with its living and its ended children (not the supervisor's)."""
    times = root.cpu_times()
    cpu = times.user + times.system
    memory = root.memory_info().rss / 2**20
    if alone:
        return cpu, memory
    cpu += times.children_user + times.children_system
    for child in root.children(recursive=True):
        try:
            own = child.cpu_times()
            cpu += own.user + own.system + own.children_user + own.children_system
            memory += child.memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            continue
    return cpu, memory
