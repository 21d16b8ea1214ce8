"""Provides a small synchronous client of the Kubernetes API: objects of any kind come and go as plain dictionaries.

`kubeconfig_file` reads the credentials of a kubeconfig; requests go through httpx.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from neuroscale.core.errors import NeuroscaleError
from neuroscale.core.waiting import repeatedly
from neuroscale.kube import kubeconfig_file
from neuroscale.kube.control_plane import ADMINISTRATOR, ControlPlane

Object = dict[str, Any]

_MANAGER = "neuroscale"
_TIMEOUT = 30.0
_LOG_TIMEOUT = 15.0  # a node that does not answer holds up the others
_PAGE = 500
_ATTEMPTS = 4
_FIRST_PAUSE = 0.5  # seconds
_OVERLOADED = (429, 502, 503, 504)


class KubernetesError(NeuroscaleError):
    """An API server cannot be reached or refuses; the message names the server and the request."""


class RefusedError(KubernetesError):
    """The API server answered with an error. `code` is the HTTP status, `reason` Kubernetes' word for it."""

    def __init__(self, message: str, code: int, reason: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.causes = causes


@dataclass(frozen=True)
class Cause:
    """One field that the API server refuses, such as `spec.replicas`."""

    field: str
    message: str


@dataclass(frozen=True)
class Kind:
    """A kind as the server lists it; `group_version` such as `apps/v1`, `plural` as in addresses."""

    group_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()


@dataclass(frozen=True, order=True)
class Identity:
    """The identity of an object. `namespace` is empty for kinds of the whole cluster."""

    group_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Identity:
        """The identity in an object's own fields."""
        metadata = found.get("metadata") or {}
        return cls(found["apiVersion"], found["kind"], metadata.get("namespace") or "", metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Cluster:
    """An API server. May be used by several threads; `close` ends its connections.

    `kubeconfig` and `context` (None: the usual ones) lead other programs to the same server as the same user.
    `own_options`: the options by which this project's commands ask it, if they are not these.
    """

    def __init__(
        self,
        url: str,
        client: httpx.Client,
        name: str,
        kubeconfig: Path | None = None,
        context: str | None = None,
    ) -> None:
        self.url = url
        self.name = name
        self.kubeconfig = kubeconfig
        self.context = context
        self.own_options: tuple[str, ...] | None = None
        self._client = client
        self._kinds: dict[str, dict[str, Kind]] = {}
        self._lock = threading.Lock()

    @classmethod
    def of_control_plane(cls, plane: ControlPlane, user: str = ADMINISTRATOR) -> Cluster:
        """A control plane on this machine, as one of its users."""
        context = plane.client_context(user)
        client = httpx.Client(base_url=plane.url, verify=context, timeout=_TIMEOUT, trust_env=False, limits=_LIMITS)
        return cls(plane.url, client, "the local platform", plane.kubeconfig_of(user))

    @property
    def options(self) -> list[str]:
        """The options by which other programs ask the same server as the same user."""
        file = [] if self.kubeconfig is None else [f"--kubeconfig={self.kubeconfig.absolute()}"]
        return file + ([] if self.context is None else [f"--context={self.context}"])

    @classmethod
    def of_kubeconfig(cls, path: Path | None, context: str | None) -> Cluster:
        """The cluster of a kubeconfig's context (None: `$KUBECONFIG` or `~/.kube/config`; its current context).

        Raises InputError if the file or the context cannot be used.
        """
        found = kubeconfig_file.connect(path, context, _TIMEOUT, _LIMITS)
        return cls(found.url, found.client, found.context, path, context)

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ kinds

    def kind(self, group_version: str, kind: str) -> Kind:
        """The server's entry of a kind. Raises RefusedError (404) if it has no such kind."""
        with self._lock:
            known = self._kinds.get(group_version)
        # A missing kind may have been installed in the meantime.
        if known is None or kind not in known:
            known = self._discover(group_version)
            with self._lock:
                self._kinds[group_version] = known
        if kind not in known:
            raise RefusedError(f"{self.name} knows no kind {kind} in {group_version}.", 404, "NotFound")
        return known[kind]

    def _discover(self, group_version: str) -> dict[str, Kind]:
        prefix = "/apis" if "/" in group_version else "/api"
        rows = self.request("GET", f"{prefix}/{group_version}")["resources"]
        return {
            row["kind"]: Kind(group_version, row["kind"], row["name"], row["namespaced"], frozenset(row["verbs"]))
            for row in rows
            if "/" not in row["name"]
        }

    def path(self, group_version: str, kind: str, namespace: str = "", name: str = "") -> str:
        """The address of an object, or of all of a kind (in a namespace, or everywhere)."""
        known = self.kind(group_version, kind)
        parts = ["/apis" if "/" in group_version else "/api", group_version]
        if known.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(known.plural)
        return "/".join([*parts, name] if name else parts)

    # ------------------------------------------------------------ objects

    def get(self, group_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """The object, or None if it does not exist."""
        try:
            return self.request("GET", self.path(group_version, kind, namespace, name))
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def list(self, group_version: str, kind: str, namespace: str = "", labels: str = "") -> list[Object]:
        """All objects of a kind (empty `namespace`: of every namespace), page by page."""
        found: list[Object] = []
        parameters = {"limit": str(_PAGE), **({"labelSelector": labels} if labels else {})}
        address = self.path(group_version, kind, namespace)
        while True:
            page = self.request("GET", address, parameters)
            found += [{"apiVersion": group_version, "kind": kind, **item} for item in page["items"]]
            following = page["metadata"].get("continue")
            if not following:
                return found
            parameters["continue"] = following

    def log(
        self, namespace: str, pod: str, container: str, bounds: Mapping[str, str], most_bytes: int, until: float
    ) -> str:
        """The log of a container, as far as `bounds` go (the API's own: `tailLines`, `previous`), and its first
        `most_bytes`. `until`: when its reading ends, by `time.monotonic`; it raises KubernetesError then."""
        address = f"{self.path('v1', 'Pod', namespace, pod)}/log"
        parameters = {"container": container, "limitBytes": str(most_bytes), **bounds}
        until = min(until, time.monotonic() + _LOG_TIMEOUT)
        held = b""
        try:
            with self._client.stream("GET", address, params=parameters, timeout=_LOG_TIMEOUT) as response:
                if not response.is_success:
                    response.read()
                    raise self._refused("GET", address, response)
                for chunk in response.iter_bytes():
                    held += chunk
                    if len(held) >= most_bytes:
                        break
                    if time.monotonic() > until:
                        raise KubernetesError(f"{self.name} ({self.url}) sends {address} too slowly.")
        except httpx.HTTPError as error:
            told = f"{self.name} ({self.url}) does not answer GET {address}: {type(error).__name__}."
            raise KubernetesError(told) from error
        return held[:most_bytes].decode("utf-8", errors="replace")

    def apply(
        self, wanted: Object, *, dry_run: bool = False, strict: bool = True, force: bool = True, manager: str = _MANAGER
    ) -> Object:
        """Make an object as it is wanted, by server-side apply, and return it.

        `dry_run`: ask only. `strict`: refuse unknown and duplicate fields. Raises RefusedError.
        """
        identity = Identity.of(wanted)
        address = self.path(identity.group_version, identity.kind, self._namespace(identity), identity.name)
        parameters = {"fieldManager": manager, "force": json.dumps(force)}
        parameters |= {"fieldValidation": "Strict"} if strict else {}
        parameters |= {"dryRun": "All"} if dry_run else {}
        # JSON is valid YAML.
        return self.request("PATCH", address, parameters, wanted, "application/apply-patch+yaml")

    def create(self, wanted: Object, *, dry_run: bool = False) -> Object:
        """Create an object. Raises RefusedError, with 409 if it exists already."""
        identity = Identity.of(wanted)
        address = self.path(identity.group_version, identity.kind, self._namespace(identity))
        return self.request("POST", address, {"dryRun": "All"} if dry_run else {}, wanted)

    def merge(self, identity: Identity, change: Object, subresource: str = "") -> Object:
        """Change fields of an object by a merge patch."""
        address = self.path(identity.group_version, identity.kind, identity.namespace, identity.name)
        address += f"/{subresource}" if subresource else ""
        return self.request("PATCH", address, {"fieldManager": _MANAGER}, change, "application/merge-patch+json")

    def delete(self, identity: Identity) -> bool:
        """Delete an object and the objects that it owns; returns whether it existed."""
        address = self.path(identity.group_version, identity.kind, identity.namespace, identity.name)
        try:
            self.request("DELETE", address, {"propagationPolicy": "Background"})
        except RefusedError as error:
            if error.code == 404:
                return False
            raise
        return True

    def watch(
        self, group_version: str, kind: str, namespace: str = "", *, seconds: float, since: str = "", fields: str = ""
    ) -> Iterator[tuple[str, Object]]:
        """Events (ADDED, MODIFIED, DELETED and the object) for some seconds; without `since` also for existing objects.

        `fields`: a field selector.
        """
        parameters = {"watch": "true", "timeoutSeconds": str(max(1, int(seconds))), "allowWatchBookmarks": "false"}
        parameters |= {"resourceVersion": since} if since else {}
        parameters |= {"fieldSelector": fields} if fields else {}
        address = self.path(group_version, kind, namespace)
        try:
            with self._client.stream("GET", address, params=parameters, timeout=seconds + _TIMEOUT) as response:
                if response.is_error:
                    response.read()
                    raise self._refused("GET", address, response)
                for line in response.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise RefusedError(status.get("message", ""), status.get("code", 0), status.get("reason", ""))
                    yield event["type"], event["object"]
        except httpx.HTTPError as error:
            raise KubernetesError(f"{self.name} ({self.url}) broke off a watch: {type(error).__name__}.") from error

    def _namespace(self, identity: Identity) -> str:
        return identity.namespace or "default"

    # ------------------------------------------------------------ requests

    def request(
        self,
        method: str,
        address: str,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Object:
        """The object in the server's answer. Raises RefusedError, and KubernetesError if it does not answer.

        A request that can be repeated is repeated if the connection breaks or the server is overloaded.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        repeatable = method in ("GET", "DELETE") or "apply-patch" in content_type

        def ask() -> Object:
            try:
                response = self._client.request(method, address, params=parameters, content=content, headers=headers)
            except httpx.HTTPError as error:
                told = f"{self.name} ({self.url}) does not answer {method} {address}: {type(error).__name__}."
                raise KubernetesError(told) from error
            if not response.is_success:
                raise self._refused(method, address, response)
            return _decoded(response)

        def again(error: Exception) -> bool:
            if isinstance(error, RefusedError):
                return repeatable and error.code in _OVERLOADED
            return repeatable and isinstance(error, KubernetesError)

        return repeatedly(ask, attempts=_ATTEMPTS, again=again, first_pause=_FIRST_PAUSE)

    def _refused(self, method: str, address: str, response: httpx.Response) -> RefusedError:
        status = _decoded(response)
        message = status.get("message") or f"{self.name} answers {method} {address} with {response.status_code}."
        rows: Iterable[Any] = (status.get("details") or {}).get("causes") or ()
        causes = tuple(Cause(row.get("field", ""), row.get("message", "")) for row in rows)
        return RefusedError(message, response.status_code, status.get("reason") or "", causes)


_LIMITS = httpx.Limits(max_connections=32, max_keepalive_connections=32)


def _decoded(response: httpx.Response) -> Object:
    try:
        value = response.json()
    except ValueError:
        return {"message": response.text[:500]}
    return value if isinstance(value, dict) else {"message": response.text[:500]}
