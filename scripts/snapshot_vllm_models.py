"""Writes src/neuroscale/models/architectures.json: the architectures of the installed vLLM, and what kind each is of.

Run it with the Python of the pinned vLLM whenever that pin moves, and then `scripts/model_reference.py`:

    PYTHON_OF_VLLM scripts/snapshot_vllm_models.py

Of an architecture: the part of vLLM's registry that it stands in, the model types that transformers gives its class,
and what its class in vLLM says that it keeps (`hybrid`, `attention_free`, `encoder_decoder`). Of a removed
architecture: the last version that served it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "src/neuroscale/models/architectures.json"
_PARTS = {
    "_TEXT_GENERATION_MODELS": "text",
    "_TRANSFORMERS_SUPPORTED_MODELS": "text",
    "_MULTIMODAL_MODELS": "multimodal",
    "_SPECULATIVE_DECODING_MODELS": "draft",
    "_TRANSFORMERS_BACKEND_MODELS": "transformers",
}
"""The first that names an architecture decides; those in none do not generate text."""
_KEEPS = {
    "IsHybrid": "hybrid",
    "IsAttentionFree": "attention_free",
    "SupportsTranscription": "",
    "SupportsEncoderDecoder": "encoder_decoder",
}


def _bases(package: Path, module: str, name: str) -> set[str]:
    """The names of all bases of a class, as far as vLLM's own files of that module define them."""
    relative = module.removeprefix("vllm.").replace(".", "/")
    place = package / relative if module.startswith("vllm.") else package / "model_executor/models" / relative
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    known: dict[str, set[str]] = {}
    for file in files:
        if file.is_file():
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    known.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)
    found: set[str] = set()
    todo = [name]
    while todo:
        for base in known.get(todo.pop(), set()) - found:
            found.add(base)
            todo.append(base)
    return found


def main() -> None:
    """Write the snapshot."""
    from transformers.models.auto import modeling_auto
    from vllm import __version__
    from vllm.model_executor.models import registry

    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    types: defaultdict[str, set[str]] = defaultdict(set)
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL") and name.endswith("MAPPING_NAMES"):
            for model_type, classes in mapping.items():
                for one in classes if isinstance(classes, tuple | list) else (classes,):
                    types[one].add(model_type)
    found = {}
    for name in sorted(registry.ModelRegistry.get_supported_archs()):
        part = next((part for key, part in _PARTS.items() if name in getattr(registry, key)), "other")
        bases = _bases(package, *registry._VLLM_MODELS[name])
        keeps = next((word for base, word in _KEEPS.items() if word and base in bases), "")
        found[name] = {"part": part, "model_types": sorted(types[name]), "keeps": keeps}
    version = __version__.partition("+")[0]
    sections = {"architectures": found, "removed": dict(sorted(registry._PREVIOUSLY_SUPPORTED_MODELS.items()))}
    text = ",\n".join(f'  "{key}": {{\n{_lines(section)}\n  }}' for key, section in sections.items())
    TARGET.write_text(f'{{\n  "vllm": "{version}",\n{text}\n}}\n', encoding="utf-8")


def _lines(section: Mapping[str, object]) -> str:
    return ",\n".join(f"    {json.dumps(name)}: {json.dumps(value)}" for name, value in section.items())


if __name__ == "__main__":
    main()
