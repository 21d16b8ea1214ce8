"""One JSON object: whatever else a text holds is refused, and the refusal says which kind it is."""

from __future__ import annotations

from decimal import Decimal

import pytest

from neuroscale.core.json_text import RepeatedKeysError, read_object


def test_an_object_is_read_with_its_numbers_as_they_are_wanted() -> None:
    assert read_object(b'{"name": "\xc3\xa9", "costs": [1, 2.5]}') == {"name": "é", "costs": [1, 2.5]}
    assert str(read_object('{"cost": 0.10}', Decimal)) == str({"cost": Decimal("0.10")})


@pytest.mark.parametrize(
    "text", ["", "{", "{} {}", '{"a": NaN}', '{"a": [-Infinity]}', b'{"a": "\xff"}', "[" * 100_000]
)
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        read_object(text)
    assert not isinstance(refusal.value, RepeatedKeysError)


def test_another_value_and_repeated_keys_are_told_apart() -> None:
    assert read_object('[{"a": 1, "a": 2}]') is None
    with pytest.raises(RepeatedKeysError) as refusal:
        read_object('{"a": {"b": 1, "b": 2}, "c": 1, "c": 2, "c": 3}')
    assert refusal.value.keys == ["b", "c", "c"]
