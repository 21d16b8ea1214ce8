"""The comment on a pull request: what it says, and that nothing in a change can turn into structure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from examples import examples
from neuroscale.core.printable import markdown as prose
from neuroscale.core.printable import markdown_cell, markdown_code, one_line
from neuroscale.costs.bill import CostChange, TokenPrice, UnpricedItem
from neuroscale.gate.verdict import (
    CHANGE_CHECK,
    Alterations,
    ChangedFile,
    ChangedFiles,
    ChangedValue,
    Check,
    Effect,
    Effects,
    Finding,
    Outcome,
    ServiceReport,
    Severity,
    Verdict,
)
from neuroscale.planning.plan import Alternative, AppliedOverride, Replicas
from neuroscale.report.markdown import MARKER, markdown
from neuroscale.request.service_request import ChangedAnswer
from report_examples import (
    CHAT,
    CHECKS,
    EXAMPLES,
    FRAGMENTS,
    GEMMA_DENSE_REFUSED,
    GEMMA_MOE,
    HOSTILE,
    NOTHING,
    PRICE_LIST,
    VERDICTS,
    cost_of,
    many_findings,
    nothing_to_check,
    passed,
    plain_folder,
    refused,
    untrusted,
    verdict,
    with_outcome,
)

LIMIT = 60_000  # bytes; GitHub refuses more than 65,536 characters

_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_OWN_HTML = re.compile(
    r"<!-- (neuroscale-gate)? ?-->|<br>|<details>|</details>"
    r"|<summary>(Confidence|What was checked|What the change alters)[\w ,:.+-]*</summary>|\s"
)
_TURNED_INTO_LINKS = re.compile(r"@\w|[#!]\d|\bGH-\d|://|\bwww\.|\bmailto:\w|:[\w+-]+:", re.IGNORECASE)


def test_a_pass_says_so_with_its_price_and_memory() -> None:
    text = markdown(passed())
    assert text.splitlines()[0] == MARKER
    assert "## ✅ Passed: 1 service checked" in text
    assert "**0 errors**" in text
    assert "**+518.30 to +1,554.90 USD a month**" in text
    assert "from 0.71 USD an hour, 518.30 to 1,554.90 USD a month of 730 h (price of 2026-11-01)" in text
    assert "weights 14.37  ▓ KV cache 2.11  ▒ overhead 2.40  ░ free 1.81  of 20.69 GiB" in text
    assert "What was checked: 5 checks, 26 of 26 tripwires caught" in text


def test_a_refusal_names_file_line_rule_message_and_fix() -> None:
    text = markdown(refused())
    assert "## ❌ Refused: 4 findings in 2 files" in text
    assert "**4 errors** · 1 notice · 3 services" in text
    assert "**`manifests/dev/support-chat/inferenceservice.yaml`**" in text
    assert "- line 31 · `policy/no-mutable-tags` · `InferenceService team-alpha/support-chat`" in text
    assert "did you mean limits?" in text
    assert "Run `neuroscale render`, or put" in text


def test_notices_stand_apart_from_the_findings_that_refuse() -> None:
    text = markdown(refused())
    assert text.index("### Findings") < text.index("drift/refused-plan") < text.index("### Notices")
    assert text.index("### Notices") < text.index("drift/stale-lock")


def test_a_refused_plan_shows_what_is_missing_and_what_works() -> None:
    text = markdown(refused())
    assert "7.73 GiB too much" in text
    assert "so 7.73 GiB are missing" in text
    assert "on 1 x `nvidia-rtx-pro-6000`, 3.76 USD an hour" in text


def changed(**facts: Any) -> Verdict:
    """A change of a running service, of which everything that a reader looks for is another one than before."""
    before = GEMMA_MOE.model_copy(update={"accelerator_count": 2, "tensor_parallel_size": 2})
    after = GEMMA_MOE.model_copy(
        update={
            "reasons": ("It fits.", "On each accelerator, of 20.69 GiB usable: weights 14.37 GiB."),
            "replicas": Replicas(min=1, max=1),
            "cost": GEMMA_MOE.cost.model_copy(update={"monthly_max": GEMMA_MOE.cost.monthly_min}),
        }
    )
    asked = (
        ChangedAnswer(field="concurrent_users", before="4", after="8"),
        ChangedAnswer(field="overrides.rollout", before=None, after="surge until 2027-01-31"),
    )
    service = ServiceReport(
        environment="dev", name="chat", change="changed", plan=after, plan_before=before, answers=asked, **facts
    )
    return verdict(services=(service,), cost=passed().cost)


def test_the_comment_of_a_change_tells_the_answers_the_merge_the_memory_and_the_money_in_this_order() -> None:
    text = markdown(changed(quota=7))
    parts = (
        "**Asked for** Concurrent users: `4` to `8`; `overrides.rollout`: not set to `surge until 2027-01-31`",
        "**The merge** No gap: each old pod answers until a new one is ready (about 8 min). "
        "The rollout needs 1 more `nvidia-l4` for about 8 min. The team's quota holds 7 `nvidia.com/gpu`.",
        "█ weights 14.37",
        "**Price** 0.71 USD an hour, 518.30 USD a month of 730 h (price of 2026-11-01); before, from 0.71 USD an hour",
        "### Cost",
    )
    places = [text.find(part) for part in parts]
    assert -1 not in places, text
    assert places == sorted(places)


@pytest.mark.parametrize("change", ["added", "changed"])
def test_a_service_shows_its_memory_once(change: str) -> None:
    (service,) = changed().services
    text = markdown(verdict(services=(service.model_copy(update={"change": change}),)))
    assert (text.count("14.37"), text.count("2.11"), text.count("mermaid")) == (1, 1, 0)
    assert "It fits." in text


def test_a_change_of_no_pod_says_that_nothing_restarts() -> None:
    ending = "**The merge** No restart: at most 1 replica from then on; pods beyond that end."
    assert ending in markdown(changed(same_pods=True)), "the autoscaler ends what is beyond the highest number"
    (service,) = changed(same_pods=True).services
    assert service.plan is not None
    before = GEMMA_MOE.model_copy(update={"replicas": service.plan.replicas})
    same = verdict(services=(service.model_copy(update={"plan_before": before}),))
    assert "**The merge** Nothing: the running pods stay as they are." in markdown(same)


def test_a_changed_plan_shows_old_and_new() -> None:
    text = markdown(refused())
    assert "accelerators from 1 x `nvidia-l4` to 2 x `nvidia-l4`" in text


def test_the_cost_stands_per_service_and_cost_centre_with_past_new_and_difference() -> None:
    text = markdown(refused())
    assert "**+418.30 to +1,454.90 USD a month, cost of 1 service not known**" in text
    for row in (
        "| prod/long-documents added | 0.00 | not known | not known |",
        "| dev/support-chat changed | 518.30 to 1,554.90 | 1,036.60 to 3,109.80 | +518.30 to +1,554.90 |",
        "| dev/old-chat removed | 100.00 | 0.00 | -100.00 |",
        "| **Total** | 618.30 to 1,654.90 | 1,036.60 to 3,109.80 | +418.30 to +1,454.90 |",
        "| cc-1001 | 618.30 to 1,654.90 | 1,036.60 to 3,109.80 | +418.30 to +1,454.90 |",
    ):
        assert row in text.splitlines()


def test_the_cost_says_what_it_rests_on_and_what_has_no_price() -> None:
    text = markdown(refused())
    assert "USD a month of 730 h" in text
    assert "The total leaves out 1 service" in text
    assert "Prices of 2026-11-01: google-cloud (on-demand list price, US regions). They are more than 90 days" in text
    assert "At the prices before, the difference is +400.00 to +1,400.00 USD a month." in text
    assert "`dev/support-chat`: about 3.23 USD for a million output tokens, estimated for one user at a time" in text
    assert "predictor` (no price list of the environment prod has a price for 1 x nvidia-h200-141gb)" in text


@pytest.mark.parametrize("value", [nothing_to_check(), plain_folder(), untrusted()])
def test_a_change_without_a_cost_is_silent_about_it(value: Verdict) -> None:
    text = markdown(value)
    assert "### Cost" not in text
    assert "USD" not in text.split("### Services")[0]


@pytest.mark.parametrize("count", [30, 1_000])
def test_many_services_stay_below_the_limit_with_an_honest_count(count: int) -> None:
    rows = [("prod", f"service-{number:04}", "added", NOTHING, CHAT) for number in range(count)]
    lost = [("prod", f"lost-{number:04}", "added", NOTHING, None) for number in range(count)]
    text = markdown(many_findings(3 * count).model_copy(update={"cost": cost_of(*rows, *lost)}))
    assert len(text.encode()) < LIMIT
    table = text[text.index("### Cost") :]
    left = re.search(r"- and ([\d,]+) more services, see the JSON report", table)
    assert left is not None
    assert len(re.findall(r"^\| prod/", table, re.MULTILINE)) + int(left[1].replace(",", "")) == 2 * count
    assert f"| **Total** | 0.00 | {518.30 * count:,.2f} to " in table


def test_what_services_would_get_is_shown_and_its_text_is_only_text() -> None:
    effect = Effect(
        kind="NetworkPolicy", field="spec.a", before=None, after="`@ops` <b>|", services=1_200, example="dev/chat"
    )
    shown = passed().model_copy(update={"effects": Effects(rendered=24, changed=24, differences=(effect,), left_out=7)})
    text = markdown(shown)
    assert "24 of 24 services rendered again would change" in text
    assert "`NetworkPolicy` `spec.a`: not there → `` `@ops` <b>| `` (1,200 services, such as `dev/chat`)" in text
    assert "and 7 more differences, see the JSON report" in text
    _assert_inert(_PARSER.parse(text))
    nothing = shown.model_copy(update={"effects": Effects(rendered=4, changed=0)})
    assert "their objects are the same" in markdown(nothing)


def test_what_a_change_loosens_stands_at_the_top_and_what_else_it_alters_is_folded() -> None:
    alerts = [
        Finding(gate=CHANGE_CHECK, rule=rule, severity=Severity.NOTICE, file=file, message=told, fix="Read it.")
        for rule, file, told in (
            ("moved-fact", "a.yaml", "memory_gib.value: `141` → `500`"),
            ("weaker-rule", "platform/settings.yaml", "costs.over_budget: `block` → `off`"),
        )
    ]
    files = ChangedFiles(
        kind="model", review=True, count=9, protected=0, files=(ChangedFile(path="a.yaml", change="added"),) * 9
    )
    values = (ChangedValue(kind="model", file="a.yaml", field="title", before=None, after="b"),)
    altered = Alterations(files=(files,), values=values, left_out=3)
    value = refused()
    text = markdown(value.model_copy(update={"findings": (*value.findings, *alerts), "altered": altered}))
    top = text[: text.index("### Findings")]
    assert "Beside services, the change touches 9 models." in top
    rows = [line for line in top[top.index("### Look at this first") :].splitlines() if line.startswith("- ")]
    assert rows == [
        "- weaker rule · `platform/settings.yaml` · costs.over\\_budget: `block` → `off`",
        "- moved fact · `a.yaml` · memory\\_gib.value: `141` → `500`",
    ]
    assert "weaker-rule" not in text[text.index("### Notices") :]
    folded = text[text.index("<details><summary>What the change alters: 9 files, 4 values</summary>") :]
    assert "- 9 models · `a.yaml` (added), " in folded
    assert "- `a.yaml` `title`: not there → `b`\n\n- and 3 more rows, see the JSON report" in folded


def test_many_notices_of_one_kind_do_not_hide_the_kinds_of_the_others() -> None:
    """The bound leaves some out; the last line says which."""
    rules = ["weaker-policy"] * 40 + ["raised-budget"]
    alerts = [
        Finding(
            gate=CHANGE_CHECK, rule=rule, severity=Severity.NOTICE, file="a.yaml", message="`x` " * 60, fix="Read it."
        )
        for rule in rules
    ]
    value = refused()
    value = value.model_copy(update={"findings": (*value.findings, *alerts)})
    text = markdown(value)
    part = text[text.index("### Look at this first") : text.index("### Findings")].strip()
    shown = part.count("- weaker policy · ")
    assert part.endswith(
        f"- and {41 - shown} more notices, see the JSON report: {40 - shown} weaker policy, 1 raised budget"
    )
    assert len(part.encode()) <= 4_500


def test_an_override_is_shown_with_its_reason_and_last_day() -> None:
    text = markdown(refused())
    assert "**Override** `accelerator_count` is `2` (planned: `1`) until 2027-01-31: Load test of" in text


def test_a_service_that_stays_the_same_is_only_counted() -> None:
    same = ServiceReport(environment="dev", name="a", change="checked", plan=GEMMA_MOE, plan_before=GEMMA_MOE)
    text = markdown(verdict(services=(same, same.model_copy(update={"name": "b"}))))
    assert "2 services checked whose plan stays the same." in text
    assert "USD" not in text
    assert "weights" not in text


def test_a_change_of_other_files_than_the_plan_says_what_it_does_to_the_pods() -> None:
    same = ServiceReport(environment="dev", name="a", change="changed", plan=GEMMA_MOE, plan_before=GEMMA_MOE)
    for same_pods, told in ((False, "No gap: each old pod answers until a new one is ready"), (True, "Nothing: the ")):
        text = markdown(verdict(services=(same.model_copy(update={"same_pods": same_pods}),)))
        assert f"**The merge** {told}" in text
        assert "**Asked for** the same as before" in text


def test_what_has_no_price_is_named() -> None:
    cost = GEMMA_MOE.cost.model_copy(update={"hourly": None, "monthly_min": None, "monthly_max": None})
    plan = GEMMA_MOE.model_copy(update={"cost": cost, "accelerator": "nvidia-h200-141gb"})
    text = markdown(verdict(services=(ServiceReport(environment="dev", name="a", change="added", plan=plan),)))
    assert "**Price** unknown" in text
    assert "the catalog has no price for `nvidia-h200-141gb`" in text


def test_an_untrusted_run_says_why_and_that_it_is_no_judgement() -> None:
    text = markdown(untrusted())
    assert "## 🛑 The gate cannot be trusted, so this is not a verdict: Policies" in text
    assert "**This is not a judgement of the change.**" in text
    assert "caught 11 of 12 tripwires" in text
    assert "✅ Passed" not in text


def test_nothing_to_check_still_shows_the_tripwires() -> None:
    text = markdown(nothing_to_check())
    assert "## ✅ Nothing to check" in text
    assert "26 of 26 tripwires caught" in text
    assert "0 of 0 objects" in text


def test_a_check_that_was_not_run_is_listed_with_its_reason() -> None:
    text = markdown(plain_folder())
    heading = text.index("### Not checked")
    assert text.index("**Drift** not run: no service folder of this repository is among the files") > heading
    assert "What was checked: 4 checks" in text


def test_a_headline_cannot_say_passed_over_a_run_that_did_not() -> None:
    value = verdict(with_outcome("policy", Outcome.FINDINGS), "Passed: everything is fine")
    assert "## ❌ Refused: Passed: everything is fine" in markdown(value)


@pytest.mark.parametrize(
    "value",
    [
        Verdict(tool_version="1", exit_status=0, headline="Passed"),
        Verdict(tool_version="1", exit_status=0, headline="Passed", checks=with_outcome("x", Outcome.PASSED)[:0]),
        verdict((CHECKS[0].model_copy(update={"outcome": Outcome.NOT_RUN}),), "Passed"),
    ],
)
def test_a_run_without_a_check_that_passed_is_not_a_pass(value: Verdict) -> None:
    assert "## 🛑 The gate cannot be trusted" in markdown(value)


def test_exit_status_0_over_an_error_is_shown_as_refused() -> None:
    value = verdict(findings=refused().findings)
    assert value.exit_status == 0
    assert "## ❌ Refused" in markdown(value)


@pytest.mark.parametrize("count", [31, 1_000, 10_000])
def test_many_findings_stay_below_the_limit_with_an_honest_count(count: int) -> None:
    text = markdown(many_findings(count))
    assert len(text.encode()) < LIMIT
    assert f"**{count:,} errors**" in text
    shown = text.count("<br>finding ")
    left = re.search(r"- and ([\d,]+) more findings?, see the JSON report", text)
    assert left is not None
    assert shown + int(left[1].replace(",", "")) == count


@pytest.mark.parametrize("piece", ["@a", "\U0001f600", "\x1b", "<b>", "\\", "`", "https://x", "\udcff", "a"])
def test_long_text_of_any_kind_stays_below_the_limit(piece: str) -> None:
    value = _filled(piece * 5000, many=50)
    assert len(markdown(value).encode()) < LIMIT


@settings(deadline=None)
@given(VERDICTS)
def test_any_verdict_can_be_encoded_and_stays_below_the_limit(value: Verdict) -> None:
    text = markdown(value)
    assert len(text.encode("utf-8")) < LIMIT
    assert text.startswith(f"{MARKER}\n## ")
    html = [token.content for token in _PARSER.parse(text) if token.type == "html_block"]
    assert sum("<details" in block for block in html) == sum("</details>" in block for block in html)


@settings(deadline=None, max_examples=examples(300))
@given(HOSTILE.filter(one_line))
def test_text_of_a_change_never_becomes_structure(hostile: str) -> None:
    text = markdown(_filled(hostile))
    tokens = _PARSER.parse(text)
    _assert_inert(tokens)
    # A long text can fill a section's room; the rest of the section is then counted and not shown.
    assume("see the JSON report" not in text)
    assert _structure(tokens) == _harmless_structure()


@settings(deadline=None, max_examples=examples(300))
@given(HOSTILE)
def test_text_of_a_change_reads_as_it_was_written(hostile: str) -> None:
    shown = one_line(hostile)
    words = "".join(node.content for node in _inline(_PARSER.parse(f"- {prose(hostile)}")) if node.type in _LEAVES)
    assert words.replace("`", "") == shown.replace("`", "")
    code = [
        node.content for node in _inline(_PARSER.parse(f"- {markdown_code(hostile)}")) if node.type == "code_inline"
    ]
    assert code == ([shown] if shown else [])
    table = _PARSER.parse(f"| a | b |\n|---|---|\n| {markdown_cell(hostile)} | end |")
    cells = ["".join(node.content for node in token.children or [] if node.type in _LEAVES) for token in table]
    assert [cell for cell, token in zip(cells, table, strict=True) if token.type == "inline"] == [
        "a",
        "b",
        shown,
        "end",
    ]


@pytest.mark.parametrize("fragment", [fragment for fragment in FRAGMENTS if one_line(fragment)])
@pytest.mark.parametrize("form", ["{}", "a {} b", "{0}{0}", "\n{}\n", "`{}`"])
def test_no_known_attack_becomes_structure(fragment: str, form: str) -> None:
    hostile = form.format(fragment)
    tokens = _PARSER.parse(markdown(_filled(hostile)))
    assert _structure(tokens) == _harmless_structure()
    _assert_inert(tokens)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_well_formed(name: str) -> None:
    _assert_inert(_PARSER.parse(markdown(EXAMPLES[name]())))


def _filled(text: str, many: int = 1) -> Verdict:
    """A verdict that shows everything a report can show, with `text` wherever text can come from a change."""
    override = AppliedOverride(field=text, value=text, planned=text, reason=text, expires=date(2027, 1, 1))
    alternative = Alternative(change=text, model=text, accelerator=text, accelerator_count=1, hourly=Decimal("1.5"))
    words = {"service": text, "environment": text, "model": text, "accelerator": text, "reasons": (text, text)}
    plan = GEMMA_MOE.model_copy(update={**words, "overrides": (override,) * many, "alternatives": (alternative,)})
    before = plan.model_copy(update={"accelerator_count": 4})
    lacking = plan.model_copy(update={"cost": plan.cost.model_copy(update={"monthly_max": None})})
    broken = GEMMA_DENSE_REFUSED.model_copy(update={**words, "alternatives": (alternative,) * many})
    findings = [
        Finding(gate=gate, rule=text, severity=severity, file=text, line=line, subject=text, message=text, fix=text)
        for gate, severity in ((text, Severity.ERROR), (text, Severity.NOTICE), (CHANGE_CHECK, Severity.NOTICE))
        for line in (3, None)
    ]
    checks = [
        Check(name=text, title=text, outcome=outcome, unit=text, detail=text, expected=1, tripwires=1)
        for outcome in Outcome
    ]
    return Verdict(
        tool_version=text,
        exit_status=3,
        headline=text,
        base=text,
        head=text,
        paths=(text,),
        checks=(*CHECKS, *checks * many),
        findings=tuple(findings * many),
        services=(
            ServiceReport(environment=text, name=text, change="changed", plan=plan, plan_before=before),
            ServiceReport(environment=text, name=text, change="added", plan=lacking),
            ServiceReport(environment=text, name=text, change="added", plan=broken),
            ServiceReport(environment=text, name=text, change="removed", plan_before=plan),
            ServiceReport(environment=text, name=text, change="checked"),
        )
        * many,
        cost=_hostile_cost(text, many),
        effects=Effects(
            rendered=many,
            changed=many,
            differences=(Effect(kind=text, field=text, before=text, after=None, services=2, example=text),) * many,
        ),
        altered=Alterations(
            files=(
                ChangedFiles(
                    kind=text,
                    review=True,
                    count=many,
                    protected=many,
                    files=(ChangedFile(path=text, change="removed"),) * many,
                ),
            ),
            values=(ChangedValue(kind=text, file=text, subject=text, field=text, before=text, after=None, notice=text),)
            * many,
        ),
        notes=(text,) * many,
        not_checked=(text,) * many,
    )


def _hostile_cost(text: str, many: int) -> CostChange:
    rows = [(text, text, "added", NOTHING, new) for new in (CHAT, None)]
    item = UnpricedItem(environment=text, service=text, subject=text, reason=text, side="both")
    prices = PRICE_LIST.model_copy(update={"name": text, "region": text, "tier": text, "source": text, "old": True})
    cost = cost_of(*rows * many, unpriced=(item,) * many, price_lists=(prices,) * many, prices_altered=True)
    tokens = TokenPrice(usd_per_million=Decimal("3.23"), tokens_per_second=Decimal("61.0"))
    return cost.model_copy(
        update={
            "services": tuple(one.model_copy(update={"output_tokens": tokens}) for one in cost.services),
            "cost_centers": tuple(one.model_copy(update={"cost_center": text}) for one in cost.cost_centers * many),
        }
    )


def _inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


_LEAVES = {"text", "text_special", "code_inline"}


def _structure(tokens: list[Token]) -> list[tuple[str, str]]:
    """The document without what it says: every token that opens, closes or is HTML of our own."""
    return [
        (token.type, token.content if token.type in ("html_block", "fence") else "")
        for token in _inline(tokens)
        if token.type not in _LEAVES and not (token.type == "html_inline" and token.content in ("<!-- -->", "<br>"))
    ]


@functools.cache
def _harmless_structure() -> list[tuple[str, str]]:
    return _structure(_PARSER.parse(markdown(_filled("word"))))


def _assert_inert(tokens: list[Token]) -> None:
    types = {token.type for token in _inline(tokens)}
    assert not types & {"link_open", "image", "em_open", "s_open", "hr", "blockquote_open", "code_block"}
    # The only tables are those of the cost, and nothing can add to their columns.
    headings = [_row(tokens, place) for place, token in enumerate(tokens) if token.type == "thead_open"]
    assert [row[1:] for row in headings] == [["Past", "New", "Difference"]] * len(headings)
    assert {row[0] for row in headings} <= {"Service", "Cost centre"}
    for token in _inline(tokens):
        if token.type in ("html_block", "html_inline"):
            assert _OWN_HTML.sub("", token.content) == ""
    for block in tokens:
        for node in _text_nodes(block.children or []):
            assert not _TURNED_INTO_LINKS.search(node), node


def _row(tokens: list[Token], place: int) -> list[str]:
    end = next(index for index in range(place, len(tokens)) if tokens[index].type == "tr_close")
    return [token.content for token in tokens[place:end] if token.type == "inline"]


def _text_nodes(children: list[Token]) -> Iterator[str]:
    """Runs of text as a forge's own passes over the rendered page see them: markup and comments part them."""
    run = ""
    for token in children:
        if token.type in ("text", "text_special"):
            run += token.content
        else:
            yield run
            run = ""
    yield run
