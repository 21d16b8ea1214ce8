"""How smoke tests are run and counted: a run that is not wholly looked at is never green."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest
from rich.console import Console

from neuroscale.core.errors import ExitStatus, UntrustedError
from neuroscale.smoke.results import (
    Report,
    Result,
    confirmed,
    from_record,
    headline,
    print_table,
    to_json,
    to_junit,
    to_markdown,
)
from neuroscale.smoke.runner import VARIABLE, Spec, collect, run, run_and_confirm
from roots import ROOT
from smoke_breakages import BREAKAGES
from waiting import wait_for

pytestmark = pytest.mark.slow  # it starts a program for each case

_HEAD = """
import os, sys, time
import pytest
from neuroscale.smoke.results import CannotTellError, FindingError, NeedsError, NotApplicableError, require

@pytest.fixture(scope="session")
def service(request):
    return request.param
"""
_PASSES = '''
@pytest.mark.check("fine")
def test_fine(service, note):
    """All is fine."""
    note("seen")
'''


def _check(name: str, body: str, arguments: str = "service") -> str:
    return f'\n@pytest.mark.check("{name}")\ndef test_{name}({arguments}):\n    """The check {name}."""\n    {body}\n'


class Lab:
    """A repository that holds nothing but smoke tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.told: list[tuple[str, dict[str, Any]]] = []

    def run(self, files: Mapping[str, str], services: tuple[str, ...] = ("chat",), within: float = 60.0) -> Report:
        folder = self.root / "smoke-tests"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return run(self.spec(services), lambda kind, fields: self.told.append((kind, fields)), within=within)

    def spec(self, services: tuple[str, ...] = ("chat",)) -> Spec:
        return Spec(str(self.root), "dev", "0" * 40, services)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def _outcomes(report: Report) -> dict[str, str]:
    return {one.check: one.outcome for one in report.checks}


def test_a_run_in_which_every_check_passes_is_green(lab: Lab) -> None:
    report = lab.run({"test_a.py": _HEAD + _PASSES}, ("chat", "search"))
    assert report.status is ExitStatus.PASSED
    assert not report.problems
    assert [(one.service, one.check, one.title, one.outcome, one.message) for one in report.checks] == [
        ("chat", "fine", "All is fine", "passed", "seen"),
        ("search", "fine", "All is fine", "passed", "seen"),
    ]
    assert [kind for kind, _ in lab.told] == ["started", "result"] * 2


def test_a_failed_check_says_what_was_seen_and_what_to_do(lab: Lab) -> None:
    report = lab.run({"test_a.py": _HEAD + _PASSES + _check("broken", 'require(False, "it is red", "paint it")')})
    assert report.status is ExitStatus.FINDINGS
    (failed,) = (one for one in report.checks if one.outcome == "failed")
    assert (failed.check, failed.message, failed.next) == ("broken", "it is red", "paint it")


@pytest.mark.parametrize(
    ("body", "outcome", "status"),
    [
        ("assert 1 == 2, 'not equal'", "failed", ExitStatus.FINDINGS),
        ("pytest.fail('no')", "failed", ExitStatus.FINDINGS),
        ("raise ValueError('odd')", "error", ExitStatus.UNTRUSTED),
        ("raise CannotTellError('no right', 'ask')", "error", ExitStatus.UNTRUSTED),
        ("raise NeedsError('fine', 'not there')", "error", ExitStatus.UNTRUSTED),
        ("pytest.skip('no time')", "error", ExitStatus.UNTRUSTED),
        ("pytest.xfail('known')", "failed", ExitStatus.FINDINGS),
        ("raise NotApplicableError('no URL')", "skipped", ExitStatus.PASSED),
    ],
)
def test_only_what_has_nothing_to_look_at_may_be_left_out(
    lab: Lab, body: str, outcome: str, status: ExitStatus
) -> None:
    report = lab.run({"test_a.py": _HEAD + _PASSES + _check("other", body)})
    assert _outcomes(report) == {"fine": "passed", "other": outcome}
    assert report.status is status


