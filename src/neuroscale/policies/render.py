"""Writes what policies repeat: the variables that several of them share, and the cases of `kyverno test`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import dump, read_mapping
from neuroscale.policies.bad_objects import BAD, CASES, FILLED, GOOD, bad_objects, fills_good, good_objects
from neuroscale.policies.policy_set import SHARED_TEXT, Policy
from neuroscale.repo.layout import POLICIES, POLICY_FILE
from neuroscale.repo.snapshot import Snapshot, read_text

KYVERNO_TEST = ".kyverno-test/kyverno-test.yaml"
_BLOCK = re.compile(r"(?ms)^    # -- shared: (\w+) --.*?^    # -- end shared: \1 --\n")
_MARK = re.compile(r"-- shared: (\w+) --")


def shared_blocks(snapshot: Snapshot) -> dict[str, str]:
    """The blocks of shared text by the names of their variables, in the order in which each needs those before it.

    Raises InputError if the file is missing, or does not hold exactly one variable in each marked block.
    """
    text = read_text(snapshot, SHARED_TEXT)
    blocks = {match[1]: match[0] for match in _BLOCK.finditer(text)}
    variables = read_mapping(text, SHARED_TEXT).value.get("variables") or ()
    if list(blocks) != [one.get("name") for one in variables if isinstance(one, dict)] or not blocks:
        fix = "Write `# -- shared: NAME --` before each variable, and `# -- end shared: NAME --` behind it."
        raise InputError.at(SHARED_TEXT, "variables", "are not one in each marked block", fix)
    return blocks


def rendered_policy(snapshot: Snapshot, policy: Policy, blocks: Mapping[str, str]) -> str:
    """The text of a policy's file with its marked blocks as they are in `blocks`.

    Raises InputError for a mark that names no block, or has no end, and for a shared variable outside of its block.
    """

    def wrong(message: str, fix: str) -> InputError:
        return InputError.at(policy.file, "spec.variables", message, fix)

    text = read_text(snapshot, policy.file)
    marked = _MARK.findall(text)
    for name in marked:
        if name not in blocks:
            raise wrong(f"marks the shared text {name!r}, which {SHARED_TEXT} does not hold", suggest(name, blocks))
    if [match[1] for match in _BLOCK.finditer(text)] != marked:
        raise wrong("mark a block of shared text that does not end", "Write `# -- end shared: NAME --` behind it.")
    for variable in policy.value["spec"].get("variables") or ():
        name = variable.get("name") if isinstance(variable, dict) else None
        if name in blocks and name not in marked:
            fix = "Give it another name, or mark it as the shared text."
            raise wrong(f"define {name}, a name of {SHARED_TEXT}, outside of the shared text", fix)
    return _BLOCK.sub(lambda match: blocks[match[1]], text)


def rendered(snapshot: Snapshot, policies: Sequence[Policy]) -> dict[str, str]:
    """The files of all policies that the shared text and the test objects decide, by path. Raises InputError."""
    blocks = shared_blocks(snapshot)
    files = {}
    for policy in policies:
        files[policy.file] = rendered_policy(snapshot, policy, blocks)
        files[f"{POLICIES}/{policy.name}/{KYVERNO_TEST}"] = cases_of(snapshot, policy.name)
    return files


def cases_of(snapshot: Snapshot, policy: str, allowed: Sequence[str] | None = None) -> str:
    """The file KYVERNO_TEST of a policy, with its list or with that of `allowed`. Raises InputError."""
    good, bad = (
        [manifest.value for manifest in objects(snapshot, policy, allowed)] for objects in (good_objects, bad_objects)
    )
    return kyverno_test(policy, good, bad, filled=fills_good(snapshot, policy))


def kyverno_test(
    name: str, good: Sequence[Mapping[str, Any]], bad: Sequence[Mapping[str, Any]], *, filled: bool = False
) -> str:
    """A policy's cases for `kyverno test`: it lets pass each good object, and refuses each bad one.

    `filled`: the good objects are in FILLED.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for objects, result in ((good, "pass"), (bad, "fail")):
        for one in objects:
            grouped.setdefault((one["kind"], result), []).append(one["metadata"]["name"])
    common = {"policy": name, "isValidatingPolicy": True}
    value = {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Test",
        "metadata": {"name": name},
        "policies": [f"../{POLICY_FILE}"],
        "resources": [f"../../../{FILLED.format(name)}" if filled else f"../{GOOD}", f"../../../{BAD.format(name)}"],
        "results": [
            {**common, "kind": kind, "result": result, "resources": names} for (kind, result), names in grouped.items()
        ],
    }
    return f"# Written by `neuroscale policy render` from {GOOD} and {CASES}.\n" + dump(value)
