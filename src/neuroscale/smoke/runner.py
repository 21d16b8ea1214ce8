"""Runs `smoke-tests/` in a process of its own, without the caller's configuration of pytest."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import neuroscale
from neuroscale.cluster.command_lines import CommandLines, lines_with
from neuroscale.cluster.endpoint.routes import Routes, read_rules
from neuroscale.core import delivered
from neuroscale.core.errors import UntrustedError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import first_of
from neuroscale.repo.layout import OWN_CODE, SMOKE_TESTS
from neuroscale.smoke.results import Report, Result, confirmed, from_record, settled

VARIABLE = "NEUROSCALE_SMOKE"
"""The variable that names the file with the Spec. A file, so that no argument shows its content."""


@dataclass(frozen=True)
class Spec:
    """The deployment to check. It holds no secret."""

    repository: str  # the clone
    environment: str
    revision: str  # the commit whose facts count
    services: tuple[str, ...]  # names, in the order of the checks
    # The address of the one service (""; with `connect_to`, each service's own by KServe, else through the API server).
    base_url: str = ""
    connect_to: tuple[str, ...] = ()  # the ways to hosts, as `--connect-to` takes them
    authority: str = ""  # the file of what signs the certificates there ("": as for all others)
    # "" for the default ones.
    kubeconfig: str = ""
    context: str = ""
    # The options by which this project's commands and kubectl ask it where the report is read, if not by these.
    own_options: tuple[str, ...] | None = None
    kubectl_options: tuple[str, ...] | None = None
    fetch: str = "git fetch"  # the command that fetches what Argo CD reads
    sources: tuple[str, ...] = ("origin",)  # the remotes, or addresses, that have what Argo CD reads
    # How often the server of each pod had ended before the first run, by service and the pod's uid.
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    patience: float = 60.0  # seconds that the first part of an answer may take
    journal: int = -1  # the file descriptor for the results

    @property
    def routes(self) -> Routes:
        """The ways to the hosts of services."""
        return Routes(read_rules(self.connect_to), Path(self.authority) if self.authority else None)

    @property
    def lines(self) -> CommandLines:
        """The beginnings of command lines that ask the same cluster."""
        named = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        options = tuple(f"{name}={value}" for name, value in named.items() if value)
        return lines_with(options if self.kubectl_options is None else self.kubectl_options, self.own_options)

    def write(self, path: Path) -> None:
        """Write it for the process to read."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_spec() -> Spec:
    """The spec in the file that the environment names. Raises KeyError if the variable is not set."""
    record = json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8"))
    options = {name: record[name] for name in ("own_options", "kubectl_options")}
    return Spec(
        **{
            **record,
            "services": tuple(record["services"]),
            **{name: found if found is None else tuple(found) for name, found in options.items()},
            "connect_to": tuple(record["connect_to"]),
            "sources": tuple(record["sources"]),
        }
    )


_INI = "pytest.ini"
_ENDED_BY_ITSELF = (0, 1)  # pytest's exit codes: all passed, or some failed
_LAST_LINES = 15

Tell = Callable[[str, dict[str, Any]], None]
"""Called with the kind of each record (`started`, `result`, `ends`) and its fields, as they come."""


def run_and_confirm(
    spec: Spec, tell: Tell, *, within: float, pause: float, variables: Mapping[str, str] | None = None
) -> Report:
    """As `run`; services to which only the way failed are tested anew after `pause` seconds, each in a run of its own,
    as far as the time allows it. The second run is red as well where the server ended during the first."""
    ends: dict[str, dict[str, int]] = {}

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "ends":
            ends.setdefault(fields["service"], fields["ends"])
        tell(kind, fields)

    until = time.monotonic() + within
    report = run(spec, hear, within=within, variables=variables)
    doubtful = () if report.problems or until - time.monotonic() <= pause else report.doubtful
    if doubtful:
        time.sleep(pause)
        report = replace(report, seconds=report.seconds + pause)
    for service in doubtful:
        if (left := until - time.monotonic()) > 0:
            again = replace(spec, services=(service,), ends=ends)
            report = confirmed(report, run(again, hear, within=left, variables=variables), pause)
    return report


def run(spec: Spec, tell: Tell, *, within: float, variables: Mapping[str, str] | None = None) -> Report:
    """Run every check, for at most `within` seconds. `variables`: those that let git log in, which no file may hold.

    The report says why the run cannot be trusted: a crash, no checks, a check that did not end, too long a time. Raises
    UntrustedError if there are no smoke tests at all.
    """
    journal = _Journal(tell)
    began, started = time.monotonic(), datetime.now(UTC)
    told = started.isoformat(timespec="seconds").replace("+00:00", "Z")
    log, code = _pytest(spec, journal, within, variables=variables)
    checks, problems = settled(journal.results, spec.services)
    problems = (*journal.told(code, log), *problems)
    return Report(
        environment=spec.environment,
        revision=spec.revision,
        started=told,
        seconds=time.monotonic() - began,
        checks=checks,
        problems=problems,
    )


