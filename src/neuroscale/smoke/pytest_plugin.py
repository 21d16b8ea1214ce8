"""The pytest plugin of a smoke run: orders the checks, and records the result of each as it ends.

It runs in a process of its own (see `runner`). The records go through a pipe, one JSON object a line: `collected` (all
checks that will run), `started`, `result`, `problem`, and `finished` at the end.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.json_text import json_text
from neuroscale.core.secret_text import SecretText, redact
from neuroscale.smoke.expected_services import Opened
from neuroscale.smoke.model_requests import AskAgain
from neuroscale.smoke.results import CannotTellError, FindingError, NeedsError, NotApplicableError, Result, Version, Way
from neuroscale.smoke.runner import Spec, read_spec

_SPEC = pytest.StashKey[Spec]()
_NOTES = pytest.StashKey[list[str]]()
_SECRETS = pytest.StashKey[list[SecretText]]()
_ASKING = pytest.StashKey[list[AskAgain]]()
_RECORDER = pytest.StashKey["_Recorder"]()
_LONGEST = 4000  # characters of a message
_ANSWERED: dict[Version, str] = {
    "new": "the new version answered",
    "old": "the old version answered",
    "either": "the old or the new version answered",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "check(id): the id of a check; its docstring's first line is its title")
    try:
        spec = read_spec()
    except KeyError:
        raise pytest.UsageError("These are run by: neuroscale smoke --environment ENVIRONMENT") from None
    config.stash[_SPEC] = spec
    config.stash[_SECRETS] = []
    config.stash[_ASKING] = []
    if spec.journal >= 0:
        os.set_inheritable(spec.journal, False)
        threading.Thread(target=_end_with_the_reader, args=(spec.journal,), daemon=True).start()
    config.stash[_RECORDER] = _Recorder(spec, config.stash[_SECRETS], config.stash[_ASKING])
    config.pluginmanager.register(config.stash[_RECORDER], "neuroscale-recorder")


def _end_with_the_reader(journal: int) -> None:
    """End this process and its children once nobody reads the records: the command that started it was ended."""
    waiting = select.poll()
    waiting.register(journal, 0)  # the end of the reader is always told
    waiting.poll()
    os.killpg(os.getpgrp(), signal.SIGKILL)  # the runner gives it a session of its own


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every check that asks for `service` runs once for each."""
    if "service" in metafunc.fixturenames:
        metafunc.parametrize("service", metafunc.config.stash[_SPEC].services, indirect=True, scope="session")


@pytest.fixture(scope="session")
def spec(pytestconfig: pytest.Config) -> Spec:
    """The deployment that this run checks."""
    return pytestconfig.stash[_SPEC]


class Notes:
    """The observations of a check, also of one that passes; and the secrets that must not be recorded."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def __call__(self, text: str) -> None:
        self._lines.append(text)


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Notes:
    """Record an observation."""
    return Notes(request.node.stash.setdefault(_NOTES, []))


def hide(config: pytest.Config, secret: SecretText | None) -> None:
    """Keep a secret out of all records."""
    if secret is not None:
        config.stash[_SECRETS].append(secret)


def asking(config: pytest.Config) -> AskAgain:
    """What sends the requests to one service, again where the way to it failed. The row of a check says so."""
    made = AskAgain(config.stash[_SPEC].patience)
    config.stash[_ASKING].append(made)
    return made


def remember_ends(config: pytest.Config, service: str, ends: Mapping[str, int]) -> None:
    """Record for a second run how often the server of each pod had ended, by the pod's uid."""
    config.stash[_RECORDER].tell("ends", service=service, ends=ends)


def distrust(config: pytest.Config, why: str) -> None:
    """Record that the run as a whole cannot be trusted."""
    config.stash[_RECORDER].tell("problem", message=why)