def test_what_needs_a_failed_check_is_listed_as_not_checked(lab: Lab) -> None:
    first = _check("first", "require(False, 'down', 'start it')")
    second = _check("second", "raise NeedsError('first', 'it is down')")
    report = lab.run({"test_a.py": _HEAD + first + second})
    assert _outcomes(report) == {"first": "failed", "second": "skipped"}
    assert report.status is ExitStatus.FINDINGS


_ANSWERING = """
import pytest
from neuroscale.smoke.expected_services import Opened

@pytest.fixture(scope="session")
def service(request):
    return request.param

@pytest.fixture(scope="session")
def opened(service):
    return Opened(object(), object(), None, "" if service == "unknown" else service)

@pytest.fixture(scope="session")
def endpoint(opened):
    return opened.endpoint
"""


def test_a_passing_check_says_which_version_answered(lab: Lab) -> None:
    """Green rows of the old pod beside a failed new one mislead."""
    body = "import pytest\n" + _check("chat", 'note("16 tokens")', "endpoint, note")
    report = lab.run({"conftest.py": _ANSWERING, "test_a.py": body}, ("new", "old", "either", "unknown"))
    assert [(one.version, one.message, one.misleads) for one in report.checks] == [
        ("new", "the new version answered; 16 tokens", False),
        ("old", "the old version answered; 16 tokens", True),
        ("either", "the old or the new version answered; 16 tokens", True),
        ("", "16 tokens", False),
    ]
    assert "4 passed, 2 of them not by the new version alone" in headline(report)
    table = _table(report)
    assert "passed (old version)" in table
    assert "passed (old or new version)" in table
    assert [one["version"] for one in json.loads(to_json(report))["checks"]] == ["new", "old", "either", ""]
    assert "| the old version answered; 16 tokens |" in to_markdown(report)


_BY_THE_WAY = """
from pathlib import Path
from neuroscale.cluster.endpoint.errors import UnreachedError

def once(name, error):
    '''Raise the error in the first run alone.'''
    seen = Path(__file__).with_name(name)
    if not seen.exists():
        seen.write_text("")
        raise error

CUT = UnreachedError("the connection was cut", "look", "cut")
"""


def _again(lab: Lab, *checks: str, services: tuple[str, ...] = ("chat",)) -> Report:
    (lab.root / "smoke-tests").mkdir()
    (lab.root / "smoke-tests/test_a.py").write_text(_HEAD + _BY_THE_WAY + _PASSES + "".join(checks))
    return run_and_confirm(lab.spec(services), lambda kind, fields: lab.told.append((kind, fields)), within=60, pause=0)


def test_a_service_that_only_the_way_failed_is_tested_anew(lab: Lab) -> None:
    report = _again(lab, _check("cut", "if service == 'chat': once('a', CUT)"), services=("chat", "search"))
    assert report.status is ExitStatus.PASSED
    (seen,) = (one.message for one in report.checks if (one.service, one.check) == ("chat", "cut"))
    assert "in a second run" in seen
    assert "the connection was cut" in seen
    assert [fields["service"] for kind, fields in lab.told if kind == "result"] == ["chat"] * 2 + ["search"] * 2 + [
        "chat"
    ] * 2


@pytest.mark.parametrize(
    ("body", "outcome", "way"),
    [
        ("raise CUT", "failed", "twice"),
        ("once('a', CUT); require(False, 'it is wrong', 'mend it')", "failed", ""),
        ("once('a', CUT); raise ValueError('odd')", "error", ""),
    ],
)
def test_what_fails_in_the_second_run_as_well_is_red(lab: Lab, body: str, outcome: str, way: str) -> None:
    report = _again(lab, _check("cut", body))
    (found,) = (one for one in report.checks if one.check == "cut")
    assert (found.outcome, found.way, report.doubtful) == (outcome, way, ())
    assert not report.passed
    assert from_record(json.loads(to_json(report))["checks"][0]) == report.checks[0]


def _result(check: str, reason: str = "", outcome: str = "passed", service: str = "chat") -> Result:
    outcome = "failed" if reason and outcome == "passed" else outcome
    return Result(service, check, check, outcome, way="once" if reason else "", reason=reason)  # type: ignore[arg-type]


