"""The gate's third schema tier: every object is asked of a real API server, by a strict server-side dry-run.

The server is the run's own, and holds nothing but the custom resource definitions that the set-up pins. Nothing of what
is judged is ever stored in it: a webhook, an APIService or a custom resource definition of a change is asked about like
any other object and has no effect, so an object of a kind that only the change itself defines is a finding.

Every run asks about known-bad objects too, by the same way, and about known-good ones.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.retries import repeatedly
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import Path as FieldPath
from neuroscale.core.yaml_io import dotted
from neuroscale.gate.check import Evaluation, manifest_finding
from neuroscale.gate.verdict import Finding
from neuroscale.kube.client import Cluster, Kind, KubernetesError, RefusedError
from neuroscale.kube.ephemeral import EphemeralServer
from neuroscale.manifests.objects import TRIPWIRE_PREFIX, Manifest

GATE = "server"

_Object = dict[str, Any]
_KindName = tuple[str, str]

_AT_ONCE = 8
_ATTEMPTS = 3
_FIRST_PAUSE = 0.4  # seconds
_KNOWS_WITHIN = 90.0  # seconds from a definition to a kind that can be asked about; two on idle cores
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ASK = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "neuroscale-gate"}
_REFUSALS = frozenset({400, 403, 409, 413, 422})
"""The statuses that speak of the object. By any other the server says something of itself."""
_AGAIN = frozenset({429, 500, 502, 503, 504})
_DEPLOYED_BY = frozenset({"create", "get", "patch"})
_API_VERSION = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[a-z0-9]+")
_TRIPWIRE_FIELD = "neuroscaleTripwire"


def evaluate_by_server(
    manifests: Sequence[Manifest], schemas: SchemaSet, server: EphemeralServer, version: str
) -> Evaluation:
    """Ask about every object. `version` is the API server's, for people.

    Raises UntrustedError when the server does not start, does not answer for each object, or takes a known-bad one.
    """
    fixed = _tripwires({(one.api_version, one.kind) for one in manifests})
    try:
        cluster = server.start()
        kinds = _Kinds(
            cluster, schemas.crds(), [*(one.value for one in manifests), *(one.value for one in fixed), *_GOOD]
        )
        unknown = {index: why for index, one in enumerate(manifests) if isinstance(why := kinds.of(one.value), str)}
        known = [one for index, one in enumerate(manifests) if index not in unknown]
        tripwires = [
            *fixed,
            *(_root_tripwire(*name) for name in sorted({(one.api_version, one.kind) for one in known})),
        ]
        asking = _Asking(cluster, kinds)
        asked = asking.all([*(one.value for one in known), *(one.value for one in tripwires), *_GOOD])
    except (KubernetesError, UntrustedError) as error:
        raise UntrustedError(f"{error}{server.logs()}") from error
    answers, of_tripwires, of_good = asked[: len(known)], asked[len(known) : -len(_GOOD)], asked[-len(_GOOD) :]
    _check_tripwires(tripwires, of_tripwires)
    _check_good(of_good)
    findings = [
        *(_finding(manifests[index], "unknown-kind", why, _KIND_FIX, ("kind",)) for index, why in unknown.items()),
        *(
            finding
            for manifest, answer in zip(known, answers, strict=True)
            if answer is not None
            for finding in _refused(manifest, answer, version)
        ),
    ]
    return Evaluation(
        tuple(findings),
        evaluated=len(answers) + len(unknown),
        expected=len(manifests),
        unit="objects",
        tripwires=len(tripwires),
        caught=len(tripwires),
        detail=f"Kubernetes {version}",
    )


# ------------------------------------------------------------ kinds


class _Kinds:
    """What the server knows: its own kinds, and those of the pinned definitions that this run is about."""

    def __init__(self, cluster: Cluster, crds: Sequence[_Object], values: Iterable[_Object]) -> None:
        self._cluster = cluster
        wanted = sorted({(str(value["apiVersion"]), str(value["kind"])) for value in values})
        installed = [found for crd in crds if (found := _reduced(crd, wanted)) is not None]
        custom = {name for crd in installed for name in _names(crd)}
        # Each of the large ones keeps the server busy for seconds: so these alone, and at the same time.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._install, installed))
            kinds = pool.map(lambda name: self._find(*name, custom=name in custom), wanted)
            self._kinds = dict(zip(wanted, kinds, strict=True))

    def of(self, value: Mapping[str, Any]) -> Kind | str:
        """How the server calls the object's kind, or why it cannot be asked about it."""
        return self._kinds[value["apiVersion"], value["kind"]]

    def _install(self, crd: _Object) -> None:
        try:
            self._cluster.request("POST", _DEFINITIONS, {"fieldValidation": "Strict"}, crd)
        except RefusedError as error:
            if error.reason != "AlreadyExists":  # nobody else writes to this server
                raise

    def _find(self, api_version: str, kind: str, *, custom: bool) -> Kind | str:
        ends = time.monotonic() + _KNOWS_WITHIN
        while True:
            found = self._look(api_version, kind)
            # Established is when it answers otherwise than 'not found'; a definition that never is ends the run.
            if not custom or (isinstance(found, Kind) and self._answers(found)):
                return found
            if time.monotonic() > ends:
                raise UntrustedError(f"the API server did not take {api_version} {kind} within {_KNOWS_WITHIN:g} s.")
            time.sleep(0.05)

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
            return f"{api_version} {kind} is a question to an API server, and no object that can be deployed"
        return found

    def _answers(self, kind: Kind) -> bool:
        try:
            _create(self._cluster, kind, _root_tripwire(kind.group_version, kind.kind).value)
        except RefusedError as error:
            return error.code != 404
        return True


