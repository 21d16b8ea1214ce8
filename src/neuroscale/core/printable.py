"""Makes text of unknown origin harmless for each place where a report prints it.

File names, messages and reasons come from a change that nobody has reviewed. Each function here takes such text and
returns what its format can hold without it becoming structure: markup, a mention, a command, a terminal sequence.

Writes a number with its noun.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 finding`, `2,000 findings`."""
    return f"{number:,} {noun_for(number, noun)}"


def plainly_counted(number: int, noun: str) -> str:
    """`1 finding`, `2000 findings`: without separators, as in the sentences of a plan."""
    return f"{number} {noun_for(number, noun)}"


def first_of(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first `most` texts, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def noun_for(number: int, noun: str) -> str:
    """`finding` for 1, `findings` for any other number."""
    return noun if number == 1 else f"{noun}s"


def shortened(names: Sequence[str], most: int, noun: str = "", separator: str = ", ") -> str:
    """The first of some names, and the number of the others: `a, b and 3 more`, with their `noun` if it is given."""
    left = len(names) - most
    more = f" and {left} more {noun_for(left, noun) if noun else ''}".rstrip() if left > 0 else ""
    return separator.join(names[:most]) + more


_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SPACE = re.compile(r"\s+")

# These are plain text within a line, but structure at the start of a block.
_MARKDOWN_START = re.compile(r"[-+=#:]|[0-9]+[.)]")
_MARKDOWN_SPECIAL = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        **{character: f"\\{character}" for character in "\\`*_[]|~$"},
    }
)
_CELL_SPECIAL = _MARKDOWN_SPECIAL | str.maketrans({"|": "&#124;", "\\": "&#92;"})
# Where GitHub and Gitea turn plain text into a mention, a reference, a link or an emoji, after Markdown was parsed:
# backslashes and character references do not prevent it, an empty comment does, and copying the text leaves it out.
_MARKDOWN_BREAK = re.compile(
    r"(?<=@)(?=\S)"
    r"|(?<=[#!])(?=\d)"
    r"|(?<=\bGH-)(?=\d)"
    r"|(?<=:)(?=//)"
    r"|(?<=\bwww)(?=\.)"
    r"|(?<=\bmailto:)(?=\S)|(?<=\bxmpp:)(?=\S)"
    r"|(?<=:)(?=[\w+-]+:)",
    re.IGNORECASE,
)
_BACKTICKS = re.compile(r"(?<!`)`([^`\s](?:[^`]*[^`\s])?)`(?!`)")
_EMPTY_COMMENT = "<!-- -->"


def encodable(text: str) -> str:
    r"""`text` with every lone surrogate written out, so that it can be encoded.

    A byte of a file name that is not UTF-8 reads `\xff`, any other surrogate `\ud800`.
    """
    return _SURROGATE.sub(lambda match: _escaped(match[0]), text)


def one_line(text: str, limit: int = 1000) -> str:
    r"""`text` as at most `limit` printable characters on one line.

    White space becomes single spaces. Invisible characters (control characters, bidirectional overrides, zero-width
    characters, undecodable bytes) are written out as escapes such as `\x1b`.
    """
    start = text[: 4 * limit]  # the rest is cut off anyway
    line = _SPACE.sub(" ", start).strip()
    if not line.isprintable():
        line = "".join(character if character.isprintable() else _escaped(character) for character in line)
    return line if len(line) <= limit and len(start) == len(text) else line[: limit - 3] + "..."


def lines(text: str, limit: int = 20) -> list[str]:
    """The lines of `text` that are not empty; at most `limit`, the last of which then says how many are left."""
    found = [line for line in text.splitlines() if line.strip()]
    return found if len(found) <= limit else [*found[: limit - 1], f"and {len(found) - limit + 1:,} more lines"]


