"""Expands a word as a shell does: fills in variables, removes quotes, splits at white space, as far as that is sure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from neuroscale.vllm.shell_grammar import text_of
from neuroscale.vllm.shell_state import State, Value

_OUTPUT = "its script takes a part of it from another command's output"
_SPLIT = re.compile(r"[ \t\n]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PATTERN = re.compile(r"[*?\[]")
_EXPANSION = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*|[@*0-9])(?:(?P<with>:?-)(?P<default>[^$`\"'\\{}]*))?\}")
_WHOLE_ARRAY = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)\[[@*]\]\}")
_ALTERNATIVES = re.compile(r"\{[^{}]*(?:,|\.\.)")


@dataclass(frozen=True)
class _Piece:
    """A part of a word. `split`: the shell splits it at white space. `bare`: it stands outside quotes, where it may be
    a pattern of file names. `breaks`: another word begins here."""

    text: str = ""
    unknown: str | None = None
    split: bool = False
    bare: bool = False
    breaks: bool = False


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
