"""Parses scripts by tree-sitter's grammar of bash, and refuses the trees that cannot be trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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

    Raises ScriptError.
    """
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
    """Refuses words without white space between them: the grammar may have split them differently from bash.

    Raises ScriptError.
    """
    source = node.text or b""
    for before, after in pairwise(parts):
        gap = source[before.end_byte - node.start_byte : after.start_byte - node.start_byte]
        lead = len(text_of(after)) - len(text_of(after).lstrip())
        if after.type in ("file_redirect", "herestring_redirect") and not gap and not lead:
            continue
        if not _BETWEEN.fullmatch(gap + b" " * lead):
            raise ScriptError(f"cannot be read from: {text_of(node)[:60]}")
