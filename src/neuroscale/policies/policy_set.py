"""Reads the policies strictly, so that the gate can compute which of them applies to which object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from neuroscale.core.errors import InputError, UntrustedError
from neuroscale.core.yaml_io import read_mapping
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest, read_manifests
from neuroscale.policies.bad_objects import CASES, EXPECTED_MESSAGE, bad_objects
from neuroscale.repo.layout import EXCEPTIONS, POLICIES, POLICY_FILE
from neuroscale.repo.snapshot import Snapshot, read_text
from neuroscale.request.service_request import Fault, fault_of

TRIPWIRE_MESSAGE = "neuroscale.dev/tripwire-message"
FIX = "neuroscale.dev/fix"
TRIPWIRES = f"{POLICIES}/tripwires.yaml"
SHARED_TEXT = f"{POLICIES}/shared.yaml"

# The fields that a policy may have. Any other field could make it apply to fewer objects than the computed list.
_SPEC_FIELDS = {
    "validationActions",
    "failurePolicy",
    "evaluation",
    "autogen",
    "matchConstraints",
    "variables",
    "validations",
}
_RULE_FIELDS = {"apiGroups", "apiVersions", "operations", "resources", "scope"}
# A controller must be able to scale down an old one that no longer satisfies.
_SCALED_BY_CONTROLLERS = {"replicasets", "replicationcontrollers"}
_ADDED_LATER = "pods/ephemeralcontainers"
# Other annotations could keep Argo CD from applying it (hooks, sync options), or make another program remove it.
_METADATA_FIELDS = {"name", "annotations"}
_ANNOTATIONS = ("neuroscale.dev/", "policies.kyverno.io/")


@dataclass(frozen=True)
class ResourceRule:
    """One `resourceRules` entry of a policy. A subresource (`pods/ephemeralcontainers`) is not an object in a file."""

    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[str]

    def matches(self, group: str, version: str, plural: str) -> bool:
        """Whether the rule judges the creation of such an object."""
        return (
            (group in self.groups or "*" in self.groups)
            and (version in self.versions or "*" in self.versions)
            and (plural in self.resources or "*" in self.resources)
        )


@dataclass(frozen=True)
class Policy:
    """A ValidatingPolicy. `value` is the whole policy object.

    `tripwire_message` is its message for its tripwire: `tripwire`, its own one, or else the first of the shared ones
    that it applies to.
    """

    name: str
    file: str
    value: dict[str, Any]
    rules: tuple[ResourceRule, ...]
    fix: str
    tripwire_message: str
    tripwire: Manifest | None = None

    def applies(self, manifest: Manifest, plural: str) -> bool:
        """Whether the policy judges the object."""
        return any(rule.matches(manifest.group, manifest.version, plural) for rule in self.rules)


@dataclass(frozen=True)
class PolicyException:
    """A reviewed exception: `policy` does not refuse one object, up to and including the day `expires`.

    An exception with a fault excepts nothing.
    """

    file: str
    policy: str
    kind: str
    namespace: str
    name: str
    reason: str
    approved_by: str
    expires: date

    def fault(self, today: date, longest_days: int) -> Fault | None:
        """Why the exception is not valid, or None if it is."""
        return fault_of(self.reason, self.expires, today, longest_days)

    def covers(self, policy: str, manifest: Manifest) -> bool:
        """Whether this exception names that policy and that object."""
        return (self.policy, self.kind, self.namespace, self.name) == (
            policy,
            manifest.kind,
            manifest.namespace,
            manifest.name,
        )


TRIED_IN = "default"
"""The namespace in which a cluster's admission is asked about tripwires; those of TRIPWIRES name none that exists."""


@dataclass(frozen=True)
class PolicySet:
    """All policies, the known-bad objects that they must refuse, and the exceptions from them."""

    policies: tuple[Policy, ...]
    tripwires: tuple[Manifest, ...]
    exceptions: tuple[PolicyException, ...] = ()

    @property
    def every_tripwire(self) -> tuple[Manifest, ...]:
        """The shared known-bad objects, and those of single policies."""
        return (*self.tripwires, *(one.tripwire for one in self.policies if one.tripwire is not None))


def load_policy_set(snapshot: Snapshot) -> PolicySet:
    """Every policy of a repository.

    Raises UntrustedError if there are no policies, or if the gate cannot compute which objects one of them applies to:
    a gate whose policies are in doubt must not answer.
    """
    try:
        return _load(snapshot)
    except InputError as error:
        raise UntrustedError(f"a policy cannot be used: {error}") from error


