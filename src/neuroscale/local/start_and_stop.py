"""Starts and stops the local platform, also after a killed start, and reads its state from outside.

It also lets the forge's workflow test the cluster's services, by a kubeconfig of a user with few rights.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from neuroscale.catalog.settings import Settings, load_settings, local_environment
from neuroscale.core import delivered
from neuroscale.core.money_and_time import duration
from neuroscale.core.units import MIB
from neuroscale.core.waiting import attempts
from neuroscale.local import processes
from neuroscale.local.argocd_applications import deploy
from neuroscale.local.control_plane import control_plane
from neuroscale.local.forge_setup import LocalForge
from neuroscale.local.gateway import NAME as GATEWAY
from neuroscale.local.process import (
    PODS,
    PROCESS_VARIABLE,
    Record,
    Report,
    belonging,
    digest,
    end,
    is_running,
    is_same,
    read_report,
)
from neuroscale.local.state import LocalError, State, delete_folder, is_free, locked
from neuroscale.local.supervisor import LEAVE_MODELS, NAME, launch
from neuroscale.rendering.platform.tenancy import SMOKE_TESTS
from neuroscale.repo.snapshot import FolderSnapshot

_LINES = 5


@dataclass(frozen=True)
class ProcessStatus:
    """One process. `memory_mib` is the resident memory of it and its children; `log` its last lines if it is not
    healthy."""

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
    processes: tuple[ProcessStatus, ...]


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
                ProcessStatus(
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


def _supervisor(state: State, report: Report | None, memory: dict[str, float]) -> ProcessStatus:
    if report is None:
        log = tuple(last_lines(state.log(NAME)))
        return ProcessStatus(NAME, None, None, None, 0, "stopped", "it does not run", log)
    return ProcessStatus(NAME, report.pid, None, memory.get(NAME), 0, "healthy")


def _memory(state: State) -> dict[str, float]:
    """MiB of resident memory by the name of the process, with all its children."""
    amounts: dict[str, float] = {}
    for process in belonging(state.instance.id):
        try:
            name = process.environ().get(PROCESS_VARIABLE, "")
            amounts[name] = amounts.get(name, 0.0) + process.memory_info().rss / MIB
        except psutil.Error:
            continue
    return {name: round(amount, 1) for name, amount in amounts.items()}


USER = "smoke-tests"


def allow_smoke_tests(forge: LocalForge, environment: str) -> None:
    """Let the platform's repository test this cluster's own environment after a merge. Safe to repeat.

    Other environments' services run on simulated nodes, where nothing answers.
    """
    environments = [name for name in forge.state.instance.environments if name == environment]
    text = kubeconfig(forge.state, environments)
    forge.allow_smoke_tests(forge.platform, text, environments, gateway(forge.state))


def kubeconfig(state: State, environments: Sequence[str]) -> str:
    """The user's kubeconfig, with a context for each environment."""
    path = control_plane(state).add_user(USER, USER, (SMOKE_TESTS,))
    return with_contexts(path.read_text(encoding="utf-8"), environments)


def with_contexts(text: str, environments: Sequence[str]) -> str:
    """A kubeconfig whose one context is replaced by one for each environment, with the environment's name."""
    kubeconfig = json.loads(text)
    (context,) = kubeconfig["contexts"]
    contexts = [{**context, "name": name} for name in environments]
    # Programs read the current context before they look for the named one.
    return json.dumps({**kubeconfig, "contexts": contexts, "current-context": next(iter(environments), "")}) + "\n"


def gateway(state: State) -> str:
    """The way to the hosts of services on this machine, in JSON; "" without a gateway. It holds no secret."""
    port = state.instance.ports.get(GATEWAY)
    if port is None:
        return ""
    authority = str(control_plane(state).authority_file)
    return json.dumps({"state": str(state.folder), "authority": authority, "port": port})


Tell = Callable[[str], None]

_SUPERVISOR_STARTS_WITHIN = 30.0
_SUPERVISOR_STOPS_WITHIN = 60.0
_FAILURES = 3  # failures of a process that was never healthy, before its start is given up
_SHOWN = 15  # lines of a failing process's log


@dataclass(frozen=True)
class Options:
    """The parts of a local platform; None: as before.

    `runner_capacity`: jobs at a time. `cluster`: whether it has a cluster, or only the forge. `environments`: those
    that are deployed onto it, at first the settings' local one and the first other. `nodes_each`: simulated nodes for
    each accelerator that these may use. `cost`: whether OpenCost meters the cluster. `pages`: whether people ask for
    services on pages. `portal`: whether Backstage runs.
    """

    runner_capacity: int | None = None
    cluster: bool | None = None
    environments: tuple[str, ...] | None = None
    nodes_each: int | None = None
    cost: bool | None = None
    pages: bool | None = None
    portal: bool | None = None

    def changes(self) -> dict[str, object]:
        """The requested fields of the instance."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def up(folder: Path, checkout: Path | None, options: Options, tell: Tell) -> LocalForge:
    """Start the missing processes, wait until all are healthy, and seed the forge. Safe to repeat.

    Raises InputError, UntrustedError, ForgeError and LocalError;
    then every process that this call started has ended.
    """
    with locked(folder, tell):
        state = State.open(folder)
        state.update(**options.changes())
        environment = _choose_environments(state, options, checkout, tell) if state.instance.cluster else ""
        started = False
        try:
            if not _is_up(state):
                started = True
                _start(state, checkout, tell)
            forge = LocalForge(state)
            forge.seed(checkout, tell)
            if state.instance.cluster:
                deploy(forge, checkout, tell)
                allow_smoke_tests(forge, environment)
        except BaseException:
            if started:
                tell("Stopping the started processes.")
                _stop(state, lambda _: None)
            raise
        return forge


def _choose_environments(state: State, options: Options, checkout: Path | None, tell: Tell) -> str:
    """Choose what is deployed onto the cluster where nobody has, or where the settings have other names now.

    Returns the cluster's own environment. Raises InputError if the settings have none.
    """
    settings = load_settings(FolderSnapshot(checkout or delivered.FOLDER))
    own, chosen = local_environment(settings), state.instance.environments
    gone = [name for name in chosen if name not in settings.environments]
    if options.environments is None and (gone or not chosen):
        state.update(environments=_usual_environments(settings, own))
        if gone:
            told = f"The settings have no environment {', '.join(gone)} any more"
            tell(f"{told}: the cluster gets {', '.join(state.instance.environments)}.")
    return own


def _usual_environments(settings: Settings, own: str) -> tuple[str, ...]:
    """The first environment of another cluster, whose services run on simulated nodes, and the cluster's own."""
    other = next((name for name, configured in settings.environments.items() if configured.cluster != "local"), None)
    return (own,) if other is None else (other, own)