def _both(first: list[Result], second: list[Result], *problems: str) -> Report:
    reports = [Report("dev", "0" * 40, "", 1.0, tuple(rows)) for rows in (first, second)]
    return confirmed(reports[0], replace(reports[1], problems=problems), 60.0)


def test_only_one_reason_in_both_runs_is_red() -> None:
    report = _both([_result("key", "cut"), _result("chat")], [_result("key"), _result("chat", "dns")])
    assert ([one.way for one in report.checks], report.doubtful) == (["", "once"], ("chat",))
    report = _both([_result("key", "cut"), _result("chat")], [_result("key"), _result("chat", "cut")])
    assert ([one.way for one in report.checks], report.doubtful) == (["", "twice"], ())


def test_what_could_not_decide_by_the_way_in_both_runs_has_failed() -> None:
    rows = [_result("fine"), _result("chat", "changing", "error")]
    report = _both(rows, rows)
    assert [(one.outcome, one.way) for one in report.checks] == [("passed", ""), ("failed", "twice")]
    report = _both(rows, [_result("fine"), _result("chat", "", "error")])
    assert (report.checks[1].outcome, report.checks[1].way) == ("error", "")


def test_a_second_run_that_cannot_be_trusted_leaves_what_the_first_proved() -> None:
    wrong = replace(_result("chat", service="search"), outcome="failed")
    report = _both([_result("chat", "cut"), wrong], [_result("chat")], "the run took longer than 9 s and was stopped")
    assert (report.status, report.doubtful) == (ExitStatus.FINDINGS, ("chat",))
    assert report.checks == (_result("chat", "cut"), wrong)


_ASKING = """
import pytest
from neuroscale.cluster.endpoint.errors import EndpointError
from neuroscale.smoke.pytest_plugin import asking, remember_ends

@pytest.fixture(scope="session")
def service(request):
    return request.param

@pytest.fixture(scope="session")
def opened(service, spec, pytestconfig):
    if service not in spec.ends:
        remember_ends(pytestconfig, service, {"a": 1})
    return asking(pytestconfig)
"""


def test_a_service_that_hangs_does_not_use_up_the_time_of_both_runs(lab: Lab) -> None:
    """Its further checks do not ask it, and it is red though another service hangs as well."""
    hang = "import time; time.sleep(0.1); raise EndpointError('It does not answer.', way='timeout')"
    ask = f"def ask(): {hang}\n    opened(ask)"
    body = "import pytest\nfrom neuroscale.cluster.endpoint.errors import EndpointError\n" + "".join(
        [
            _check("first", "assert opened", "service, opened"),
            _check("hangs", ask, "service, opened"),
            _check("later", ask, "service, opened"),
            _check("beside", "assert spec.ends.get(service, {'a': 1}) == {'a': 1}", "service, spec"),
        ]
    )
    folder = lab.root / "smoke-tests"
    folder.mkdir()
    (folder / "conftest.py").write_text(_ASKING)
    (folder / "test_a.py").write_text(body)
    told: list[tuple[str, dict[str, Any]]] = []
    spec = replace(lab.spec(("chat", "search")), patience=0.01)
    report = run_and_confirm(spec, lambda kind, fields: told.append((kind, fields)), within=120, pause=0)
    assert report.status is ExitStatus.FINDINGS
    rows = [("first", "passed", ""), ("hangs", "failed", "twice"), ("later", "skipped", ""), ("beside", "passed", "")]
    assert [(one.check, one.outcome, one.way) for one in report.checks] == [*rows, *rows]
    assert [fields["service"] for kind, fields in told if kind == "ends"] == ["chat", "search"]


def test_a_check_that_passes_over_a_way_that_loses_requests_is_red(lab: Lab) -> None:
    body = """import itertools
from neuroscale.cluster.endpoint.errors import EndpointError

@pytest.mark.check("asks")
def test_asks(service, opened):
    'It asks.'
    tries = itertools.count(1)
    def ask():
        if next(tries) % 3 == 0:
            raise EndpointError('It was cut.', way='cut')
    for _ in range(20):
        opened(ask)
"""
    (lab.root / "smoke-tests").mkdir()
    (lab.root / "smoke-tests/conftest.py").write_text(_ASKING)
    report = _lab_again(lab, "import pytest\n" + body)
    (row,) = report.checks
    assert (row.outcome, row.way, row.reason) == ("failed", "twice", "lossy")
    assert "requests were lost on the way" in row.message


