"""What counts as passed, failed, on its way, or not looked at: from the files that the commands leave."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from after_merge_lab import Seen, check, failing, passing
from cluster_lab import run
from neuroscale.actions.workflow_environment import GATEWAY_VARIABLE
from neuroscale.cli.after_merge import curl
from neuroscale.core.errors import ExitStatus
from neuroscale.forge.after_merge.comments import MARKER, Record, Told, comment, read_record
from neuroscale.forge.after_merge.evidence import SMOKE, STATUS, Evidence, ServiceEvidence, read_evidence
from neuroscale.forge.after_merge.reactions import status_of
from neuroscale.forge.interface import Account, Comment
from neuroscale.repo.layout import ServicePath
from neuroscale.smoke.results import Result
from printed_commands import commands_in, refusal
from repositories import Repository
from roots import ROOT

COMMIT = "a" * 40


def read(folder: Path, seen: Seen) -> Evidence:
    seen.write(folder, COMMIT)
    return read_evidence(folder, seen.environment)


def outcomes(found: Evidence) -> dict[str, str]:
    return {one.path.service: one.outcome for one in found.services}


def test_each_service_is_judged_by_its_own_checks(tmp_path: Path) -> None:
    found = read(tmp_path, Seen([*passing("one"), *failing("two"), check("three", "health", "error")]))
    assert outcomes(found) == {"one": "passed", "two": "failed", "three": "untrusted"}
    assert found.revision == COMMIT
    assert status_of([found]) is ExitStatus.FINDINGS


def test_what_a_short_benchmark_measured_is_told_and_decides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "dev" / "bench"
    reason = "<script> the server is gone"
    for name, text in {
        "one": json.dumps({"schema_version": 1, "cells": [{"state": "failed", "reason": reason, "measured": None}]}),
        "two": "{}",
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "bench.json").write_text(text)
    found = read(tmp_path, Seen([*passing("one"), *passing("two"), *passing("three")]))
    assert set(outcomes(found).values()) == {"passed"}
    told = {one.path.service: one.measured for one in found.services}
    assert told["one"].startswith("A short benchmark measured nothing: failed. <script>")
    assert told["two"] == "The short benchmark left no result that can be read."
    assert told["three"] == ""
    text = comment(Told(found.services, (), (), "https://run", {}), None, ())
    assert "A short benchmark measured nothing" in text
    assert "<script>" not in text


def test_checks_that_the_old_version_passed_settle_nothing(tmp_path: Path) -> None:
    rows = [{**one, "version": "old"} for one in passing("one")]
    found = read(tmp_path, Seen([*rows, *({**one, "version": "new"} for one in passing("two"))]))
    assert outcomes(found) == {"one": "waiting", "two": "passed"}
    assert status_of([found]) is ExitStatus.FINDINGS


def test_the_way_alone_reverts_nothing_until_a_second_run_fails_too(tmp_path: Path) -> None:
    rows = {name: failing(name) for name in ("cut", "dead", "wrong")}
    for name, ways in (("cut", ["once", "once"]), ("dead", ["once", "twice"]), ("wrong", ["once", ""])):
        bad = [one for one in rows[name] if one["outcome"] == "failed"]
        more = [{**bad[0], "check": f"more-{place}", "way": way} for place, way in enumerate(ways)]
        rows[name] = [one for one in rows[name] if one["outcome"] != "failed"] + more
    found = read(tmp_path, Seen([*rows["cut"], *rows["dead"], *rows["wrong"]]))
    assert outcomes(found) == {"cut": "untrusted", "dead": "failed", "wrong": "failed"}
    assert "no second run" in found.services[0].why
    alone = read(tmp_path, Seen([*rows["cut"], *passing("good")]))
    assert status_of([alone]) is ExitStatus.UNTRUSTED


def test_a_failure_says_first_why_the_cluster_calls_it_failed(tmp_path: Path) -> None:
    found = read(tmp_path, Seen(failing("one"), verdicts={"one": "failed"}))
    assert [(one.outcome, one.why != "") for one in found.services] == [("failed", True)]


def test_a_check_of_the_environment_that_fails_is_nobodys_failure_and_makes_the_run_red(tmp_path: Path) -> None:
    rows = [*passing("one"), *failing("two"), check("", "admission", "failed")]
    found = read(tmp_path, Seen(rows))
    assert outcomes(found) == {"one": "environment", "two": "failed"}
    assert status_of([found]) is ExitStatus.FINDINGS
    for services, words in ((found.services[:1], "failed for the whole environment"), (found.services, "failed:")):
        heading = comment(Told(services, (), found.checks, "https://forge.example.com/run", {}), None, ()).split("\n")[
            0
        ]
        assert heading.startswith(f"## ❌ Smoke test {words}")
    assert not Record.of(found.services, 0).passed("dev/one")


def test_a_check_of_the_environment_that_cannot_decide_lets_no_service_pass(tmp_path: Path) -> None:
    found = read(tmp_path, Seen([*passing("one"), check("", "admission", "error")]))
    assert outcomes(found) == {"one": "untrusted"}
    assert not Record.of(found.services, 0).passed("dev/one")


def test_a_service_that_still_starts_is_not_the_heading_where_its_whole_environment_fails() -> None:
    starting = ServiceEvidence(ServicePath("dev", "one"), "waiting")
    shared = (Result("", "admission", "Admission", "failed"),)
    assert comment(Told((starting,), (), shared, "", {}), None, ()).startswith(
        "## ❌ Smoke test failed for the whole environment: `dev/one`"
    )


def test_a_service_with_checks_that_another_check_kept_from_running_has_not_passed(tmp_path: Path) -> None:
    kept = {**check("one", "chat", "skipped", "the API server does not know its caller"), "needs": "identity"}
    found = read(tmp_path, Seen([check("one", "health"), kept, check("", "identity", "failed")]))
    assert outcomes(found) == {"one": "untrusted"}
    assert "identity" in found.services[0].why
    simulated = Seen([check("one", "health"), check("one", "chat", "skipped", "its nodes are simulated")])
    assert outcomes(read(tmp_path, simulated)) == {"one": "passed"}


def test_what_was_only_skipped_was_not_passed(tmp_path: Path) -> None:
    found = read(tmp_path, Seen([*passing("one"), check("two", "chat", "skipped", "simulated")]))
    assert outcomes(found)["two"] == "untrusted"
    assert status_of([found]) is ExitStatus.UNTRUSTED


def test_no_environment_and_no_service_is_not_passed(tmp_path: Path) -> None:
    assert status_of([]) is ExitStatus.UNTRUSTED
    assert status_of([read(tmp_path, Seen([]))]) is ExitStatus.UNTRUSTED


def _without(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).unlink()

    return act


def _edited(name: str, **fields: Any) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return act


def _text(name: str, text: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).write_text(text)

    return act


@pytest.mark.parametrize(
    "spoil",
    [
        _without(SMOKE),
        _without(STATUS),
        _text(SMOKE, ""),
        _text(SMOKE, '{"schema_version": 1'),
        _text(SMOKE, "[]"),
        _text(STATUS, "The cluster does not answer"),
        _edited(SMOKE, schema_version=2),
        _edited(SMOKE, environment="prod"),
        _edited(SMOKE, passed=True),
        _edited(SMOKE, checks=[{"service": "one"}]),
        _edited(SMOKE, checks="none"),
        _edited(SMOKE, problems=["it crashed"]),
        _edited(STATUS, services=[{"name": "one"}]),
    ],
)
def test_a_report_that_is_missing_broken_or_another_ones_is_never_believed(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    seen = Seen(failing("one"))
    seen.write(tmp_path, COMMIT)
    spoil(tmp_path / seen.environment)
    found = read_evidence(tmp_path, seen.environment)
    assert not found.trusted
    assert "failed" not in outcomes(found).values()
    assert status_of([found]) is ExitStatus.UNTRUSTED


def test_a_service_that_the_cluster_says_nothing_of_is_not_called_failed(tmp_path: Path) -> None:
    seen = Seen(failing("one"))
    seen.write(tmp_path, COMMIT)
    _edited(STATUS, services=[])(tmp_path / "dev")
    assert outcomes(read_evidence(tmp_path, "dev")) == {"one": "untrusted"}


def test_a_command_that_asks_the_service_is_handed_out_where_it_was_seen_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = read(tmp_path, Seen(passing("one"))).services
    assert "--connect-to" not in curl(one)
    gateway = {"state": "/platform/state", "authority": "/platform/authority.crt", "port": 24443}
    monkeypatch.setenv(GATEWAY_VARIABLE, json.dumps(gateway))
    command = curl(one)
    assert "--connect-to one.example.com:443:127.0.0.1:24443" in command
    assert "--cacert /platform/authority.crt" in command
    assert "--state=/platform/state" in command
    assert [refusal(one) for one in commands_in(command)] == [""]
    (silent,) = read(tmp_path, Seen([check("one", "application")])).services
    assert curl(silent) == ""


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"authority": "/a", "port": "x", "state": "/s"}', '{"port": 1}'])
def test_a_gateway_that_is_not_told_is_an_error_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(GATEWAY_VARIABLE, text)
    done = run("after-merge", tmp_path, "--environment", "dev", "--repository", ROOT)
    assert done.status == ExitStatus.UNUSABLE
    assert GATEWAY_VARIABLE in done.err


def test_a_name_that_no_environment_has_is_an_error_and_one_without_services_is_said(tmp_path: Path) -> None:
    options = (tmp_path, "--repository", ROOT)
    wrong = run("after-merge", *options, "--environment", "prodd")
    assert wrong.status == ExitStatus.UNUSABLE
    assert "'prodd' is not in the settings" in wrong.err
    for folder in ("platform", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / "repository" / folder)
    Repository(tmp_path / "repository").commit({})
    none = run("after-merge", tmp_path, "--repository", tmp_path / "repository", "--environment", "prod")
    assert none.status == ExitStatus.PASSED
    assert "nothing was tested" in none.out


def told(name: str = "dev/one--two>") -> str:
    environment, service = name.split("/")
    record = Record.of([ServiceEvidence(ServicePath(environment, service), "passed")], 7)
    return f"{MARKER}\n<!-- neuroscale-run -->\n{record.line()}\ntext"


BOT = Account("bot", "Bot", "bot@example.org")


def test_a_record_is_read_back_and_its_line_stays_one_hidden_comment() -> None:
    body = told()
    found = read_record([Comment(1, "bot", body.replace("\n", "\r\n"))], BOT)
    assert found is not None
    assert found.passed("dev/one--two>")
    assert found.revert == 7
    assert body.split("\n")[2].count("-->") == 1
    assert "--" not in body.split("\n")[2].removeprefix("<!--").removesuffix("-->")


@pytest.mark.parametrize(
    "written",
    [
        Comment(1, "somebody", told()),
        Comment(1, "bot", f"> {told()}"),
        Comment(1, "bot", told().replace('"revert"', '"other"')),
        Comment(1, "bot", MARKER),
    ],
    ids=["somebody else's", "quoted", "of another shape", "cut"],
)
def test_no_other_record_is_believed(written: Comment) -> None:
    assert read_record([written], BOT) is None


def test_an_apps_record_is_believed_of_apps_alone() -> None:
    app = Account("github-actions[bot]", "App", "app@example.org")
    assert read_record([Comment(1, "our-app[bot]", told())], app) is not None
    assert read_record([Comment(1, "somebody", told())], app) is None
