"""A number with its noun."""

from __future__ import annotations

from neuroscale.core.printable import counted, plainly_counted


def test_one_is_singular_and_all_others_plural() -> None:
    assert [counted(number, "pod") for number in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]
    assert [plainly_counted(number, "pod") for number in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]


def test_thousands_are_separated_for_people_and_not_in_plans() -> None:
    assert (counted(12_345, "pod"), plainly_counted(12_345, "pod")) == ("12,345 pods", "12345 pods")
