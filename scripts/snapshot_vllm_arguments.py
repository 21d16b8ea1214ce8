"""Writes the arguments that the installed vLLM's `serve` accepts, as data: src/neuroscale/vllm/arguments-VERSION.json.

Run it with the Python of the serving packages, whenever their version moves: `snapshot_vllm_arguments.py [FILE]`, where
`-` is standard output. It copies names, shapes and choices, but not vLLM's help texts. It is one long file because that
Python has nothing of this project installed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

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
    """Everything, in JSON's types and a fixed order. Raises SystemExit for an argument of an unknown shape."""
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
    limits, names = _limits(), _names()
    for argument in arguments:
        if argument["dest"] in limits:
            argument["limits"] = limits[argument["dest"]]
        if argument["dest"] in names:
            argument["names"] = names[argument["dest"]]
    quantization = _vllm("model_executor.layers.quantization")
    return {
        "version": _vllm("version").__version__.partition("+")[0],
        "arguments": arguments,
        "tool_parsers": sorted(_vllm("tool_parsers").ToolParserManager.list_registered()),
        "reasoning_parsers": sorted(_vllm("reasoning").ReasoningParserManager.list_registered()),
        "quantization_methods": sorted(quantization.QUANTIZATION_METHODS),
        **_quantization(quantization),
        "float16_refused": sorted(_vllm("config.model")._FLOAT16_NOT_SUPPORTED_MODELS),
        "removed_architectures": _removed(),
        "kv_connectors": sorted(_vllm("distributed.kv_transfer.kv_connector.factory").KVConnectorFactory._registry),
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
    """Keep facts of this machine out of the file: vLLM reads defaults from the environment."""
    for name in [name for name in os.environ if name.startswith("VLLM_")]:
        del os.environ[name]
    os.environ.update(CUDA_VISIBLE_DEVICES="", VLLM_LOGGING_LEVEL="ERROR", VLLM_PLUGINS="")


def _vllm(module: str) -> ModuleType:
    return importlib.import_module(f"vllm.{module}")


def _argument(action: argparse.Action, deprecated: bool) -> dict[str, Any]:
    """One argument; a missing key means argparse's default."""
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
    """Whether the value may be "" or None, the type's name, and the fields of an object."""
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
    """The fields of a configuration, each with what its value may be: JSON Schema in a few words. Null: any value.

    `any_case`: capital letters count for nothing.
    """
    hints = get_type_hints(shape)
    accepts: TypeAdapter[Any] | None
    try:
        accepts = TypeAdapter(shape)
        document = accepts.json_schema(schema_generator=_Lenient)
    except PydanticUserError:  # only usable inside another one, which reads it in its own way
        accepts, document = None, {}
    properties = document.get("properties", {})
    checked_first = _checked_first(shape)
    found = {}
    allowed: dict[str, Any] | None
    for field in fields(shape):
        if not getattr(field, "init", True):
            continue
        inner = next((hint for hint in _parts(hints[field.name]) if is_dataclass(hint)), None)
        own = accepts is None or bool({field.name, "*"} & checked_first)
        if isinstance(inner, type) and inner is not shape:
            bare = own and not (accepts and _kinds(accepts, field.name) <= {"null", "object"})
            allowed = {"properties": _fields(inner)} | ({} if bare else {"type": "object"})
        elif own:
            allowed = accepts and _asked(accepts, field.name, hints[field.name])
        else:
            allowed = _plain_schema(properties.get(field.name, {}), document.get("$defs", {}))
        if accepts and allowed and ("type" in allowed or "enum" in allowed) and _takes(accepts, field.name, None):
            allowed = {"anyOf": [allowed, {"type": "null"}]}
        found[field.name] = allowed
    return dict(sorted(found.items()))


class _Lenient(GenerateJsonSchema):
    """Writes an empty schema for a value that JSON Schema cannot describe."""

    def handle_invalid_for_json_schema(self, *_: Any) -> dict[str, Any]:
        return {}


def _checked_first(shape: type) -> set[str]:
    """Fields whose values vLLM's code changes before it checks their type."""
    decorators = getattr(shape, "__pydantic_decorators__", None)
    validators = decorators.field_validators.values() if decorators else ()
    return {name for one in validators if one.info.mode == "before" for name in one.info.fields}


def _takes(accepts: TypeAdapter[Any], name: str, value: Any) -> bool:
    try:
        accepts.validate_json(json.dumps({name: value}))
    except ValidationError as error:
        return not any(name in one["loc"] for one in error.errors())
    except Exception:
        return False
    return True


_EXAMPLES: dict[str, list[Any]] = {
    "array": [[], ["no such name"], [1]],
    "boolean": [True],
    "integer": [7],
    "null": [None],
    "number": [7.5],
    "object": [{}],
    "string": ["no such name"],
}


def _kinds(accepts: TypeAdapter[Any], name: str) -> set[str]:
    """The types of the examples that `accepts` takes for the field."""
    return {kind for kind, examples in _EXAMPLES.items() if any(_takes(accepts, name, one) for one in examples)}


def _asked(accepts: TypeAdapter[Any], name: str, hint: Any) -> dict[str, Any] | None:
    """The values that vLLM takes in a trial: a list of names and numbers, or types. None if it takes none of these."""
    kinds = _kinds(accepts, name)
    if {"array", "object", "number", "string"} & kinds:
        return {"anyOf": [{"type": kind} for kind in sorted(kinds)]}
    candidates: list[Any] = [*range(-2, 10), True, False, "", "auto"]
    for part in _every_part(hint):
        if isinstance(part, type) and issubclass(part, Enum):
            candidates += [*part.__members__, *(one.value for one in part)]
        elif isinstance(part, str):
            candidates.append(part)
    texts = [one for one in candidates if isinstance(one, str)]
    candidates += [text.replace("_", "-") for text in texts]
    plain = [one for one in candidates if isinstance(one, str | int)]
    taken = {json.dumps(one): one for one in plain if _takes(accepts, name, one)}
    told = sorted(taken.values(), key=json.dumps)
    words = [one for one in told if isinstance(one, str) and one]
    if words and all(_takes(accepts, name, form) for one in words for form in (one.lower(), one.upper(), one.title())):
        rest = [one for one in told if one not in words]
        return {"any_case": True, "enum": [*rest, *sorted({one.lower() for one in words})]}
    return {"enum": told} if told else None


def _every_part(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _every_part(part)


_KEPT = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "minProperties")


def _plain_schema(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    if "$ref" in schema:
        return _plain_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        parts = [_plain_schema(part, definitions) for part in schema["anyOf"]]
        return None if None in parts else {"anyOf": parts}
    found = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if "enum" in found:
        found.pop("type", None)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict) and (inner := _plain_schema(schema[key], definitions)):
            found[key] = inner
    return found or None


_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _limits() -> dict[str, dict[str, Any]]:
    """The smallest and largest numbers that vLLM's configurations take, by the argument that sets them."""
    config, engine = _vllm("config"), _vllm("engine.arg_utils")
    found = {}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(engine.EngineArgs)))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        shape = getattr(config, node.func.id, None) or getattr(engine, node.func.id, None)
        if not (isinstance(shape, type) and is_dataclass(shape) and hasattr(shape, "__pydantic_decorators__")):
            continue
        properties = TypeAdapter(shape).json_schema(schema_generator=_Lenient).get("properties", {})
        for keyword in node.keywords:
            value = keyword.value
            if not (
                isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self"
            ):
                continue
            schema = properties.get(keyword.arg, {})
            for part in schema.get("anyOf", [schema]):
                if bounds := {key: part[key] for key in _BOUNDS if key in part}:
                    found[value.attr] = bounds
    return found


