"""Keeps the known variables, arguments and functions of a shell while its script is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from neuroscale.vllm.shell_grammar import ScriptError

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
    """The state of one shell.

    `hidden`: the variables with unknown values, and why; "" stands for any variable. `tainted`: why no word is known.
    """

    variables: dict[str, Value]
    exported: set[str]
    hidden: dict[str, str]
    positional: list[Value]
    arrays: dict[str, list[Value]] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    tainted: str | None = None
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
