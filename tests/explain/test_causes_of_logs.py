"""Real logs: the cause is right in 95 %, and the next configuration fits in 90 % of those that have one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from accuracy.causes import MOST_UNPLANNED, MOST_WRONG, LogCase, read_logs
from neuroscale.catalog.loading import load_catalog
from neuroscale.explain import Cause, diagnose, load_causes, read_lines
from neuroscale.repo.snapshot import FolderSnapshot
from roots import CHECKOUT, ROOT

LOGS = CHECKOUT / "tests" / "ground_truth" / "logs"


@cache
def cases() -> tuple[LogCase, ...]:
    return read_logs(LOGS)


@pytest.mark.parametrize("held_out", [False, True], ids=["written-on", "held-out"])
def test_the_cause_of_a_real_log_is_right(held_out: bool) -> None:
    judged = [case for case in cases() if case.held_out is held_out]
    wrong = [f"{case.source}: {case.found}, not {case.cause}" for case in judged if case.found != case.cause]
    assert len(wrong) <= MOST_WRONG * len(judged), "\n".join(wrong)


def test_there_are_enough_logs_and_a_third_is_held_out() -> None:
    held = sum(case.held_out for case in cases())
    assert len(cases()) >= 120
    assert len(cases()) / 4 <= held <= len(cases()) / 2
    assert len({case.source for case in cases()}) == len(cases())


def test_the_next_configuration_of_a_real_log_fits() -> None:
    catalog = load_catalog(FolderSnapshot(ROOT))
    planned = [case for case in cases() if case.planned_with]
    missing = [f"{case.source}: {reason}" for case in planned if (reason := case.without_next(catalog))]
    assert len(planned) >= 15
    assert len(missing) <= MOST_UNPLANNED * len(planned), "\n".join(missing)


@pytest.mark.parametrize("cause", load_causes(), ids=lambda cause: cause.name)
def test_a_cause_is_known_by_its_real_line(cause: Cause) -> None:
    assert cause.example, "write a real line, with its source"
    assert cause.example_source
    found = diagnose(read_lines(cause.example), load_causes())
    assert found.cause is cause


_FORMATS: dict[str, Callable[[str], str]] = {
    "kubectl --prefix --timestamps": lambda line: (
        f"[pod/chat-7d9f5-abcd1/server] 2026-11-28T18:00:01.123456789Z {line}"
    ),
    "stern": lambda line: f"chat-7d9f5-abcd1 kserve-container {line}",
    "docker compose": lambda line: f"vllm-1  | {line}",
    "the container runtime": lambda line: f"2026-11-28T18:00:01.123456789+00:00 stderr F {line}",
    "journald": lambda line: f"Nov 28 18:00:01 node7 vllm[8707]: {line}",
    "journald with another date": lambda line: f"2026-11-28T18:00:01+0000 node7 vllm[8707]: {line}",
    "docker's JSON": lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-11-28T18:00:00Z"}),
    "JSON": lambda line: json.dumps({"timestamp": "2026-11-28T18:00:00Z", "level": "ERROR", "message": line}),
    "JSON with fields": lambda line: json.dumps({"level": "ERROR", "fields": {"message": line}}),
    "colours": lambda line: f"\x1b[36m{line}\x1b[0m",
    "Ray": lambda line: f"\x1b[36m(ServeReplica pid=581, ip=10.2.3.4)\x1b[0m {line} [repeated 3x across cluster]",
    "a date": lambda line: f"2026-11-28 18:00:01,123 {line}",
    "pipes": lambda line: f"2026-11-28 18:00:01 | ERROR | stderr | {line}",
    "Windows": lambda line: f"{line}\r",
    "a quotation": lambda line: f"> {line}",
    "an indented block": lambda line: f"      {line}",
}


@pytest.mark.parametrize("form", _FORMATS)
def test_a_cause_is_known_in_the_form_of_each_collector(form: str) -> None:
    for case in cases()[:: len(cases()) // 25]:
        told = "\n".join(_FORMATS[form](line) for line in case.lines)
        diagnosis = diagnose(read_lines(told), load_causes())
        assert (diagnosis.cause.name if diagnosis.cause else diagnosis.verdict) == case.found, case.source
