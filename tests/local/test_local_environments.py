"""The environments that the local platform deploys: those of the repository's own settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from neuroscale.core.delivered import EXAMPLE
from neuroscale.core.errors import InputError
from neuroscale.local.start_and_stop import Options, _choose_environments
from neuroscale.local.state import State
from neuroscale.repo.layout import SETTINGS

NAMES = {"local": "bench", "dev": "sandbox", "prod": "live"}


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    (tmp_path / "state").mkdir()
    state = State.open(tmp_path / "state")
    yield state
    state.delete()


def repository(folder: Path, names: Mapping[str, str] = NAMES) -> Path:
    """A folder with the example's settings, of whose environments only the named ones are there, under new names."""
    value = yaml.safe_load((EXAMPLE / SETTINGS).read_text())
    value["environments"] = {names[old]: one for old, one in value["environments"].items() if old in names}
    value.pop("production")
    (folder / SETTINGS).parent.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS).write_text(yaml.safe_dump(value, sort_keys=False))
    return folder


def chosen(state: State, root: Path, *asked: str) -> tuple[str, tuple[str, ...], list[str]]:
    told: list[str] = []
    options = Options(environments=asked or None)
    state.update(**options.changes())
    own = _choose_environments(state, options, root, told.append)
    return own, state.instance.environments, told


def test_a_first_start_deploys_the_local_environment_and_the_first_other_one(state: State, tmp_path: Path) -> None:
    assert chosen(state, repository(tmp_path)) == ("bench", ("sandbox", "bench"), [])


def test_environments_that_somebody_named_stay(state: State, tmp_path: Path) -> None:
    root = repository(tmp_path)
    assert chosen(state, root, "live")[1] == ("live",)
    assert chosen(state, root) == ("bench", ("live",), [])


def test_environments_that_were_renamed_are_chosen_anew_and_told(state: State, tmp_path: Path) -> None:
    chosen(state, repository(tmp_path), "sandbox")
    own, environments, (told,) = chosen(state, repository(tmp_path, {"local": "here", "dev": "there"}))
    assert (own, environments) == ("here", ("there", "here"))
    assert told == "The settings have no environment sandbox any more: the cluster gets there, here."


def test_a_repository_with_a_local_environment_alone_deploys_it(state: State, tmp_path: Path) -> None:
    assert chosen(state, repository(tmp_path, {"local": "here"}))[1] == ("here",)


def test_settings_without_a_local_environment_are_refused_with_the_way_to_start_a_forge_alone(
    state: State, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"cluster: local.*--no-cluster"):
        chosen(state, repository(tmp_path, {"dev": "there"}))
