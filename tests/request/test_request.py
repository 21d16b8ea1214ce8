"""The request file: typed, round-tripping, and clear about what is wrong."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import dump
from neuroscale.request.service_request import (
    OVERRIDE_FIELDS,
    KnownNames,
    Override,
    Request,
    check_request,
    dump_request,
    load_request,
    read_request,
)
from platform_repository import CATALOG, SETTINGS

GOOD: dict[str, Any] = {
    "schema_version": 1,
    "service": "support-chat",
    "model": "google/gemma-4-26B-A4B-it-qat-w4a16-ct",
    "team": "team-alpha",
    "environment": "dev",
    "concurrent_users": 8,
    "longest_prompt_tokens": 4000,
    "longest_answer_tokens": 500,
    "p95_ttft_seconds": 2,
    "availability": "standard",
}


def override(**changes: Any) -> dict[str, Any]:
    return {"field": "replicas.min", "value": 2, "reason": "launch week", "expires": "2027-01-31"} | changes


def told(error: InputError) -> None:
    """An error that can be printed, with something to do for every problem."""
    assert error.problems
    assert all(problem.message and problem.fix for problem in error.problems)
    str(error).encode()


def load(**changes: Any) -> Request:
    return load_request(dump(GOOD | changes), "request.yaml")


def refused(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load_request(text, "request.yaml")
    return caught.value


def test_a_request_round_trips() -> None:
    request = load(overrides=[override(), override(field="kv_cache_dtype", value="fp8")])
    assert request.p95_ttft_seconds == 2.0
    assert request.overrides[0].expires == date(2027, 1, 31)
    again = load_request(dump_request(request), "request.yaml")
    assert again == request
    assert dump_request(again) == dump_request(request)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("service", "Support", "lower-case"),
        ("service", "a" * 41, "lower-case"),
        ("service", "x\ny", "lower-case"),
        ("service", "x\n", "lower-case"),
        ("concurrent_users", 0, "1 to 4096"),
        ("concurrent_users", 8.5, "1 to 4096"),
        ("concurrent_users", "8", "1 to 4096"),
        ("concurrent_users", True, "1 to 4096"),
        ("longest_prompt_tokens", 2_000_000, "1 to 1048576"),
        ("p95_ttft_seconds", 0.0, "0.01 to 120"),
        ("p95_ttft_seconds", "soon", "0.01 to 120"),
        ("availability", "best", "standard or high"),
        ("model", 3, "Write text"),
        ("schema_version", 2, "Write 1"),
        ("gpus", 4, "Valid: "),
        ("overrides", {}, "Write a list"),
    ],
)
def test_a_wrong_answer_names_its_field_line_and_what_to_write(field: str, value: Any, words: str) -> None:
    text = dump(GOOD | {field: value})
    error = refused(text)
    problem = next(problem for problem in error.problems if problem.field == field)
    assert problem.where == "request.yaml"
    assert problem.line == next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(field))
    assert words in problem.fix


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_a_number_that_is_not_finite_is_refused_with_its_field(value: str) -> None:
    (problem,) = refused(dump(GOOD).replace("p95_ttft_seconds: 2", f"p95_ttft_seconds: {value}")).problems
    assert (problem.where, problem.field) == ("request.yaml", "p95_ttft_seconds")
    assert "Write a finite number" in problem.fix


def test_a_missing_answer_is_named() -> None:
    text = dump({key: value for key, value in GOOD.items() if key != "team"})
    assert "team: is missing" in str(refused(text))


def test_every_wrong_answer_is_told_at_once() -> None:
    error = refused(dump(GOOD | {"service": "NO", "concurrent_users": 0, "availability": "x", "colour": "red"}))
    assert {problem.field for problem in error.problems} == {"service", "concurrent_users", "availability", "colour"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"field": "gpus"}, "cannot be overridden"),
        ({"field": "accelerator_cuont"}, "Did you mean 'accelerator_count'?"),
        ({"value": 0}, "scale to zero is not offered"),
        ({"field": "replicas.max", "value": 0}, "scale to zero is not offered"),
        ({"value": "two"}, "Write a whole number from 1 to 1000"),
        ({"value": True}, "Write a whole number from 1 to 1000"),
        ({"field": "kv_cache_dtype", "value": "int4"}, "Write auto or fp8"),
        ({"field": "gpu_memory_utilization", "value": 0.99}, "0.50 to 0.95"),
        ({"field": "gpu_memory_utilization", "value": 0.91234567}, "three digits"),
        ({"field": "accelerator", "value": 4}, "the name of an accelerator"),
        ({"reason": "   "}, "the reason is empty"),
        ({"reason": ""}, "1 to 500 characters"),
        ({"reason": "x" * 501}, "1 to 500 characters"),
        ({"expires": "soon"}, "quoted date"),
        ({"expires": "2027-02-30"}, "quoted date"),
        ({"because": "x"}, "Valid: expires, field, reason, value"),
    ],
)
def test_a_bad_override_says_what_is_allowed(changes: dict[str, Any], words: str) -> None:
    text = dump(GOOD | {"overrides": [override(**changes)]})
    error = refused(text)
    assert words in str(error)
    assert all(problem.line for problem in error.problems)


def test_the_fields_that_an_override_may_set_are_listed() -> None:
    message = str(refused(dump(GOOD | {"overrides": [override(field="zzz")]})))
    assert all(field in message for field in OVERRIDE_FIELDS)


def test_one_field_cannot_be_overridden_twice() -> None:
    assert "overridden twice" in str(refused(dump(GOOD | {"overrides": [override(), override(value=3)]})))


def test_a_plain_date_is_refused_with_the_way_to_write_it() -> None:
    text = dump(GOOD | {"overrides": [override()]}).replace('"2027-01-31"', "2027-01-31")
    assert "Quote it" in str(refused(text))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model", "google/gemma-4-26B-A4B-it-qat-w4a16", "Did you mean 'google/gemma-4-26B-A4B-it-qat-w4a16-ct'?"),
        ("team", "team-alpa", "Did you mean 'team-alpha'?"),
        ("environment", "production", "dev, local, prod"),
        ("overrides", [override(field="accelerator", value="nvidia-l5")], "Did you mean 'nvidia-l4'?"),
    ],
)
def test_a_name_that_does_not_exist_gets_the_nearest(field: str, value: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        check_request(load(**{field: value}), KnownNames.of(CATALOG, SETTINGS), "request.yaml")
    assert words in str(caught.value)
    check_request(load(), KnownNames.of(CATALOG, SETTINGS), "request.yaml")


def test_a_file_with_unknown_names_and_other_mistakes_is_told_all_of_them_with_their_lines() -> None:
    text = dump(
        GOOD | {"team": "ghosts", "concurrent_users": 0, "overrides": [override(field="accelerator", value="x")]}
    )
    with pytest.raises(InputError) as caught:
        read_request(text, "request.yaml", CATALOG, SETTINGS)
    lines = text.splitlines()
    assert {problem.field: problem.line for problem in caught.value.problems} == {
        "team": lines.index("team: ghosts") + 1,
        "concurrent_users": lines.index("concurrent_users: 0") + 1,
        "overrides[0].value": next(number for number, line in enumerate(lines, 1) if "value: x" in line),
    }


NASTY = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=st.characters(categories=["Cs", "Cc", "Zs", "Po", "Ps", "Pe"]), max_size=20),
    st.sampled_from(
        [
            "x\ny: z",
            "${{ values.x }}",
            "{% raw %}",
            "$(reboot)",
            "`id`",
            "a: &b c",
            "*b",
            "!!python/object:os.system x",
            "---",
            "\u2028",
            "\ud800",
            "\U0001f600",
            "\x00",
            "\x7f",
            "yes",
            "0o17",
            "1_000",
            "2027-01-01",
            "=",
            "<<",
            "#",
            "null",
            "~",
            "é" * 30,
        ]
    ),
)
ANY = st.one_of(
    NASTY,
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.lists(NASTY, max_size=3),
    st.dictionaries(NASTY, NASTY, max_size=3),
)


@settings(max_examples=examples(1500), deadline=None, suppress_health_check=list(HealthCheck))
@given(field=st.sampled_from(sorted(GOOD)), value=ANY)
def test_any_value_in_any_field_is_a_request_or_a_clear_error(field: str, value: Any) -> None:
    text = json.dumps(GOOD | {field: value})  # JSON is YAML, and can spell what the YAML writer refuses
    try:
        request = load_request(text, "request.yaml")
    except InputError as error:
        told(error)
    else:
        assert getattr(request, field) == value
        assert load_request(dump_request(request), "request.yaml") == request


@settings(max_examples=examples(800), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.one_of(NASTY, st.binary(max_size=80).map(lambda data: data.decode("utf-8", "replace"))))
def test_any_text_as_a_file_is_a_clear_error(text: str) -> None:
    with pytest.raises(InputError):
        load_request(text, "request.yaml")


@settings(max_examples=examples(800), deadline=None, suppress_health_check=list(HealthCheck))
@given(field=st.sampled_from(["field", "value", "reason", "expires"]), value=ANY)
def test_any_value_in_an_override_is_an_override_or_a_clear_error(field: str, value: Any) -> None:
    text = json.dumps(GOOD | {"overrides": [override(**{field: value})]})
    try:
        request = load_request(text, "request.yaml")
    except InputError as error:
        told(error)
    else:
        assert isinstance(request.overrides[0], Override)
        assert load_request(dump_request(request), "request.yaml") == request