class _Recorder:
    def __init__(self, spec: Spec, secrets: list[SecretText], asking: list[AskAgain]) -> None:
        self._spec = spec
        self._secrets = secrets
        self._asking = asking
        self._raised: list[BaseException] = []
        self._version: Version = ""
        self._gave_up: dict[str, str] = {}  # the check of each service that used up the time for asking again

    # ------------------------------------------------------------ the checks that will run

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order = {name: place for place, name in enumerate(("", *self._spec.services))}
        for item in items:
            if _check(item) == "" or _title(item) == "":
                self.tell("problem", message=f"{item.nodeid} lacks its id (pytest.mark.check) or its docstring")
        items.sort(key=lambda item: order.get(_service(item), len(order)))
        self.tell("collected", checks=[[_service(item), _check(item), _title(item)] for item in items])

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.tell("problem", message=f"{len(items)} checks were left out")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell("problem", message=f"{report.nodeid} cannot be read: {_last_line(report.longreprtext)}")

    # ------------------------------------------------------------ the result of each check

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._raised = []
        self._version = ""
        self.tell("started", service=_service(item), check=_check(item), title=_title(item))
        began = time.monotonic()
        answer = yield
        self._record(item, time.monotonic() - began)
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Function, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "call" and isinstance(opened := item.funcargs.get("opened"), Opened):
            self._version = opened.version
        if call.excinfo is not None:
            self._raised.append(call.excinfo.value)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Ask no service that hangs: its other checks, and those of other services, would not have the time."""
        if (check := self._gave_up.get(_service(item))) and "opened" in getattr(item, "fixturenames", ()):
            raise NeedsError(check, "the way to it failed for too long to ask it again")

    def _record(self, item: pytest.Item, seconds: float) -> None:
        service, check, title = _service(item), _check(item), _title(item)
        lines: list[str] = item.stash.get(_NOTES, [])
        version = self._version
        tries = [told for one in self._asking for told in one.take_notes()]
        notes = "; ".join([*([_ANSWERED[version]] if version else []), *tries, *lines])
        where = Path(item.location[0]).name
        if not self._raised:
            result = Result(service, check, title, "passed", seconds, notes)
        else:
            status = self._spec.lines.own(f"status {service}")
            ended = [_ended(one, service, check, title, seconds, where, status) for one in self._raised]
            # A check that was not applicable and then failed in its teardown counts as broken.
            result = next((one for one in ended if one.outcome != "skipped"), ended[0])
            result = replace(result, message="; ".join([result.message, *tries]))
        asking = self._asking[-1] if self._asking else None
        if asking and tries and result.outcome == "passed" and asking.loss:
            told, do = f"{asking.loss}; {notes}", "Look at the gateway and the network before the service."
            result = replace(result, outcome="failed", message=told, next=do, way="once", reason="lossy")
        if asking and asking.is_over and result.way:
            self._gave_up.setdefault(service, check)
        texts = {"message": result.message, "next": result.next}
        for secret in self._secrets:
            texts = {name: redact(text, secret) for name, text in texts.items()}
        self.tell(
            "result",
            service=service,
            check=check,
            title=title,
            outcome=result.outcome,
            seconds=round(seconds, 3),
            needs=result.needs,
            version=version,
            way=result.way,
            reason=result.reason,
            **{name: text[:_LONGEST] for name, text in texts.items()},
        )

    # ------------------------------------------------------------ the run as a whole

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.tell("problem", message=f"the runner crashed: {excinfo.typename}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.tell("finished", exit=int(exitstatus))

    def tell(self, kind: str, **fields: Any) -> None:
        if self._spec.journal >= 0:
            data = (json_text({"kind": kind, **fields}, None) + "\n").encode()
            while data:
                data = data[os.write(self._spec.journal, data) :]


def _ended(
    raised: BaseException, service: str, check: str, title: str, seconds: float, where: str, status: str
) -> Result:
    """The result of a check that raised an exception. `status`: the command that shows the service's state."""
    told = str(raised) or type(raised).__name__
    look = status if service else f"See smoke-tests/{where}."
    cannot = isinstance(raised, CannotTellError)
    reason = str(getattr(raised.__cause__ if cannot else raised, "way", ""))
    way: Way = "once" if reason else ""
    reason = "changing" if reason and cannot else reason
    if isinstance(raised, FindingError):
        return Result(service, check, title, "failed", seconds, raised.seen, raised.do, way=way, reason=reason)
    if isinstance(raised, NotApplicableError):
        return Result(service, check, title, "skipped", seconds, told)
    if isinstance(raised, NeedsError):
        return Result(service, check, title, "skipped", seconds, told, "", raised.check)
    if isinstance(raised, CannotTellError):
        return Result(service, check, title, "error", seconds, told, raised.do, way=way, reason=reason)
    # An endpoint that refuses or breaks off is a finding.
    if isinstance(raised, EndpointError):
        return Result(service, check, title, "failed", seconds, told, look, way=way, reason=reason)
    if isinstance(raised, AssertionError | pytest.fail.Exception):
        return Result(service, check, title, "failed", seconds, told, f"See smoke-tests/{where}.")
    if isinstance(raised, NeuroscaleError):
        return Result(service, check, title, "error", seconds, told, look)
    told = f"the check itself broke: {type(raised).__name__}: {told}"
    return Result(service, check, title, "error", seconds, told, f"See smoke-tests/{where}.")


def _check(item: pytest.Item) -> str:
    marker = item.get_closest_marker("check")
    found = marker.args[0] if marker is not None and marker.args else ""
    return found if isinstance(found, str) else ""


def _title(item: pytest.Item) -> str:
    text = getattr(getattr(item, "function", None), "__doc__", None) or ""
    return str(text).strip().splitlines()[0].removesuffix(".") if text.strip() else ""


def _service(item: pytest.Item) -> str:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return str(parameters.get("service", ""))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
