"""The chart in the terminal, by examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroscale.cluster.metrics.line_chart import BLOCKS, Gap, Point, chart, highest

IDLE, UNSEEN = Gap.IDLE, Gap.UNSEEN


@pytest.mark.parametrize(
    ("points", "drawn"),
    [
        ([], ""),
        ([0.0, 0.0], "▁▁"),
        ([5.0], "█"),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "▁▂▃▄▅▆▇█"),
        # What is not nothing is never drawn as nothing.
        ([0.0, 0.000001, 100.0], "▁▂█"),
        ([UNSEEN, IDLE, 2.0, 1.0, IDLE], " ·█▅·"),
        ([IDLE, IDLE], "··"),
        ([UNSEEN], " "),
        ([3.0, 3.0, 3.0], "███"),
    ],
)
def test_a_line_shows_values_from_nothing_to_the_highest_and_tells_idle_from_unseen(
    points: list[Point], drawn: str
) -> None:
    assert chart(points) == drawn


def test_a_terminal_without_blocks_gets_ascii() -> None:
    assert chart([UNSEEN, IDLE, 0.0, 1.0, 7.0], ascii_only=True) == " ~_.#"


POINTS = st.lists(st.sampled_from(list(Gap)) | st.floats(min_value=0, max_value=1e300), max_size=80)


@given(POINTS)
def test_every_point_is_one_character_and_greater_values_are_never_lower(points: list[Point]) -> None:
    drawn = chart(points)
    assert len(drawn) == len(points)
    values = sorted(
        (point, BLOCKS.index(character))
        for point, character in zip(points, drawn, strict=True)
        if not isinstance(point, Gap)
    )
    assert [level for _, level in values] == sorted(level for _, level in values)
    assert all((level == 0) == (point == 0) for point, level in values)
    if any(point > 0 for point, _ in values):
        assert "█" in drawn


def test_the_highest_leaves_gaps_out_and_of_nothing_is_nothing() -> None:
    assert highest([IDLE, UNSEEN]) is None
    assert highest([1.0, IDLE, 3.0]) == 3.0
