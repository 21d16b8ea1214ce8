"""Judges the ExternalSecret of a service, by which External Secrets writes its API key from the organisation's store.

Set-up has no schema of External Secrets, and no policy judges the kind. So its content is held against the whole form
that the settings of the service's environment and the service's name give: it can read no other entry of the store, and
write no other Secret. Whether External Secrets takes the object, only a cluster shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from neuroscale.catalog.cluster_settings import SecretStore
from neuroscale.core.errors import UntrustedError
from neuroscale.core.yaml_io import Path, dotted
from neuroscale.gate.evaluation import manifest_finding
from neuroscale.gate.object_diff import ABSENT, raw_changes
from neuroscale.gate.verdict import Finding
from neuroscale.manifests.objects import Manifest, tripwire
from neuroscale.rendering.object_names import ENTRY, secret_name
from neuroscale.repo.layout import KEY_FILE, POSSIBLE_KINDS, ServicePath

KIND = ("external-secrets.io/v1", POSSIBLE_KINDS[KEY_FILE])
_WITHOUT_STORE, _OTHER = "no-secret-store", "stored-key"
_FREE = ("refreshInterval", "refreshPolicy")
"""How often the key is read decides neither what is read nor what is written."""


def is_stored_key(manifest: Manifest) -> bool:
    """Whether an object is a service's ExternalSecret, which this module judges and no schema does."""
    return manifest.service is not None and (manifest.api_version, manifest.kind) == KIND


def stored_key_findings(gate: str, manifest: Manifest, store: SecretStore | None) -> Iterator[Finding]:
    """What an ExternalSecret of a service does beside writing that service's own key from the environment's store."""
    assert manifest.service is not None
    environment, service = manifest.service.environment, manifest.service.service
    if store is None:
        message = f"environments.{environment} of the settings has no secret_store, so nothing writes this Secret"
        fix = "Remove the file, and run `neuroscale keys`. Or merge a secret_store first, and run `neuroscale replan`."
        yield manifest_finding(gate, _WITHOUT_STORE, manifest, ("kind",), message, fix)
        return
    spec = manifest.value.get("spec")
    spec = {name: value for name, value in spec.items() if name not in _FREE} if isinstance(spec, dict) else spec
    for path, wanted, value in raw_changes(_spec(manifest, service, store), spec):
        place: Path = ("spec", *path)
        if wanted is ABSENT:
            message = f"{dotted(place)} is not a field of the ExternalSecret of a service's key"
        elif value is ABSENT:
            message = f"{dotted(place)} is missing: it is {wanted!r} for this service and its environment's store"
        else:
            message = f"{dotted(place)} is {value!r}; it is {wanted!r} for this service and its environment's store"
        fix = "Run `neuroscale replan` for the service: its plan takes the store from the settings."
        yield manifest_finding(gate, _OTHER, manifest, place, message, fix)


def check_tripwires(gate: str) -> int:
    """Raise UntrustedError unless both rules find a known-bad object; returns how many objects they saw."""
    store = SecretStore(kind="external-secrets", store="tripwire")
    good = tripwire(*KIND, {"namespace": "tripwire"}, spec={})
    good = replace(good, service=ServicePath("tripwire", "bad"))
    good.value["spec"] = _spec(good, "bad", store)
    bad = replace(good, value={**good.value, "spec": {**good.value["spec"], "dataFrom": [{"find": {}}]}})
    cases: tuple[tuple[Manifest, SecretStore | None, list[str]], ...]
    cases = ((good, store, []), (good, None, [_WITHOUT_STORE]), (bad, store, [_OTHER]))
    for manifest, of_environment, rules in cases:
        if [finding.rule for finding in stored_key_findings(gate, manifest, of_environment)] != rules:
            raise UntrustedError(f"the kinds check did not tell a good ExternalSecret from a bad one ({rules}).")
    return sum(len(rules) for *_, rules in cases)


def _spec(manifest: Manifest, service: str, store: SecretStore) -> dict[str, Any]:
    """The spec that writes the Secret which `neuroscale keys` would make. Its labels are those of the object itself."""
    secret = secret_name(service)
    labels = manifest.value["metadata"].get("labels")
    return {
        "secretStoreRef": {"name": store.store, "kind": store.store_kind},
        "target": {
            "name": secret,
            "creationPolicy": "Owner",
            "deletionPolicy": "Retain",
            "template": {"type": "Opaque", "metadata": {"labels": labels}},
        },
        "data": [
            {"secretKey": ENTRY, "remoteRef": {"key": store.key(manifest.namespace, secret), "property": ENTRY}},
        ],
    }