def _names() -> dict[str, dict[str, Any]]:
    """Allowed values of arguments that the command line takes as any text. `dotted`: or the name of a custom class."""
    config = _vllm("config")
    backends = [name.lower() for name in _vllm("v1.attention.backends.registry").AttentionBackendEnum.__members__]
    executors = get_type_hints(config.ParallelConfig)["distributed_executor_backend"]
    return {
        "attention_backend": {"any_case": True, "enum": ["auto", *sorted(backends)]},
        "data_parallel_backend": {
            "enum": sorted(get_args(get_type_hints(config.ParallelConfig)["data_parallel_backend"]))
        },
        "distributed_executor_backend": {
            "dotted": True,
            "enum": sorted({part for part in _every_part(executors) if isinstance(part, str)}),
        },
        "load_format": {"enum": sorted(_vllm("model_executor.model_loader")._LOAD_FORMAT_TO_MODEL_LOADER)},
        "optimization_level": {"enum": [str(level.value) for level in _vllm("config.vllm").OptimizationLevel]},
    }


def _quantization(module: ModuleType) -> dict[str, Any]:
    """Methods that read the checkpoint's own description, that are deprecated, and that compute in float32."""
    float32 = importlib.import_module("torch").float32
    shorthands = _vllm("config.quantization")._ONLINE_SHORTHANDS
    described, wide = [], []
    for name in module.QUANTIZATION_METHODS:
        method = module.get_quantization_config(name)
        if float32 in _call(method, "get_supported_act_dtypes"):
            wide.append(name)
        if name in shorthands or name == "fp8":
            continue
        if method.get_config_filenames() or _needs_more(method):
            described.append(name)
    return {
        "described_quantizations": sorted(described),
        "deprecated_quantizations": sorted(module.DEPRECATED_QUANTIZATION_METHODS),
        "float32_quantizations": sorted(wide),
    }


def _call(method: Any, name: str) -> Any:
    """The result of a method's own function, even if only an object has it."""
    try:
        return getattr(method, name)()
    except TypeError:
        return getattr(method, name)(None)


def _needs_more(method: Any) -> bool:
    """Whether a method cannot be made without arguments."""
    try:
        method()
    except TypeError:
        return True
    return False


def _removed() -> dict[str, str]:
    """Architectures that vLLM served until a version, and that Transformers' own code does not serve either."""
    module = _vllm("model_executor.models.registry")
    registry = module.ModelRegistry
    model = SimpleNamespace(
        model_impl="auto",
        runner_type="generate",
        convert_type="none",
        hf_config=SimpleNamespace(auto_map=None),
        _get_transformers_backend_cls=lambda: "TransformersForCausalLM",
    )
    return {
        name: until
        for name, until in sorted(module._PREVIOUSLY_SUPPORTED_MODELS.items())
        if registry._normalize_arch(name, model) not in registry.models
        and registry._try_resolve_transformers(name, model) is None
    }


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        if isinstance(part, type):
            yield part


def _plain(value: Any) -> Any:
    """A default as JSON; None for no default, an object, or a path of this machine."""
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
