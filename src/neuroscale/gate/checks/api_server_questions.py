"""Asks an API server by dry-run which kinds it knows, and whether it would accept each object."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.core.waiting import attempts, repeatedly
from neuroscale.gate.checks.api_server_tripwires import KindName, root_tripwire
from neuroscale.kube.client import Cluster, Kind, KubernetesError, Object, RefusedError

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


def kinds_of(values: Iterable[Object]) -> list[KindName]:
    """The API version and kind of each object, sorted, each once."""
    return sorted({(str(value["apiVersion"]), str(value["kind"])) for value in values})


def needed_definitions(crds: Sequence[Object], wanted: Sequence[KindName]) -> list[Object]:
    """The definitions of the wanted kinds: a large one keeps the server busy, so it gets no others."""
    return [reduced for crd in crds if (reduced := _reduced(crd, wanted)) is not None]


class KnownKinds:
    """The kinds that the server knows: its own, and those of the definitions with which it was started."""

    def __init__(self, cluster: Cluster, definitions: Sequence[Object], wanted: Sequence[KindName]) -> None:
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
            known = self._look(api_version, kind)
            # A kind is ready once the server no longer answers 'not found'; if that never happens, the run ends.
            if not custom or (isinstance(known, Kind) and self._answers(known)):
                return known
        raise UntrustedError(f"the API server did not take {api_version} {kind} within {_KNOWS_WITHIN:g} s.")

    def _look(self, api_version: str, kind: str) -> Kind | str:
        unknown = f"the API server knows no kind {kind} in {api_version}"
        if not _API_VERSION.fullmatch(api_version):
            return unknown
        try:
            known = self._cluster.kind(api_version, kind)
        except RefusedError as error:
            if error.code == 404:
                return unknown
            raise
        if not known.verbs >= _DEPLOYED_BY:
            return f"{api_version} {kind} is a request to an API server, not an object that can be deployed"
        return known

    def _answers(self, kind: Kind) -> bool:
        try:
            _create(self._cluster, kind, root_tripwire(kind.group_version, kind.kind).value)
        except RefusedError as error:
            return error.code != 404
        return True


def _reduced(crd: Object, wanted: Sequence[KindName]) -> Object | None:
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


def _names(crd: Object) -> list[KindName]:
    spec = crd["spec"]
    return [(f"{spec['group']}/{version['name']}", spec["names"]["kind"]) for version in spec["versions"]]


class Questions:
    """Asks about objects, several at a time."""

    def __init__(self, cluster: Cluster, kinds: KnownKinds) -> None:
        self._cluster = cluster
        self._kinds = kinds

    def all(self, values: Sequence[Object]) -> list[RefusedError | None]:
        """The refusal of each object, or None if the server takes it. Raises UntrustedError if an answer is missing."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._ask, values))  # the first failure leaves out the others
        if len(answers) != len(values):
            raise UntrustedError(f"the API server answered for {len(answers)} of {len(values)} objects.")
        return answers

    def _ask(self, value: Object) -> RefusedError | None:
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

    def _ask_about_existing(self, kind: Kind, value: Object) -> RefusedError | None:
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


def _create(cluster: Cluster, kind: Kind, value: Object) -> None:
    """Ask whether the object could be created. Raises RefusedError.

    Not by server-side apply: that answers an unknown field with an internal error (500), which names no field.
    """
    address = cluster.path(kind.group_version, kind.kind, value["metadata"].get("namespace") or "default")
    _check_echo(kind, value, cluster.request("POST", address, _ASK, value))


def _check_echo(kind: Kind, value: Object, answer: Mapping[str, Any]) -> None:
    """Raises UntrustedError if a success is about another object."""
    metadata = answer.get("metadata") or {}
    answered = (answer.get("apiVersion"), answer.get("kind"), metadata.get("name"), bool(metadata.get("uid")))
    if answered != (kind.group_version, kind.kind, value["metadata"]["name"], True):
        raise UntrustedError(
            f"the API server was asked about {kind.kind} {value['metadata']['name']}, but answered about {answered}."
        )
