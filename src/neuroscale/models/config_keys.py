"""Reads the keys of a model's config.json by type: every value has bounds, and errors name the key.

Defaults are those of the pinned vLLM's transformers: scripts/snapshot_model_defaults.py writes them to defaults.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.units import MIB
from neuroscale.core.validation import shorten, suggest

_SAME_CLASS = {"deepseek_v32": "deepseek_v3", "kimi_k2": "deepseek_v3"}
"""Model types that vLLM itself reads with the class of another type."""


_OF_REMOTE_CODE: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "exaone": ({"tie_word_embeddings": True}, {"num_hidden_layers": "num_layers"}),
    "minicpm": ({"tie_word_embeddings": True}, {}),
}
"""Defaults of the classes that come with their models, and not with transformers."""


def class_defaults(model_type: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The default values by key, and the class's other names for keys; both empty for a type without a class."""
    if model_type in _OF_REMOTE_CODE:
        return _OF_REMOTE_CODE[model_type]
    entry = _snapshot()["model_types"].get(_SAME_CLASS.get(model_type, model_type))
    return (entry["defaults"], entry["aliases"]) if entry else ({}, {})


def transformers_version() -> str:
    """The version of transformers that the snapshot was taken from."""
    return str(_snapshot()["transformers"])


@lru_cache(maxsize=1)
def _snapshot() -> Mapping[str, Any]:
    text = files("neuroscale.models").joinpath("defaults.json").read_text(encoding="utf-8")
    snapshot: Mapping[str, Any] = json.loads(text)
    return snapshot


LARGEST_CONFIG = 4 * MIB
"""The largest config.json that is read, in bytes. Real ones with long lists of modules take under 100 kB."""

LARGEST_NUMBER = 2**40
MOST_LAYERS = 2000

_FIX = "Copy config.json from the model's own repository."


def parse_config(text: str | bytes, where: str) -> dict[str, Any]:
    """The object that a config.json holds. Raises InputError if it is too large or holds anything but an object."""
    if len(text) > LARGEST_CONFIG:
        raise InputError(Problem(where, "", f"is larger than {LARGEST_CONFIG // MIB} MiB", _FIX))
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise InputError(Problem(where, "", "is nested too deeply", _FIX)) from error
    except ValueError as error:  # includes bytes that are not text, and numbers of thousands of digits
        reason = (
            str(error)
            if isinstance(error, json.JSONDecodeError)
            else "it holds a number or a text that JSON readers refuse"
        )
        raise InputError(Problem(where, "", f"is not valid JSON: {reason}", _FIX)) from error
    if not isinstance(value, dict):
        raise InputError(Problem(where, "", "is not a JSON object", _FIX))
    return value


