"""Renders the form's list of models from the catalog: grouped by family, each with the facts by which people choose."""

from __future__ import annotations

from neuroscale.catalog import Catalog, ModelEntry
from neuroscale.catalog.parser_families import TRIAL, heading_of
from neuroscale.core.yaml_io import Path, read_mapping, scalar
from neuroscale.rendering.scaffolder.template import Template

_STEP = "  "


def model_names(catalog: Catalog) -> list[str]:
    """The models in the form's order: by family, the smaller first, the quantised copies behind their model."""

    def place(model: ModelEntry) -> tuple[bool, str, int, str, bool, str]:
        root = _root(model, catalog)
        family = heading(model, catalog)
        return family == TRIAL, family.lower(), root.facts.total_params, root.name, model is not root, model.name

    return [model.name for model in sorted(catalog.models.values(), key=place)]


def heading(model: ModelEntry, catalog: Catalog) -> str:
    """The family that the form lists a model under. A quantised copy stands with its model."""
    root = _root(model, catalog)
    return root.family or heading_of(root.name)


def _root(model: ModelEntry, catalog: Catalog) -> ModelEntry:
    return catalog.models[model.variant_of] if model.variant_of else model


def label(model: ModelEntry, catalog: Catalog) -> str:
    """One line about a model: family, title, parameters, context, weights' format, licence, what it is good at."""
    facts, stored = model.facts, model.checkpoint.quantization
    published = model.parameters
    size = f"{_count(published.published_total or facts.total_params)} parameters"
    if facts.experts:
        size += f", {_count(published.published_active or facts.active_params)} active"
    told = [
        size,
        f"{facts.max_position_embeddings:,} tokens",
        "16-bit weights" if stored == "none" else f"{stored} weights",
        f"licence {model.weights.license}" if model.weights.license else "licence not known",
    ]
    if model.weights.gated:
        told.append("its publisher lets you in first")
    good_at = model.good_at or _root(model, catalog).good_at
    if good_at:
        told.append(f"good at {good_at.text}")
    return f"{heading(model, catalog)}: {model.title} ({'; '.join(told)})"


def _count(parameters: int) -> str:
    billions = parameters / 1e9
    if billions < 1:
        return f"{parameters / 1e6:.0f} M" if parameters >= 1e6 else f"{parameters:,}"
    return f"{billions:.0f} B" if billions >= 20 else f"{billions:.1f} B"


def with_models(template: Template, catalog: Catalog) -> str:
    """The text of template.yaml with the catalog's models as the choices of the field `model`.

    Everything else stays byte for byte. A form without that field stays as it is.
    """
    lines = template.files["template.yaml"].splitlines()
    names = model_names(catalog)
    shown = [label(catalog.models[name], catalog) for name in names]
    for key, values in (("enumNames", shown), ("enum", names)):
        lines = _replaced("\n".join(lines) + "\n", template, key, values)
    return "\n".join(lines) + "\n"


def _replaced(text: str, template: Template, key: str, values: list[str]) -> list[str]:
    """The lines of the text with the list `key` of the field `model` replaced, or added behind `enum`."""
    document = read_mapping(text, template.where)
    place = _model(document.value)
    lines = text.splitlines()
    if place is None:
        return lines
    start = document.lines.get((*place, key))
    beside = document.lines[(*place, "enum")]
    pad = lines[beside - 1][: len(lines[beside - 1]) - len(lines[beside - 1].lstrip())]
    if start is None:
        start = _end(lines, beside, pad) + 1
        end = start - 1
    else:
        end = _end(lines, start, pad)
    block = [f"{pad}{key}:", *(f"{pad}{_STEP}- {scalar(value)}" for value in values)]
    return [*lines[: start - 1], *block, *lines[end:]]


def _end(lines: list[str], start: int, pad: str) -> int:
    """The number of the last line of what begins at the line `start` with that indentation."""
    last = start
    for number in range(start + 1, len(lines) + 1):
        line = lines[number - 1]
        if not line.startswith((f"{pad} ", f"{pad}-")):
            break
        last = number
    return last


def _model(definition: object) -> Path | None:
    """The path of the form's field `model` with a list of choices."""
    parameters = definition["spec"]["parameters"]  # type: ignore[index]
    pages = list(enumerate(parameters)) if isinstance(parameters, list) else [(None, parameters)]
    for index, page in pages:
        field = page.get("properties", {}).get("model")
        if isinstance(field, dict) and isinstance(field.get("enum"), list):
            root: Path = ("spec", "parameters") if index is None else ("spec", "parameters", index)
            return (*root, "properties", "model")
    return None
