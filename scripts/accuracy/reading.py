"""Reads a folder of cases: `models/*.yaml`, `starts/*.yaml`, and `others.yaml` if it exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, model_validator

from accuracy.cases import ModelCase, Others, StartCase
from neuroscale.core.errors import InputError, Problem
from neuroscale.core.frozen import Frozen
from neuroscale.core.units import MIB
from neuroscale.core.validation import parse, suggest, wrong
from neuroscale.core.yaml_io import decode

LARGEST_FILE = 8 * MIB

Kind = TypeVar("Kind", bound=BaseModel)


class _Starts(Frozen):
    cases: tuple[StartCase, ...]

    @model_validator(mode="after")
    def _some(self) -> _Starts:
        if not self.cases:
            raise wrong("there is no case in it", "Add one, or remove the file.")
        return self


@dataclass(frozen=True)
class Cases:
    """The ground truth, checked as a whole."""

    models: Mapping[str, ModelCase]
    starts: tuple[StartCase, ...]
    others: Others

    def config(self, name: str) -> dict[str, Any]:
        """The known keys of a model's config.json, with those that it shares with another model filled in."""
        model = self.models[name]
        if model.same_as is None:
            return dict(model.config or {})
        return _changed(self.config(model.same_as), model.changes)

    def may_refuse(self, name: str) -> str | None:
        """The reason why planning may say that it cannot judge a model; None if it may not."""
        model = self.models[name]
        if model.may_refuse is None and model.same_as is not None:
            return self.may_refuse(model.same_as)
        return model.may_refuse


def read_cases(folder: Path) -> Cases:
    """All cases of a folder. Raises InputError with every problem in it."""
    problems: list[Problem] = []
    models: dict[str, ModelCase] = {}
    places: dict[str, str] = {}
    for path in files_of(folder / "models"):
        model = read_file(ModelCase, path, problems)
        if model is None:
            continue
        if model.name in models:
            problems.append(Problem(str(path), "name", f"{model.name!r} stands in two files", "Keep one of the two."))
        models[model.name] = model
        places[model.name] = str(path)
    starts: dict[str, StartCase] = {}
    for path in files_of(folder / "starts"):
        read = read_file(_Starts, path, problems)
        for number, case in enumerate(read.cases if read else ()):
            where = f"cases[{number}]"
            if case.id in starts:
                problems.append(Problem(str(path), f"{where}.id", f"{case.id!r} stands twice", "Keep one of the two."))
            starts[case.id] = case
            if case.left_out is None and case.model is not None and case.model not in models and not problems:
                message = f"{case.model!r} is not a model of the ground truth"
                problems.append(Problem(str(path), f"{where}.model", message, suggest(case.model, models)))
    problems += _dangling(models, places)
    others = Others()
    if (folder / "others.yaml").is_file():
        others = read_file(Others, folder / "others.yaml", problems) or others
        for case_id in others.answers:
            if case_id not in starts and not problems:
                message = f"{case_id!r} is not a case of the ground truth"
                fix = "Ask the other planners again: scripts/compare_planners.py."
                problems.append(Problem(str(folder / "others.yaml"), "answers", message, fix))
    if not problems and not models and not starts:
        problems.append(Problem(str(folder), "", "holds no case", "Name a folder with models/ or starts/ in it."))
    if problems:
        raise InputError(problems)
    return Cases(models, tuple(starts.values()), others)


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml")) if folder.is_dir() else []


def read_file(kind: type[Kind], path: Path, problems: list[Problem]) -> Kind | None:
    """What a file holds; None, and a problem more, if it cannot be read."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(Problem(str(path), "", f"is larger than {LARGEST_FILE // MIB} MiB", "Split it."))
        return parse(kind, decode(path.read_bytes(), str(path)), str(path))
    except InputError as error:
        problems.extend(error.problems)
    except OSError as error:
        problems.append(Problem(str(path), "", f"cannot be read: {error.strerror}", "Make it readable."))
    return None


def _dangling(models: Mapping[str, ModelCase], places: Mapping[str, str]) -> list[Problem]:
    problems = []
    for name, model in models.items():
        seen = {name}
        at = model
        while at.same_as is not None:
            if at.same_as not in models:
                message = f"{at.same_as!r} is not a model of the ground truth"
                problems.append(Problem(places[at.name], "same_as", message, suggest(at.same_as, models)))
                break
            if at.same_as in seen:
                problems.append(Problem(places[name], "same_as", "leads back to itself", "Give one of them a config."))
                break
            seen.add(at.same_as)
            at = models[at.same_as]
    return problems


def _changed(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(config)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and key != "quantization_config":
            value = _changed(old, value)
        result[key] = value
    return result
