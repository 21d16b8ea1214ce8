"""The release of a version's text, as images, logs and people write it."""

from __future__ import annotations

import pytest

from neuroscale.core.releases import release


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("0.32.0", (0, 32, 0)),
        ("v0.9.1", (0, 9, 1)),
        ("0.9", (0, 9, 0)),
        ("0.19.2rc1.dev134+g0", (0, 19, 2)),
        ("0.10.1.1", (0, 10, 1)),
        ("0.11.0-cu126", (0, 11, 0)),
        ("0.11.0_unofficial", (0, 11, 0)),
    ],
)
def test_a_release_is_read_whatever_follows_it(version: str, numbers: tuple[int, int, int]) -> None:
    assert release(version) == numbers


@pytest.mark.parametrize("text", ["", "latest", "nightly-0.9.1"])
def test_a_text_that_begins_with_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        release(text)
