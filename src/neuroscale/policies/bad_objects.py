"""Makes whole the test objects of policies: `good.yaml` holds those that must pass, and `cases.yaml` those that must be
refused, each as a good object with a small change. Both may name what the policy's list `allowed` decides."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import Field

from neuroscale.core.errors import InputError
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import from_document, suggest
from neuroscale.core.yaml_io import Document, Path, dotted, dump, read_mapping
from neuroscale.manifests.objects import LARGEST_FILE, Manifest, read_manifests
from neuroscale.policies.allowed_list import allowed_entries, has_words, variants
from neuroscale.repo.layout import POLICIES
from neuroscale.repo.snapshot import Snapshot, read_text

GOOD, CASES = "good.yaml", "cases.yaml"
EXPECTED_MESSAGE = "neuroscale.dev/expect-message"
BAD = ".state/policies/{}/bad.yaml"
"""The file, by the policy's name, in which `kyverno test` finds the objects of the cases whole. Git ignores it."""
FILLED = ".state/policies/{}/good.yaml"
"""Likewise the good objects of a policy whose good.yaml names what its list decides."""


class Named(Protocol):
    """What has a name, such as a policy."""

    @property
    def name(self) -> str: ...


class _Change(Frozen):
    """`remove`: paths of fields and items, which go in their order. `patch`: what other paths hold from then on."""

    remove: tuple[str, ...] = ()
    patch: dict[str, Any] = Field(default_factory=dict)


class _Case(_Change):
    name: str
    message: str


class _Base(_Change):
    """The name of a good object, a change that all of its cases share, and the cases."""

    base: str
    cases: tuple[_Case, ...]


class _Cases(Frozen):
    bases: tuple[_Base, ...]


def good_objects(snapshot: Snapshot, policy: str, allowed: Sequence[str] | None = None) -> list[Manifest]:
    """The objects that a policy must let pass, with the entries of its list (or with those of `allowed`) in them.

    Raises InputError.
    """
    return [one for _, made in _good(snapshot, policy, allowed) for one in made]


def bad_objects(snapshot: Snapshot, policy: str, allowed: Sequence[str] | None = None) -> list[Manifest]:
    """The objects that a policy must refuse, each with its message in EXPECTED_MESSAGE, at the line of its case.

    A case is left out with its base. Raises InputError for a base that is not a good object, for a name that stands
    twice, for a change that the object cannot take, and for results that no file of manifests could hold.
    """
    file = f"{POLICIES}/{policy}/{CASES}"
    document = read_mapping(read_text(snapshot, file), file)
    good = dict(_good(snapshot, policy, allowed))
    bad: list[Manifest] = []
    names, size = {one.name for made in good.values() for one in made}, 0
    for number, base in enumerate(from_document(_Cases, document, file).bases):
        if base.base not in good:
            message, line = f"{base.base!r} is not an object of {GOOD}", document.line("bases", number, "base")
            raise InputError.at(file, f"bases[{number}].base", message, suggest(base.base, good), line)
        for index, case in enumerate(base.cases if good[base.base] else ()):
            place = ("bases", number, "cases", index)
            line = document.line(*place) or 1
            try:
                for end, (shared, own) in _made(snapshot, policy, [base.patch, case.patch], allowed):
                    name = f"{case.name}{end}"
                    if name in names:
                        raise ValueError(f"is the name of another object here or in {GOOD}")
                    changes = [_Change(remove=base.remove, patch=shared), _Change(remove=case.remove, patch=own)]
                    text = dump(_changed(good[base.base][0].value, changes, name, case.message))
                    names.add(name)
                    size += len(text)
                    if size > LARGEST_FILE:
                        raise ValueError(f"the policy's bad objects have more than {LARGEST_FILE} bytes")
                    manifests = read_manifests(text.encode(), file)
                    bad += (replace(manifest, document=Document(case, {(): line})) for manifest in manifests)
            except (InputError, ValueError) as error:
                why = error.problems[0].message if isinstance(error, InputError) else error
                fix = "Correct its patch, what it removes, or its base."
                raise InputError.at(file, dotted(place), f"{case.name}: {why}", fix, line) from error
    return bad


