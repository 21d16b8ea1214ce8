"""Reads a model on the Hub, in a folder or in a config.json, for the entry that `neuroscale catalog add` makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from neuroscale.catalog.model_lookup import HUB_ID, facts_of_hub_model, load_model, read_folder
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.files import read_bounded
from neuroscale.models.config_keys import LARGEST_CONFIG
from neuroscale.models.facts import ModelFacts

_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_TOKENIZER = "tokenizer_config.json"


@dataclass(frozen=True)
class FoundModel:
    """The facts that were found about a model; None stands for an unknown fact.

    `where`: the place of the config, in words. `sizes`: the place of the files' sizes, in words (None: no files were
    seen). `weight_bytes`: the size of the safetensors files. `on_hub`: the files are a repository of the Hub.
    """

    name: str
    facts: ModelFacts
    where: str
    read_on: date
    on_hub: bool
    sizes: str | None = None
    weight_bytes: int | None = None
    revision: str | None = None
    gated: bool | None = None
    license: str | None = None
    quantized_from: str | None = None
    chat_template: bool | None = None


def find_model(model: str, name: str | None, today: date) -> FoundModel:
    """The model in a folder, in a config.json, or on the Hub; `model` is its path, or its name on the Hub.

    `name`: the entry's name, if it differs from `model`. Raises InputError.
    """
    path = Path(model)
    if path.is_dir():
        return _of_folder(path, name, today)
    if path.is_file():
        if name is None:
            raise InputError(
                Problem(model, "", "does not say the model's name", "Name it: --name OWNER/MODEL, as on the Hub.")
            )
        facts = load_model(model)
        return FoundModel(name, facts, f"a {path.name} that was given", today, on_hub="/" in name)
    if not HUB_ID.fullmatch(model) or path.parent.is_dir():
        raise InputError(
            Problem(
                model,
                "",
                "is neither a folder nor a config.json nor a name of the Hub",
                "Write OWNER/MODEL as the Hub does, or the path of a folder or a config.json.",
            )
        )
    return _of_hub(model, name, today)


def _of_hub(model: str, name: str | None, today: date) -> FoundModel:
    from neuroscale.models.hub import HubModel

    hub = HubModel(model)
    if name not in (None, model):
        raise InputError(Problem("the command line", "--name", f"is not {model}", "Leave --name out for the Hub."))
    facts = facts_of_hub_model(hub)
    return FoundModel(
        name=model,
        facts=facts,
        where=f"{model} on the Hub at {hub.revision[:12]}",
        read_on=today,
        on_hub=True,
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
        on_hub="/" in name,
        sizes="the safetensors files of a folder that was given" if own else None,
        weight_bytes=sum(file.stat().st_size for file in own) if own else None,
        chat_template=_has_template(lambda file: (folder / file).is_file(), text),
    )


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
