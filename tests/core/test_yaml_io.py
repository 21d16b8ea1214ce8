"""Strict YAML: one meaning for every parser, and text that always comes back as it was."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import decode, dotted, dump, quoted, read_document, read_documents, read_mapping, scalar

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
KEYS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(TEXT)
@settings(max_examples=examples(1000))
def test_quoted_text_reads_back_the_same_in_yaml_and_json(text: str) -> None:
    encoded = quoted(text)
    assert "\n" not in encoded
    assert json.loads(encoded) == text
    assert yaml.safe_load(encoded) == text
    assert read_document(f"a: {encoded}", "f").value == {"a": text}


@given(TEXT)
@settings(max_examples=examples(1000))
def test_a_plain_or_quoted_scalar_is_the_same_text_to_every_parser(text: str) -> None:
    written = f"a: {scalar(text)}\n"
    assert yaml.safe_load(written) == {"a": text}
    assert read_document(written, "f").value == {"a": text}


@given(VALUES)
@settings(max_examples=examples(500))
def test_what_is_dumped_reads_back_the_same(value: object) -> None:
    if value is None:
        return
    written = dump({"root": value})
    assert read_document(written, "f").value == {"root": value}
    assert yaml.safe_load(written) == {"root": value}


@given(TEXT)
@settings(max_examples=examples(500))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    with contextlib.suppress(InputError):
        read_documents(text, "file.yaml")


@given(st.from_regex(r"[-+0-9._:eExXoOyYnNtTfFaA~=<]{1,8}", fullmatch=True))
@settings(max_examples=examples(1000))
def test_a_plain_scalar_that_is_accepted_means_the_same_to_yaml_1_1(text: str) -> None:
    try:
        ours = read_document(f"a: {text}", "f").value
    except InputError:
        return
    theirs = yaml.safe_load(f"a: {text}")
    assert ours == theirs
    assert type(ours) is type(theirs)


@pytest.mark.parametrize(
    ("plain", "fix"),
    [
        ("yes", 'Quote it ("yes") if it is text, or write true.'),
        ("NO", 'Quote it ("NO") if it is text, or write false.'),
        ("on", "or write true."),
        ("y", "or write true."),
        ("0o17", "or write 15 (it is octal)."),
        ("017", "or write 15 (it is octal)."),
        ("-017", "or write -15."),
        ("0899", "or write 899."),
        ("0x1f", "or write 31."),
        ("0b11", "or write 3."),
        ("1_000", "or write 1000."),
        ("12:30", 'Quote it ("12:30").'),
        ("1e3", "or write 1000."),
        ("2026-01-31", 'Quote it ("2026-01-31").'),
        (".5", "or write 0.5."),
        ("5.", "or write 5."),
        (".inf", 'Write a finite number, since JSON has no other, or quote it (".inf") if it is text.'),
        ("-.inf", 'quote it ("-.inf") if it is text.'),
        (".NaN", 'quote it (".NaN") if it is text.'),
        ("1e999", 'quote it ("1e999") if it is text.'),
        ("=", 'Quote it ("=").'),
        ("<<", "Write out the fields that << would merge."),
        ("+1", "or write 1."),
    ],
)
def test_a_scalar_that_parsers_disagree_about_is_refused_with_what_to_write(plain: str, fix: str) -> None:
    with pytest.raises(InputError, match=r"f:2: b") as caught:
        read_document(f"a: 1\nb: {plain}\n", "f")
    assert caught.value.problems[0].fix.endswith(fix)


@pytest.mark.parametrize(
    ("spelling", "fix"),
    [
        ("0755", "Write 493 (0755 in octal)."),
        ("0o644", "Write 420 (0o644 in octal)."),
        ("01777", 'Quote it ("01777") if it is text, or write 1023 (it is octal).'),
    ],
)
@pytest.mark.parametrize("field", ["defaultMode", "mode"])
def test_the_mode_of_a_file_is_written_in_decimal(spelling: str, fix: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_document(f"secret: {{{field}: {spelling}}}\n", "f")
    assert caught.value.problems[0].fix == fix


@pytest.mark.parametrize(
    ("key", "fix"), [("on", 'Quote it: "on".'), ("0755", 'Quote it: "0755".'), ("<<", "Write out")]
)
def test_a_key_that_parsers_disagree_about_is_quoted(key: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        read_document(f"{key}: {{a: b}}\n", "f")
    assert caught.value.problems[0].fix.startswith(fix)
    if fix.startswith("Quote"):
        assert read_document(f'"{key}": {{a: b}}\n', "f").value == {key: {"a": "b"}}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: 1\na: 2", "twice"),
        ("a: {b: 1, b: 2}", "twice"),
        ("a: &x 1\nb: 2", "anchor"),
        ("a: *x", "anchor"),
        ("a: !!str 1", "tag"),
        ("1: a", "not text"),
        ("null: a", "not text"),
        ("? [a]\n: b", "key"),
        ("a: [", "not valid YAML"),
        ("[" * 100_000, "deeply"),
        ("{a: " * 5000, "deeply"),
        ("a: 99999999999999999999", "too large"),
        ("a: " + "9" * 5000, "too large"),
        ('a: "\\ud83d"', "not valid YAML"),
        ("\x01", "not valid YAML"),
        ("a: [b?c]", "differently"),
        ("a: {b?: c}", "differently"),
        ('a: "\\/"', "slash"),
        ('a: "\U0001f600 \\\\\\/"', "slash"),
    ],
)
def test_what_has_no_single_meaning_is_refused_in_words(text: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        read_documents(text, "f")


def test_a_file_that_is_not_utf8_text_is_refused() -> None:
    for data in (b"\xff\xfea\0", "a: é".encode("latin-1"), b"\xef\xbb\xbfa: 1", b"a: \0"):
        with pytest.raises(InputError, match=r"UTF-8|byte order mark|NUL"):
            decode(data, "f")


def test_lines_point_at_the_key_of_a_nested_field() -> None:
    document = read_mapping("a:\n  b:\n    - c: 1\n    - d: 2\n", "f")
    assert document.line("a", "b") == 2
    assert document.line("a", "b", 1, "d") == 4
    assert document.line("a", "b", 1, "missing") == 4
    assert dotted(("a", "b", 1, "x/y")) == 'a.b[1]["x/y"]'


def test_half_a_surrogate_pair_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        quoted("\ud83d")
