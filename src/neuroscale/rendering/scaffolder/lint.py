"""Keeps templates to the syntax that Backstage's engine (nunjitsu) and jinja2 read alike, byte for byte.

Both engines know far more syntax. They print booleans, null, floats and lists differently, disagree on filters,
comparisons, arithmetic, the truth of an empty list, attribute look-up and scopes, and one prints nothing where the
other fails. The allowed syntax needs none of these: whole values that Python encoded, a condition on a flag, and a
loop over a list.

Finds the lines of a skeleton file that are rendered under a condition, so that lines without a service show.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from neuroscale.core.errors import Problem
from neuroscale.rendering.scaffolder.skeleton_values import KINDS, Kind

_NAME = r"[a-z][a-z0-9_]*"
_ALLOWED = (
    "Allowed are `${{ values.NAME }}`, `{% if values.FLAG %}`, `{% else %}`, `{% endif %}`, "
    "`{% for ITEM in values.LIST %}`, `${{ ITEM }}`, `${{ ITEM.name }}`, `${{ ITEM.value }}` and `{% endfor %}`, "
    "with single spaces."
)
# A tag ends before another begins: otherwise the search for the end of each tag would run to the end of the text.
TAG = re.compile(r"\$\{\{(?:(?!\$\{\{|\{%).)*?\}\}|\{%(?:(?!\$\{\{|\{%).)*?%\}", re.DOTALL)
_DELIMITER = re.compile(r"\$\{\{|\{\{|\}\}|\{%|%\}|\{#|#\}")
_VALUE = re.compile(rf"\$\{{\{{ values\.({_NAME}) \}}\}}")
_ITEM = re.compile(rf"\$\{{\{{ ({_NAME})(?:\.({_NAME}))? \}}\}}")
IF = re.compile(rf"\{{% if values\.({_NAME}) %\}}")
_PLAIN_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_CONDITIONAL_NAME = re.compile(rf"({IF.pattern})({_PLAIN_NAME})(\{{% endif %\}})")
FOR = re.compile(rf"\{{% for ({_NAME}) in values\.({_NAME}) %\}}")
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")
# Each loop within a loop multiplies the time that a file takes, and its length.
_MOST_LOOPS, _MOST_BLOCKS = 2, 8
# Names that have a special meaning in one of the engines.
_RESERVED = frozenset({"values", "loop", "self", "caller", "super", "varargs", "kwargs", "range", "dict", "lipsum"})
_KEYWORDS = re.compile(
    r"and|as|block|call|context|else|elif|elseif|endfor|endif|extends|false|filter|for|from|if|ignore|import|in|include|is"
    r"|macro|missing|none|not|null|or|recursive|set|true|undefined|with|without"
)


class _Refuse(Protocol):
    def __call__(self, position: int, message: str, fix: str = ...) -> None: ...


@dataclass
class _Block:
    """An open `{% if %}` or `{% for %}`."""

    keyword: str
    line: int
    item: str = ""
    kind: Kind = "flag"
    has_else: bool = False


def lint(text: str, where: str, kinds: Mapping[str, Kind] = KINDS) -> list[Problem]:
    """Everything in a skeleton file that is outside the shared syntax, with its line and what to write instead."""
    problems: list[Problem] = []
    blocks: list[_Block] = []

    def refuse(position: int, message: str, fix: str = _ALLOWED) -> None:
        problems.append(Problem(where, "", message, fix, text.count("\n", 0, position) + 1))

    for match in _UNPRINTABLE.finditer(text):
        refuse(
            match.start(),
            f"holds the character U+{ord(match[0]):04X}",
            "Write printable ASCII with spaces and plain line breaks: anything else can make Backstage copy the file "
            "without filling it.",
        )
        break
    if text and not text.endswith("\n"):
        refuse(len(text), "does not end with a line break", "End the last line with a line break.")

    position = 0
    for match in TAG.finditer(text):
        _stray(text, position, match.start(), refuse)
        _tag(match[0], match.start(), text, kinds, blocks, refuse)
        if len(blocks) > _MOST_BLOCKS:
            refuse(match.start(), f"more than {_MOST_BLOCKS} blocks are nested", "Write them one after another.")
            return problems
        position = match.end()
    _stray(text, position, len(text), refuse)
    for block in blocks:
        problems.append(
            Problem(
                where, "", f"{{% {block.keyword} %}} is never closed", f"Add {{% end{block.keyword} %}}.", block.line
            )
        )
    return problems


def lint_name(path: str, where: str, kinds: Mapping[str, Kind] = KINDS) -> list[Problem]:
    """Problems of a skeleton file's path, which Backstage fills like a template too.

    Backstage leaves out a file beside the others whose name becomes empty: a name may stand under one condition.
    """
    if re.fullmatch(rf"{_PLAIN_NAME}(/{_PLAIN_NAME})*", path):
        return []
    if match := _CONDITIONAL_NAME.fullmatch(path):
        return lint(f"{match[1]}{match[4]}\n", where, kinds)
    return [
        Problem(
            where,
            "",
            f"has the name {path!a}",
            "Name files with letters, digits, '.', '_' and '-' only, or {% if values.FLAG %}NAME{% endif %}: "
            "Backstage fills file names too.",
        )
    ]


def _stray(text: str, start: int, end: int, refuse: _Refuse) -> None:
    if match := _DELIMITER.search(text, start, end):
        refuse(match.start(), f"{match[0]!r} is unpaired or belongs to syntax that is not allowed")


def _tag(tag: str, position: int, text: str, kinds: Mapping[str, Kind], blocks: list[_Block], refuse: _Refuse) -> None:
    def known(name: str, wanted: tuple[Kind, ...], use: str) -> bool:
        if name not in kinds:
            refuse(position, f"values.{name} is not a value that the planner gives", f"Use one of {_listed(kinds)}.")
        elif kinds[name] not in wanted:
            fitting = {other: kind for other, kind in kinds.items() if kind in wanted}
            refuse(position, f"values.{name} cannot be {use}", f"Use one of {_listed(fitting)}.")
        else:
            return True
        return False

    if match := _VALUE.fullmatch(tag):
        if known(match[1], ("scalar", "text"), "substituted") and kinds[match[1]] == "text" and text != f"{tag}\n":
            refuse(position, f"values.{match[1]} is a whole file", "Let the file hold this one line and nothing else.")
    elif match := _ITEM.fullmatch(tag):
        loop = next((block for block in blocks if block.keyword == "for" and block.item == match[1]), None)
        if loop is None:
            refuse(position, f"{match[1]} is not the item of an open loop")
        elif loop.kind == "scalars" and match[2]:
            refuse(position, f"{match[1]} is plain text and has no part {match[2]!r}", f"Write ${{{{ {match[1]} }}}}.")
        elif loop.kind == "named" and match[2] not in ("name", "value"):
            refuse(
                position,
                f"{match[1]} is a name with a value",
                f"Write ${{{{ {match[1]}.name }}}} or ${{{{ {match[1]}.value }}}}.",
            )
    elif match := IF.fullmatch(tag):
        known(match[1], ("flag",), "a condition")
        blocks.append(_Block("if", text.count("\n", 0, position) + 1))
    elif match := FOR.fullmatch(tag):
        item, name = match[1], match[2]
        kind = kinds[name] if known(name, ("scalars", "named"), "looped over") else "scalars"
        if item in _RESERVED or _KEYWORDS.fullmatch(item) or any(block.item == item for block in blocks):
            refuse(position, f"{item!r} cannot name a loop's item here", "Choose another name.")
        blocks.append(_Block("for", text.count("\n", 0, position) + 1, item, kind))
        if sum(block.keyword == "for" for block in blocks) == _MOST_LOOPS + 1:
            refuse(position, f"more than {_MOST_LOOPS} loops are nested", "Write them one after another.")
    elif tag == "{% else %}":
        if not blocks or blocks[-1].keyword != "if" or blocks[-1].has_else:
            refuse(position, "{% else %} has no {% if %} of its own")
        else:
            blocks[-1].has_else = True
    elif tag in ("{% endif %}", "{% endfor %}"):
        if not blocks or tag != f"{{% end{blocks[-1].keyword} %}}":
            refuse(position, f"{tag} closes a block that is not open here")
        else:
            blocks.pop()
    else:
        refuse(position, f"{tag[:60]!r} is read differently by Backstage and jinja2, or not known to both")


def _listed(kinds: Mapping[str, Kind]) -> str:
    return ", ".join(f"values.{name}" for name in sorted(kinds)) or "no value"


Conditions = frozenset[tuple[str, bool]]
"""Names of values, and whether each is true (a flag) or holds anything (a list)."""


@dataclass(frozen=True)
class Branch:
    """The text of one file under the same conditions. `line`: its first line, 1-based."""

    text: str
    line: int


def plain_name(path: str) -> str:
    """A skeleton file's path as the file has it that it becomes."""
    return TAG.sub("", path)


def branches(text: str, path: str = "") -> dict[Conditions, Branch]:
    """A checked skeleton file (see `lint`) by its conditions, those in its path too; white space alone is not a
    branch."""
    if match := _CONDITIONAL_NAME.search(path):
        text = f"{match[1]}{text}{match[4]}"
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
