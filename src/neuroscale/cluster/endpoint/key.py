"""Makes and reads the API key of a service: its container takes VLLM_API_KEY from a Secret that is never in Git."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscale.cluster.command_lines import ANY_CLUSTER, CommandLines, command_lines
from neuroscale.cluster.pod_state import SERVER
from neuroscale.core.errors import InputError
from neuroscale.core.secret_text import SecretText, read_secret_file
from neuroscale.core.validation import items, part
from neuroscale.kube.client import Cluster, Identity, Object, RefusedError
from neuroscale.manifests.objects import COST_CENTER, OWNER
from neuroscale.rendering.object_names import ENTRY, VARIABLE, secret_name

KEY_VARIABLE = "NEUROSCALE_API_KEY"
KEY_FILE_VARIABLE = "NEUROSCALE_API_KEY_FILE"

_BYTES = 32
_SHORTEST, _LARGEST = 16, 4096
_ALLOWED = re.compile(r"[\x21-\x7e]+")
_SERVICE_KIND = ("serving.kserve.io/v1beta1", "InferenceService")
_COPIED_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/managed-by", OWNER, COST_CENTER)


@dataclass(frozen=True)
class Reference:
    """The entry of a Secret from which a container takes its key."""

    name: str
    entry: str = ENTRY


@dataclass(frozen=True)
class Ensured:
    """A service's key, and whether it was made just now."""

    key: SecretText
    created: bool


def reference(service: Object) -> Reference | None:
    """The entry from which an InferenceService, or a pod of it, takes its key; None if its callers need no key."""
    spec = part(service, "spec", "predictor", "model") or part(service, "spec", "predictor")
    containers = [spec, *items(service, "spec", "predictor", "containers"), *items(service, "spec", "containers")]
    named = [one for one in containers if one.get("name") in (None, SERVER)] or containers
    for container in named:
        for variable in items(container, "env"):
            found = part(variable, "valueFrom", "secretKeyRef")
            if variable.get("name") == VARIABLE and found.get("name"):
                return Reference(str(found["name"]), str(found.get("key") or ENTRY))
    return None


def new_key() -> str:
    """A new key: 32 random bytes, as text that needs no quoting in a URL or a shell."""
    return secrets.token_urlsafe(_BYTES)


def from_environment() -> SecretText | None:
    """The key in $NEUROSCALE_API_KEY, else in the file (mode 0600) that $NEUROSCALE_API_KEY_FILE names; None without
    either.

    Raises InputError, whose message never holds the file's content.
    """
    if secret := os.environ.get(KEY_VARIABLE):
        return _checked(secret, f"${KEY_VARIABLE}", "Write the key alone there.")
    if path := os.environ.get(KEY_FILE_VARIABLE):
        secret = read_secret_file(Path(path), "the API key", _LARGEST)
        return _checked(secret, path, "Write the key alone there; one line break at its end is allowed.")
    return None


def read(cluster: Cluster, namespace: str, service: str, where: Reference | None = None) -> SecretText:
    """The key in a service's Secret. Raises InputError if the Secret is missing, or its key cannot be used."""
    where = where or Reference(secret_name(service))
    found = get(cluster, namespace, where.name)
    if found is None:
        raise InputError.at(
            f"the Secret {namespace}/{where.name}",
            "",
            "is missing, and without it the service's pods cannot start",
            f"Make it: {command_lines(cluster).own(f'key {service}')}",
        )
    return key_of(found, service, where.entry, command_lines(cluster))


def get(cluster: Cluster, namespace: str, name: str) -> Object | None:
    """The Secret, or None if it does not exist. Raises InputError if this user may not read it."""
    try:
        return cluster.get("v1", "Secret", name, namespace)
    except RefusedError as error:
        if error.code not in (401, 403):
            raise
        raise InputError.at(
            f"the Secret {namespace}/{name}",
            "",
            "is a Secret that you may not read",
            f"Ask the team that owns the service, or set ${KEY_VARIABLE} or ${KEY_FILE_VARIABLE}.",
        ) from error


