"""Writes the list `allowed` of a policy, and puts it into the policy's test objects, so that they fit every list.

A test object names what the list decides by a word in braces. `{allowed}`: the first entry. `{each}`: an entry; the
object is made once for each. `{longer}`: each entry with a longer last name, which nothing may allow. `{gs://}`: the
part of the first such entry behind these letters. `{bucket}`, `{folder}`: the two parts of the first `s3://` entry.
`{not docker.io/}`: no letters. An object is left out where the list has no value for one of its words, or, after `not`,
where it allows everything there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.yaml_io import read_mapping
from neuroscale.repo.layout import POLICIES, POLICY_FILE, SETTINGS
from neuroscale.repo.snapshot import Snapshot, read_text

_BLOCK = "^    # -- settings: {0} --[^\n]*\n(.*?)^    # -- end settings: {0} --\n"
_WORD = re.compile(r"\{(allowed|each|longer|bucket|folder|(?:not )?[a-z0-9.]+(?::/)?/(?:[a-z]+/)*)\}")


def with_entries(text: str, file: str, setting: str, entries: Sequence[str]) -> str:
    """The text of a policy's file with these entries in the block that a setting decides. Raises InputError if the file
    does not mark exactly one such block."""
    blocks = list(re.finditer(_BLOCK.format(setting), text, re.MULTILINE | re.DOTALL))
    if len(blocks) != 1:
        message = f"does not mark, once, the list that `{setting}` in {SETTINGS} decides"
        marks = (f"`# -- settings: {setting} --`", f"`# -- end settings: {setting} --`")
        fix = f"Write {marks[0]} before the variable allowed and {marks[1]} behind it, or remove `{setting}` there."
        raise InputError.at(file, "spec.variables", message, fix)
    lines = ",\n".join(f"          '{entry}'" for entry in entries)
    written = f"    - name: allowed\n      expression: |-\n        [\n{lines}\n        ]\n"
    return text[: blocks[0].start(1)] + written + text[blocks[0].end(1) :]


def allowed_entries(snapshot: Snapshot, policy: str) -> tuple[str, ...]:
    """The entries of a policy's variable `allowed`; () for a policy without one. Raises InputError."""
    file = f"{POLICIES}/{policy}/{POLICY_FILE}"
    spec = read_mapping(read_text(snapshot, file), file).value.get("spec")
    variables = (spec.get("variables") if isinstance(spec, dict) else None) or ()
    expressions = [
        str(variable.get("expression"))
        for variable in variables
        if isinstance(variable, dict) and variable.get("name") == "allowed"
    ]
    return tuple(re.findall(r"'([^']+)'", expressions[0])) if expressions else ()


def has_words(value: Any) -> bool:
    """Whether a test object names something that a list decides."""
    return bool(_words(value))


def variants(value: Any, entries: Sequence[str]) -> list[tuple[str, Any]]:
    """What a test object stands for with a list of these entries, each with the end of its name, such as `-2` or ""."""
    words = _words(value)
    if not words or not entries:
        return [("", value)]
    repeated = bool({"each", "longer"} & words)
    made = []
    for number, entry in enumerate(entries if repeated else entries[:1], 1):
        values = {word: text for word in words if (text := _value(word, entry, entries)) is not None}
        if len(values) == len(words):
            made.append((f"-{number}" if repeated else "", _replaced(value, values.__getitem__)))
    return made


def _value(word: str, entry: str, entries: Sequence[str]) -> str | None:
    if word in ("allowed", "each"):
        return entry
    if word == "longer":
        return _longer(entry, entries)
    if word.startswith("not "):
        return None if any(word[4:].startswith(allowed) for allowed in entries) else ""
    start = "s3://" if word in ("bucket", "folder") else word
    first = next((allowed for allowed in entries if allowed.startswith(start)), None)
    if first is None:
        return None
    rest = first.removeprefix(start) or "any/"
    return {"bucket": rest.partition("/")[0], "folder": rest.partition("/")[2]}.get(word, rest)


def _longer(entry: str, entries: Sequence[str]) -> str | None:
    """The entry with zeros behind its last name, which a port takes, too; None for a scheme alone."""
    if entry.endswith("://"):
        return None
    names = (f"{entry.rstrip('/')}{'0' * count}/" for count in range(1, len(entries) + 2))
    return next((name for name in names if not name.startswith(tuple(entries))), f"{entry.rstrip('/')}0/")


def _words(value: Any) -> set[str]:
    words: set[str] = set()

    def note(word: str) -> str:
        words.add(word)
        return ""

    _replaced(value, note)
    return words


def _replaced(value: Any, text_of: Callable[[str], str]) -> Any:
    """The value with a text in place of each word in braces."""
    if isinstance(value, str):
        return _WORD.sub(lambda match: text_of(match[1]), value)
    if isinstance(value, dict):
        return {key: _replaced(part, text_of) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(part, text_of) for part in value]
    return value
