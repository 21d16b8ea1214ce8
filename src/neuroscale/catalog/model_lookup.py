"""Finds the facts of a model by its name: an entry of the catalog, a folder, a config.json, or a model of the Hub.

Reads a model on the Hub, in a folder or in a config.json, for the entry that `neuroscale catalog add` makes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from neuroscale.core.errors import InputError
from neuroscale.core.files import read_bounded
from neuroscale.core.validation import same_but_owner, suggest
from neuroscale.models.config import read_config
from neuroscale.models.config_keys import LARGEST_CONFIG, parse_config
from neuroscale.models.facts import ModelFacts
from neuroscale.models.headers import folder_headers
from neuroscale.repo.layout import MODELS

if TYPE_CHECKING:
    from neuroscale.catalog import Catalog
    from neuroscale.models.hub import HubModel

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")

_QUANTIZED = "hf_quant_config.json"
"""The file in which NVIDIA ModelOpt describes its quantisation. vLLM reads it if config.json does not describe one."""


def load_model(name: str, catalog: Catalog | None = None) -> ModelFacts:
    """The facts of a model: by its name in the catalog, by its path, or from the Hub.

    Only a name that is neither in the catalog nor a path causes requests to the Hub, and only for the config and the
    headers of the safetensors files. Raises InputError.
    """
    if catalog is not None and name in catalog.models:
        return catalog.models[name].facts
    path = Path(name)
    if path.is_dir():
        return read_folder(path)
    if path.is_file():
        named = path.resolve()
        return read_config(_described(path), named.parent.name if path.name == "config.json" else named.stem, str(path))
    if HUB_ID.fullmatch(name) and not name.endswith((".json", ".yaml")) and not path.parent.is_dir():
        return _of_hub(name, catalog)
    known = catalog.models if catalog is not None else ()
    raise InputError.at(
        name, "", "is neither a model of the catalog nor a path nor a name of the Hub", suggest(name, known, MODELS)
    )


def _of_hub(name: str, catalog: Catalog | None) -> ModelFacts:
    """As `read_hub`. If that fails, the message names the catalog's entry of the same model by another owner."""
    try:
        return read_hub(name)
    except InputError as error:
        if catalog is None or not (others := same_but_owner(name, catalog.models)):
            raise
        hint = f"Did you mean {others[0]!r} of the catalog? "
        raise type(error)([replace(one, fix=f"{hint}{one.fix}") for one in error.problems]) from error


def read_folder(folder: Path, name: str | None = None) -> ModelFacts:
    """The facts of the model in a folder: its config.json, and the headers of its safetensors files."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError.at(str(path), "", "is not there", "Name the folder that holds the model's config.json.")
    return read_config(_described(path), name or folder.resolve().name, str(path), folder_headers(folder))


def read_hub(name: str, revision: str | None = None) -> ModelFacts:
    """The facts of a model of the Hub."""
    from neuroscale.models.hub import HubModel

    return facts_of_hub_model(HubModel(name, revision))


def facts_of_hub_model(model: HubModel) -> ModelFacts:
    """The facts of a model of the Hub that was already looked up."""
    text = model.text("config.json")
    if text is None:
        raise InputError.at(model.source, "", "has no config.json", "Name a model that transformers can read.")
    config = parse_config(text, f"{model.source}: config.json")
    beside = model.text(_QUANTIZED)
    if beside is not None:
        config = with_quantization(config, parse_config(beside, f"{model.source}: {_QUANTIZED}"))
    return read_config(config, model.name, f"{model.source}: config.json", model.headers())


def with_quantization(config: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the quantisation in ModelOpt's own file, unless the config itself describes one."""
    return {"quantization_config": dict(beside), **config}


def _described(path: Path) -> dict[str, Any]:
    """The config in a file, with the quantisation that the folder of a config.json describes beside it."""
    config = parse_config(_config_text(path), str(path))
    beside = path.parent / _QUANTIZED
    if path.name == "config.json" and beside.is_file():
        return with_quantization(config, parse_config(_config_text(beside), str(beside)))
    return config


def _config_text(path: Path) -> bytes:
    return read_bounded(path, LARGEST_CONFIG, "Name the model's config.json.")


_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_TOKENIZER = "tokenizer_config.json"


@dataclass(frozen=True)
class FoundModel:
    """The facts that were found about a model; None stands for an unknown fact.

    `where`: the place of the config, in words. `sizes`: the place of the files' sizes, in words (None: no files were
    seen). `weight_bytes`: the size of the safetensors files. `kind`: where the weights are, the Hub or the store of the
    environments, and `path` in it; `said`: a person says so, and the files do not.
    """

    name: str
    facts: ModelFacts
    where: str
    read_on: date
    kind: Literal["hub", "store"] | None
    path: str
    said: bool = False
    sizes: str | None = None
    weight_bytes: int | None = None
    revision: str | None = None
    gated: bool | None = None
    license: str | None = None
    quantized_from: str | None = None
    chat_template: bool | None = None