def _good(snapshot: Snapshot, policy: str, allowed: Sequence[str] | None) -> list[tuple[str, list[Manifest]]]:
    """Each good object of the file by its name, with what is made of it."""
    file = f"{POLICIES}/{policy}/{GOOD}"
    good = []
    for manifest in read_manifests(read_text(snapshot, file).encode(), file):
        made = _made(snapshot, policy, manifest.value, allowed)
        for end, value in made:
            value["metadata"]["name"] = f"{manifest.name}{end}"
        good.append((manifest.name, [replace(manifest, value=value) for _, value in made]))
    return good


def _made(snapshot: Snapshot, policy: str, value: Any, allowed: Sequence[str] | None) -> list[tuple[str, Any]]:
    if not has_words(value):
        return [("", value)]
    return variants(value, allowed_entries(snapshot, policy) if allowed is None else allowed)


def bad_object(snapshot: Snapshot, policy: str, name: str) -> dict[str, Any]:
    """The object of one case. Raises InputError for a name that no case has."""
    values = {manifest.name: manifest.value for manifest in bad_objects(snapshot, policy)}
    if name not in values:
        fix = suggest(name, values, f"{POLICIES}/{policy}/{CASES}")
        raise InputError.at("the command line", "CASE", f"{name!r} is not a case of {policy}", fix)
    return values[name]


def fills_good(snapshot: Snapshot, policy: str) -> bool:
    """Whether a policy's good objects differ from those in its file, since they name what its list decides."""
    file = f"{POLICIES}/{policy}/{GOOD}"
    return any(has_words(one.value) for one in read_manifests(read_text(snapshot, file).encode(), file))


def bad_files(snapshot: Snapshot, policies: Sequence[Named]) -> dict[str, str]:
    """The texts of the files BAD of policies and, where good objects are filled, FILLED, by path. Raises InputError."""
    files = {}
    for name in (policy.name for policy in policies):
        files[BAD.format(name)] = "---\n".join(dump(bad.value) for bad in bad_objects(snapshot, name))
        if fills_good(snapshot, name):
            files[FILLED.format(name)] = "---\n".join(dump(good.value) for good in good_objects(snapshot, name))
    return files


def _changed(good: dict[str, Any], changes: Sequence[_Change], name: str, message: str) -> dict[str, Any]:
    """The object of a case. Raises ValueError for a change that the object cannot take."""
    value = copy.deepcopy(good)
    for change in changes:
        for path in change.remove:
            _put(value, path)
        for path, part in change.patch.items():
            _put(value, path, copy.deepcopy(part))
    _put(value, "metadata.name", name)
    value["metadata"].setdefault("annotations", {})
    _put(value, f'metadata.annotations["{EXPECTED_MESSAGE}"]', message)
    return value


def _put(value: Any, path: str, *part: Any) -> None:
    """Put the part at a path of an object; none removes what is there. Raises ValueError for a path that it lacks."""
    *above, last = path_of(path)
    try:
        for step in above:
            value = value[step]
        if isinstance(value, dict) and isinstance(last, int):
            raise TypeError
        if not part:
            del value[last]
        elif isinstance(value, list) and last == len(value):
            value.append(*part)
        else:
            value[last] = part[0]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"has no place {path}") from None


_PART = re.compile(r'(?:^|\.)([A-Za-z0-9_-]+)|\[([0-9]+|"(?:[^"\\]|\\.)*")\]')


def path_of(text: str) -> Path:
    """The path that `dotted` writes as this text. Raises ValueError for other text."""
    path = tuple(match[1] or json.loads(match[2]) for match in _PART.finditer(text))
    if not path or dotted(path) != text:
        raise ValueError(f"{text!r} is not a path such as spec.containers[0].image")
    return path
