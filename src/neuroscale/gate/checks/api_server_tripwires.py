"""Holds known-bad and known-good objects, and the answer that an API server must give to each in every run."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from neuroscale.core.errors import UntrustedError
from neuroscale.kube.client import Object, RefusedError
from neuroscale.manifests.objects import TRIPWIRE_PREFIX

KindName = tuple[str, str]
_TRIPWIRE_FIELD = "neuroscaleTripwire"


@dataclass(frozen=True)
class Tripwire:
    """A known-bad object, and the words with which an API server refuses it."""

    value: Object
    words: str


def _object(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": f"{TRIPWIRE_PREFIX}-{name}"}, **fields}


def _deployment(name: str, label: str = "a", memory: str = "1Gi") -> Object:
    container = {"name": "main", "image": "example", "resources": {"limits": {"memory": memory}}}
    template = {"metadata": {"labels": {"app": label}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    return _object("apps/v1", "Deployment", name, spec=spec)


def _service(name: str, port: int) -> Object:
    return _object("v1", "Service", name, spec={"ports": [{"port": port}], "selector": {"app": "a"}})


def _policy(name: str, generated: Object) -> Object:
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


def tripwires(kinds: Iterable[KindName]) -> list[Tripwire]:
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
            reaction = "took it" if answer is None else f"said: {answer.message}"
            raise UntrustedError(
                f"the API server did not refuse the tripwire {name}: '{tripwire.words}'; it {reaction}"
            )


def check_good(answers: Sequence[RefusedError | None]) -> None:
    """Raises UntrustedError for an object of `GOOD` that the server refused."""
    for value, answer in zip(GOOD, answers, strict=True):
        if answer is not None:
            raise UntrustedError(f"the API server refused a {value['kind']} that is known to be good: {answer.message}")
