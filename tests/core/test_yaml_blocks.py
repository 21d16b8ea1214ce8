"""Single values of YAML text are changed, and every other line stays."""

from __future__ import annotations

import pytest

from neuroscale.core.yaml_blocks import block_of, with_value, without
from neuroscale.core.yaml_io import read_mapping

TEXT = """\
# About a.
a: 1
b:
  # About c.
  c: [u, v]
  d:
    e: "1"
    # The last word on d.
# About f.
f: {g: 2}
"""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["a"], 2),
        (["b", "c"], ["z", "no"]),
        (["b", "d", "e"], "yes"),
        (["b", "d", "new"], None),
        (["h"], {"i": "a: b"}),
    ],
)
def test_one_value_changes_and_no_comment_is_lost(path: list[str], value: object) -> None:
    changed = with_value(TEXT, path, value)
    there = read_mapping(changed, "t").value
    for key in path:
        there = there[key]
    assert there == value
    kept = {line for line in TEXT.splitlines() if line.strip().startswith("#")}
    assert kept <= set(changed.splitlines())
    assert sum(line not in changed.splitlines() for line in TEXT.splitlines()) <= 1


def test_a_value_that_is_there_already_leaves_the_text_as_it_is() -> None:
    assert with_value(TEXT, ["b", "c"], ["u", "v"]) == TEXT
    assert with_value(TEXT, ["f"], {"g": 2}) == TEXT


def test_a_block_comes_with_its_comment_and_goes_with_it() -> None:
    assert block_of(TEXT, ["b", "c"]) == "  # About c.\n  c: [u, v]\n"
    assert block_of(TEXT, ["f"]) == "# About f.\nf: {g: 2}\n"
    assert without(TEXT, ["b"]) == "# About a.\na: 1\n# About f.\nf: {g: 2}\n"


def test_a_missing_parent_is_an_error() -> None:
    with pytest.raises(KeyError):
        with_value(TEXT, ["x", "z"], 1)
