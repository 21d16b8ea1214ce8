"""Holds known-bad and known-good objects, and the answer that an API server must give to each in every run.

Sends every object to a real API server, as a strict server-side dry-run: the third level of the schema checks.

The run starts the server itself. The server holds nothing but the custom resource definitions that the set-up pins, and
never stores a judged object. A webhook, an APIService or a custom resource definition of a change is a dry-run like any
other object, and has no effect. So an object of a kind that only the change itself defines is a finding.

Every run also sends known-bad objects, which the server must refuse, and known-good ones, which it must take.

Turns an API server's refusals of objects into findings at the fields that it names.

Asks an API server by dry-run which kinds it knows, and whether it would accept each object.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.waiting import attempts, repeatedly
from neuroscale.core.yaml_io import Path as FieldPath
from neuroscale.core.yaml_io import dotted, parts
from neuroscale.gate.evaluation import Evaluation, manifest_finding
from neuroscale.gate.verdict import Finding
from neuroscale.kube.client import Cluster, Kind, KubernetesError, RefusedError
from neuroscale.kube.ephemeral import EphemeralServer
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest

_Object = dict[str, Any]
_KindName = tuple[str, str]
_TRIPWIRE_FIELD = "neuroscaleTripwire"


@dataclass(frozen=True)
class Tripwire:
    """A known-bad object, and the words with which an API server refuses it."""

    value: _Object
    words: str


def _object(api_version: str, kind: str, name: str, **fields: Any) -> _Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": f"{TRIPWIRE_PREFIX}-{name}"}, **fields}


def _deployment(name: str, label: str = "a", memory: str = "1Gi") -> _Object:
    container = {"name": "main", "image": "example", "resources": {"limits": {"memory": memory}}}
    template = {"metadata": {"labels": {"app": label}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return _object("apps/v1", "Deployment", name, spec=spec)


def _service(name: str, port: int) -> _Object:
    return _object("v1", "Service", name, spec={"ports": [{"port": port}], "selector": {"app": "a"}})


def _policy(name: str, generated: _Object) -> _Object:
    return _object("policies.kyverno.io/v1", "GeneratingPolicy", name, spec={"generate": [generated]})


GOOD = (_deployment("good"), _service("good", 80), _policy("good", {"expression": "true"}))
_FIXED = (
    Tripwire(_deployment("quantity", memory="1Gigs"), "quantities must match the regular expression"),
    Tripwire(_deployment("selector", label="b"), "`selector` does not match template `labels`"),
    Tripwire(_service("port", 70000), "must be between 1 and 65535"),
    # The smallest of the pinned definitions that has a rule in CEL about an object alone.
    Tripwire(_policy("rule", {}), "exactly one of expression or template must be set"),
)
_LLM = "LLMInferenceService"


def tripwires(kinds: Iterable[_KindName]) -> list[Tripwire]:
    """The tripwires of every run, and one for KServe's rules of LLMInferenceService if `kinds` names that kind."""
    spec = {"replicas": 1, "scaling": {"minReplicas": 1, "maxReplicas": 2}}
    words = "replicas and scaling are mutually exclusive"
    rules = [
        Tripwire(_object(api_version, kind, "rule", spec=spec), words)
        for api_version, kind in sorted(kinds)
        if kind == _LLM and api_version in ("serving.kserve.io/v1alpha1", "serving.kserve.io/v1alpha2")
    ]
    return [*_FIXED, *rules]


@functools.cache
def root_tripwire(api_version: str, kind: str) -> Tripwire:
    """An object of a kind with a field that it does not have."""
    value = _object(api_version, kind, kind.lower(), **{_TRIPWIRE_FIELD: True})
    return Tripwire(value, f'unknown field "{_TRIPWIRE_FIELD}"')