def terminal(text: str, limit: int = 1000) -> str:
    """`text` for a terminal or a workflow's log: one line without control sequences and workflow commands."""
    # A runner reads `::command::` at the start of a line, where wrapping may put it, and `##[command]` anywhere.
    return one_line(text, limit).replace("::", r":\x3a").replace("##[", r"#\x23[")


def terminal_lines(text: str, limit: int = 4000) -> str:
    """As `terminal`, line by line: line breaks and the indent of each line stay."""
    found = text.splitlines()
    return "\n".join(" " * (len(line) - len(line.lstrip(" "))) + terminal(line, limit) for line in found)


class TerminalStream:
    """Text of unknown origin that comes in parts, for a terminal: as `terminal_lines`, but white space stays.

    Text that may begin a harmful sequence waits for the next part; `end` gives the rest.
    """

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, part: str) -> str:
        """The text that can be shown now."""
        text = self._waiting + part
        # Two colons are replaced together: of an odd number of them at the end, the last one may have a partner.
        colons = len(text) - len(text.rstrip(":"))
        self._waiting = ":" * (colons % 2) or _STREAM_END.search(text)[0]  # type: ignore[index]  # it always matches
        return self._shown(text[: len(text) - len(self._waiting)])

    def end(self) -> str:
        """The rest of the text."""
        rest, self._waiting = self._waiting, ""
        return self._shown(rest)

    def _shown(self, text: str) -> str:
        text = text.replace("\r\n", "\n").replace("::", r":\x3a").replace("##[", r"#\x23[")
        return "".join(
            character if character in _STREAM_SPACE or character.isprintable() else _escaped(character)
            for character in text
        )


_STREAM_END = re.compile(r"(?:\r|##?)?\Z")
# Joiners hold scripts and emoji together, and do nothing else.
_STREAM_SPACE = frozenset("\n\t\u200c\u200d")


def markdown(text: str, limit: int = 600) -> str:
    """`text` as plain inline Markdown, without markup, HTML, links, mentions, references or emoji.

    Text between two backticks stays a code span, in which nothing is interpreted.
    """
    parts = _BACKTICKS.split(one_line(text, limit))
    parts[::2] = [_markdown_words(part) for part in parts[::2]]
    parts[1::2] = [markdown_code(part) for part in parts[1::2]]
    return "".join(parts)


def markdown_cell(text: str, limit: int = 300) -> str:
    """`text` as plain words in a cell of a Markdown table: parsers disagree on pipes and backslashes there."""
    return _markdown_words(one_line(text, limit), _CELL_SPECIAL)


def _markdown_words(text: str, special: dict[int, str] = _MARKDOWN_SPECIAL) -> str:
    pieces = [piece.translate(special) for piece in _MARKDOWN_BREAK.split(text)]
    if start := _MARKDOWN_START.match(text):
        position = start.end() - 1
        pieces[0] = f"{pieces[0][:position]}\\{pieces[0][position:]}"
    return _EMPTY_COMMENT.join(pieces)


def markdown_code(text: str, limit: int = 300) -> str:
    """`text` as a Markdown code span, in which nothing is interpreted; for names and paths, outside tables."""
    line = one_line(text, limit)
    if not line:
        return "(empty)"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def xml(text: str) -> str:
    """`text` in which every character is allowed in XML 1.0; line breaks stay. It still needs the usual escaping."""
    if text.isprintable():
        return text
    return "".join(
        character if character in "\n\t" or character.isprintable() else _escaped(character)
        for character in text.replace("\r\n", "\n")
    )


def workflow_message(text: str, limit: int = 1000) -> str:
    """`text` as the message of a GitHub workflow command; its line breaks stay."""
    return "%0A".join(one_line(line, limit).replace("%", "%25") for line in text.split("\n"))


def workflow_property(text: str, limit: int = 300) -> str:
    """`text` as a property (file, title) of a GitHub workflow command."""
    return one_line(text, limit).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python's stand-in for a byte that is not UTF-8
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