def _reduced(crd: _Object, wanted: Sequence[_KindName]) -> _Object | None:
    """A definition with the served versions that are asked about, or None where none of them is.

    Conversion is left out: it would call a webhook, and a dry-run validates in the version that it is asked in.
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


# ------------------------------------------------------------ asking


class _Asking:
    """Asks about objects, several at a time."""

    def __init__(self, cluster: Cluster, kinds: _Kinds) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._failure: BaseException | None = None

    def all(self, values: Sequence[_Object]) -> list[RefusedError | None]:
        """The refusal of each object, or None where it is taken. Raises where the server does not say."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._one, values))
        if len(answers) != len(values):
            raise UntrustedError(f"the API server answered for {len(answers)} of {len(values)} objects.")
        return answers

    def _one(self, value: _Object) -> RefusedError | None:
        if self._failure is not None:
            raise self._failure
        try:
            return self._ask(value)
        except BaseException as error:
            self._failure = error
            raise

    def _ask(self, value: _Object) -> RefusedError | None:
        kind = self._kinds.of(value)
        if isinstance(kind, str):
            raise UntrustedError(f"{kind}, which every run needs.")
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
        """The same for what an empty server has, such as the namespace `default`: as a change of it."""
        try:
            answer = self._cluster.apply(value, dry_run=True, manager=_ASK["fieldManager"])
        except RefusedError as error:
            if error.code not in _REFUSALS:
                raise
            return error
        _check_echo(kind, value, answer)
        return None


def _may_ask_again(error: Exception) -> bool:
    """Where the connection broke or the server is not up to it: a dry-run can be repeated."""
    return error.code in _AGAIN if isinstance(error, RefusedError) else isinstance(error, KubernetesError)


def _create(cluster: Cluster, kind: Kind, value: _Object) -> None:
    """Ask whether the object could be created. Raises RefusedError.

    In place of server-side apply, which answers an unknown field with an error of its own (500) and names no field.
    """
    address = cluster.path(kind.group_version, kind.kind, value["metadata"].get("namespace") or "default")
    _check_echo(kind, value, cluster.request("POST", address, _ASK, value))


def _check_echo(kind: Kind, value: _Object, answer: Mapping[str, Any]) -> None:
    """Whether a success is about this very object."""
    metadata = answer.get("metadata") or {}
    told = (answer.get("apiVersion"), answer.get("kind"), metadata.get("name"), bool(metadata.get("uid")))
    if told != (kind.group_version, kind.kind, value["metadata"]["name"], True):
        raise UntrustedError(
            f"the API server was asked about {kind.kind} {value['metadata']['name']}, answered {told}."
        )


# ------------------------------------------------------------ tripwires


@dataclass(frozen=True)
class _Tripwire:
    """A known-bad object, and the words with which an API server refuses it."""

    value: _Object
    words: str


def _object(api_version: str, kind: str, name: str, **fields: Any) -> _Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": f"{TRIPWIRE_PREFIX}-{name}"},
        **fields,
    }


