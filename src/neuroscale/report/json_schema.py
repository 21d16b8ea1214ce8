"""Writes the published JSON schema of the JSON report.

`python -m neuroscale.report.json_schema` writes it anew after a change of the types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from neuroscale.gate.verdict import SCHEMA_VERSION, Verdict

SCHEMA_FILE = Path(__file__).with_name("verdict.schema.json")


def schema_json() -> str:
    """The schema of `to_json`'s output (JSON Schema 2020-12), as `SCHEMA_FILE` holds it."""
    schema = _without_titles(Verdict.model_json_schema(mode="serialization", schema_generator=_SchemaGenerator))
    top = {"$schema": _SchemaGenerator.schema_dialect, "title": f"NeuroScale gate verdict, version {SCHEMA_VERSION}"}
    return json.dumps(top | schema, indent=2) + "\n"


class _SchemaGenerator(GenerateJsonSchema):
    """Describes the report as it is written: with every field."""

    def field_is_required(self, *_: object, **__: object) -> bool:
        return True


def _without_titles(value: Any, named: bool = False) -> Any:
    """Leave out the titles, which only repeat the names of fields and types; in a mapping by names, keep its keys."""
    if not isinstance(value, dict):
        return value
    return {
        key: _without_titles(item, named=key in ("properties", "$defs") and not named)
        for key, item in value.items()
        if named or key != "title"
    }


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_json(), encoding="ascii")
