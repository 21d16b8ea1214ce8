"""Expands a word as a shell does, as far as that is sure, and keeps the state of the shell.

tree-sitter's grammar of bash parses scripts; trees that cannot be trusted are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_BETWEEN = re.compile(rb"(?:[ \t]|\\\n)*[ \t](?:[ \t]|\\\n)*")
_MISREAD = re.compile(r"\$(?:[ \t\n]|$)|\\\n[ \t]*#|[ \t]\\[ \t]")
"""Texts that the grammar reads differently from bash: a dollar sign by itself, a comment in a continued line, and a
word that begins with a blank."""


class ScriptError(ValueError):
    """The reason why the commands of a script are unknown; the text continues a sentence after 'its script'."""


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def statements(script: str) -> list[Node]:
    """The statements of a script. Raises ScriptError if it is not bash, or if the grammar reads it differently."""
    if (found := _MISREAD.search(script)) is not None:
        raise ScriptError(f"cannot be read from: {found[0]!r}")
    root = _parser().parse(script.encode()).root_node
    if root.has_error:
        raise ScriptError("cannot be read: it is not bash's grammar")
    return root.named_children


def text_of(node: Node) -> str:
    """The text that a node stands for."""
    return (node.text or b"").decode()


def all_nodes(node: Node) -> Iterator[Node]:
    """The node and all named nodes inside it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(one.named_children)


def check_redirect(node: Node) -> None:
    """Refuses `>&` and `<&` unless they name a number or close a file: shells differ in their reading of the rest.
    Raises ScriptError."""
    targets = node.children_by_field_name("destination")
    check_apart(node, targets)
    target = targets[0] if targets else None
    number = node.child_by_field_name("descriptor")
    odd = number is not None and not text_of(number).isdigit()
    if odd or sum(not child.is_named for child in node.children) > 1:
        raise ScriptError(f"cannot be read from: {text_of(node)[:60]}")
    for child in node.children:
        if child.type in (">&", "<&", "&>", "&>>", ">&-", "<&-") and target is not None:
            plain = text_of(target).isdigit() if child.type in (">&", "<&") else child.type.startswith("&>")
            if not plain:
                raise ScriptError(f"cannot be read from: {text_of(node)[:60]}")


def check_apart(node: Node, parts: Sequence[Node]) -> None:
    """Refuses words without white space between them: the grammar may have split them differently from bash. Raises
    ScriptError."""
    source = node.text or b""
    for before, after in pairwise(parts):
        gap = source[before.end_byte - node.start_byte : after.start_byte - node.start_byte]
        lead = len(text_of(after)) - len(text_of(after).lstrip())
        if after.type in ("file_redirect", "herestring_redirect") and not gap and not lead:
            continue
        if not _BETWEEN.fullmatch(gap + b" " * lead):
            raise ScriptError(f"cannot be read from: {text_of(node)[:60]}")


# A limit, since each variable can contain another one twice, and `set -- "$@" "$@"` doubles the arguments.
_MOST_MADE = 256 * 1024


@dataclass(frozen=True)
class Value:
    """A text; or, if it is unknown, the reason, and the known part as `text`."""

    text: str
    unknown: str | None = None


class Room:
    """The number of characters and words that a shell and all shells that it starts may still make."""

    def __init__(self) -> None:
        self._left = _MOST_MADE

    def take(self, size: int) -> None:
        """Subtracts `size` from the room. Raises ScriptError if the room is too small."""
        self._left -= size
        if self._left < 0:
            raise ScriptError(f"makes more than {_MOST_MADE} characters and words, which are not read")