def collect(spec: Spec) -> list[tuple[str, str, str]]:
    """Service, id and title of every check that would run. Raises UntrustedError if pytest cannot collect them."""
    journal = _Journal(lambda _kind, _fields: None)
    log, code = _pytest(spec, journal, 60.0, "--collect-only")
    if code != 0 or journal.problems or not journal.collected:
        raise UntrustedError(f"The smoke tests cannot be read: {'; '.join(journal.problems)}\n{log}")
    return journal.collected


class _Journal:
    """The records that the process sends through its pipe."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.collected: list[tuple[str, str, str]] = []
        self.results: list[Result] = []
        self.problems: list[str] = []
        self._exit: int | None = None
        self.too_long = ""

    def read(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            kind = record.pop("kind")
            if kind == "collected":
                self.collected = [(str(service), str(check), str(title)) for service, check, title in record["checks"]]
            elif kind == "problem":
                self.problems.append(str(record["message"]))
            elif kind == "finished":
                self._exit = int(record["exit"])
            elif kind == "result":
                self.results.append(from_record(record))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.problems.append("a result cannot be read")
            return
        if kind in ("started", "result", "ends"):
            self._tell(kind, record)

    def told(self, code: int, log: str) -> tuple[str, ...]:
        """Why the run cannot be trusted; empty if it can."""
        problems = list(self.problems)
        if self.too_long:
            problems.append(self.too_long)
        if not self.collected and not problems:
            problems.append(f"no check was found in {SMOKE_TESTS}/")
        done = {(one.service, one.check) for one in self.results}
        open_ = [(service, check) for service, check, _ in self.collected if (service, check) not in done]
        if open_:
            names = [f"{check} of {service}" if service else check for service, check in open_]
            problems.append(f"these did not end: {first_of(names, 5)}")
        if len(self.results) > len(self.collected):
            problems.append("there are more results than checks")
        if self._exit is None or code not in _ENDED_BY_ITSELF or code != self._exit:
            problems.append(f"the runner ended early with the exit code {code}{f': {log}' if log else ''}")
        elif code != 0 and all(one.outcome == "passed" for one in self.results):
            problems.append(f"every check passed, but the runner reports a failure{f': {log}' if log else ''}")
        return tuple(dict.fromkeys(problems))


def _checks_for(repository: Path) -> Path:
    """The folder of the checks: the repository's own where it holds the tool, else those that the tool delivers."""
    holds_tool = (repository / SMOKE_TESTS).exists() or (repository / OWN_CODE).is_dir()
    return (repository if holds_tool else delivered.FOLDER) / SMOKE_TESTS


def _pytest(
    spec: Spec, journal: _Journal, within: float, *options: str, variables: Mapping[str, str] | None = None
) -> tuple[str, int]:
    """The end of pytest's output, and its exit code."""
    folder = _checks_for(Path(spec.repository))
    if not any(folder.glob("test_*.py")):
        raise UntrustedError(
            f"There are no smoke tests in {folder}. Restore the folder: without it nothing would be checked."
        )
    with tempfile.TemporaryDirectory(prefix="neuroscale-smoke-") as name:
        scratch = Path(name)
        (scratch / _INI).write_text("[pytest]\n", encoding="utf-8")
        reading, writing = os.pipe()
        with open(reading, "rb") as pipe, (scratch / "log").open("w+b") as log:  # noqa: PTH123 - a descriptor
            try:
                replace(spec, journal=writing).write(scratch / "spec.json")
                process = subprocess.Popen(
                    _command(folder, scratch, *options),
                    cwd=scratch,
                    env=_environment(scratch) | dict(variables or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            timer = threading.Timer(within, _end, (process, journal, within))
            timer.start()
            try:
                for line in pipe:
                    journal.read(line)
                code = process.wait()
            except BaseException:
                _kill(process)
                raise
            finally:
                timer.cancel()
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LAST_LINES:]), code


def _command(folder: Path, scratch: Path, *options: str) -> list[str]:
    return [
        *(sys.executable, "-P", "-s", "-m", "pytest"),
        *("-c", str(scratch / _INI), "--rootdir", str(folder), "--confcutdir", str(folder)),
        *("-p", "neuroscale.smoke.pytest_plugin", "-p", "no:cacheprovider", "--import-mode=importlib"),
        # Values stay out of the log: one of them may be a key.
        *("--assert=plain", "--tb=short", "-q", "--strict-markers", *options, str(folder)),
    ]


def _environment(scratch: Path) -> dict[str, str]:
    """The caller's environment, without the variables that would change Python or pytest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV_"))}
    if authorities := kept.get("SSL_CERT_FILE"):
        kept["SSL_CERT_FILE"] = str(Path(authorities).absolute())  # the checks run in another folder
    return kept | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(neuroscale.__file__).resolve().parent.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        VARIABLE: str(scratch / "spec.json"),
    }


def _end(process: subprocess.Popen[bytes], journal: _Journal, within: float) -> None:
    journal.too_long = f"the run took longer than {duration(within)} and was stopped"
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children: it leads a session of its own."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