def _deployment(name: str, label: str = "a", memory: str = "1Gi") -> _Object:
    container = {"name": "main", "image": "example", "resources": {"limits": {"memory": memory}}}
    template = {"metadata": {"labels": {"app": label}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return _object("apps/v1", "Deployment", name, spec=spec)


def _service(name: str, port: int) -> _Object:
    return _object("v1", "Service", name, spec={"ports": [{"port": port}], "selector": {"app": "a"}})


def _policy(name: str, generated: _Object) -> _Object:
    return _object("policies.kyverno.io/v1", "GeneratingPolicy", name, spec={"generate": [generated]})


_GOOD = (_deployment("good"), _service("good", 80), _policy("good", {"expression": "true"}))
_FIXED = (
    _Tripwire(_deployment("quantity", memory="1Gigs"), "quantities must match the regular expression"),
    _Tripwire(_deployment("selector", label="b"), "`selector` does not match template `labels`"),
    _Tripwire(_service("port", 70000), "must be between 1 and 65535"),
    # The smallest of the pinned definitions that has a rule in CEL about an object alone.
    _Tripwire(_policy("rule", {}), "exactly one of expression or template must be set"),
)
_LLM = "LLMInferenceService"


def _tripwires(kinds: Iterable[_KindName]) -> list[_Tripwire]:
    """Those of every run, and one for the rules of KServe's LLMInferenceService where a run holds such a thing."""
    spec = {"replicas": 1, "scaling": {"minReplicas": 1, "maxReplicas": 2}}
    words = "replicas and scaling are mutually exclusive"
    rules = [
        _Tripwire(_object(api_version, kind, "rule", spec=spec), words)
        for api_version, kind in sorted(kinds)
        if kind == _LLM and api_version in ("serving.kserve.io/v1alpha1", "serving.kserve.io/v1alpha2")
    ]
    return [*_FIXED, *rules]


@functools.cache
def _root_tripwire(api_version: str, kind: str) -> _Tripwire:
    """An object of a kind with a field that it does not have."""
    value = _object(api_version, kind, kind.lower(), **{_TRIPWIRE_FIELD: True})
    return _Tripwire(value, f'unknown field "{_TRIPWIRE_FIELD}"')


def _check_tripwires(tripwires: Sequence[_Tripwire], answers: Sequence[RefusedError | None]) -> None:
    for tripwire, answer in zip(tripwires, answers, strict=True):
        if answer is None or tripwire.words not in answer.message:
            name = f"{tripwire.value['apiVersion']} {tripwire.value['kind']} {tripwire.value['metadata']['name']}"
            told = "took it" if answer is None else f"said: {answer.message}"
            raise UntrustedError(f"the API server did not refuse the tripwire {name} by '{tripwire.words}'; it {told}")


def _check_good(answers: Sequence[RefusedError | None]) -> None:
    for value, answer in zip(_GOOD, answers, strict=True):
        if answer is not None:
            raise UntrustedError(f"the API server refused a {value['kind']} that is known to be good: {answer.message}")


# ------------------------------------------------------------ findings

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


def _refused(manifest: Manifest, answer: RefusedError, version: str) -> list[Finding]:
    """One finding for each field that the server names, or one for the object."""
    fix = f"Write what {manifest.api_version} {manifest.kind} of Kubernetes {version} takes."
    fields = [(cause.field.replace("<nil>", ""), cause.message) for cause in answer.causes if cause.message]
    if not fields:
        fields = _fields_in(answer.message, manifest.value)
    return [
        _finding(manifest, "refused", f"{field or 'the object'}: {message}", fix, _field_path(field))
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


def _bad_quantities(value: Any, path: FieldPath = (), *, inside: bool = False) -> Iterable[tuple[FieldPath, str]]:
    """Texts that stand where quantities do and are none. The server does not tell which it means."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _bad_quantities(item, (*path, str(key)), inside=inside or key in _QUANTITIES)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _bad_quantities(item, (*path, index))
    elif inside and isinstance(value, str) and not _QUANTITY.fullmatch(value):
        yield path, value


def _field_path(field: str) -> FieldPath:
    """`spec.ports[0].port` as a path."""
    parts = [name or index for name, index in _PART.findall(field)]
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _finding(manifest: Manifest, rule: str, message: str, fix: str, path: FieldPath) -> Finding:
    return manifest_finding(GATE, manifest, rule, message, fix, path)
