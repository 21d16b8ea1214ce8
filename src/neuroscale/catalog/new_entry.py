"""Makes an entry of the catalog from a found model, as the text of its file.

In an existing entry, fields that a person wrote stay: only fields that the model's files decide are renewed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from neuroscale.catalog.contradictions import GROUPED
from neuroscale.catalog.measurements import Measurement, measurement_values
from neuroscale.catalog.model_lookup import FoundModel
from neuroscale.catalog.parser_families import RECIPES, UNKNOWN, parsers_of
from neuroscale.catalog.quantization_kinds import kind_of
from neuroscale.core.errors import InputError
from neuroscale.core.units import GIB
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.models.config import read_entry
from neuroscale.repo.layout import CATALOG

_UNMEASURED: dict[str, Any] = {"value": None, "source": "not published and not measured here"}


def entry_path(name: str) -> str:
    """The path of a model's entry in the repository."""
    return f"{CATALOG}/models/{name.rsplit('/', 1)[-1]}.yaml"


def entry_values(found: FoundModel, there: Mapping[str, Any] | None, said: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the entry's file, in its order.

    `there`: the values of the existing entry. `said`: fields that a person gives; they override the model's files.
    Raises InputError if the catalog has no name for the quantisation of the weights, and for a new entry if nobody says
    where the weights are.
    """
    placed_by_fields = isinstance(said.get("weights"), Mapping) and "kind" in said["weights"]
    if there is None and found.kind is None and not placed_by_fields:
        fix = (
            "Add --store PATH, their folder below `models.store` of the settings, or --hub if the Hub has a repository "
            "of that name."
        )
        raise InputError.at("the command line", "", f"does not say where the weights of {found.name} are", fix)
    values = _merged(_made(found) if there is None else _renewed(found, there), said)
    if there is not None and _undated(values) == _undated(there):
        return dict(there)
    return {
        key: values[key] for key in sorted(values, key=lambda key: _ORDER.index(key) if key in _ORDER else len(_ORDER))
    }


def _renewed(found: FoundModel, there: Mapping[str, Any]) -> dict[str, Any]:
    """The existing entry with the fields that the model's files decide."""
    made = _made(found)
    said = ("kind", "path", "source") if found.said else ()
    weights = {key: made["weights"][key] for key in (*said, "revision", "gated", "license", "read_on")}
    checkpoint = {key: made["checkpoint"][key] for key in made["checkpoint"] if key in ("dtype", "quantization")}
    if found.weight_bytes:
        checkpoint["download_gib"] = made["checkpoint"]["download_gib"]
    files: dict[str, Any] = {
        "weights": {key: value for key, value in weights.items() if value is not None},
        "checkpoint": checkpoint,
    }
    if there.get("config") != made["config"]:
        files |= {"config": made["config"], "config_source": made["config_source"]}
    if found.chat_template is not None:
        files["serving"] = {"chat_template": found.chat_template}
    return _merged(there, files)


def entry_text(values: Mapping[str, Any]) -> str:
    """The text of an entry's file."""
    return dump(dict(values))


def measured_text(text: str, where: str, measurements: Sequence[Measurement]) -> str:
    """The text of an entry's file with these measurements, and with the rest as it stands, comments too."""
    document = read_mapping(text, where)
    values = {**document.value, "measurements": [measurement_values(one) for one in measurements]}
    lines = text.splitlines(keepends=True)
    first = document.line("measurements") if "measurements" in document.value else None
    begin = len(lines) if first is None else first - 1
    # The next key or comment at the margin ends the list, whose own items may stand at the margin too.
    after = (place for place in range(begin + 1, len(lines)) if re.match(r"[^\s-]", lines[place]))
    end = next(after, len(lines))
    head = "".join(lines[:begin])
    head += "\n" if head and not head.endswith("\n") else ""
    made = head + dump({"measurements": values["measurements"]}) + "".join(lines[end:])
    try:
        whole = read_mapping(made, where).value == values
    except InputError:
        whole = False
    return made if whole else entry_text(values)


_ORDER = (
    *("name", "title", "variant_of", "family", "good_at", "weights", "config", "config_source"),
    *("parameters", "checkpoint", "serving", "measurements"),
)


def _made(found: FoundModel) -> dict[str, Any]:
    facts = found.facts
    kind = kind_of(facts)
    if kind is None:
        method = facts.quantization.method if facts.quantization else "none"
        raise InputError.at(
            found.where, "quantization_config", f"the catalog has no name for the storage format {method!r}", ""
        )
    values: dict[str, Any] = {"name": found.name, "title": found.name.rsplit("/", 1)[-1].replace("-", " ")}
    if found.quantized_from:
        values["variant_of"] = found.quantized_from
    checkpoint: dict[str, Any] = {"dtype": facts.dtype, "quantization": kind}
    if kind in GROUPED and facts.quantization and facts.quantization.group_size:
        checkpoint["quantization_group_size"] = facts.quantization.group_size
    size: dict[str, Any] = _UNMEASURED
    if found.weight_bytes:
        size = {
            "value": float(f"{found.weight_bytes / GIB:.5g}"),
            "source": f"{found.sizes}: {found.weight_bytes:,} bytes",
        }
    parsers = parsers_of(found.name, facts.model_type, *_outer_type(facts.config))
    serving: dict[str, Any] = {
        "families": ["cuda"],
        "tool_call_parser": parsers.tool_call if parsers else None,
        "reasoning_parser": parsers.reasoning if parsers else None,
        "multimodal": facts.multimodal,
        "minimum_vllm_version": None,
        "source": RECIPES if parsers else UNKNOWN,
    }
    if found.chat_template is not None:
        serving["chat_template"] = found.chat_template
    return {
        **values,
        "weights": {
            "kind": found.kind or "hub",
            "path": found.path,
            "revision": found.revision,
            "gated": found.gated,
            "license": found.license,
            "source": f"https://huggingface.co/{found.name}" if found.kind == "hub" else found.where,
            "read_on": str(found.read_on),
        },
        "config": _read_keys(found),
        "config_source": f"{found.where}: the keys that planning reads",
        "parameters": {
            "published_total": None,
            "published_active": None,
            "active_excludes_embedding": False,
            "source": "not looked up",
        },
        "checkpoint": {**checkpoint, "download_gib": size, "resident_gib": _UNMEASURED, "host_memory_gib": _UNMEASURED},
        "serving": serving,
    }


def _outer_type(config: Mapping[str, Any] | None) -> tuple[str, ...]:
    outer = (config or {}).get("model_type")
    return (outer,) if isinstance(outer, str) else ()


def _read_keys(found: FoundModel) -> dict[str, Any]:
    """The config without the keys that nothing reads; it gives the same facts."""
    config = dict(found.facts.config or {})
    _, unread = read_entry(config, found.name, found.where)
    paths = {path for path, _ in unread}
    return _without(config, paths, "")


def _without(values: Mapping[str, Any], paths: set[str], at: str) -> dict[str, Any]:
    kept = {}
    for key, value in values.items():
        path = f"{at}.{key}".strip(".")
        if path in paths or key == "transformers_version":
            continue
        kept[key] = _without(value, paths, path) if isinstance(value, Mapping) else value
    return kept


def _merged(values: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those in `said` in their place: sections are merged, lists and texts replaced."""
    merged = dict(values)
    for key, value in said.items():
        there = merged.get(key)
        # A config is replaced as a whole, and so is a figure with its source.
        together = key == "config" or (isinstance(value, Mapping) and {"value", "source"} <= value.keys())
        if isinstance(there, Mapping) and isinstance(value, Mapping) and not together:
            merged[key] = _merged(there, value)
        else:
            merged[key] = value
    return merged


def _undated(values: Mapping[str, Any]) -> dict[str, Any]:
    weights = values.get("weights") or {}
    return {**values, "weights": {key: value for key, value in weights.items() if key != "read_on"}}
