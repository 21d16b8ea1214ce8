"""Which commands a shell's script runs, as far as its text alone tells.

The grammar is bash's, by tree-sitter. Of its meaning no more is used than is sure: what is not makes a word unknown, or
the whole script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_OUTPUT = "its script takes a part of it from another command's output"
_SPLIT = re.compile(r"[ \t\n]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PATTERN = re.compile(r"[*?\[]")
_BETWEEN = re.compile(rb"(?:[ \t]|\\\n)*[ \t](?:[ \t]|\\\n)*")
_MISREAD = re.compile(r"\$(?:[ \t\n]|$)|\\\n[ \t]*#|[ \t]\\[ \t]")
"""What the grammar reads otherwise than bash: a dollar sign by itself, a comment in a continued line, and a word that
begins with a blank."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Each variable can hold another one twice, and `set -- "$@" "$@"` doubles the arguments.
_MOST_MADE = 256 * 1024
_EXPANSION = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*|[@*0-9])(?:(?P<with>:?-)(?P<default>[^$`\"'\\{}]*))?\}")
_WHOLE_ARRAY = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)\[[@*]\]\}")
_ALTERNATIVES = re.compile(r"\{[^{}]*(?:,|\.\.)")
_PARTS = frozenset({"if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement"}) | {
    *("function_definition", "subshell", "compound_statement", "until_statement", "select_statement"),
}
_SURE = frozenset({"variable_assignment", "variable_assignments", "declaration_command"})
"""Statements that succeed, so that what follows behind `&&` is run."""
_SURE_COMMANDS = frozenset({"cd", "set", "true", ":", "export", "mkdir", "echo"})
_SETS_NAMES = frozenset({"read", "mapfile", "readarray", "getopts", "let", "printf", "unset"})
_PRINTS = frozenset({"echo", "printf", "logger", ":", "true", "test", "["})


class ScriptError(ValueError):
    """Why what a script runs cannot be told; goes on from 'its script'."""


@dataclass(frozen=True)
class Value:
    """A text, or why it is not known (then `text` is as far as it is)."""

    text: str
    unknown: str | None = None


@dataclass(frozen=True)
class Ran:
    """A command with its words, and the variables that it gets."""

    words: tuple[Value, ...]
    environment: Mapping[str, Value]


@dataclass(frozen=True)
class _Piece:
    """A part of a word. `split`: at white space. `bare`: outside of quotes, where it may be a pattern for files' names.
    `breaks`: another word begins here."""

    text: str = ""
    unknown: str | None = None
    split: bool = False
    bare: bool = False
    breaks: bool = False


@dataclass
class _State:
    variables: dict[str, Value]
    exported: set[str]
    hidden: dict[str, str]
    positional: list[Value]
    arrays: dict[str, list[Value]] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    tainted: str | None = None

    def copy(self) -> _State:
        """For a shell of its own."""
        return _State(
            *(dict(self.variables), set(self.exported), dict(self.hidden), list(self.positional)),
            *(dict(self.arrays), dict(self.functions), self.tainted),
        )


def commands_of(
    script: str,
    environment: Mapping[str, str],
    hidden: Mapping[str, str],
    positional: Sequence[Value],
    *,
    wanted: Callable[[Sequence[str]], bool],
    named: re.Pattern[str],
) -> list[Ran]:
    """The commands of a script that are `wanted` by their words.

    `hidden`: variables whose values are not known, and why; "" for any. `named`: what a text holds that may run such a
    command in another way. Raises ScriptError.
    """
    state = _State(
        {name: Value(text) for name, text in environment.items()}, set(environment), dict(hidden), list(positional)
    )
    reader = _Reader(state, wanted, named)
    try:
        reader.read(script)
    except RecursionError:
        raise ScriptError("is nested too deeply to be read") from None
    return reader.found


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


class _Reader:
    def __init__(self, state: _State, wanted: Callable[[Sequence[str]], bool], named: re.Pattern[str]) -> None:
        self.state = state
        self.wanted = wanted
        self.named = named
        self.found: list[Ran] = []
        self._room = _MOST_MADE

    def _take(self, size: int) -> None:
        """Account for what is made. Raises ScriptError where there is no room for it."""
        self._room -= size
        if self._room < 0:
            raise ScriptError(f"makes more than {_MOST_MADE} characters and words, which are not read")

    def read(self, script: str) -> None:
        if (found := _MISREAD.search(script)) is not None:
            raise ScriptError(f"cannot be read from: {found[0]!r}")
        root = _parser().parse(script.encode()).root_node
        if root.has_error:
            raise ScriptError("cannot be read: it is not bash's grammar")
        for statement in root.named_children:
            self._statement(statement)

    # ------------------------------------------------------------ statements

    def _statement(self, node: Node, more: Sequence[Node] = ()) -> None:
        """`more`: words of the command behind a redirection."""
        kind = node.type
        if kind == "command":
            self._command(node, more)
        elif kind in ("variable_assignment", "variable_assignments"):
            for one in node.named_children if kind.endswith("s") else [node]:
                self._assign(one)
        elif kind == "declaration_command":
            self._declare(node)
        elif kind == "list":
            self._list(node)
        elif kind == "pipeline":
            self._apart(node.named_children)
        elif kind == "negated_command":
            for one in node.named_children:
                self._statement(one)
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind in _PARTS:
            if self.named.search(_text(node)):
                raise ScriptError("runs vLLM within a condition, a loop, a function or a shell of its own")
            self._forget(node)
            if kind == "function_definition" and (name := node.child_by_field_name("name")) is not None:
                self.state.functions[_text(name)] = node
        elif kind in ("comment", "test_command"):
            pass
        elif kind == "unset_command":
            self._forget(node)
        else:
            raise ScriptError(f"cannot be read from: {_text(node)[:60]}")

    def _list(self, node: Node) -> None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next(child.type for child in node.children if child.type in ("&&", "||"))
        self._statement(left)
        if operator == "||":
            if self.named.search(_text(right)):
                raise ScriptError("runs vLLM only where another command fails")
            self._forget(right)
            return
        self._statement(right)
        if self._may_fail(left) and not self.named.search(_text(right)):
            self._forget(right)

    def _may_fail(self, node: Node) -> bool:
        if node.type == "list":
            return any(self._may_fail(child) for child in node.named_children)
        if node.type == "command":
            name = node.child_by_field_name("name")
            return name is None or _text(name) not in _SURE_COMMANDS
        return node.type not in _SURE

    def _apart(self, nodes: Sequence[Node]) -> None:
        """Statements in shells of their own: what they assign is gone with them."""
        for node in nodes:
            self._take(len(self.state.variables) + len(self.state.hidden))
            kept = self.state.copy()
            self._statement(node)
            self.state = kept

    def _redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        more: list[Node] = []
        for redirect in node.children_by_field_name("redirect"):
            if redirect.type == "heredoc_redirect" and self.named.search(_text(redirect)):
                raise ScriptError("holds a text for another program that names vLLM")
            self._plain_redirect(redirect)
            more += redirect.children_by_field_name("destination")[1:]
        if body is None:
            return
        if more and body.type != "command":
            raise ScriptError(f"cannot be read from: {_text(node)[:60]}")
        self._statement(body, more)

    def _plain_redirect(self, node: Node) -> None:
        """`>&` and `<&` take a number, or close what they name; of anything else the shells make different things."""
        targets = node.children_by_field_name("destination")
        self._apart_from_each_other(node, targets)
        target = targets[0] if targets else None
        number = node.child_by_field_name("descriptor")
        odd = number is not None and not _text(number).isdigit()
        if odd or sum(not child.is_named for child in node.children) > 1:
            raise ScriptError(f"cannot be read from: {_text(node)[:60]}")
        for child in node.children:
            if child.type in (">&", "<&", "&>", "&>>", ">&-", "<&-") and target is not None:
                plain = _text(target).isdigit() if child.type in (">&", "<&") else child.type.startswith("&>")
                if not plain:
                    raise ScriptError(f"cannot be read from: {_text(node)[:60]}")

    def _apart_from_each_other(self, node: Node, parts: Sequence[Node]) -> None:
        """White space stands between the words. Where the grammar saw none, it may have seen other words."""
        source = node.text or b""
        for before, after in pairwise(parts):
            gap = source[before.end_byte - node.start_byte : after.start_byte - node.start_byte]
            lead = len(_text(after)) - len(_text(after).lstrip())
            if after.type in ("file_redirect", "herestring_redirect") and not gap and not lead:
                continue
            if not _BETWEEN.fullmatch(gap + b" " * lead):
                raise ScriptError(f"cannot be read from: {_text(node)[:60]}")

    def _forget(self, node: Node) -> None:
        """Whatever the statement sets is not known behind it."""
        for one in _all(node):
            if one.type in ("variable_name", "word", "raw_string", "string", "number"):
                name = _text(one).strip("'\"").partition("=")[0]
                if _NAME.fullmatch(name):
                    self._unknown(name)
            if one.type == "command_name":
                if _text(one) in (".", "source", "eval"):
                    self._everything_unknown()
                if _text(one) in ("set", "shift"):
                    self.state.positional = [Value("$@", "its script sets its arguments where a condition holds")]

    def _unknown(self, name: str) -> None:
        self.state.variables.pop(name, None)
        self.state.arrays.pop(name, None)
        self.state.hidden[name] = f"its script sets ${name} in a way that is not read"

    def _everything_unknown(self) -> None:
        told = "its script takes its variables from another file"
        self.state.variables.clear()
        self.state.arrays.clear()
        self.state.hidden = {"": told}
        self.state.positional = [Value("$@", told)]

    def _declare(self, node: Node) -> None:
        options = [_text(child) for child in node.named_children if child.type == "word"]
        plain = all(option in ("-x", "-r", "-g", "-gx", "-xr", "-rx") for option in options)
        exports = _text(node.children[0]) == "export" or any("x" in option for option in options)
        for child in node.named_children:
            target = child.child_by_field_name("name") if child.type == "variable_assignment" else child
            if target is None or target.type not in ("variable_name", "subscript"):
                continue
            if child.type == "variable_assignment":
                self._assign(child)
            if exports:
                self.state.exported.add(_text(target))
            if not plain:
                self._unknown(_text(target))

    def _assign(self, node: Node) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        name = _text(target)
        if target.type != "variable_name":
            self._unknown(name.partition("[")[0])
            return
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            items = [one for child in value.named_children for one in self._fields(child)]
            there = self.state.arrays.get(name, []) if adds else []
            self._take(len(there))
            self.state.arrays[name] = [*there, *items]
            self.state.variables.pop(name, None)
            return
        given = self._joined(value) if value is not None else Value("")
        if adds:
            before = self._looked_up(name) or Value("")
            if name in self.state.arrays:
                self._unknown(name)
                return
            self._take(len(before.text))
            given = Value(before.text + given.text, before.unknown or given.unknown)
        self.state.arrays.pop(name, None)
        self.state.variables[name] = given

    def _command(self, node: Node, more: Sequence[Node]) -> None:
        assigned: dict[str, Value] = {}
        words: list[Value] = []
        self._apart_from_each_other(node, node.children)
        for child in (*node.children, *more):
            if not child.is_named:
                words.append(self._unnamed(child))
            elif child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                if name is not None:
                    assigned[_text(name)] = self._joined(value) if value is not None else Value("")
            elif child.type == "command_name":
                words += [one for part in child.named_children for one in self._fields(part)]
            elif child.type == "file_redirect":
                self._plain_redirect(child)
                for late in child.children_by_field_name("destination")[1:]:
                    words += self._fields(late)
            elif child.type in ("herestring_redirect", "heredoc_redirect"):
                if self.named.search(_text(child)):
                    raise ScriptError("holds a text for another program that names vLLM")
            else:
                words += self._fields(child)
        if self.state.tainted:
            words = [Value(word.text, word.unknown or self.state.tainted) for word in words]
        self._run(words, assigned)

    def _unnamed(self, node: Node) -> Value:
        text = _text(node).strip()
        return Value(text, None if text == "$" else f"its script has {text[:40]}")

    def _run(self, words: list[Value], assigned: Mapping[str, Value]) -> None:
        if not words:
            self.state.variables.update(assigned)
            return
        texts = [word.text for word in words]
        name, rest = texts[0], words[1:]
        if (function := self.state.functions.get(name)) is not None:
            self._forget(function)
        elif self.wanted(texts):
            self.found.append(Ran(tuple(words), {**self._environment(), **assigned}))
        elif name == "eval":
            self._evaluate(rest)
        elif name == "set":
            self._set(rest)
        elif name == "shift":
            self._shift(rest)
        elif name in (".", "source"):
            self._everything_unknown()
        elif name in _SETS_NAMES:
            for word in rest:
                if _NAME.fullmatch(found := word.text.partition("=")[0]):
                    self._unknown(found)
        elif name not in _PRINTS and self.named.search(" ".join(texts)):
            raise ScriptError(f"runs vLLM by {name}, which is not read")

    def _environment(self) -> dict[str, Value]:
        known = {name: value for name, value in self.state.variables.items() if name in self.state.exported}
        return {**{name: Value("", why) for name, why in self.state.hidden.items()}, **known}

    def _evaluate(self, words: Sequence[Value]) -> None:
        """`eval` reads its words anew, one behind the other."""
        before = self.state.tainted
        self.state.tainted = next((word.unknown for word in words if word.unknown), before)
        self.read(" ".join(word.text for word in words))
        self.state.tainted = before

    def _set(self, words: Sequence[Value]) -> None:
        index = 0
        while index < len(words) and words[index].text[:1] in ("-", "+") and len(words[index].text) > 1:
            if words[index].text == "--":
                self.state.positional = list(words[index + 1 :])
                return
            index += 2 if words[index].text.endswith("o") else 1
        if index < len(words):
            self.state.positional = list(words[index:])

    def _shift(self, words: Sequence[Value]) -> None:
        count = words[0].text if words else "1"
        sure = count.isdigit() and not any(one.unknown for one in (*words, *self.state.positional))
        if sure:
            self.state.positional = self.state.positional[int(count) :]
        else:
            self.state.positional = [Value("$@", "its script shifts its arguments")]

    # ------------------------------------------------------------ words

    def _fields(self, node: Node) -> list[Value]:
        """The words that a word becomes."""
        found: list[Value] = []
        texts: list[str] = []  # of the word that is being made; none of them: there is no such word
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

        for piece in self._pieces(node, quoted=False):
            self._take(len(piece.text) + 1)
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

    def _joined(self, node: Node) -> Value:
        """The value of an assignment, which is never split."""
        pieces = list(self._pieces(node, quoted=True))
        self._take(sum(len(piece.text) + 1 for piece in pieces))
        text = "".join(" " if piece.breaks else piece.text for piece in pieces)
        return Value(text, next((piece.unknown for piece in pieces if piece.unknown), None))

    def _pieces(self, node: Node, *, quoted: bool) -> Iterator[_Piece]:
        text = _text(node)
        match node.type:
            case "word" | "number" | "special_character" | "regex" | "test_operator":
                yield self._literal(text)
            case "raw_string":
                yield _Piece(text[1:-1])
            case "ansi_c_string" if "\\" not in text:
                yield _Piece(text[2:-1])
            case "string":
                yield from self._string(node)
            case "concatenation":
                bare = "".join(_text(one) for one in node.named_children if one.type == "word")
                if not quoted and _ALTERNATIVES.search(bare):
                    yield _Piece(text, f"its script has braces outside of quotes: {text[:40]}")
                else:
                    for child in node.children:
                        if child.is_named:
                            yield from self._pieces(child, quoted=quoted)
                        else:
                            yield _Piece(_text(child), f"its script has {text[:40]}")
            case "simple_expansion":
                name = text.lstrip()[1:]
                # Of `$12` the shell reads `$1`.
                short = name[:1] if name.isdigit() else name
                yield from self._variable(short, None, text, quoted=quoted)
                if short != name:
                    yield _Piece(name[1:])
            case "expansion":
                yield from self._expansion(text.lstrip(), quoted=quoted)
            case _:
                yield _Piece(text, _OUTPUT if "substitution" in node.type else f"its script has {text[:40]}")

    def _literal(self, text: str) -> _Piece:
        if text.startswith("~"):
            return _Piece(text, f"its script has {text[:40]}")
        if _ALTERNATIVES.search(text):
            return _Piece(text, f"its script has braces outside of quotes: {text[:40]}")
        bare = _ESCAPED.sub("", text)
        if _SPLIT.search(bare):
            return _Piece(text, f"its script has {text[:40]}")
        plain = _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[1], text)
        return _Piece(plain, bare=bool(_PATTERN.search(bare)))

    def _string(self, node: Node) -> Iterator[_Piece]:
        """Between double quotes. White space in front of a variable is a part of it there, or of nothing."""
        assert node.text is not None
        source, start = node.text, node.start_byte
        at = start + 1
        yield _Piece()
        for child in node.named_children:
            if child.type == "string_content":
                continue
            text = _text(child)
            begins = child.start_byte + len(text.encode()) - len(text.lstrip().encode())
            yield _Piece(_unescaped(source[at - start : begins - start].decode()))
            yield from self._pieces(child, quoted=True)
            at = child.end_byte
        yield _Piece(_unescaped(source[at - start : -1].decode()))

    def _expansion(self, text: str, *, quoted: bool) -> Iterator[_Piece]:
        if (array := _WHOLE_ARRAY.fullmatch(text)) is not None and array["name"] in self.state.arrays:
            yield from _each(self.state.arrays[array["name"]], split=not quoted)
        elif (found := _EXPANSION.fullmatch(text)) is not None:
            default = found["default"] if found["with"] else None
            yield from self._variable(found["name"], default, text, quoted=quoted, empty=found["with"] == ":-")
        else:
            yield _Piece(text, f"its script has {text[:40]}")

    def _variable(
        self, name: str, default: str | None, text: str, *, quoted: bool, empty: bool = False
    ) -> Iterator[_Piece]:
        """`empty`: the default stands for an empty value, too."""
        if name in ("@", "*"):
            yield from _each(self.state.positional, split=not quoted)
            return
        value = self._looked_up(name)
        if default is not None and (value is None or (empty and value.unknown is None and not value.text)):
            value = Value(default)
        if value is None:
            value = Value(text, f"its script takes ${name} from elsewhere")
        yield _Piece(value.text, value.unknown, split=not quoted, bare=not quoted)

    def _looked_up(self, name: str) -> Value | None:
        """None for a variable of which nothing is known."""
        if name.isdigit():
            if name == "0" or any(one.unknown for one in self.state.positional):
                return Value(f"${name}", f"its script takes ${name} from elsewhere")
            given = self.state.positional
            return given[int(name) - 1] if int(name) <= len(given) else Value("")
        if name in self.state.arrays:
            return Value(f"${name}", f"its script takes one of the list ${name}")
        if name in self.state.variables:
            return self.state.variables[name]
        why = self.state.hidden.get(name) or self.state.hidden.get("")
        return Value(f"${name}", why) if why else None


def _each(values: Sequence[Value], *, split: bool) -> Iterator[_Piece]:
    """Every value as a word of its own."""
    for number, value in enumerate(values):
        if number:
            yield _Piece(breaks=True)
        yield _Piece(value.text, value.unknown, split=split, bare=split)


def _unescaped(text: str) -> str:
    """As between double quotes."""
    return re.sub(r'\\([$`"\\\n])', lambda found: "" if found[1] == "\n" else found[1], text)


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _all(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(one.named_children)
