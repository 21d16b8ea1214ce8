"""The description of a service's pull request: what it says, what of it stays people's, and what it never becomes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from examples import examples
from neuroscale.core.printable import one_line
from neuroscale.forge.description import Subject, asked_for, describe, title, updated
from neuroscale.forge.interface import PullRequest, RepositoryRef
from neuroscale.planning.plan import Alternative, AppliedOverride
from neuroscale.planning.planner import plan
from neuroscale.planning.rejected_choices import Considered, NotChosen, not_chosen
from neuroscale.request.service_request import Request
from plan_factory import make_plan, make_request
from platform_repository import CATALOG, SETTINGS
from report_examples import FRAGMENTS, HOSTILE

HEAD = RepositoryRef("https://forge.example.com", "alice", "platform")
BRANCH = "neuroscale/dev/support-chat"
TITLE = "Serve a model"
NOTHING = NotChosen((), frozenset())
_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_OWN_HTML = re.compile(r"<!-- (neuroscale-request [0-9a-f]{16}|/neuroscale-request)? ?-->|<br>|\s")
_LEAVES = {"text", "text_special", "code_inline"}
_TURNED_INTO_LINKS = re.compile(r"@\w|[#!]\d|\bGH-\d|://|\bwww\.|\bmailto:\w|:[\w+-]+:", re.IGNORECASE)


def planned(**changes: object) -> Subject:
    """What the planner says for a request, as the command describes it."""
    request = make_request(**changes)
    made = plan(request, CATALOG, SETTINGS)
    return Subject(request, made, None, not_chosen(request, CATALOG, SETTINGS, made), is_new=True)


def of(subject: Subject, login: str = "alice") -> str:
    return describe(subject, TITLE, BRANCH).section(login, HEAD)


def pull(title_text: str, body: str) -> PullRequest:
    return PullRequest(1, "https://x/1", title_text, body, "open", "alice", "alice", BRANCH, "0" * 40, "main")


def test_it_says_who_asked_for_what_why_and_what_was_not_chosen() -> None:
    text = of(planned(concurrent_users=4, p95_ttft_seconds=5.0))
    assert "`alice` asks for a new service `dev/support-chat`." in text
    assert "- Model: `google/gemma-4-26B-A4B-it-qat-w4a16-ct`" in text
    assert "- Concurrent users: `4`" in text
    assert "on 1 x `nvidia-l4`" in text
    assert re.search(r"█ weights [\d.]+  ▓ KV cache", text)
    assert re.search(r"\*\*Price\*\* [\d.]+ USD an hour, [\d.,]+ USD a month of 730 h \(price of 20", text)
    assert re.search(r"\*\*Startup\*\* up to .* to ready", text)
    assert re.search(r"\*\*Speed\*\* with 4 users at once first token within .* tokens a second for each", text)
    assert re.search(r"room for \d+ more users?, [\d.]+ USD a million output tokens \(\w+ from meas", text)
    assert "it runs on 1 x NVIDIA L4" in text
    others = text.partition("### What was not chosen")[2]
    assert re.search(
        r"`1 x NVIDIA H100 SXM 80GB`, [\d.]+ USD an hour: works, but costs [\d.]+ USD an hour more", others
    )
    assert "v6e chip (slice of 1)`, 1.375 USD an hour: google/gemma" in others
    commands = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert commands == [
        f"git fetch https://forge.example.com/alice/platform.git {BRANCH}",
        "neuroscale gate --base origin/main --head FETCH_HEAD --only-read-head",
    ], "whoever looks at a stranger's branch runs none of its code"


def test_fewer_accelerators_of_the_chosen_kind_are_named_with_what_speaks_against_them() -> None:
    subject = planned(model="google/gemma-4-31B-it", environment="prod", concurrent_users=4, p95_ttft_seconds=10.0)
    assert subject.plan.verdict != "refused"
    labels = {choice.label for choice in subject.not_chosen.choices if choice.against}
    assert labels
    assert all(choice.against.endswith(".") for choice in subject.not_chosen.choices if choice.against)
    assert "The next cheaper choice" not in of(subject)


def test_a_change_shows_old_and_new_and_leaves_the_cost_of_the_change_to_the_gate() -> None:
    subject = planned(concurrent_users=4, p95_ttft_seconds=5.0)
    before = subject.plan.model_copy(update={"accelerator": "nvidia-h100-80gb"})
    text = of(replace(subject, before=before, is_new=False))
    assert "asks for a change of the service" in text
    assert "accelerators from 1 x `nvidia-h100-80gb` to 1 x `nvidia-l4`" in text
    assert "**Change**" not in text


def test_a_change_begins_with_old_and_new_answers_and_what_the_merge_does() -> None:
    asked = make_request(concurrent_users=4, p95_ttft_seconds=5.0)
    before = plan(asked, CATALOG, SETTINGS)
    subject = planned(concurrent_users=8, longest_answer_tokens=512, p95_ttft_seconds=5.0)
    text = of(replace(subject, before=before, asked_before=asked, quota=9, is_new=False))
    parts = [
        "### What changes\n\n**Asked for** Concurrent users: `4` to `8`; Longest answer (tokens): `1024` to `512`",
        "**The merge** A restart with a gap of about ",
        "█ weights",
        "**Price** ",
        "### What is asked for",
        "### Why this plan",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, text
    assert places == sorted(places)
    assert text.count(f"weights {subject.plan.memory_gib.weights:.2f}") == 1
    same = of(replace(subject, before=before, asked_before=subject.request, same_pods=True, is_new=False))
    assert "**Asked for** the same as before\n\n**The merge** Nothing" in same


def test_an_override_is_told_with_its_reason() -> None:
    override = {"field": "max_num_seqs", "value": 5, "reason": "Load test of *us*.", "expires": date(2099, 1, 31)}
    text = of(planned(concurrent_users=4, p95_ttft_seconds=5.0, overrides=(override,)))
    assert "**Override** `max_num_seqs` is `5`" in text
    assert "until 2099-01-31: Load test of \\*us\\*." in text


@pytest.mark.parametrize("person", ["", "jane", "Jane `of` the team, for x"])
def test_the_person_for_whom_the_account_asks_can_be_read_again(person: str) -> None:
    text = replace(describe(planned(), TITLE, BRANCH), asked_for=person).section("portal", HEAD)
    assert asked_for(pull(TITLE, f"Before.\n\n{text}")) == person


def test_what_people_wrote_around_it_stays_and_the_section_is_renewed_in_place() -> None:
    old, new = of(planned()), of(planned(concurrent_users=9))
    assert old != new
    body = f"Please look at this today.\r\n\r\n{old}\r\n\r\n- [x] load test done\r\n".replace("\n", "\r\n")
    text = updated(pull(TITLE, body.replace("\r\r", "\r")), TITLE, new)[1]
    assert text == f"Please look at this today.\n\n{new}\n\n- [x] load test done\n"
    assert updated(pull(TITLE, text), TITLE, new) == (TITLE, text)
    assert updated(pull(TITLE, "Mine alone."), TITLE, new)[1] == f"Mine alone.\n\n{new}"
    assert updated(pull(TITLE, ""), TITLE, new)[1] == new


def test_a_title_that_somebody_changed_stays() -> None:
    old = of(planned())
    new = describe(planned(concurrent_users=9), "Serve another model", BRANCH).section("alice", HEAD)
    assert updated(pull(TITLE, old), "Serve another model", new)[0] == "Serve another model"
    assert updated(pull("WIP: mine", old), "Serve another model", new)[0] == "WIP: mine"
    # And it goes on doing so.
    changed = updated(pull("WIP: mine", old), "Serve another model", new)
    assert updated(pull(*changed), "Serve another model", new) == changed


@pytest.mark.parametrize("owner", ["a;id", "$(id)", "a b", "`id`", "a'b", "```"])
def test_the_commands_hold_names_as_one_word_each(owner: str) -> None:
    text = describe(planned(), TITLE, BRANCH).section("alice", replace(HEAD, owner=owner))
    fence = [token.content for token in _PARSER.parse(text) if token.type == "fence" and token.info == "sh"]
    assert len(fence) == 1
    assert len(fence[0].splitlines()) == 2
    assert "'https://forge.example.com/" in fence[0]


@settings(deadline=None, max_examples=examples(300))
@given(HOSTILE.filter(one_line))
def test_text_from_outside_never_becomes_structure(hostile: str) -> None:
    tokens = _PARSER.parse(_filled(hostile))
    assert _structure(tokens) == _harmless_structure()
    _assert_inert(tokens)


@pytest.mark.parametrize("fragment", [*FRAGMENTS, "<!-- /neuroscale-request -->", "<!-- neuroscale-request 00 -->"])
@pytest.mark.parametrize("form", ["{}", "a {} b", "\n{}\n", "`{}`"])
def test_no_known_attack_becomes_structure_or_ends_the_section(fragment: str, form: str) -> None:
    hostile = form.format(fragment)
    if not one_line(hostile):
        return
    text = _filled(hostile)
    tokens = _PARSER.parse(text)
    assert _structure(tokens) == _harmless_structure()
    _assert_inert(tokens)
    assert updated(pull(TITLE, f"before\n\n{text}\n\nafter"), TITLE, "NEW")[1] == "before\n\nNEW\n\nafter"


@settings(deadline=None, max_examples=examples(25))
@given(HOSTILE, st.integers(0, 300))
def test_it_stays_below_what_a_forge_takes(hostile: str, many: int) -> None:
    text = _filled(hostile * 50, many)
    assert len(text) < 60_000
    text.encode()


@given(HOSTILE)
def test_a_title_is_one_line(hostile: str) -> None:
    shown = title(hostile)
    assert len(shown) <= 200
    assert shown.isprintable()


def _filled(text: str, many: int = 1) -> str:
    """A description with `text` wherever text comes from outside."""
    override = AppliedOverride(field=text, value=text, planned=text, reason=text, expires=date(2027, 1, 1))
    alternative = Alternative(change=text, model=text, accelerator=text, accelerator_count=1, hourly=Decimal("1.5"))
    words = {"service": text, "environment": text, "model": text}
    base = make_plan()
    made = base.model_copy(
        update={
            **words,
            "accelerator": text,
            "reasons": (text,) * many,
            "overrides": (override,) * many,
            "alternatives": (alternative,) * many,
            "cost": base.cost.model_copy(update={"monthly_max": None}),
        }
    )
    request = Request.model_construct(
        **{**make_request().model_dump(), **words, "team": text, "availability": text}  # type: ignore[arg-type]
    )
    choices = (Considered(text, 2, Decimal(1), text), Considered(text, 1, None, "")) * many
    before = made.model_copy(update={"accelerator_count": 4, "model": f"{text} "})
    subject = Subject(request, made, before, NotChosen(choices, frozenset()), is_new=False)
    return describe(subject, TITLE, BRANCH).section(text, HEAD)


def _inline(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _structure(tokens: list[Token]) -> list[tuple[str, str]]:
    """The document without what it says: every token that opens, closes or is HTML of our own."""
    return [
        (token.type, token.content if token.type in ("html_block", "fence") else "")
        for token in _inline(tokens)
        if token.type not in _LEAVES and not (token.type == "html_inline" and token.content in ("<!-- -->", "<br>"))
    ]


@functools.cache
def _harmless_structure() -> list[tuple[str, str]]:
    return _structure(_PARSER.parse(_filled("word")))


def _assert_inert(tokens: list[Token]) -> None:
    types = {token.type for token in _inline(tokens)}
    assert not types & {"link_open", "image", "em_open", "s_open", "hr", "table_open", "blockquote_open", "code_block"}
    for token in _inline(tokens):
        if token.type in ("html_block", "html_inline"):
            assert _OWN_HTML.sub("", token.content) == ""
    for block in tokens:
        for node in _text_nodes(block.children or []):
            assert not _TURNED_INTO_LINKS.search(node), node


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
