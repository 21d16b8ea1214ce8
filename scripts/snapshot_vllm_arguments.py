"""Writes what the installed vLLM's `serve` accepts, as data: src/neuroscale/vllm/arguments-VERSION.json.

Run by the Python of the serving packages, whenever their version moves: `snapshot_vllm_arguments.py [FILE]`, where `-`
is standard output. Names, shapes and choices are taken over; vLLM's help texts are not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

_FOLDER = Path(__file__).resolve().parent.parent / "src/neuroscale/vllm"
_TYPES = {
    "int": "int",
    "float": "float",
    "str": "str",
    "loads": "json",
    "human_readable_int": "human_int",
    "human_readable_int_or_auto": "human_int_or_auto",
    "union_dict_and_str": "json_or_str",
}
_KINDS = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "_AppendAction": "append",
    "_HelpAction": "help",
    "BooleanOptionalAction": "boolean",
    "LoRAParserAction": "lora",
    "DeprecatedLogConfigFileAction": "store",
}


def snapshot() -> dict[str, Any]:
    """Everything, in JSON's types and a fixed order. Raises SystemExit for an argument of a shape never seen before."""
    _same_everywhere()
    parser = _vllm("entrypoints.launchers.cli_args").make_arg_parser(
        _vllm("utils.argparse_utils").FlexibleArgumentParser(prog="vllm serve")
    )
    deprecated = {action.dest for action in parser._deprecated} | {
        action.dest for action in parser._actions if type(action).__name__.startswith("Deprecated")
    }
    arguments = sorted(
        (_argument(action, action.dest in deprecated) for action in parser._actions),
        key=lambda argument: (argument["options"] or [""])[0],
    )
    quantization = _vllm("model_executor.layers.quantization")
    return {
        "version": _vllm("version").__version__.partition("+")[0],
        "arguments": arguments,
        "tool_parsers": sorted(_vllm("tool_parsers").ToolParserManager.list_registered()),
        "reasoning_parsers": sorted(_vllm("reasoning").ReasoningParserManager.list_registered()),
        "quantization_methods": sorted(quantization.QUANTIZATION_METHODS),
        "architectures": sorted(_vllm("model_executor.models.registry").ModelRegistry.get_supported_archs()),
    }


def written(value: dict[str, Any]) -> str:
    """The file's text: a line for each argument, so that the next version's difference can be read."""
    parts = []
    for key, item in value.items():
        if key == "arguments":
            lines = ",\n".join(f"    {json.dumps(argument, sort_keys=True)}" for argument in item)
            parts.append(f'  "{key}": [\n{lines}\n  ]')
        else:
            parts.append(f'  "{key}": {json.dumps(item)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _same_everywhere() -> None:
    """Nothing of this machine may reach the file: vLLM reads defaults from the environment."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        del os.environ[name]
    os.environ.update(CUDA_VISIBLE_DEVICES="", VLLM_LOGGING_LEVEL="ERROR", VLLM_PLUGINS="")


def _vllm(module: str) -> ModuleType:
    return importlib.import_module(f"vllm.{module}")


def _argument(action: argparse.Action, deprecated: bool) -> dict[str, Any]:
    """One argument; what is not said is what argparse takes where nothing is said."""
    kind = _KINDS.get(type(action).__name__)
    if kind is None:
        raise SystemExit(f"{action.dest}: an action of the unknown class {type(action).__name__}.")
    found: dict[str, Any] = {"options": list(action.option_strings), "dest": action.dest, "kind": kind}
    if kind in ("store", "append", "lora"):
        optional, name, shape = _type(action.type, action.dest)
        found["type"] = name
        if optional:
            found["optional"] = True
        if shape is not None:
            found["fields"] = shape
        if action.nargs is not None:
            found["nargs"] = action.nargs
        if action.const is not None:
            found["const"] = action.const
        if action.choices is not None:
            found["choices"] = sorted(choice for choice in action.choices if choice is not None)
    if deprecated:
        found["deprecated"] = True
    default = _plain(action.default)
    if default is not None and kind != "help":
        found["default"] = default
    return found


def _type(convert: Any, dest: str) -> tuple[bool, str, dict[str, Any] | None]:
    """Whether "" and None are allowed for nothing, the type's name, and the fields of an object."""
    if convert is None:
        return False, "str", None
    name = convert.__qualname__
    if name.startswith("optional_type."):
        _, inner, shape = _type(_enclosed(convert), dest)
        return True, inner, shape
    if name.startswith("parse_type."):
        return _type(_enclosed(convert), dest)
    if name.endswith(".parse_dataclass"):
        return False, "object", _fields(convert.__defaults__[0])
    if name in _TYPES:
        return False, _TYPES[name], None
    if name.endswith("<lambda>") and dest == "device_ids":
        return False, "devices", None
    if name.endswith("<lambda>") and convert("A-b") == "a_b":
        return False, "lowered", None
    raise SystemExit(f"{dest}: a type of the unknown name {name}.")


def _enclosed(convert: Callable[..., Any]) -> Any:
    cells = convert.__closure__ or ()
    return cells[0].cell_contents


def _fields(shape: type) -> dict[str, Any]:
    """The fields of a configuration and, of those that are one themselves, theirs. Null: any value."""
    hints = get_type_hints(shape)
    found = {}
    for field in fields(shape):
        if not getattr(field, "init", True):
            continue
        inner = next((hint for hint in _parts(hints[field.name]) if is_dataclass(hint)), None)
        found[field.name] = _fields(inner) if isinstance(inner, type) and inner is not shape else None
    return dict(sorted(found.items()))


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        if isinstance(part, type):
            yield part


def _plain(value: Any) -> Any:
    """A default as JSON has it; None where it is nothing, an object, or a path of this machine."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool | int | float) or (isinstance(value, str) and not value.startswith("/")):
        return value
    return None


def main() -> None:
    """Write the file."""
    with contextlib.redirect_stdout(sys.stderr):
        value = snapshot()
    target = sys.argv[1] if len(sys.argv) > 1 else str(_FOLDER / f"arguments-{value['version']}.json")
    if target == "-":
        sys.stdout.write(written(value))
    else:
        Path(target).write_text(written(value), encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
