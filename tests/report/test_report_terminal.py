"""The terminal views of a verdict and of a plan."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from rich.console import Console

from examples import examples
from neuroscale.gate.verdict import CHANGE_CHECK, Alterations, ChangedFiles, Finding, Outcome, Severity, Verdict
from neuroscale.planning.plan import AppliedOverride, Memory, Plan
from neuroscale.report.memory_bar import memory_bar
from neuroscale.report.plan_view import print_plan
from neuroscale.report.terminal import print_verdict
from report_examples import (
    EXAMPLES,
    FRAGMENTS,
    GEMMA_DENSE_REFUSED,
    GEMMA_MOE,
    VERDICTS,
    any_value,
    many_findings,
    nothing_to_check,
    passed,
    plain_folder,
    refused,
    untrusted,
    verdict,
    with_outcome,
)

_STYLE = re.compile(r"\x1b\[[\d;]*m")


def test_a_pass_ends_with_its_title() -> None:
    lines = _shown(passed()).splitlines()
    assert lines[-2:] == [
        "✔ Passed: 1 service checked",
        "  0 errors, 0 notices, +518.30 to +1,554.90 USD a month, exit status 0",
    ]
    assert "✔ Policies  passed   710 ms  14 of 14 pairs of policy and object, 12 of 12 tripwires caught" in lines


def test_a_refusal_shows_each_finding_with_its_fix() -> None:
    text = _shown(refused())
    assert "✘ Refused: 4 findings in 2 files\n  4 errors, 1 notice, +418.30 to +1,454.90 USD a month" in text
    assert "    line 31  policy/no-mutable-tags  InferenceService team-alpha/support-chat\n" in text
    assert "      Fix: Correct the field's name: did you mean limits?\n" in text
    assert "7.73 GiB too much" in text
    assert "Override: accelerator_count is 2 (planned: 1) until 2027-01-31: Load test" in text


def test_the_cost_is_told_by_service_and_cost_centre() -> None:
    text = _shown(refused())
    assert (
        "  dev/support-chat changed  past 518.30 to 1,554.90, new 1,036.60 to 3,109.80, "
        "difference +518.30 to +1,554.90\n"
    ) in text
    assert "  prod/long-documents added  past 0.00, new not known, difference not known\n" in text
    assert "  Total  past 618.30 to 1,654.90, new 1,036.60 to 3,109.80, difference +418.30 to +1,454.90\n" in text
    assert "Without a price: prod/long-documents, InferenceService team-alpha/long-documents predictor (no pr" in text
    assert "Cost" not in _shown(nothing_to_check())


def test_what_a_change_loosens_stands_right_above_the_title() -> None:
    told = "costs.over_budget: `block` → `off`"
    alert = Finding(
        gate=CHANGE_CHECK,
        rule="weaker-rule",
        severity=Severity.NOTICE,
        file="platform/settings.yaml",
        message=told,
        fix="",
    )
    files = ChangedFiles(kind="settings file", review=True, count=1, protected=1, files=())
    value = refused()
    findings = (*value.findings, alert)
    text = _shown(value.model_copy(update={"findings": findings, "altered": Alterations(files=(files,))}))
    assert "\nWhat the change alters: 1 file\n  - 1 settings file" in text
    assert f"\nLook at this first\n  - weaker rule · platform/settings.yaml · {told}\n\n✘ Refused" in text
    assert text.count(told) == 1
    many = _shown(value.model_copy(update={"findings": (*value.findings, *[alert] * 33)}))
    assert "and 3 more notices, see the JSON report: 3 weaker rule" in many


def test_an_untrusted_run_says_so_with_its_reason() -> None:
    text = _shown(untrusted())
    assert "‼ Policies  cannot be trusted" in text
    assert "caught 11 of 12 tripwires" in text
    assert "\n‼ The gate cannot be trusted, so this is not a verdict: Policies\n" in text


def test_a_check_that_was_not_run_is_no_pass() -> None:
    text = _shown(plain_folder())
    assert "- Drift     not run\n    no service folder of this repository is among the files\n" in text
    assert "1 check not run" in text


def test_nothing_to_check_shows_the_tripwires() -> None:
    text = _shown(nothing_to_check())
    assert "0 of 0 objects, 3 of 3 tripwires caught" in text
    assert "✔ Nothing to check" in text


def test_many_findings_are_cut_with_an_honest_count() -> None:
    text = _shown(many_findings(1000))
    assert text.count("finding ") == 30
    assert "  and 970 more, see the JSON report\n" in text
    assert "  50 x policy/rule-0\n" in text
    assert "1,000 errors" in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pipe_gets_no_colours_and_a_terminal_the_same_words(name: str) -> None:
    value = EXAMPLES[name]()
    plain, coloured = _shown(value), _shown(value, terminal=True, width=700)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert _STYLE.sub("", coloured) == plain


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_is_never_overrun(name: str, width: int) -> None:
    lines = _STYLE.sub("", _shown(EXAMPLES[name](), terminal=True, width=width)).splitlines()
    assert all(len(line) <= width + 6 for line in lines)  # an indented line keeps 20 characters of its own


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_terminal_that_has_only_ascii_is_not_given_more(name: str) -> None:
    text = _shown(EXAMPLES[name](), encoding="ascii")
    assert text.isascii()
    assert "✘" not in text


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    finding = Finding(gate="g", rule="r", file="[bold]x[/].yaml", message="[red]m[/red] :tada:", fix="[link=x]f[/link]")
    text = _shown(verdict(with_outcome("policy", Outcome.FINDINGS), findings=(finding,)), terminal=True)
    for part in ("[bold]x[/].yaml", "[red]m[/red] :tada:", "[link=x]f[/link]"):
        assert part in text


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_hostile_text_controls_neither_the_terminal_nor_a_workflow(fragment: str) -> None:
    finding = Finding(gate=fragment, rule=fragment, file=fragment, subject=fragment, message=fragment, fix=fragment)
    value = verdict(with_outcome("policy", Outcome.FINDINGS, detail=fragment), fragment, findings=(finding,))
    _assert_harmless(_shown(value, terminal=True, width=30))


@settings(deadline=None)
@given(VERDICTS)
def test_any_verdict_is_shown_without_harm(value: Verdict) -> None:
    _assert_harmless(_shown(value, terminal=True, width=60))
    _assert_harmless(_shown(value, encoding="ascii"))


@settings(deadline=None, max_examples=examples(50))
@given(any_value(Plan))
def test_any_plan_is_shown_without_harm(plan: Plan) -> None:
    _assert_harmless(_shown(plan, terminal=True, width=60))


def test_a_plan_shows_what_was_chosen_and_why() -> None:
    lines = _shown(GEMMA_MOE).splitlines()
    assert lines[0] == "dev/support-chat fits"
    assert lines[1] == ("  gemma-4-26B-A4B-it-qat-w4a16-ct on 1 x nvidia-l4, tensor parallel size 1, 1 to 3 replicas")
    assert "  Price: from 0.71 USD an hour, 518.30 to 1,554.90 USD a month of 730 h (price of 2026-11-01)" in lines
    assert (
        "  Startup: up to 6 min 50 s to ready (fetching 3 min, loading 50 s, compiling 100 s, the rest 80 s), "
        "the startup probe allows 20 min 30 s, 60 s to end"
    ) in lines
    assert "  Why: confidence medium, 4 reasons" in lines
    assert any("--max-model-len=8192" in line for line in lines)


def test_a_refused_plan_shows_the_numbers_and_what_works_instead() -> None:
    text = _shown(GEMMA_DENSE_REFUSED)
    assert "prod/long-documents refused" in text
    assert "7.73 GiB too much" in text
    assert "gemma-4-31B-it-qat-w4a16-ct on 1 x nvidia-rtx-pro-6000, 3.76 USD an hour" in text
    assert "Price" not in text


def test_a_plan_without_a_price_names_what_lacks_one() -> None:
    cost = GEMMA_MOE.cost.model_copy(update={"hourly": None, "monthly_min": None, "monthly_max": None})
    assert "Price: unknown: the catalog has no price for nvidia-l4" in _shown(
        GEMMA_MOE.model_copy(update={"cost": cost})
    )


def test_an_override_is_shown_with_its_reason_and_last_day() -> None:
    day = GEMMA_MOE.cost.price_date
    assert day is not None
    override = AppliedOverride(field="max_model_len", value=4096, planned="8192", reason="short chats", expires=day)
    text = _shown(GEMMA_MOE.model_copy(update={"overrides": (override,)}))
    assert "Override: max_model_len is 4096 (planned: 8192) until 2026-11-01: short chats" in text


def test_the_memory_bar_shows_each_part_in_proportion() -> None:
    bar, legend = memory_bar(Memory(weights=10, kv_cache=5, overhead=2.5, usable=20, free=2.5), 40).split("\n")
    assert bar == "█" * 20 + "▓" * 10 + "▒" * 5 + "░" * 5
    assert legend == "█ weights 10.00  ▓ KV cache 5.00  ▒ overhead 2.50  ░ free 2.50  of 20.00 GiB"


def test_the_memory_bar_of_what_does_not_fit_ends_behind_the_usable_memory() -> None:
    memory = Memory(weights=30, kv_cache=8, overhead=2, usable=20, free=-20)
    bar, ruler, legend = memory_bar(memory, 40).split("\n")
    assert bar == "█" * 30 + "▓" * 8 + "▒" * 2
    assert ruler.index("┤") == 19
    assert "20.00 usable" in ruler
    assert legend.endswith("20.00 GiB too much")


def test_the_memory_bar_never_hides_a_small_part() -> None:
    bar = memory_bar(Memory(weights=79, kv_cache=0.01, overhead=0.01, usable=80, free=0.98), 20).split("\n")[0]
    assert [bar.count(symbol) for symbol in "█▓▒░"] == [17, 1, 1, 1]


@settings(deadline=None)
@given(any_value(Memory))
def test_any_memory_has_a_bar_of_the_width_asked_for(memory: Memory) -> None:
    bar, *rest = memory_bar(memory, 30).split("\n")
    assert len(bar) == 30
    assert ("too much" in rest[-1]) == (memory.free < 0)
    assert memory_bar(memory, 30, ascii_only=True).isascii()


def _shown(value: Verdict | Plan, *, terminal: bool = False, width: int = 100, encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding, newline="")
    console = Console(
        file=file,
        width=width,
        force_terminal=terminal,
        color_system="standard" if terminal else None,
        legacy_windows=False,
    )
    if isinstance(value, Plan):
        print_plan(value, console)
    else:
        print_verdict(value, console)
    file.flush()
    return buffer.getvalue().decode(encoding)


def _assert_harmless(text: str) -> None:
    text = _STYLE.sub("", text)
    assert all(character == "\n" or character.isprintable() for character in text)
    assert "##[" not in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