@dataclass
class State:
    """The state of one shell."""

    variables: dict[str, Value]
    exported: set[str]
    hidden: dict[str, str]  # the variables with unknown values, and why; "" stands for any variable
    positional: list[Value]
    arrays: dict[str, list[Value]] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    tainted: str | None = None  # why no word is known
    room: Room = field(default_factory=Room)

    def copy(self) -> State:
        """A copy for a shell that this one starts. Raises ScriptError if the room is too small."""
        self.room.take(len(self.variables) + len(self.hidden))
        return State(
            *(dict(self.variables), set(self.exported), dict(self.hidden), list(self.positional)),
            *(dict(self.arrays), dict(self.functions), self.tainted, self.room),
        )

    def looked_up(self, name: str) -> Value | None:
        """The value of a variable; None if nothing is known about it."""
        if name.isdigit():
            if name == "0" or any(one.unknown for one in self.positional):
                return Value(f"${name}", f"its script takes ${name} from elsewhere")
            given = self.positional
            return given[int(name) - 1] if int(name) <= len(given) else Value("")
        if name in self.arrays:
            return Value(f"${name}", f"its script takes one of the list ${name}")
        if name in self.variables:
            return self.variables[name]
        why = self.hidden.get(name) or self.hidden.get("")
        return Value(f"${name}", why) if why else None

    def environment(self) -> dict[str, Value]:
        """The environment variables that the shell passes to a command."""
        known = {name: value for name, value in self.variables.items() if name in self.exported}
        return {**{name: Value("", why) for name, why in self.hidden.items()}, **known}

    def forget(self, name: str) -> None:
        """Makes a variable unknown, since the script sets it in a way that the reader does not follow."""
        self.variables.pop(name, None)
        self.arrays.pop(name, None)
        self.hidden[name] = f"its script sets ${name} in a way that is not read"

    def forget_everything(self) -> None:
        """Makes every variable unknown, since another file may set any of them."""
        told = "its script takes its variables from another file"
        self.variables.clear()
        self.arrays.clear()
        self.hidden = {"": told}
        self.positional = [Value("$@", told)]


