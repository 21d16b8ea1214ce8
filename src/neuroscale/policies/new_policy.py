"""Makes the folder of a new policy with a rule that works and its test objects, for a person to change.

The rule refuses objects that carry an annotation of the policy's own name; the person replaces it with the real rule.
Its first case is its tripwire: no file of another policy changes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.core.schemas import Kind
from neuroscale.core.validation import suggest
from neuroscale.core.yaml_io import dump, scalar
from neuroscale.policies.bad_objects import CASES, GOOD, good_objects
from neuroscale.policies.policy_set import PolicySet
from neuroscale.policies.render import KYVERNO_TEST, kyverno_test, shared_blocks
from neuroscale.repo.layout import POLICIES, POLICY_FILE
from neuroscale.repo.snapshot import Snapshot

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_REFUSED = "refused"
PLACEHOLDER = "REPLACE"
"""The word that marks what a person must replace in a new policy."""
# Controllers must be able to scale down an old object of these kinds that no longer satisfies.
_JUDGED_ONCE = ("replicasets", "replicationcontrollers")


def new_policy(
    snapshot: Snapshot,
    policies: PolicySet,
    kinds: Mapping[tuple[str, str], Kind],
    name: str,
    names: Sequence[str],
    shared: str | None = None,
) -> dict[str, str]:
    """The files of a new policy, by path.

    `names`: the kinds that it judges. Their objects come from the tests of the existing policies. `shared`: the last of
    the blocks of shared text that the policy gets.
    Raises InputError for a name that is taken or cannot be used, a kind without a test object, and an unknown block.
    """
    _check_name(policies, name)
    variables = _shared_variables(snapshot, shared)
    examples = _examples(snapshot, policies)
    chosen = []
    for kind in dict.fromkeys(names):
        if kind not in examples:
            raise InputError.at(
                "the command line", "--kind", f"{kind!r} is not a kind in policies' tests", suggest(kind, examples)
            )
        chosen.append(examples[kind])
    folder = f"{POLICIES}/{name}"
    good, bad = ([_object(name, one, which) for one in chosen] for which in ("good", "bad"))
    return {
        f"{folder}/{POLICY_FILE}": _policy(name, chosen, kinds, variables),
        f"{folder}/{GOOD}": "---\n".join(map(dump, good)),
        f"{folder}/{CASES}": dump({"bases": list(map(_base, good, bad))}),
        f"{folder}/{KYVERNO_TEST}": kyverno_test(name, good, bad),
    }


def _check_name(policies: PolicySet, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InputError.at(
            "the command line", "NAME", f"{name!r} is not a name", "Use a-z, 0-9 and dashes, such as no-debug."
        )
    if any(policy.name == name for policy in policies.policies) or name == "exceptions":
        raise InputError.at("the command line", "NAME", f"{POLICIES}/{name} is there already", "Choose another name.")


def _examples(snapshot: Snapshot, policies: PolicySet) -> dict[str, dict[str, Any]]:
    """A good object of each kind, by the kind: the smallest in the policies' tests."""
    objects = [manifest for policy in policies.policies for manifest in good_objects(snapshot, policy.name)]
    objects.sort(key=lambda manifest: len(str(manifest.value)))
    return {manifest.kind: manifest.value for manifest in reversed(objects)}


def _shared_variables(snapshot: Snapshot, last: str | None) -> str:
    """The policy's variables: the shared blocks up to this one."""
    if last is None:
        return ""
    blocks = shared_blocks(snapshot)
    if last not in blocks:
        message = f"{last!r} is not a block of shared text"
        raise InputError.at("the command line", "--shared", message, suggest(last, blocks))
    return "  variables:\n" + "".join(list(blocks.values())[: list(blocks).index(last) + 1])