def _load(snapshot: Snapshot) -> PolicySet:
    folders: dict[str, set[str]] = {}
    exceptions: list[PolicyException] = []
    for entry in snapshot.entries(POLICIES):
        parts = entry.path.split("/")
        if parts[-1] == POLICY_FILE and (len(parts) != 3 or parts[1] == "exceptions"):
            # Argo CD applies every file with that name below the folder.
            fix = f"Only {POLICIES}/NAME/{POLICY_FILE} is judged and tested: use another name, or another place."
            raise InputError.at(entry.path, "", "would reach the cluster, but is not a policy", fix)
        if entry.path.startswith(f"{EXCEPTIONS}/"):
            if entry.path.endswith(".md"):
                continue
            if entry.kind != "file" or not entry.path.endswith(".yaml"):
                raise InputError.at(entry.path, "", "is not an exception file", "Keep only NAME.yaml files here.")
            exceptions.append(_exception(read_text(snapshot, entry.path), entry.path))
        elif len(parts) >= 3:
            if entry.kind not in ("file", "executable"):
                raise InputError.at(entry.path, "", f"is a {entry.kind}", "Keep regular files only.")
            folders.setdefault(parts[1], set()).add("/".join(parts[2:]))
        elif entry.kind != "file" or entry.path not in (TRIPWIRES, SHARED_TEXT, f"{POLICIES}/README.md"):
            fix = f"Write a policy as {POLICIES}/NAME/policy.yaml: nothing reads policies elsewhere."
            raise InputError.at(entry.path, "", "is not the folder of a policy", fix)
    policies = []
    for name, files in sorted(folders.items()):
        if POLICY_FILE not in files:
            raise InputError.at(
                f"{POLICIES}/{name}/{POLICY_FILE}", "", "is missing", "Every policy folder has one: add it."
            )
        policies.append(_policy(snapshot, name))
    if not policies:
        raise InputError.at(POLICIES, "", "holds no policy", "Restore the policies: nothing would be judged.")
    return PolicySet(tuple(policies), _tripwires(snapshot), tuple(exceptions))


def _policy(snapshot: Snapshot, name: str) -> Policy:
    file = f"{POLICIES}/{name}/{POLICY_FILE}"
    # Read it as a manifest: Argo CD applies it like a service's manifest.
    manifests = read_manifests(read_text(snapshot, file).encode(), file)
    if len(manifests) != 1 or manifests[0].prefix:
        raise InputError.at(file, "", "is not exactly one object", "Write one policy, and nothing else.")
    document, value = manifests[0].document, manifests[0].value

    def wrong(field: str, message: str, fix: str) -> InputError:
        return InputError.at(file, field, message, fix, document.line(*field.split(".")))

    if (value.get("apiVersion"), value.get("kind")) != ("policies.kyverno.io/v1", "ValidatingPolicy"):
        raise wrong("kind", "is not a policies.kyverno.io/v1 ValidatingPolicy", "Write the policy in that form.")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != name:
        raise wrong("metadata.name", "differs from the folder's name", f"Write name: {name}.")
    for key in sorted(set(metadata) - _METADATA_FIELDS):
        raise wrong(f"metadata.{key}", "could keep the policy out of the cluster", "Use name and annotations only.")
    for key in sorted(metadata.get("annotations") or {}):
        if not str(key).startswith(_ANNOTATIONS):
            fix = f"Use annotations of {' and '.join(_ANNOTATIONS)} only."
            raise wrong("metadata.annotations", f"{key} could keep the policy out of the cluster", fix)
    annotations = metadata.get("annotations")
    texts = {
        key: " ".join(text.split())
        for key in (FIX, TRIPWIRE_MESSAGE)
        if isinstance(annotations, dict) and isinstance(text := annotations.get(key), str) and text.strip()
    }
    if FIX not in texts:
        raise wrong("metadata.annotations", f"lacks {FIX}", "Write in one sentence what to write instead.")
    spec = value.get("spec")
    if not isinstance(spec, dict):
        raise wrong("spec", "is missing", "Write the policy's spec.")
    for key in sorted(set(spec) - _SPEC_FIELDS):
        raise wrong(f"spec.{key}", "could narrow what the policy applies to", "Use resourceRules only.")
    if spec.get("validationActions") != ["Deny"]:
        raise wrong("spec.validationActions", "is not [Deny]", "Write validationActions: [Deny].")
    if spec.get("failurePolicy", "Fail") != "Fail":
        raise wrong("spec.failurePolicy", "is not Fail", "Write failurePolicy: Fail.")
    evaluation = spec.get("evaluation", {})
    if evaluation not in ({}, {"mode": "Kubernetes"}):
        raise wrong("spec.evaluation", "could switch the policy off somewhere", "Remove it, or write mode: Kubernetes.")
    if spec.get("autogen", {}).get("podControllers", {}).get("controllers") != []:
        raise wrong(
            "spec.autogen", "derives rules that cannot be computed here", "Write podControllers: {controllers: []}."
        )
    if not isinstance(spec.get("validations"), list) or not spec["validations"]:
        raise wrong("spec.validations", "is empty", "Write at least one validation.")
    rules, tripwire = _rules(spec, wrong), None
    if TRIPWIRE_MESSAGE not in texts:
        tripwire = _own_tripwire(snapshot, name)
        texts[TRIPWIRE_MESSAGE] = str(tripwire.value["metadata"]["annotations"][EXPECTED_MESSAGE])
    return Policy(name, file, value, rules, texts[FIX], texts[TRIPWIRE_MESSAGE], tripwire)