def check_tripwires(asked: Sequence[Tripwire], answers: Sequence[RefusedError | None]) -> None:
    """Raises UntrustedError for a tripwire that the server took, or refused with other words than the tripwire's."""
    for tripwire, answer in zip(asked, answers, strict=True):
        if answer is None or tripwire.words not in answer.message:
            name = f"{tripwire.value['apiVersion']} {tripwire.value['kind']} {tripwire.value['metadata']['name']}"
            told = "took it" if answer is None else f"said: {answer.message}"
            raise UntrustedError(f"the API server did not refuse the tripwire {name}: '{tripwire.words}'; it {told}")


def check_good(answers: Sequence[RefusedError | None]) -> None:
    """Raises UntrustedError for an object of `GOOD` that the server refused."""
    for value, answer in zip(GOOD, answers, strict=True):
        if answer is not None:
            raise UntrustedError(f"the API server refused a {value['kind']} that is known to be good: {answer.message}")


GATE = "server"

_KIND_FIX = (
    "Correct apiVersion and kind, or add the module with its definition to the set-up. A definition in the change "
    "itself does not count: nothing of a change is installed."
)
_STRICT = re.compile(r'(unknown|duplicate) field "((?:[^"\\]|\\.)*)"')
_GO_FIELD = re.compile(r"(cannot unmarshal .*) into Go struct field \w+\.([\w.]+) of type (\S+)")
_QUANTITY_ERROR = "quantities must match the regular expression"
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+|[KMGTPE]i|[numkMGTPE])?")
_QUANTITIES = frozenset({"limits", "requests", "capacity", "hard", "overhead", "sizeLimit"})
_PART = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


def unknown_kind(manifest: Manifest, why: str) -> Finding:
    """A finding for an object that the server cannot judge."""
    return manifest_finding(GATE, "unknown-kind", manifest, ("kind",), why, _KIND_FIX)


def refused(manifest: Manifest, answer: RefusedError, version: str) -> list[Finding]:
    """One finding for each field that the server names, or one for the object."""
    fix = f"Write what {manifest.api_version} {manifest.kind} of Kubernetes {version} takes."
    fields = [(cause.field.replace("<nil>", ""), cause.message) for cause in answer.causes if cause.message]
    if not fields:
        fields = _fields_in(answer.message, manifest.value)
    return [
        manifest_finding(GATE, "refused", manifest, _field_path(field), f"{field or 'the object'}: {message}", fix)
        for field, message in dict.fromkeys(fields)
    ]


def _fields_in(message: str, value: _Object) -> list[tuple[str, str]]:
    """The fields that a message without causes is about."""
    if found := _STRICT.findall(message):
        return [(field, f"{what} field") for what, field in found]
    if go := _GO_FIELD.search(message):
        return [(go[2], f"{go[1]}, {go[3]} is wanted")]
    if _QUANTITY_ERROR in message and (paths := list(_bad_quantities(value))):
        return [(dotted(path), f"{given!r} is not a quantity such as 500m or 1Gi") for path, given in paths]
    return [("", message)]


def _bad_quantities(value: _Object) -> Iterable[tuple[FieldPath, str]]:
    """Texts in the place of a quantity that are not quantities. The server does not say which one it means."""
    for path, text in parts(value):
        if isinstance(text, str) and not _QUANTITIES.isdisjoint(path) and not _QUANTITY.fullmatch(text):
            yield path, text


def _field_path(field: str) -> FieldPath:
    """`spec.ports[0].port` as a path."""
    parts = [name or index for name, index in _PART.findall(field)]
    return tuple(int(part) if part.isdigit() else part for part in parts)


_AT_ONCE = 8
_ATTEMPTS = 3
_FIRST_PAUSE = 0.4  # seconds
_KNOWS_WITHIN = 90.0  # seconds until the server takes objects of its definitions; less than one on idle cores
_ASK = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "neuroscale-gate"}
_REFUSALS = frozenset({400, 403, 409, 413, 422})
"""The HTTP statuses that judge the object. Any other error is about the server itself."""
_AGAIN = frozenset({429, 500, 502, 503, 504})
_DEPLOYED_BY = frozenset({"create", "get", "patch"})
_API_VERSION = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[a-z0-9]+")


def kinds_of(values: Iterable[_Object]) -> list[_KindName]:
    """The API version and kind of each object, sorted, each once."""
    return sorted({(str(value["apiVersion"]), str(value["kind"])) for value in values})


