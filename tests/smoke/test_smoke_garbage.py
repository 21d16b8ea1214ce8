"""What counts as garbage among a model's answers, and what does not."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.smoke.model_requests import FEWEST_REPEATS, garbage

_PROSE = (
    "The river leaves the mountains in spring. It passes three towns and a mill, and people fish there all year; "
    "in summer it is low, and the children cross it on foot."
)
# What models with random weights answer at temperature 1.
_RANDOM = (
    " L < Clable ** new outcey ari ' wouldcontain parenthealse resscrimethodppedines(return12Implemented",
    " numb namesppedstedmaxler actuallygument operator languagefollow Lformation               unless >>> succeft",
    ' same statementsefboundstatement same 0ed raisetwesu identifi inhe incluatement calledault % "U annot...uream',
)


@pytest.mark.parametrize(
    "text",
    [
        _PROSE,
        *_RANDOM,
        "Paris.",
        "4",
        "Ja.",
        "No, no, no!",
        "ha ha ha",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
        "def f(x):\n\treturn x\n\n\ndef g(x):\n\treturn -x\n",
        "東京は日本の首都です。人口は約千四百万人で、世界で最も大きな都市の一つです。",
        "مرحبا بك في المدينة القديمة حيث تلتقي الأسواق والمساجد",
        "Here is a smile \N{GRINNING FACE} and a family \N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}.",
        _PROSE + "\N{REPLACEMENT CHARACTER}",
    ],
)
def test_text_is_no_garbage(text: str) -> None:
    assert garbage(text) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("\N{REPLACEMENT CHARACTER}", "empty"),
        ("!" * 48, "the same one of its characters 48 times"),
        (" the" * 40, "the same one of its words 40 times"),
        ("the quick brown fox " * 12, "the same 4 of its words 12 times"),
        ("abcabcabc" * 9, "the same 3 of its characters"),
        ("Sure, here it is: " + "bread bread " * 30, "of its words"),
        ("ああああああああああああああああああああああああ", "of its characters"),
        ("\x00\x01\x02\x03 abc", "not text"),
        ("ok " + "\N{REPLACEMENT CHARACTER}" * 20 + " ok", "not text"),
        ("\ue000\ue001 private use \ue002\ue003", "not text"),
    ],
)
def test_garbage_is_named(text: str, told: str) -> None:
    found = garbage(text)
    assert found is not None
    assert told in found


def test_random_words_are_text() -> None:
    """The local models have random weights."""
    numbers = random.Random(11)
    words = ["".join(numbers.choices(string.ascii_letters + string.punctuation, k=5)) for _ in range(200)]
    for _ in range(200):
        assert garbage(" ".join(numbers.choices(words, k=32))) is None


@given(st.text(alphabet=string.ascii_lowercase, min_size=1, max_size=6), st.integers(20, 60))
def test_a_short_part_that_is_all_there_is_is_garbage(part: str, times: int) -> None:
    assert garbage(part * times) is not None


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    assert garbage(text) is None or garbage(text)


def test_a_repetition_that_is_a_small_part_of_an_answer_is_no_garbage() -> None:
    assert garbage(_PROSE + " no" * FEWEST_REPEATS + " " + _PROSE) is None