def _lab_again(lab: Lab, text: str) -> Report:
    (lab.root / "smoke-tests/test_a.py").write_text(text)
    return run_and_confirm(lab.spec(), lambda *_: None, within=60, pause=0)


def test_a_wrong_answer_gets_no_second_run(lab: Lab) -> None:
    report = _again(lab, _check("cut", "once('a', CUT)"), _check("wrong", "once('b', FindingError('no', 'mend'))"))
    assert _outcomes(report) == {"fine": "passed", "cut": "failed", "wrong": "failed"}
    assert [one.way for one in report.checks if one.outcome == "failed"] == ["once", ""]
    assert len(lab.told) == 6


def test_without_time_for_a_second_run_the_way_stays_in_doubt(lab: Lab) -> None:
    folder = lab.root / "smoke-tests"
    folder.mkdir()
    (folder / "test_a.py").write_text(_HEAD + _BY_THE_WAY + _check("cut", "raise CUT"))
    report = run_and_confirm(lab.spec(), lambda *_: None, within=60, pause=100)
    assert (report.status, report.doubtful) == (ExitStatus.FINDINGS, ("chat",))


def test_a_failed_check_counts_where_another_could_not_look(lab: Lab) -> None:
    body = _check("red", "require(False, 'down', 'up')") + _check("odd", "raise ValueError('odd')")
    assert lab.run({"test_a.py": _HEAD + body}).status is ExitStatus.FINDINGS


def test_a_failing_fixture_is_no_pass(lab: Lab) -> None:
    fixture = "\n@pytest.fixture\ndef thing():\n    raise OSError('gone')\n"
    report = lab.run({"test_a.py": _HEAD + fixture + _PASSES + _check("uses", "pass", "service, thing")})
    assert _outcomes(report) == {"fine": "passed", "uses": "error"}


@pytest.mark.parametrize("body", ["pass", "raise NotApplicableError('no URL')"])
def test_an_error_while_a_check_ends_is_no_pass(lab: Lab, body: str) -> None:
    fixture = "\n@pytest.fixture\ndef thing():\n    yield\n    raise OSError('gone')\n"
    report = lab.run({"test_a.py": _HEAD + fixture + _check("uses", body, "service, thing")})
    assert _outcomes(report) == {"uses": "error"}
    assert report.status is ExitStatus.UNTRUSTED


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"test_a.py": _HEAD}, "no check was found"),
        ({"test_a.py": _HEAD + _PASSES, "test_b.py": "def broken(:\n"}, "cannot be read"),
        ({"test_a.py": _HEAD + _PASSES, "test_b.py": "import no_such_module\n"}, "cannot be read"),
        ({"test_a.py": _HEAD + _PASSES, "conftest.py": "raise RuntimeError('no')\n"}, "the runner ended early with"),
        ({"test_a.py": _HEAD + _PASSES + _check("crash", "os._exit(0)")}, "these did not end: crash of chat"),
        ({"test_a.py": _HEAD + _PASSES + _check("kill", "os.kill(os.getpid(), 9)")}, "these did not end: kill of chat"),
        ({"test_a.py": _HEAD + _PASSES + _check("leave", "pytest.exit('bye', returncode=0)")}, "did not end: leave"),
        ({"test_a.py": _HEAD + _PASSES + "\ndef test_x(service):\n    pass\n"}, "lacks its id"),
        ({"test_a.py": _HEAD + _PASSES, "test_b.py": _HEAD + _PASSES}, "has two results"),
        ({"test_a.py": _HEAD + "\n@pytest.mark.xfail(strict=True)" + _PASSES}, "the runner reports a failure"),
        (
            {
                "test_a.py": _HEAD + _PASSES + _check("other", "pass"),
                "conftest.py": "def pytest_collection_modifyitems(config, items):\n"
                "    config.hook.pytest_deselected(items=[items.pop()])\n",
            },
            "left out",
        ),
    ],
)
@pytest.mark.slow
def test_a_run_that_is_not_whole_cannot_be_trusted(lab: Lab, files: dict[str, str], told: str) -> None:
    report = lab.run(files)
    assert report.status is ExitStatus.UNTRUSTED
    assert told in "\n".join(report.problems)