def key_of(secret: Object, service: str, entry: str = ENTRY, lines: CommandLines = ANY_CLUSTER) -> SecretText:
    """The key in a Secret. Raises InputError if it cannot be used; the message does not show it."""
    metadata = part(secret, "metadata")
    where = f"the Secret {metadata.get('namespace')}/{metadata.get('name')}"
    encoded = part(secret, "data").get(entry)
    try:
        text = base64.b64decode(encoded or "", validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, TypeError, ValueError):
        text = "\0"
    return _checked(text, f"{where}: {entry}", f"Replace it: {lines.own(f'key {service} --rotate')}")


def ensure(cluster: Cluster, namespace: str, service: str, *, labels: Mapping[str, str] | None = None) -> Ensured:
    """Make a service's Secret with a new key if it is missing, and return the key that it holds.

    An existing key is never overwritten. The Secret is deleted with its service: an InferenceService in the cluster
    becomes the Secret's owner, and its labels are copied; `labels` are for a service that is not in the cluster yet.
    Raises InputError if the existing Secret cannot be used, KubernetesError.
    """
    owner = cluster.get(*_SERVICE_KIND, service, namespace)
    name = secret_name(service)
    there = get(cluster, namespace, name)
    if there is None:
        wanted = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace, **_belonging(service, owner, labels or {})},
            "type": "Opaque",
            "immutable": False,
            "data": {ENTRY: encoded(new_key())},
        }
        try:
            made = cluster.create(wanted)
        except RefusedError as error:
            if error.code in (401, 403):
                where, make = f"the Secret {namespace}/{name}", command_lines(cluster).own(f"key {service}")
                fix = f"Ask the platform's team to run: {make}"
                raise InputError.at(where, "", "is missing, and you may not create it", fix) from error
            if error.reason != "AlreadyExists":
                raise
            there = get(cluster, namespace, name) or {}
        else:
            return Ensured(key_of(made, service, lines=command_lines(cluster)), created=True)
    key = key_of(there, service, lines=command_lines(cluster))
    if owner is not None and not items(there, "metadata", "ownerReferences"):
        # The Secret was made before the service was in the cluster.
        identity = Identity("v1", "Secret", namespace, name)
        belonging = {"metadata": _belonging(service, owner, part(there, "metadata", "labels"))}
        with contextlib.suppress(RefusedError):  # a user who may only read it still gets the key
            cluster.merge(identity, belonging)
    return Ensured(key, created=False)


def check_stored(cluster: Cluster, namespace: str, service: str, file: str) -> None:
    """Raises InputError if the Secret is missing that External Secrets writes, by an ExternalSecret in `file`."""
    name = secret_name(service)
    if get(cluster, namespace, name) is None:
        message = "is missing: External Secrets writes it from the environment's secret store"
        raise InputError.at(f"the Secret {namespace}/{name}", "", message, f"Enter the key there, as {file} names it.")


def encoded(key: str) -> str:
    """A key as a Secret's `data` holds it."""
    return base64.b64encode(key.encode("ascii")).decode("ascii")


def _belonging(service: str, owner: Object | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """The metadata that ties a Secret to its service."""
    own = {"app.kubernetes.io/name": service, "app.kubernetes.io/managed-by": "neuroscale", **labels}
    if owner is None:
        return {"labels": own}
    copied = {name: str(value) for name, value in part(owner, "metadata", "labels").items() if name in _COPIED_LABELS}
    group_version, kind = _SERVICE_KIND
    reference = {"apiVersion": group_version, "kind": kind, "name": service, "uid": owner["metadata"]["uid"]}
    return {"labels": {**own, **copied}, "ownerReferences": [reference]}


def _checked(secret: str, where: str, fix: str) -> SecretText:
    if not secret:
        told = "holds no key, so the endpoint would be open to everybody"
        raise InputError.at(where, "", told, fix)
    if not _SHORTEST <= len(secret) <= _LARGEST or not _ALLOWED.fullmatch(secret):
        told = (
            f"holds text that is not a key: a key has {_SHORTEST} to {_LARGEST:,} characters without spaces or line "
            f"breaks"
        )
        raise InputError.at(where, "", told, fix)
    return SecretText(secret)