def _rules(chosen: Sequence[Mapping[str, Any]], kinds: Mapping[tuple[str, str], Kind]) -> str:
    """Rules for every served version of the kinds: the gate trusts no policy that leaves one out."""
    grouped: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for one in chosen:
        group = one["apiVersion"].rpartition("/")[0]
        plural = kinds[one["apiVersion"], one["kind"]].plural
        versions = sorted(
            api_version.rpartition("/")[2]
            for (api_version, kind), known in kinds.items()
            if (api_version.rpartition("/")[0], kind, known.plural) == (group, one["kind"], plural)
        )
        operations = "[CREATE]" if plural in _JUDGED_ONCE else "[CREATE, UPDATE]"
        resources = ["pods", "pods/ephemeralcontainers"] if (group, plural) == ("", "pods") else [plural]
        grouped.setdefault((group, tuple(versions), operations), []).extend(resources)
    return "".join(
        f"      - apiGroups: [{scalar(group)}]\n"
        f"        apiVersions: [{', '.join(versions)}]\n"
        f"        operations: {operations}\n"
        f"        resources: [{', '.join(resources)}]\n"
        for (group, versions, operations), resources in grouped.items()
    )


def _policy(
    name: str, chosen: Sequence[Mapping[str, Any]], kinds: Mapping[tuple[str, str], Kind], variables: str
) -> str:
    return f"""apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata:
  name: {name}
  annotations:
    policies.kyverno.io/title: >-
      {name.replace("-", " ").capitalize()}
    policies.kyverno.io/description: >-
      REPLACE: what every object must satisfy, in one sentence.
    neuroscale.dev/why: >-
      REPLACE: the incident or the risk behind the rule.
    neuroscale.dev/fix: >-
      Remove the annotation neuroscale.dev/{name}, or REPLACE this sentence with the correction that people make.
spec:
  validationActions: [Deny]
  failurePolicy: Fail
  autogen:
    podControllers:
      controllers: []
  matchConstraints:
    resourceRules:
{_rules(chosen, kinds)}{variables}{_example_of_places() if variables else ""}  validations:
    # REPLACE this rule. A missing field must not end in an error, nor one that is null: read fields with
    # `.?field.orValue(...)`, and lists with `optional.ofNonZeroValue(object.?field.orValue([])).orValue([])`.
    - expression: object.?metadata.?annotations[?'neuroscale.dev/{name}'].orValue('') != '{_REFUSED}'
      message: "{_message(name)}"
"""


def _example_of_places() -> str:
    """A comment with a rule in the form that all rules about pods have."""
    return f"""    # {PLACEHOLDER} this by a variable with the places that break your rule, such as:
    # - name: places
    #   expression: >-
    #     variables.pods.filter(p, optional.ofNonZeroValue(p.pod.?volumes.orValue([])).orValue([])
    #     .exists(v, v.?hostPath.orValue(null) != null)).map(p, p.at)
    # and the rule below by one with these places in its message:
    # - expression: size(variables.places) == 0
    #   messageExpression: >-
    #     variables.places.join(', ') + ': mounts a hostPath volume'
"""


def _message(name: str) -> str:
    return f"metadata.annotations: neuroscale.dev/{name} says {_REFUSED}"


def _object(name: str, example: Mapping[str, Any], which: str) -> dict[str, Any]:
    value = copy.deepcopy(dict(example))
    metadata = value["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    if which == "bad":
        annotations[f"neuroscale.dev/{name}"] = _REFUSED
    dashed = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", example["kind"]).lower()
    metadata |= {"name": f"{which}-{dashed}", "namespace": name}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return value


def _base(good: Mapping[str, Any], bad: Mapping[str, Any]) -> dict[str, Any]:
    """A good object and its one bad case, as the file of cases holds them."""
    metadata, patch = bad["metadata"], {"metadata.annotations": bad["metadata"]["annotations"]}
    case = {"name": metadata["name"], "patch": patch, "message": _message(metadata["namespace"])}
    return {"base": good["metadata"]["name"], "cases": [case]}