def test_a_service_of_which_nothing_was_looked_at_makes_the_run_untrusted(lab: Lab) -> None:
    body = "if service == 'search': raise NotApplicableError('no')"
    report = lab.run({"test_a.py": _HEAD + _check("some", body)}, ("chat", "search"))
    assert report.problems == ("no check of search ran",)
    assert report.status is ExitStatus.UNTRUSTED


def test_no_smoke_tests_at_all_is_an_error(lab: Lab) -> None:
    with pytest.raises(UntrustedError, match="no smoke tests"):
        lab.run({})


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended_with_all_that_it_started(lab: Lab, tmp_path: Path) -> None:
    note = tmp_path / "child"
    body = f"import subprocess; p = subprocess.Popen(['sleep', '300']); open({str(note)!r}, 'w').write(str(p.pid)); "
    began = time.monotonic()
    report = lab.run({"test_a.py": _HEAD + _PASSES + _check("hang", body + "p.wait()")}, within=15.0)
    assert time.monotonic() - began < 45
    assert report.status is ExitStatus.UNTRUSTED
    assert "the run took longer than 15 s and was stopped" in report.problems
    assert _outcomes(report) == {"fine": "passed"}
    child = int(note.read_text(encoding="utf-8"))
    wait_for(lambda: _is_over(child), 10.0, "what the check started is ended too")


@pytest.mark.slow
def test_what_a_run_started_ends_with_the_command_that_is_ended(lab: Lab, tmp_path: Path) -> None:
    note = tmp_path / "process"
    body = f"open({str(note)!r}, 'w').write(str(os.getpid()) + chr(10)); time.sleep(300)"
    (lab.root / "smoke-tests").mkdir()
    (lab.root / "smoke-tests/test_a.py").write_text(_HEAD + _check("hang", body), encoding="utf-8")
    lab.spec().write(tmp_path / "spec.json")
    program = "from neuroscale.smoke.runner import read_spec, run; run(read_spec(), print, within=200.0)"
    command = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, VARIABLE: str(tmp_path / "spec.json")}
    )
    try:
        wait_for(lambda: note.exists() and note.read_text().endswith("\n"), 60.0, "the check has begun")
    finally:
        command.terminate()
        command.wait()
    wait_for(lambda: _is_over(int(note.read_text())), 10.0, "the check is ended too")


