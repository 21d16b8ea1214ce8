"""What is known of a shell's variables, arguments and functions while its script is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from neuroscale.vllm.shell_grammar import ScriptError

# Each variable can hold another one twice, and `set -- "$@" "$@"` doubles the arguments.
_MOST_MADE = 256 * 1024


@dataclass(frozen=True)
class Value:
    """A text, or why it is not known (then `text` is as far as it is)."""

    text: str
    unknown: str | None = None


class Room:
    """How many characters and words may still be made, by a shell and all shells that it starts."""

    def __init__(self) -> None:
        self._left = _MOST_MADE

    def take(self, size: int) -> None:
        """Account for what is made. Raises ScriptError where there is no room for it."""
        self._left -= size
        if self._left < 0:
            raise ScriptError(f"makes more than {_MOST_MADE} characters and words, which are not read")


@dataclass
class State:
    """What one shell knows.

    `hidden`: variables whose values are not known, and why; "" for any. `tainted`: why no word is known.
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
        """For a shell of its own. Raises ScriptError where there is no room for it."""
        self.room.take(len(self.variables) + len(self.hidden))
        return State(
            *(dict(self.variables), set(self.exported), dict(self.hidden), list(self.positional)),
            *(dict(self.arrays), dict(self.functions), self.tainted, self.room),
        )

    def looked_up(self, name: str) -> Value | None:
        """None for a variable of which nothing is known."""
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
        """The variables that a command gets."""
        known = {name: value for name, value in self.variables.items() if name in self.exported}
        return {**{name: Value("", why) for name, why in self.hidden.items()}, **known}

    def forget(self, name: str) -> None:
        """A variable is set in a way that is not read."""
        self.variables.pop(name, None)
        self.arrays.pop(name, None)
        self.hidden[name] = f"its script sets ${name} in a way that is not read"

    def forget_everything(self) -> None:
        """Another file may set anything."""
        told = "its script takes its variables from another file"
        self.variables.clear()
        self.arrays.clear()
        self.hidden = {"": told}
        self.positional = [Value("$@", told)]
