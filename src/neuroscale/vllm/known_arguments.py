"""Loads the arguments that a version of vLLM accepts, as scripts/snapshot_vllm_arguments.py wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

_NAME = re.compile(r"arguments-(\d+\.\d+\.\d+)\.json")

Kind = Literal["store", "store_true", "append", "help", "boolean", "lora"]


@dataclass(frozen=True)
class Argument:
    """One argument of `vllm serve`. `dest` is vLLM's own name of its value.

    `options` are all spellings (none: the positional argument). `type` names the conversion of a text to a value;
    `optional`: an empty text or `None` stands for no value. `fields`: the only fields of a JSON object, each with the
    schema of its value (None: any value), as neuroscale.vllm.json_fields reads it. The command line accepts numbers
    beyond `limits` and texts outside `names`, but vLLM's configurations refuse them.
    """

    options: tuple[str, ...]
    dest: str
    kind: Kind
    type: str = "str"
    optional: bool = False
    nargs: str | None = None
    const: Any = None
    choices: tuple[str | int, ...] | None = None
    fields: Mapping[str, Any] | None = field(default=None, repr=False)
    limits: Mapping[str, float] | None = None
    names: Mapping[str, Any] | None = None
    default: Any = None
    deprecated: bool = False

    @property
    def flag(self) -> str:
        """The most common spelling, for messages."""
        return self.options[0] if self.options else self.dest


@dataclass(frozen=True)
class Snapshot:
    """Everything that one version accepts: arguments by vLLM's name, parsers, quantisation, model architectures.

    Of the quantisation methods, `described` ones read their settings from the checkpoint's files, `deprecated` ones
    are refused unless the command allows them, and `float32` ones compute in that dtype, too. `float16_refused`: model
    types that vLLM does not serve in float16. `removed_architectures`: architectures that vLLM no longer serves, with
    the last version that did.
    """

    version: str
    arguments: Mapping[str, Argument]
    tool_parsers: frozenset[str]
    reasoning_parsers: frozenset[str]
    quantization_methods: frozenset[str]
    architectures: frozenset[str]
    described_quantizations: frozenset[str]
    deprecated_quantizations: frozenset[str]
    float32_quantizations: frozenset[str]
    float16_refused: frozenset[str]
    removed_architectures: Mapping[str, str]
    kv_connectors: frozenset[str]

    def choices(self, dest: str) -> tuple[str | int, ...]:
        """The values that an argument may have; empty if the snapshot does not list them."""
        return self.arguments[dest].choices or ()


def versions() -> tuple[str, ...]:
    """The versions with a snapshot, oldest first."""
    names = (_NAME.fullmatch(entry.name) for entry in files("neuroscale.vllm").iterdir())
    return tuple(sorted((name[1] for name in names if name), key=_numbers))


def nearest(version: str) -> Snapshot:
    """The snapshot of `version`, or else of the nearest version with one, which its own `version` names."""
    there = versions()
    if version in there:
        return load(version)
    wanted = _numbers(version)
    if not wanted:
        return load(there[-1])
    older = [one for one in there if _numbers(one) <= wanted]
    return load(older[-1] if older else there[0])


@cache
def load(version: str) -> Snapshot:
    """The snapshot of exactly this version, which `versions()` names."""
    text = (files("neuroscale.vllm") / f"arguments-{version}.json").read_text(encoding="utf-8")
    value = json.loads(text)
    arguments = [_argument(item) for item in value["arguments"]]
    return Snapshot(
        value["version"],
        {argument.dest: argument for argument in arguments},
        frozenset(value["tool_parsers"]),
        frozenset(value["reasoning_parsers"]),
        frozenset(value["quantization_methods"]),
        frozenset(value["architectures"]),
        frozenset(value["described_quantizations"]),
        frozenset(value["deprecated_quantizations"]),
        frozenset(value["float32_quantizations"]),
        frozenset(value["float16_refused"]),
        value["removed_architectures"],
        frozenset(value["kv_connectors"]),
    )


def _argument(item: dict[str, Any]) -> Argument:
    choices = item.pop("choices", None)
    return Argument(**item | {"options": tuple(item["options"]), "choices": None if choices is None else (*choices,)})


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release without any suffix; () for a text that does not start with a number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()
