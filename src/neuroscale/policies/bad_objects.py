"""Makes whole the objects that policies must refuse: `cases.yaml` holds each as a good object with a small change."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from neuroscale.core.errors import InputError
from neuroscale.core.files import write_public
from neuroscale.core.frozen import Frozen
from neuroscale.core.validation import from_document, suggest
from neuroscale.core.yaml_io import Document, Path, dotted, dump, path_of, read_mapping
from neuroscale.manifests.objects import LARGEST_FILE, Manifest, read_manifests
from neuroscale.policies.policy_set import EXPECTED_MESSAGE, PolicySet, load_policy_set
from neuroscale.repo.layout import POLICIES, POLICIES_STATE
from neuroscale.repo.snapshot import FolderSnapshot, Snapshot, read_text

GOOD, CASES = "good.yaml", "cases.yaml"


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


def good_objects(snapshot: Snapshot, policy: str) -> list[Manifest]:
    """The objects that a policy must let pass. Raises InputError."""
    file = f"{POLICIES}/{policy}/{GOOD}"
    return read_manifests(read_text(snapshot, file).encode(), file)


def bad_objects(snapshot: Snapshot, policy: str) -> list[Manifest]:
    """The objects that a policy must refuse, each with its message in EXPECTED_MESSAGE, at the line of its case.

    Raises InputError for a base that is not a good object, for a name that stands twice, for a change that the object
    cannot take, and for results that no file of manifests could hold.
    """
    file = f"{POLICIES}/{policy}/{CASES}"
    document = read_mapping(read_text(snapshot, file), file)
    good = {manifest.name: manifest.value for manifest in good_objects(snapshot, policy)}
    bad: list[Manifest] = []
    names, size = set(good), 0
    for number, base in enumerate(from_document(_Cases, document, file).bases):
        if base.base not in good:
            message, line = f"{base.base!r} is not an object of {GOOD}", document.line("bases", number, "base")
            raise InputError.at(file, f"bases[{number}].base", message, suggest(base.base, good), line)
        for index, case in enumerate(base.cases):
            place = ("bases", number, "cases", index)
            try:
                if case.name in names:
                    raise ValueError(f"is the name of another object here or in {GOOD}")
                names.add(case.name)
                text = dump(_changed(good[base.base], base, case))
                size += len(text)
                if size > LARGEST_FILE:
                    raise ValueError(f"makes the policy's bad objects larger than {LARGEST_FILE} bytes")
                manifests = read_manifests(text.encode(), file)
            except (InputError, ValueError) as error:
                why = str(error)
                if isinstance(error, InputError):
                    why = " ".join(filter(None, (error.problems[0].field, error.problems[0].message)))
                fix = "Correct its patch, what it removes, or its base."
                raise InputError.at(file, dotted(place), f"{case.name}: {why}", fix, document.line(*place)) from error
            lines: dict[Path, int] = {(): document.line(*place) or 1}
            bad += (replace(manifest, document=Document(manifest.document.value, lines)) for manifest in manifests)
    return bad


def bad_object(snapshot: Snapshot, policy: str, name: str) -> dict[str, Any]:
    """The object of one case. Raises InputError for a name that no case has."""
    values = {manifest.name: manifest.value for manifest in bad_objects(snapshot, policy)}
    if name not in values:
        file = f"{POLICIES}/{policy}/{CASES}"
        message = f"{name!r} is not a case of {file}"
        raise InputError.at("the command line", "CASE", message, suggest(name, values, file))
    return values[name]


def bad_file(policy: str) -> str:
    """The path of the file with the whole objects of a policy's cases. `kyverno test` reads it, and git ignores it."""
    return f"{POLICIES_STATE}/{policy}/bad.yaml"


def whole(manifests: Sequence[Manifest]) -> str:
    """The text of such a file with these objects."""
    head = f"# Written by `neuroscale policy render` from {GOOD} and {CASES}.\n"
    return head + "---\n".join(dump(manifest.value) for manifest in manifests)


def bad_files(snapshot: Snapshot, policies: PolicySet) -> dict[str, str]:
    """The texts of all such files, by path. Raises InputError."""
    return {bad_file(policy.name): whole(bad_objects(snapshot, policy.name)) for policy in policies.policies}


def write_bad_files(root: pathlib.Path) -> None:
    """Write all such files of the repository at `root`. Raises InputError and UntrustedError."""
    snapshot = FolderSnapshot(root)
    for path, text in bad_files(snapshot, load_policy_set(snapshot)).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_public(root / path, text)


def _changed(good: dict[str, Any], base: _Base, case: _Case) -> dict[str, Any]:
    """The object of a case. Raises ValueError for a change that the object cannot take."""
    value = copy.deepcopy(good)
    for change in (base, case):
        for path in change.remove:
            holder, last = _holder(value, path)
            if last not in (holder if isinstance(holder, dict) else range(len(holder))):
                raise ValueError(f"has no {path} to remove")
            del holder[last]
        for path, part in change.patch.items():
            holder, last = _holder(value, path)
            if isinstance(holder, dict):
                holder[last] = copy.deepcopy(part)
            else:
                holder[last : last + 1] = [copy.deepcopy(part)]
    metadata = value.get("metadata")
    annotations = (metadata.get("annotations") or {}) if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict):
        raise ValueError("has no mapping metadata.annotations for its message")
    value["metadata"] = metadata | {"name": case.name, "annotations": annotations | {EXPECTED_MESSAGE: case.message}}
    return value


def _holder(value: Any, text: str) -> tuple[Any, Any]:
    """The mapping or list of an object that holds a path's last part, or can hold it next; and that part."""
    *above, last = path_of(text)
    for part in above:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"has no field that holds {text}") from None
    is_item = isinstance(value, list) and isinstance(last, int) and last <= len(value)
    if not is_item and not (isinstance(value, dict) and isinstance(last, str)):
        raise ValueError(f"has no field that holds {text}")
    return value, last
