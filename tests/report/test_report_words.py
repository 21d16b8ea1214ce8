"""Figures in words."""

from __future__ import annotations

import pytest

from neuroscale.core.printable import lines, one_line
from neuroscale.report import phrases
from report_examples import CHAT, NOTHING, cost_of, usd


def test_the_headline_of_a_cost_tells_the_difference_and_what_is_not_known() -> None:
    added, lost = ("dev", "a", "added", NOTHING, CHAT), ("dev", "b", "added", NOTHING, None)
    assert phrases.cost_headline(cost_of(added)) == "+518.30 to +1,554.90 USD a month"
    assert (
        phrases.cost_headline(cost_of(added, lost)) == "+518.30 to +1,554.90 USD a month, cost of 1 service not known"
    )
    assert phrases.cost_headline(cost_of(lost, lost)) == "cost of 2 services not known"
    assert phrases.cost_headline(cost_of(("dev", "moved", "changed", CHAT, CHAT))) == ""
    assert phrases.cost_headline(None) == ""


def test_services_with_an_unknown_and_with_a_large_difference_come_first() -> None:
    cost = cost_of(
        ("dev", "small", "added", NOTHING, usd("1", "1")),
        ("dev", "gone", "removed", CHAT, NOTHING),
        ("dev", "lost", "added", NOTHING, None),
    )
    assert [one.name for one in phrases.by_size(cost.services)] == ["lost", "gone", "small"]


def test_invisible_text_is_written_out() -> None:
    assert one_line("a\u202eb\x1b[0m\udcff\x00\u200b") == r"a\u202eb\x1b[0m\xff\x00\u200b"
    assert one_line("  a\r\n\tb\u2028c ") == "a b c"


@pytest.mark.parametrize("text", ["a" * 101, " " * 1000 + "a", "a " * 100])
def test_shortened_text_says_so(text: str) -> None:
    short = one_line(text, 100)
    assert len(short) <= 100
    assert short.endswith("...")


def test_long_details_say_how_many_lines_are_left() -> None:
    assert lines("a\n\n b\r\nc", 3) == ["a", " b", "c"]
    assert lines("\n".join("abcde"), 3) == ["a", "b", "and 3 more lines"]