_PLAIN = (
    "Use plain resourceRules only. A rule for one environment or namespace is a check of the gate: see 'A rule for one "
    "environment' in policies/README.md."
)


def _rules(spec: Mapping[str, Any], wrong: Any) -> tuple[ResourceRule, ...]:
    constraints = spec.get("matchConstraints")
    if not isinstance(constraints, dict) or set(constraints) != {"resourceRules"}:
        raise wrong("spec.matchConstraints", "must hold resourceRules alone", _PLAIN)
    rules = []
    for rule in constraints["resourceRules"]:
        if not isinstance(rule, dict) or set(rule) - _RULE_FIELDS or rule.get("scope", "*") != "*":
            raise wrong("spec.matchConstraints.resourceRules", "narrows a rule", f"Use only {sorted(_RULE_FIELDS)}.")
        if not {"CREATE", "*"} & set(rule.get("operations", ())):
            raise wrong("spec.matchConstraints.resourceRules", "leaves out CREATE", "Name CREATE, and UPDATE.")
        resources = set(rule.get("resources", ()))
        if not {"UPDATE", "*"} & set(rule["operations"]) and not resources <= _SCALED_BY_CONTROLLERS:
            told = "leaves out UPDATE, so that a good object can be changed into a bad one"
            raise wrong("spec.matchConstraints.resourceRules", told, "Name CREATE and UPDATE.")
        if "pods" in resources and _ADDED_LATER not in resources:
            told = f"names pods without {_ADDED_LATER}, so that a running pod can get any container"
            raise wrong("spec.matchConstraints.resourceRules", told, f"Write resources: [pods, {_ADDED_LATER}].")
        rules.append(ResourceRule(*(frozenset(rule[key]) for key in ("apiGroups", "apiVersions", "resources"))))
    if not rules:
        raise wrong("spec.matchConstraints.resourceRules", "is empty", "Name at least one resource.")
    return tuple(rules)


def _tripwires(snapshot: Snapshot) -> tuple[Manifest, ...]:
    manifests = read_manifests(read_text(snapshot, TRIPWIRES).encode(), TRIPWIRES)
    names = [manifest.name for manifest in manifests]
    for manifest in manifests:
        if names.count(manifest.name) > 1:
            fix = "Give each known-bad object a name of its own: answers are told apart by it."
            raise InputError.at(TRIPWIRES, "metadata.name", f"{manifest.name} is there twice", fix)
        if not manifest.name.startswith(TRIPWIRE_PREFIX):
            raise InputError.at(
                TRIPWIRES,
                "metadata.name",
                f"{manifest.name!r} is not a reserved name",
                f"Start the name with {TRIPWIRE_PREFIX}.",
                manifest.line("metadata", "name"),
            )
    return tuple(manifests)


def _own_tripwire(snapshot: Snapshot, name: str) -> Manifest:
    """The object of the policy's first case, under a name that no real object may have. Raises InputError."""
    file = f"{POLICIES}/{name}/{CASES}"
    if snapshot.read(file) is None:
        message = f"is missing, and the policy's annotations lack {TRIPWIRE_MESSAGE}"
        raise InputError.at(
            file, "", message, "Write an object that the policy must refuse: the first is its tripwire."
        )
    bad = bad_objects(snapshot, name)
    if not bad:
        raise InputError.at(file, "bases", "hold no case", "Write one that the policy must refuse: it is its tripwire.")
    metadata = {**bad[0].value["metadata"], "name": f"{TRIPWIRE_PREFIX}-{name}"}
    if "namespace" in metadata:
        metadata["namespace"] = TRIED_IN  # the gate and a cluster's admission judge the same object
    return replace(bad[0], value={**bad[0].value, "metadata": metadata})


def _exception(text: str, file: str) -> PolicyException:
    document = read_mapping(text, file)
    value = document.value
    names = ("policy", "kind", "namespace", "name", "reason", "approved_by", "expires")
    for key in sorted(set(value) ^ {"schema_version", *names}):
        message = "is not a field of an exception" if key in value else "is missing"
        raise InputError.at(file, key, message, f"Write schema_version, {', '.join(names)}.", document.line(key))
    for key in names:
        if not isinstance(value[key], str) or not value[key].strip():
            raise InputError.at(file, key, "is not text", "Write it as quoted text.", document.line(key))
    if value["schema_version"] != 1:
        raise InputError.at(file, "schema_version", "is not 1", "Write 1.", document.line("schema_version"))
    try:
        expires = date.fromisoformat(value["expires"])
    except ValueError as error:
        raise InputError.at(
            file, "expires", "is not a date", 'Write a day such as "2027-01-31".', document.line("expires")
        ) from error
    return PolicyException(file=file, expires=expires, **{key: value[key] for key in names[:-1]})
