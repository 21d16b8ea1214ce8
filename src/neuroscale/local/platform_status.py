"""Reads the state of a local platform from outside, so that it is right even if the supervisor was killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from neuroscale.core.units import MIB
from neuroscale.local import processes
from neuroscale.local.process import PROCESS_VARIABLE, belonging, is_same
from neuroscale.local.state import State
from neuroscale.local.supervisor import NAME, Record, Report, read_report

_LINES = 5


@dataclass(frozen=True)
class Row:
    """One process. `memory_mib` is the resident memory of it and its children; `log` its last lines if it is not
    healthy.
    """

    name: str
    pid: int | None
    port: int | None
    memory_mib: float | None
    restarts: int
    health: str
    detail: str = ""
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """The whole platform. `notes` name faults of this machine."""

    state: str
    url: str
    healthy: bool
    notes: tuple[str, ...]
    processes: tuple[Row, ...]


def look(state: State) -> Status:
    """The platform's state now. Raises UntrustedError if its programs are missing."""
    report = read_report(state)
    memory = _memory(state)
    rows = [_supervisor(state, report, memory)]
    if set(processes.ports(state)) <= state.instance.ports.keys():
        for process in processes.processes(state):
            record = report.processes.get(process.name, Record()) if report else Record(health="stopped")
            health, detail = record.health, record.detail
            gone = record.pid is None or record.started is None or not is_same(record.pid, record.started)
            if health == "healthy" and gone:
                health, detail = "ill", "it has ended"
            elif health == "healthy" and (problem := process.ready()):
                health, detail = "ill", problem
            elif report is None and process.name in memory:
                health, detail = "ill", "it runs without its supervisor"
            log = () if health == "healthy" else tuple(last_lines(state.log(process.name)))
            rows.append(
                Row(
                    process.name,
                    None if gone else record.pid,
                    process.port,
                    memory.get(process.name),
                    record.restarts,
                    health,
                    detail,
                    log,
                )
            )
        url = processes.forge_url(state)
    else:
        url = ""
    healthy = len(rows) > 1 and all(row.health == "healthy" for row in rows)
    return Status(str(state.folder), url, healthy, processes.notes(state), tuple(rows))


def last_lines(log: Path, count: int = _LINES) -> list[str]:
    """The last lines of a log that are not empty; no lines if the log is missing."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def _supervisor(state: State, report: Report | None, memory: dict[str, float]) -> Row:
    if report is None:
        log = tuple(last_lines(state.log(NAME)))
        return Row(NAME, None, None, None, 0, "stopped", "it does not run", log)
    return Row(NAME, report.pid, None, memory.get(NAME), 0, "healthy")


def _memory(state: State) -> dict[str, float]:
    """MiB of resident memory by the name of the process, with all its children."""
    found: dict[str, float] = {}
    for process in belonging(state.instance.id):
        try:
            name = process.environ().get(PROCESS_VARIABLE, "")
            found[name] = found.get(name, 0.0) + process.memory_info().rss / MIB
        except psutil.Error:
            continue
    return {name: round(amount, 1) for name, amount in found.items()}