def placed(found: FoundModel, store: str | None, *, hub: bool) -> FoundModel:
    """The model with its weights where the command line says: in the folder `store` of the environments' store, or on
    the Hub. Raises InputError for both, and for a place that cannot be."""
    if store is None and not hub:
        return found
    where, each = "the command line", r"[A-Za-z0-9_][A-Za-z0-9._-]*"
    if hub and store is not None:
        raise InputError.at(where, "--hub", "and --store name two places of the weights", "Give one of them.")
    if hub and not HUB_ID.fullmatch(found.name):
        raise InputError.at(where, "--hub", f"{found.name!a} is not a name of the Hub", "Name it: --name OWNER/MODEL.")
    if store is not None and not re.fullmatch(rf"{each}(/{each})*", store):
        fix = "Write the path below `models.store` of the settings alone, such as acme/x for gs://BUCKET/acme/x."
        raise InputError.at(where, "--store", f"{store!a} is not a folder below the environments' store", fix)
    return replace(found, kind="hub" if hub else "store", path=found.name if store is None else store, said=True)


def find_model(model: str, name: str | None, today: date) -> FoundModel:
    """The model in a folder, in a config.json, or on the Hub; `model` is its path, or its name on the Hub.

    `name`: the entry's name, if it differs from `model`. Raises InputError.
    """
    path = Path(model)
    if path.is_dir():
        return _of_folder(path, name, today)
    if path.is_file():
        if name is None:
            raise InputError.at(
                model, "", "does not say the model's name", "Name it: --name OWNER/MODEL, as on the Hub."
            )
        facts = load_model(model)
        return FoundModel(name, facts, f"a {path.name} that was given", today, _kind_of(name), name)
    if not HUB_ID.fullmatch(model) or path.parent.is_dir():
        raise InputError.at(
            model,
            "",
            "is neither a folder nor a config.json nor a name of the Hub",
            "Write OWNER/MODEL as the Hub does, or the path of a folder or a config.json.",
        )
    return _found_on_hub(model, name, today)


def _found_on_hub(model: str, name: str | None, today: date) -> FoundModel:
    from neuroscale.models.hub import HubModel

    hub = HubModel(model)
    if name not in (None, model):
        raise InputError.at("the command line", "--name", f"is not {model}", "Leave --name out for the Hub.")
    facts = facts_of_hub_model(hub)
    return FoundModel(
        name=model,
        facts=facts,
        where=f"{model} on the Hub at {hub.revision[:12]}",
        read_on=today,
        kind="hub",
        path=model,
        sizes=f"the safetensors files of {model} on the Hub at {hub.revision[:12]}",
        weight_bytes=hub.weight_files_bytes,
        revision=hub.revision if len(hub.revision) == 40 else None,
        gated=hub.gated,
        license=hub.license,
        quantized_from=hub.quantized_from,
        chat_template=_has_template(hub.has, lambda: hub.text(_TOKENIZER)),
    )


def _of_folder(folder: Path, name: str | None, today: date) -> FoundModel:
    name = name or folder.resolve().name
    facts = read_folder(folder, name)
    files = sorted(folder.glob("*.safetensors"))
    own = [file for file in files if not file.name.startswith("consolidated")] or files
    tokenizer = folder / _TOKENIZER

    def text() -> bytes | None:
        return read_bounded(tokenizer, LARGEST_CONFIG, "Fetch it again.") if tokenizer.is_file() else None

    return FoundModel(
        name=name,
        facts=facts,
        where="the config.json of a folder that was given",
        read_on=today,
        kind=_kind_of(name),
        path=name,
        sizes="the safetensors files of a folder that was given" if own else None,
        weight_bytes=sum(file.stat().st_size for file in own) if own else None,
        chat_template=_has_template(lambda file: (folder / file).is_file(), text),
    )


def _kind_of(name: str) -> Literal["store"] | None:
    """The place of the weights that a name tells: a name without an owner is none of the Hub; another one may be."""
    return None if "/" in name else "store"


def _has_template(has: Callable[[str], bool], tokenizer: Callable[[], bytes | None]) -> bool | None:
    """Whether the files hold a chat template; None if there is no file of a tokenizer to tell it."""
    if any(has(file) for file in _TEMPLATES):
        return True
    text = tokenizer()
    if text is None:
        return None
    try:
        config = json.loads(text)
    except ValueError:
        return None
    return isinstance(config, dict) and bool(config.get("chat_template"))
