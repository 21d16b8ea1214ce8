"""A newer version's files are read without the fields that this one does not know, where that is asked."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from neuroscale.catalog import load_catalog
from neuroscale.core import delivered
from neuroscale.core.errors import InputError
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import known_part, parse, unknown_fields_dropped
from neuroscale.gate.platform_sources import PlatformSources
from neuroscale.repo.example_repository import example_snapshot
from neuroscale.repo.layout import CATALOG
from neuroscale.repo.snapshot import Entry, Snapshot


class Card(Frozen):
    kind: Literal["card"]
    memory: int


class Slice(Frozen):
    kind: Literal["slice"]
    of: str


class Shelf(Frozen):
    name: str
    items: tuple[Annotated[Card | Slice, Field(discriminator="kind")], ...] = ()
    by_name: dict[str, Card] = Field(default_factory=dict)


CARD = {"kind": "card", "memory": 8}
NEWER = {
    "name": "a",
    "colour": "red",
    "items": [{**CARD, "watts": 1}, {"kind": "slice", "of": "b", "at": {"x": 1}}],
    "by_name": {"c": {**CARD, "watts": 2, "volts": 3}},
}
KNOWN = Shelf(name="a", items=(Card(**CARD), Slice(kind="slice", of="b")), by_name={"c": Card(**CARD)})  # type: ignore[arg-type]


def test_unknown_fields_are_left_out_at_every_depth() -> None:
    assert known_part(Shelf, json.dumps(NEWER)) == KNOWN
    with unknown_fields_dropped():
        assert parse(Shelf, json.dumps(NEWER), "a.yaml") == KNOWN


@pytest.mark.parametrize(
    "values", [{"name": 1}, {"items": [{"kind": "other"}]}, {"items": [{"kind": "card", "watts": 1}]}]
)
def test_nothing_else_that_is_wrong_is_left_out(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        known_part(Shelf, json.dumps(NEWER | values))


def test_outside_of_it_an_unknown_field_is_refused_as_ever() -> None:
    with unknown_fields_dropped():
        pass
    with pytest.raises(InputError, match="colour"):
        parse(Shelf, json.dumps(NEWER), "a.yaml")


class Newer:
    """The example's files, in which one entry of the catalog has a field of a later version."""

    _PATH = f"{CATALOG}/accelerators/nvidia-l4.yaml"

    def __init__(self) -> None:
        self._files: Snapshot = example_snapshot(delivered.FOLDER)

    def entries(self, *prefixes: str) -> list[Entry]:
        return self._files.entries(*prefixes)

    def read(self, path: str) -> bytes | None:
        content = self._files.read(path)
        return content and content + (b"shelf: upper\n" if path == self._PATH else b"")


def test_one_side_of_a_run_is_read_so_and_the_other_is_not() -> None:
    """The entries that a process has read so are not those that it reads strictly afterwards."""
    files = Newer()
    assert "nvidia-l4" in PlatformSources(files, is_newer=lambda: True).catalog().accelerators
    with pytest.raises(InputError, match="shelf"):
        PlatformSources(files).catalog()
    with pytest.raises(InputError, match="shelf"):
        load_catalog(files)
