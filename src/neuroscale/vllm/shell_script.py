"""Finds the commands that a shell's script runs, as far as its text alone shows.

tree-sitter parses it with bash's grammar. The reader follows only constructs whose meaning is certain: any other one
makes a word unknown, or the whole script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from neuroscale.vllm.shell_words import (
    ScriptError,
    State,
    Value,
    all_nodes,
    check_apart,
    check_redirect,
    fields,
    joined,
    statements,
    text_of,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARTS = frozenset({"if_statement", "while_statement", "for_statement", "c_style_for_statement", "case_statement"}) | {
    *("function_definition", "subshell", "compound_statement", "until_statement", "select_statement")
}
_SURE = frozenset({"variable_assignment", "variable_assignments", "declaration_command"})
"""Statements that always succeed, so that the shell runs the command after `&&`."""
_SURE_COMMANDS = frozenset({"cd", "set", "true", ":", "export", "mkdir", "echo"})
_SETS_NAMES = frozenset({"read", "mapfile", "readarray", "getopts", "let", "printf", "unset"})
_PRINTS = frozenset({"echo", "printf", "logger", ":", "true", "test", "["})


@dataclass(frozen=True)
class Ran:
    """A command with its words, and its environment variables."""

    words: tuple[Value, ...]
    environment: Mapping[str, Value]


def commands_of(
    script: str,
    environment: Mapping[str, str],
    hidden: Mapping[str, str],
    positional: Sequence[Value],
    *,
    wanted: Callable[[Sequence[str]], bool],
    named: re.Pattern[str],
) -> list[Ran]:
    """The commands of a script whose words `wanted` accepts. `hidden`: the variables with unknown values, and why; ""
    stands for any variable. `named`: matches a text that may run such a command in another way. Raises ScriptError if
    the commands are unknown."""
    state = State(
        {name: Value(text) for name, text in environment.items()}, set(environment), dict(hidden), list(positional)
    )
    reader = _Reader(state, wanted, named)
    try:
        reader.read(script)
    except RecursionError:
        raise ScriptError("is nested too deeply to be read") from None
    return reader.found


class _Reader:
    def __init__(self, state: State, wanted: Callable[[Sequence[str]], bool], named: re.Pattern[str]) -> None:
        self.state = state
        self.wanted = wanted
        self.named = named
        self.found: list[Ran] = []

    def read(self, script: str) -> None:
        for statement in statements(script):
            self._statement(statement)

    def _statement(self, node: Node, more: Sequence[Node] = ()) -> None:
        """Reads a statement. `more`: the words of its command after a redirection."""
        kind = node.type
        if kind == "command":
            self._command(node, more)
        elif kind in ("variable_assignment", "variable_assignments"):
            for child in node.named_children if kind.endswith("s") else [node]:
                self._assign(child)
        elif kind == "declaration_command":
            self._declare(node)
        elif kind == "list":
            self._list(node)
        elif kind == "pipeline":
            self._apart(node.named_children)
        elif kind == "negated_command":
            for child in node.named_children:
                self._statement(child)
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind in _PARTS:
            if self.named.search(text_of(node)):
                raise ScriptError("runs vLLM within a condition, a loop, a function or a shell of its own")
            self._forget(node)
            if kind == "function_definition" and (name := node.child_by_field_name("name")) is not None:
                self.state.functions[text_of(name)] = node
        elif kind in ("comment", "test_command"):
            pass
        elif kind == "unset_command":
            self._forget(node)
        else:
            raise ScriptError(f"cannot be read from: {text_of(node)[:60]}")

    def _list(self, node: Node) -> None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next(child.type for child in node.children if child.type in ("&&", "||"))
        self._statement(left)
        if operator == "||":
            if self.named.search(text_of(right)):
                raise ScriptError("runs vLLM only where another command fails")
            self._forget(right)
            return
        self._statement(right)
        if self._may_fail(left) and not self.named.search(text_of(right)):
            self._forget(right)

    def _may_fail(self, node: Node) -> bool:
        if node.type == "list":
            return any(self._may_fail(child) for child in node.named_children)
        if node.type == "command":
            name = node.child_by_field_name("name")
            return name is None or text_of(name) not in _SURE_COMMANDS
        return node.type not in _SURE

    def _apart(self, nodes: Sequence[Node]) -> None:
        """Reads statements that run in a shell of their own: their assignments end with it."""
        for node in nodes:
            kept = self.state.copy()
            self._statement(node)
            self.state = kept

    def _redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        more: list[Node] = []
        for redirect in node.children_by_field_name("redirect"):
            if redirect.type == "heredoc_redirect" and self.named.search(text_of(redirect)):
                raise ScriptError("holds a text for another program that names vLLM")
            check_redirect(redirect)
            more += redirect.children_by_field_name("destination")[1:]
        if body is None:
            return
        if more and body.type != "command":
            raise ScriptError(f"cannot be read from: {text_of(node)[:60]}")
        self._statement(body, more)

    def _forget(self, node: Node) -> None:
        """Makes the variables that a statement sets unknown after it."""
        for child in all_nodes(node):
            if child.type in ("variable_name", "word", "raw_string", "string", "number"):
                name = text_of(child).strip("'\"").partition("=")[0]
                if _NAME.fullmatch(name):
                    self.state.forget(name)
            if child.type == "command_name":
                if text_of(child) in (".", "source", "eval"):
                    self.state.forget_everything()
                if text_of(child) in ("set", "shift"):
                    self.state.positional = [Value("$@", "its script sets its arguments where a condition holds")]

    def _declare(self, node: Node) -> None:
        options = [text_of(child) for child in node.named_children if child.type == "word"]
        plain = all(option in ("-x", "-r", "-g", "-gx", "-xr", "-rx") for option in options)
        exports = text_of(node.children[0]) == "export" or any("x" in option for option in options)
        for child in node.named_children:
            target = child.child_by_field_name("name") if child.type == "variable_assignment" else child
            if target is None or target.type not in ("variable_name", "subscript"):
                continue
            if child.type == "variable_assignment":
                self._assign(child)
            if exports:
                self.state.exported.add(text_of(target))
            if not plain:
                self.state.forget(text_of(target))

    def _assign(self, node: Node) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        name = text_of(target)
        if target.type != "variable_name":
            self.state.forget(name.partition("[")[0])
            return
        adds = any(child.type == "+=" for child in node.children)
        if value is not None and value.type == "array":
            items = [one for child in value.named_children for one in fields(child, self.state)]
            there = self.state.arrays.get(name, []) if adds else []
            self.state.room.take(len(there))
            self.state.arrays[name] = [*there, *items]
            self.state.variables.pop(name, None)
            return
        given = joined(value, self.state) if value is not None else Value("")
        if adds:
            before = self.state.looked_up(name) or Value("")
            if name in self.state.arrays:
                self.state.forget(name)
                return
            self.state.room.take(len(before.text))
            given = Value(before.text + given.text, before.unknown or given.unknown)
        self.state.arrays.pop(name, None)
        self.state.variables[name] = given

    def _command(self, node: Node, more: Sequence[Node]) -> None:
        assigned: dict[str, Value] = {}
        words: list[Value] = []
        check_apart(node, node.children)
        for child in (*node.children, *more):
            if not child.is_named:
                words.append(self._unnamed(child))
            elif child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                if name is not None:
                    assigned[text_of(name)] = joined(value, self.state) if value is not None else Value("")
            elif child.type == "command_name":
                words += [one for part in child.named_children for one in fields(part, self.state)]
            elif child.type == "file_redirect":
                check_redirect(child)
                for late in child.children_by_field_name("destination")[1:]:
                    words += fields(late, self.state)
            elif child.type in ("herestring_redirect", "heredoc_redirect"):
                if self.named.search(text_of(child)):
                    raise ScriptError("holds a text for another program that names vLLM")
            else:
                words += fields(child, self.state)
        if self.state.tainted:
            words = [Value(word.text, word.unknown or self.state.tainted) for word in words]
        self._run(words, assigned)

    def _unnamed(self, node: Node) -> Value:
        text = text_of(node).strip()
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
            self.found.append(Ran(tuple(words), {**self.state.environment(), **assigned}))
        elif name == "eval":
            self._evaluate(rest)
        elif name == "set":
            self._set(rest)
        elif name == "shift":
            self._shift(rest)
        elif name in (".", "source"):
            self.state.forget_everything()
        elif name in _SETS_NAMES:
            for word in rest:
                if _NAME.fullmatch(found := word.text.partition("=")[0]):
                    self.state.forget(found)
        elif name not in _PRINTS and self.named.search(" ".join(texts)):
            raise ScriptError(f"runs vLLM by {name}, which is not read")

    def _evaluate(self, words: Sequence[Value]) -> None:
        """Reads the words of `eval`, joined by blanks, as a script."""
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
        sure = count.isdigit() and not any(word.unknown for word in (*words, *self.state.positional))
        if sure:
            self.state.positional = self.state.positional[int(count) :]
        else:
            self.state.positional = [Value("$@", "its script shifts its arguments")]