_OUTPUT = "its script takes a part of it from another command's output"
_SPLIT = re.compile(r"[ \t\n]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PATTERN = re.compile(r"[*?\[]")
_EXPANSION = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*|[@*0-9])(?:(?P<with>:?-)(?P<default>[^$`\"'\\{}]*))?\}")
_WHOLE_ARRAY = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)\[[@*]\]\}")
_ALTERNATIVES = re.compile(r"\{[^{}]*(?:,|\.\.)")


@dataclass(frozen=True)
class _Piece:
    """A part of a word."""

    text: str = ""
    unknown: str | None = None
    split: bool = False  # the shell splits it at white space
    bare: bool = False  # it stands outside quotes, where it may be a pattern of file names
    breaks: bool = False  # another word begins here


def fields(node: Node, state: State) -> list[Value]:
    """The words that a word expands to. Raises ScriptError if they are too many."""
    found: list[Value] = []
    texts: list[str] = []  # the parts of the current word; empty if no word has begun
    why: str | None = None

    def add(text: str, unknown: str | None) -> None:
        nonlocal why
        texts.append(text)
        why = why or unknown

    def end() -> None:
        nonlocal why
        if texts:
            found.append(Value("".join(texts), why))
        texts.clear()
        why = None

    for piece in _pieces(node, state, quoted=False):
        state.room.take(len(piece.text) + 1)
        if piece.breaks:
            end()
        elif piece.bare and not piece.unknown and _PATTERN.search(piece.text):
            add(piece.text, f"its script has a pattern for names of files: {piece.text[:40]}")
        elif not piece.split or piece.unknown:
            add(piece.text, piece.unknown)
        else:
            for number, part in enumerate(_SPLIT.split(piece.text)):
                if number:
                    end()
                if part:
                    add(part, None)
    end()
    return found


def joined(node: Node, state: State) -> Value:
    """The value of an assignment, which is never split. Raises ScriptError if it is too long."""
    pieces = list(_pieces(node, state, quoted=True))
    state.room.take(sum(len(piece.text) + 1 for piece in pieces))
    text = "".join(" " if piece.breaks else piece.text for piece in pieces)
    return Value(text, next((piece.unknown for piece in pieces if piece.unknown), None))


def _pieces(node: Node, state: State, *, quoted: bool) -> Iterator[_Piece]:
    text = text_of(node)
    match node.type:
        case "word" | "number" | "special_character" | "regex" | "test_operator":
            yield _literal(text)
        case "raw_string":
            yield _Piece(text[1:-1])
        case "ansi_c_string" if "\\" not in text:
            yield _Piece(text[2:-1])
        case "string":
            yield from _string(node, state)
        case "concatenation":
            bare = "".join(text_of(one) for one in node.named_children if one.type == "word")
            if not quoted and _ALTERNATIVES.search(bare):
                yield _Piece(text, f"its script has braces outside of quotes: {text[:40]}")
            else:
                for child in node.children:
                    if child.is_named:
                        yield from _pieces(child, state, quoted=quoted)
                    else:
                        yield _Piece(text_of(child), f"its script has {text[:40]}")
        case "simple_expansion":
            name = text.lstrip()[1:]
            # The shell reads `$12` as `$1` and a 2.
            short = name[:1] if name.isdigit() else name
            yield from _variable(short, None, text, state, quoted=quoted)
            if short != name:
                yield _Piece(name[1:])
        case "expansion":
            yield from _expansion(text.lstrip(), state, quoted=quoted)
        case _:
            yield _Piece(text, _OUTPUT if "substitution" in node.type else f"its script has {text[:40]}")


def _literal(text: str) -> _Piece:
    if text.startswith("~"):
        return _Piece(text, f"its script has {text[:40]}")
    if _ALTERNATIVES.search(text):
        return _Piece(text, f"its script has braces outside of quotes: {text[:40]}")
    bare = _ESCAPED.sub("", text)
    if _SPLIT.search(bare):
        return _Piece(text, f"its script has {text[:40]}")
    plain = _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], text)
    return _Piece(plain, bare=bool(_PATTERN.search(bare)))


def _string(node: Node, state: State) -> Iterator[_Piece]:
    """Expands a text in double quotes. The grammar puts white space before a variable into its node, or into none."""
    assert node.text is not None
    source, start = node.text, node.start_byte
    at = start + 1
    yield _Piece()
    for child in node.named_children:
        if child.type == "string_content":
            continue
        text = text_of(child)
        begins = child.start_byte + len(text.encode()) - len(text.lstrip().encode())
        yield _Piece(_unescaped(source[at - start : begins - start].decode()))
        yield from _pieces(child, state, quoted=True)
        at = child.end_byte
    yield _Piece(_unescaped(source[at - start : -1].decode()))


def _expansion(text: str, state: State, *, quoted: bool) -> Iterator[_Piece]:
    if (array := _WHOLE_ARRAY.fullmatch(text)) is not None and array["name"] in state.arrays:
        yield from _each(state.arrays[array["name"]], split=not quoted)
    elif (found := _EXPANSION.fullmatch(text)) is not None:
        default = found["default"] if found["with"] else None
        yield from _variable(found["name"], default, text, state, quoted=quoted, empty=found["with"] == ":-")
    else:
        yield _Piece(text, f"its script has {text[:40]}")


def _variable(
    name: str, default: str | None, text: str, state: State, *, quoted: bool, empty: bool = False
) -> Iterator[_Piece]:
    """Expands a variable. `empty`: the default also replaces an empty value."""
    if name in ("@", "*"):
        yield from _each(state.positional, split=not quoted)
        return
    value = state.looked_up(name)
    if default is not None and (value is None or (empty and value.unknown is None and not value.text)):
        value = Value(default)
    if value is None:
        value = Value(text, f"its script takes ${name} from elsewhere")
    yield _Piece(value.text, value.unknown, split=not quoted, bare=not quoted)


def _each(values: Sequence[Value], *, split: bool) -> Iterator[_Piece]:
    """Every value as a word of its own."""
    for number, value in enumerate(values):
        if number:
            yield _Piece(breaks=True)
        yield _Piece(value.text, value.unknown, split=split, bare=split)


def _unescaped(text: str) -> str:
    """The text without the backslashes that escape something in double quotes."""
    return re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], text)