def _is_over(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_the_callers_pytest_changes_nothing(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither options, nor plugins, nor configuration, nor modules beside where the command is called."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n", encoding="utf-8")
    (hostile / "conftest.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    (hostile / "evil.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    (hostile / "pytest.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    monkeypatch.chdir(hostile)
    for name, value in {
        "PYTEST_ADDOPTS": "-k nothing --collect-only",
        "PYTEST_PLUGINS": "evil",
        "PYTHONPATH": str(hostile),
        "PYTHONWARNINGS": "error",
        "PYTHONOPTIMIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    (lab.root / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n", encoding="utf-8")
    (lab.root / "conftest.py").write_text("raise SystemExit(0)\n", encoding="utf-8")
    report = lab.run({"test_a.py": _HEAD + _PASSES, "pytest.ini": "[pytest]\naddopts = --collect-only\n"})
    assert (report.status, report.problems) == (ExitStatus.PASSED, ())


def test_a_secret_reaches_no_report(lab: Lab) -> None:
    secret = "s3cret-" + "k" * 20
    body = f"""
@pytest.mark.check("leaks")
def test_leaks(service, pytestconfig, note):
    '''It leaks.'''
    from neuroscale.core.secret_text import SecretText
    from neuroscale.smoke.pytest_plugin import hide
    hide(pytestconfig, SecretText({secret!r}))
    print({secret!r})
    require(False, "the key is {secret}", "use {secret}")

@pytest.mark.check("asserts")
def test_asserts(service):
    '''It asserts.'''
    key = {secret!r}
    assert key == "other"
"""
    report = lab.run({"test_a.py": _HEAD + body})
    assert report.count("failed") == 2
    for text in (to_json(report), to_junit(report), to_markdown(report), _table(report)):
        assert secret not in text


def test_the_checks_of_this_repository_can_be_collected(repository_spec: Spec) -> None:
    found = collect(repository_spec)
    assert len(found) == len(set(found)) > 20
    assert all(title for _, _, title in found)
    assert [service for service, _, _ in found] == sorted(service for service, _, _ in found)


def test_every_check_has_a_breakage(repository_spec: Spec) -> None:
    """A check that nothing makes fail may be one that cannot fail: test_smoke_breakages.py breaks each thing."""
    ids = {check for _, check, _ in collect(repository_spec)}
    assert {check for breakage in BREAKAGES for check in breakage.fails} == ids
    assert len({breakage.name for breakage in BREAKAGES}) == len(BREAKAGES)


@pytest.mark.slow
def test_they_are_not_run_by_pytest_itself(repository_spec: Spec) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "smoke-tests"],
        cwd=repository_spec.repository,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0


@pytest.fixture
def repository_spec() -> Spec:
    return Spec(str(ROOT), "local", "0" * 40, ("chat",))


# ------------------------------------------------------------ reports

_HOSTILE = "a <b>|`@team` ::error:: \x1b[31m]]> #1"


def _report(*outcomes: str, problems: tuple[str, ...] = ()) -> Report:
    rows = [
        Result("chat", f"check-{place}", f"Title {place} {_HOSTILE}", outcome, 0.5, _HOSTILE, _HOSTILE)  # type: ignore[arg-type]
        for place, outcome in enumerate(outcomes)
    ]
    return Report("dev", "f" * 40, "2026-01-31T00:00:00Z", 2.0, tuple(rows), problems)


def _table(report: Report) -> str:
    console = Console(width=200, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    with console.file:
        print_table(report, console)
    return console.export_text()


@pytest.mark.parametrize(
    ("outcomes", "problems", "status"),
    [
        ((), (), ExitStatus.UNTRUSTED),
        (("skipped",), (), ExitStatus.UNTRUSTED),
        (("passed",), (), ExitStatus.PASSED),
        (("passed", "skipped"), (), ExitStatus.PASSED),
        (("passed", "failed"), (), ExitStatus.FINDINGS),
        (("passed", "error"), (), ExitStatus.UNTRUSTED),
        (("failed", "error"), (), ExitStatus.FINDINGS),
        (("passed",), ("it crashed",), ExitStatus.UNTRUSTED),
        (("failed",), ("it crashed",), ExitStatus.UNTRUSTED),
    ],
)
def test_every_report_is_as_red_as_the_exit_status(
    outcomes: tuple[str, ...], problems: tuple[str, ...], status: ExitStatus
) -> None:
    report = _report(*outcomes, problems=problems)
    assert report.status is status
    found = json.loads(to_json(report))
    assert found["schema_version"] == 1
    assert found["passed"] is (status is ExitStatus.PASSED)
    assert len(found["checks"]) == len(outcomes)
    junit = ET.fromstring(to_junit(report))
    red = int(junit.get("failures", "0")) + int(junit.get("errors", "0"))
    assert (red > 0) == bool(problems or "failed" in outcomes or "error" in outcomes)
    assert ("passed" in to_markdown(report).splitlines()[0]) is (status is ExitStatus.PASSED or "passed" in outcomes)
    table = _table(report)
    assert ("The smoke tests passed" in table) is (status is ExitStatus.PASSED)
    assert "\x1b" not in table
    assert "::error" not in table


def test_what_was_not_checked_is_listed_with_its_reason() -> None:
    report = _report("passed", "skipped")
    assert "not checked" in _table(report)
    assert "not checked" in to_markdown(report)
    assert ET.fromstring(to_junit(report)).get("skipped") == "1"