def needed_definitions(crds: Sequence[_Object], wanted: Sequence[_KindName]) -> list[_Object]:
    """The definitions of the wanted kinds: a large one keeps the server busy, so it gets no others."""
    return [found for crd in crds if (found := _reduced(crd, wanted)) is not None]


class KnownKinds:
    """The kinds that the server knows: its own, and those of the definitions with which it was started."""

    def __init__(self, cluster: Cluster, definitions: Sequence[_Object], wanted: Sequence[_KindName]) -> None:
        self._cluster = cluster
        custom = {name for crd in definitions for name in _names(crd)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            kinds = pool.map(lambda name: self._find(*name, custom=name in custom), wanted)
            self._kinds = dict(zip(wanted, kinds, strict=True))

    def of(self, value: Mapping[str, Any]) -> Kind | str:
        """The server's name of the object's kind, or the reason why the server cannot judge it."""
        return self._kinds[value["apiVersion"], value["kind"]]

    def _find(self, api_version: str, kind: str, *, custom: bool) -> Kind | str:
        for _ in attempts(_KNOWS_WITHIN, pause=0.05):
            found = self._look(api_version, kind)
            # A kind is ready once the server no longer answers 'not found'; if that never happens, the run ends.
            if not custom or (isinstance(found, Kind) and self._answers(found)):
                return found
        raise UntrustedError(f"the API server did not take {api_version} {kind} within {_KNOWS_WITHIN:g} s.")

    def _look(self, api_version: str, kind: str) -> Kind | str:
        unknown = f"the API server knows no kind {kind} in {api_version}"
        if not _API_VERSION.fullmatch(api_version):
            return unknown
        try:
            found = self._cluster.kind(api_version, kind)
        except RefusedError as error:
            if error.code == 404:
                return unknown
            raise
        if not found.verbs >= _DEPLOYED_BY:
            return f"{api_version} {kind} is a request to an API server, not an object that can be deployed"
        return found

    def _answers(self, kind: Kind) -> bool:
        try:
            _create(self._cluster, kind, root_tripwire(kind.group_version, kind.kind).value)
        except RefusedError as error:
            return error.code != 404
        return True


def _reduced(crd: _Object, wanted: Sequence[_KindName]) -> _Object | None:
    """A definition with only the served versions that the run needs, or None if it needs none of them.

    Conversion is left out: it would call a webhook, and a dry-run validates in the version that the request names.
    """
    spec = crd["spec"]
    versions = [
        version
        for version in spec["versions"]
        if version["served"] and (f"{spec['group']}/{version['name']}", spec["names"]["kind"]) in wanted
    ]
    if not versions:
        return None
    stored = next((version for version in versions if version["storage"]), versions[0])["name"]
    kept = {key: value for key, value in spec.items() if key != "conversion"}
    kept["versions"] = [{**version, "storage": version["name"] == stored} for version in versions]
    # Definitions in *.k8s.io need the note on their approval.
    metadata = {key: crd["metadata"][key] for key in ("name", "annotations") if key in crd["metadata"]}
    return {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": metadata, "spec": kept}


def _names(crd: _Object) -> list[_KindName]:
    spec = crd["spec"]
    return [(f"{spec['group']}/{version['name']}", spec["names"]["kind"]) for version in spec["versions"]]


class Questions:
    """Asks about objects, several at a time."""

    def __init__(self, cluster: Cluster, kinds: KnownKinds) -> None:
        self._cluster = cluster
        self._kinds = kinds

    def all(self, values: Sequence[_Object]) -> list[RefusedError | None]:
        """The refusal of each object, or None if the server takes it. Raises UntrustedError if an answer is missing."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._ask, values))  # the first failure leaves out the others
        if len(answers) != len(values):
            raise UntrustedError(f"the API server answered for {len(answers)} of {len(values)} objects.")
        return answers

    def _ask(self, value: _Object) -> RefusedError | None:
        kind = self._kinds.of(value)
        if isinstance(kind, str):
            raise UntrustedError(f"{kind}; every run needs this kind.")
        try:
            repeatedly(
                lambda: _create(self._cluster, kind, value),
                attempts=_ATTEMPTS,
                again=_may_ask_again,
                first_pause=_FIRST_PAUSE,
            )
        except RefusedError as error:
            if error.code == 409 and error.reason == "AlreadyExists":
                return self._ask_about_existing(kind, value)
            if error.code not in _REFUSALS:
                raise
            return error
        return None

    def _ask_about_existing(self, kind: Kind, value: _Object) -> RefusedError | None:
        """Ask about an object that an empty server already has, such as the namespace `default`: as a change of it."""
        try:
            answer = self._cluster.apply(value, dry_run=True, manager=_ASK["fieldManager"])
        except RefusedError as error:
            if error.code not in _REFUSALS:
                raise
            return error
        _check_echo(kind, value, answer)
        return None


def _may_ask_again(error: Exception) -> bool:
    """Whether to repeat the dry-run: the connection broke, or the server failed or was too busy."""
    return error.code in _AGAIN if isinstance(error, RefusedError) else isinstance(error, KubernetesError)


def _create(cluster: Cluster, kind: Kind, value: _Object) -> None:
    """Ask whether the object could be created. Raises RefusedError.

    Not by server-side apply: that answers an unknown field with an internal error (500), which names no field.
    """
    address = cluster.path(kind.group_version, kind.kind, value["metadata"].get("namespace") or "default")
    _check_echo(kind, value, cluster.request("POST", address, _ASK, value))


def _check_echo(kind: Kind, value: _Object, answer: Mapping[str, Any]) -> None:
    """Raises UntrustedError if a success is about another object."""
    metadata = answer.get("metadata") or {}
    told = (answer.get("apiVersion"), answer.get("kind"), metadata.get("name"), bool(metadata.get("uid")))
    if told != (kind.group_version, kind.kind, value["metadata"]["name"], True):
        raise UntrustedError(
            f"the API server was asked about {kind.kind} {value['metadata']['name']}, but answered about {told}."
        )


def evaluate_by_server(
    manifests: Sequence[Manifest], schemas: SchemaSet, server: EphemeralServer, version: str
) -> Evaluation:
    """Ask about every object. `version`: the API server's version, which findings name.

    Raises UntrustedError when the server does not start, does not answer for each object, or takes a known-bad one.
    """
    fixed = tripwires({(one.api_version, one.kind) for one in manifests})
    wanted = kinds_of([*(one.value for one in manifests), *(one.value for one in fixed), *GOOD])
    definitions = needed_definitions(schemas.crds(), wanted)
    try:
        cluster = server.start(definitions)
        kinds = KnownKinds(cluster, definitions, wanted)
        unknown = {index: why for index, one in enumerate(manifests) if isinstance(why := kinds.of(one.value), str)}
        known = [one for index, one in enumerate(manifests) if index not in unknown]
        bad = [*fixed, *(root_tripwire(*name) for name in sorted({(one.api_version, one.kind) for one in known}))]
        asking = Questions(cluster, kinds)
        asked = asking.all([*(one.value for one in known), *(one.value for one in bad), *GOOD])
    except (KubernetesError, UntrustedError) as error:
        raise UntrustedError(f"{error}{server.logs()}") from error
    answers, of_tripwires, of_good = asked[: len(known)], asked[len(known) : -len(GOOD)], asked[-len(GOOD) :]
    check_tripwires(bad, of_tripwires)
    check_good(of_good)
    findings = [
        *(unknown_kind(manifests[index], why) for index, why in unknown.items()),
        *(
            finding
            for manifest, answer in zip(known, answers, strict=True)
            if answer is not None
            for finding in refused(manifest, answer, version)
        ),
    ]
    return Evaluation(
        tuple(findings),
        evaluated=len(answers) + len(unknown),
        expected=len(manifests),
        unit="objects",
        tripwires=len(bad),
        caught=len(bad),
        detail=f"Kubernetes {version}",
    )
