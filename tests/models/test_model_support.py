"""The table of all architectures that vLLM serves: complete, written down, and true where planning reads a file."""

from __future__ import annotations

import json

import pytest

import model_reference
from neuroscale.core.errors import InputError
from neuroscale.models.config import read_config
from neuroscale.models.registry import removed, supported, version
from neuroscale.vllm.known_arguments import load
from oracle_configs import FULL, TINY
from roots import CHECKOUT


def test_the_table_names_exactly_the_architectures_of_the_pinned_vllm() -> None:
    pinned = load(version())
    assert set(supported()) == set(pinned.architectures)
    served_by_transformers = removed().keys() - pinned.removed_architectures.keys()
    assert {name: last for name, last in removed().items() if name not in served_by_transformers} == dict(
        pinned.removed_architectures
    )


def test_the_document_is_what_the_script_writes() -> None:
    assert model_reference.FILE.read_text(encoding="utf-8") == model_reference.reference(), (
        "docs/models.md differs from the registry: run `.venv/bin/python scripts/model_reference.py`"
    )


@pytest.mark.parametrize("name", [*TINY, *FULL])
def test_what_is_compared_with_vllm_is_planned(name: str) -> None:
    config = {**TINY, **FULL}[name]
    (architecture,) = config["architectures"]
    assert supported()[architecture].status == "planned"


def test_every_refusal_and_every_estimate_gives_its_reason() -> None:
    for name, one in supported().items():
        assert bool(one.why) == (one.status != "planned"), name
    statuses = {one.status for one in supported().values()}
    assert statuses == {"planned", "estimated", "refused"}


@pytest.mark.parametrize(
    "architecture",
    ["OlmoHybridForCausalLM"],
)
def test_a_type_whose_states_are_not_planned_is_refused_by_the_reader_too(architecture: str) -> None:
    assert supported()[architecture].status == "refused"
    known = json.loads((CHECKOUT / "src/neuroscale/models/architectures.json").read_text(encoding="utf-8"))
    (model_type,) = known["architectures"][architecture]["model_types"]
    config = {**TINY["llama"], "architectures": [architecture], "model_type": model_type}
    with pytest.raises(InputError, match=r"hybrid|state"):
        read_config(config, "model")