class Keys:
    """One object of a config.json, with the defaults of its model type's class in transformers. `where` names the file
    in messages, and `path` the place of this object in the file. A key with the value null counts as written: it hides
    the default. `asked`: the names that were looked up so far, by the path of their object; all sections share it."""

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str,
        path: str = "",
        model_type: str = "",
        asked: dict[str, set[str]] | None = None,
    ) -> None:
        self.values = values
        self.where = where
        self.path = path
        self.model_type = model_type
        self.asked = {} if asked is None else asked
        self._here = self.asked.setdefault(path, set())
        self._defaults, self._aliases = class_defaults(model_type)
        self._spelled: dict[str, str] = {}

    def problem(self, key: str, message: str, fix: str = _FIX) -> InputError:
        """An error about one key."""
        return InputError(Problem(self.where, f"{self.path}.{key}".strip("."), message, fix))

    def has(self, key: str) -> bool:
        """Whether the key is written or has a default; null counts."""
        return self._name(key) in self.values or self._name(key) in self._defaults

    def written(self, key: str) -> bool:
        """Whether the file itself has the key."""
        return self._name(key) in self.values

    def raw(self, key: str) -> Any:
        """The key's value, or its default; None if it has neither."""
        name = self._name(key)
        return self.values[name] if name in self.values else self._defaults.get(name)

    def integer(self, *keys: str, low: int = 1, high: int = LARGEST_NUMBER, default: int | None = None) -> int:
        """The first of `keys` that is not null, else `default`. Raises InputError if there is neither."""
        value = self.optional(*keys, low=low, high=high)
        if value is None:
            value = default
        if value is None:
            raise self.problem(keys[0], "is missing", f"Write it as a whole number. {_FIX}")
        return value

    def shape(self, *keys: str, low: int = 1, high: int = LARGEST_NUMBER) -> int:
        """As `integer`, for keys that decide the model's size. Only a section may leave such a key out, and then has
        the default of its class. In a whole file, the key must be present: a file without it is damaged."""
        if not self.path and not any(self.written(key) for key in keys):
            raise self.problem(keys[0], "is missing")
        return self.integer(*keys, low=low, high=high)

    def optional(self, *keys: str, low: int = 1, high: int = LARGEST_NUMBER) -> int | None:
        """The first of `keys` that is not null, as a whole number within the bounds."""
        for key in keys:
            value = self.raw(key)
            if value is not None:
                return self._checked(key, value, low, high)
        return None

    def flag(self, key: str, default: bool = False) -> bool:
        """The key as true or false; `default` if it is null or missing."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.problem(key, f"{shorten(value)} is not true or false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """The key as text; `default` if it is null or missing."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 200:
            raise self.problem(key, f"{shorten(value)} is not a short text")
        return value

    def texts(self, key: str, most: int = 100_000) -> tuple[str, ...] | None:
        """The key as a list of texts; None if it is null or missing."""
        value = self._list(key, most)
        if value is None:
            return None
        for item in value:
            if not isinstance(item, str):
                raise self.problem(key, f"{shorten(item)} in it is not text")
        return tuple(value)

    def integers(self, key: str, low: int = 0, most: int = MOST_LAYERS) -> tuple[int, ...] | None:
        """The key as a list of whole numbers; None if it is null or missing."""
        value = self._list(key, most)
        return None if value is None else tuple(self._checked(key, item, low, LARGEST_NUMBER) for item in value)

    def section(self, *keys: str, model_type: str = "") -> Keys | None:
        """The first of `keys` that holds an object. Its defaults follow its own `model_type`, else the given one."""
        for key in keys:
            value = self.raw(key)
            if value is None:
                continue
            if not isinstance(value, dict):
                raise self.problem(key, f"{shorten(value)} is not an object")
            own = value.get("model_type", model_type)
            path = f"{self.path}.{key}".strip(".")
            kind = own if isinstance(own, str) and own else model_type
            return Keys(value, self.where, path, kind, self.asked)
        return None

    def as_type(self, model_type: str) -> Keys:
        """The same object with the defaults of another model type."""
        return Keys(self.values, self.where, self.path, model_type, self.asked)

    def _list(self, key: str, most: int) -> list[Any] | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.problem(key, f"{shorten(value)} is not a list")
        if len(value) > most:
            raise self.problem(key, f"has {len(value)} entries, more than {most}")
        return value

    def _checked(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.problem(key, f"{shorten(value)} is not a whole number")
        if not low <= value <= high:
            raise self.problem(key, f"{shorten(value)} is not within {low} and {high}")
        return value

    def _name(self, key: str) -> str:
        """The name that the file, or else the class, uses for the key."""
        found = self._spelled.get(key)
        if found is None:
            found = self._spelled[key] = self._look_up(key)
        return found

    def _look_up(self, key: str) -> str:
        names = [key]
        for alias, meant in self._aliases.items():
            if key == alias:
                names.append(meant)
            elif key == meant:
                names.append(alias)
        self._here.update(names)
        for known in (self.values, self._defaults):
            for name in names:
                if name in known:
                    return name
        return key


def unknown_choice(keys: Keys, key: str, value: str, known: Iterable[str]) -> InputError:
    """An error about a value that is not one of the known values."""
    return keys.problem(key, f"{shorten(value)} is not known here", suggest(value, known))