def down(folder: Path, tell: Tell, *, delete: bool = False) -> None:
    """End every process of the platform, and nothing else; `delete` removes its files too. Raises LocalError."""
    if State.read(folder) is None and not (delete and folder.is_dir()):
        tell(f"{folder} does not hold a local platform.")
        return
    with locked(folder, tell):
        state = State.read(folder)
        if state is not None:
            _stop(state, tell)
        if delete:
            if state is not None:
                state.delete()
            else:
                delete_folder(folder)
            tell(f"Removed {folder}.")


def _is_up(state: State) -> bool:
    """Whether the running processes equal those that would be started now, and are healthy (or become so within a
    moment)."""
    if not set(processes.ports(state)) <= state.instance.ports.keys():
        return False  # an earlier version's, or one without a cluster
    for _ in attempts(10.0, pause=0.1):
        report = read_report(state)
        if report is None or report.digest != digest(processes.processes(state)):
            return False
        if report.healthy:
            return True
    return False


def _start(state: State, checkout: Path | None, tell: Tell) -> None:
    """Start all processes anew. Model servers that run go on, and the next node takes them over."""
    _stop(state, tell, models=not state.instance.cluster)
    state.logs.mkdir(mode=0o700, exist_ok=True)
    for attempt in (1, 2):
        state.choose_ports(processes.ports(state), tell)
        processes.prepare(state, checkout)
        try:
            _launch_and_wait(state, tell)
        except LocalError:
            # Another program may take a port after it was chosen and before it is used.
            _stop(state, lambda _: None, models=not state.instance.cluster)
            if attempt == 2 or all(is_free(port) for port in state.instance.ports.values()):
                raise
        else:
            return


def _launch_and_wait(state: State, tell: Tell) -> None:
    started = processes.processes(state)
    within = max(process.ready_within for process in started) * len(started)
    if not launch(state):
        raise LocalError(_failure(state, NAME, "it did not start"))
    began = time.monotonic()
    told: dict[str, str] = {}
    while True:
        passed = time.monotonic() - began
        report = read_report(state)
        if report is None:
            if not is_running(state) or passed > _SUPERVISOR_STARTS_WITHIN:
                raise LocalError(_failure(state, NAME, "it has ended"))
        else:
            _tell_progress(state, report, told, passed, tell)
            if report.healthy:
                return
            for name, record in report.processes.items():
                if record.failures >= _FAILURES or (passed > within and record.health != "healthy"):
                    why = record.detail or f"it is not ready after {duration(passed)}"
                    raise LocalError(_failure(state, name, why))
        time.sleep(0.1)


def _tell_progress(state: State, report: Report, told: dict[str, str], passed: float, tell: Tell) -> None:
    for name, record in report.processes.items():
        if told.get(name, "waiting") == record.health:
            continue
        told[name] = record.health
        port = state.instance.ports.get(name)
        place = f" at 127.0.0.1:{port}" if record.health == "healthy" and port else ""
        detail = f": {record.detail}" if record.health == "ill" else ""
        tell(f"  {passed:5.1f} s  {name} is {record.health}{place}{detail}")


def _failure(state: State, name: str, reason: str) -> str:
    log = "\n".join(f"  | {line}" for line in last_lines(state.log(name), _SHOWN)) or "  | (its log is empty)"
    return f"{name} does not run: {reason}. The last lines of {state.log(name)}:\n{log}"


def _stop(state: State, tell: Tell, *, models: bool = True) -> None:
    """End the supervisor, which ends the other processes in order, and then those that it could not end. `models`: also
    the model servers."""
    report = read_report(state)
    if is_running(state):
        kept = not models and any(belonging(state.instance.id, PODS))
        tell("Stopping the platform's programs; the model servers go on." if kept else "Stopping.")
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in belonging(state.instance.id, NAME):
                if report is None or process.pid == report.pid:
                    process.send_signal(signal.SIGTERM if models else LEAVE_MODELS)
        for _ in attempts(_SUPERVISOR_STOPS_WITHIN, pause=0.05):
            if not is_running(state):
                break
    end(lambda: belonging(state.instance.id, models=models), patience=5.0)
