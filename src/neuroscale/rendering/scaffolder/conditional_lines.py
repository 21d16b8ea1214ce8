"""Finds the lines of a skeleton file that are rendered under a condition, so that lines without a service show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuroscale.rendering.scaffolder.lint import FOR, IF, TAG

Conditions = frozenset[tuple[str, bool]]
"""Names of values, and whether each is true (a flag) or holds anything (a list)."""


@dataclass(frozen=True)
class Branch:
    """The text of one file under the same conditions. `line`: its first line, 1-based."""

    text: str
    line: int


def branches(text: str) -> dict[Conditions, Branch]:
    """A checked skeleton file (see `lint`) by its conditions; white space alone is not a branch."""
    found: dict[Conditions, Branch] = {}
    opened: list[tuple[str, bool]] = []

    def add(part: str, position: int) -> None:
        if part.strip():
            conditions = frozenset(opened)
            blank = len(part) - len(part.lstrip())
            known = found.get(conditions, Branch("", text.count("\n", 0, position + blank) + 1))
            found[conditions] = Branch(known.text + part, known.line)

    position = 0
    for tag in TAG.finditer(text):
        add(text[position : tag.start()], position)
        if match := IF.fullmatch(tag[0]):
            opened.append((match[1], True))
        elif match := FOR.fullmatch(tag[0]):
            opened.append((match[2], True))
        elif tag[0] == "{% else %}":
            opened[-1] = (opened[-1][0], False)
        elif tag[0].startswith("{%"):
            opened.pop()
        else:
            add(tag[0], tag.start())
        position = tag.end()
    add(text[position:], position)
    return found


def reached(conditions: Conditions, values: Mapping[str, Any]) -> bool:
    """Whether text under these conditions is rendered for these values."""
    return all(bool(values[name]) is wanted for name, wanted in conditions)


def in_words(conditions: Conditions) -> str:
    """The conditions for a message: `highly_available and not has_accelerator`."""
    return " and ".join(name if wanted else f"not {name}" for name, wanted in sorted(conditions))
