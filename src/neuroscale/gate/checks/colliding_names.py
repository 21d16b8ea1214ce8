"""Finds services whose names collide: KServe makes objects of one name for both, or the platform has such an object.

For the service `chat` KServe (release 0.20) makes the HTTPRoutes `chat` and `chat-predictor`, and a Deployment, a
Service and an autoscaler `chat-predictor`. A service `chat-predictor` of the same namespace has a route of that name,
and KServe overwrites the existing route without asking. A service `default-deny` would claim the NetworkPolicy of the
team's whole namespace, and Argo CD does not deploy an object that belongs to another application.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neuroscale.core.errors import InputError
from neuroscale.gate.judged_files import GateInput
from neuroscale.manifests.kserve_pods import COMPONENTS
from neuroscale.manifests.objects import Manifest, read_manifests
from neuroscale.repo.layout import MANIFESTS, RENDERED_KINDS, TENANCY, ServicePath
from neuroscale.repo.snapshot import Snapshot, child_folders

GROUP, KIND = "serving.kserve.io", "InferenceService"
_FILE = next(name for name, kind in RENDERED_KINDS.items() if kind == KIND)
_Identity = tuple[str, str, str]
"""Environment, namespace and name."""


def made_names(service: Manifest) -> frozenset[str]:
    """The names of the objects that KServe makes for an InferenceService."""
    spec = service.value.get("spec")
    if not isinstance(spec, dict):
        return frozenset({service.name, f"{service.name}-predictor"})
    names = {service.name, _predictor(service.name, spec.get("predictor"))}
    names |= {f"{service.name}-{part}" for part in COMPONENTS[1:] if spec.get(part) is not None}
    for canary in spec["canary"] if isinstance(spec.get("canary"), list) else ():
        names.add(_predictor(service.name, canary.get("predictor") if isinstance(canary, dict) else None))
    predictor = spec.get("predictor")
    if isinstance(predictor, dict) and predictor.get("workerSpec") is not None:
        names.add(f"{service.name}-predictor-worker")
    return frozenset(names)


def _predictor(service: str, predictor: Any) -> str:
    own = predictor.get("name") if isinstance(predictor, dict) else None
    return f"{service}-{own}-predictor" if isinstance(own, str) and own else f"{service}-predictor"


def name_collisions(given: GateInput, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest, Manifest, str]]:
    """Pairs of services of one namespace for which KServe makes an object of the same name, and that name.

    The first is among `manifests`; the second may be a service that the change leaves as it is.
    """
    judged = [one for one in manifests if one.group == GROUP and one.kind == KIND]
    fixed = [*_neighbours(given, judged)]
    makers: dict[tuple[str, str, str], dict[_Identity, Manifest]] = {}
    told: set[tuple[_Identity, _Identity]] = set()
    for number, one in enumerate([*fixed, *judged]):
        identity = _identity(one)
        for name in sorted(made_names(one)):
            others = makers.setdefault((_environment(one), one.namespace, name), {})
            for other in others:
                if number >= len(fixed) and other != identity and (identity, other) not in told:
                    told.add((identity, other))
                    yield one, others[other], name
            others.setdefault(identity, one)


def taken_names(given: GateInput, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest, str]]:
    """Each object of a service whose name the platform itself uses in the team's namespace, and the platform's file."""
    wanted = {one.identity: one for one in manifests if one.service is not None}
    names = {one.name.encode() for one in wanted.values()}
    for entry in given.snapshot.entries(TENANCY) if wanted else ():
        data = given.snapshot.read(entry.path) or b""
        if not any(name in data for name in names):
            continue
        try:
            found = read_manifests(data, entry.path)
        except InputError:
            continue  # the platform's check reports it
        for one in found:
            if one.identity in wanted:
                yield wanted[one.identity], entry.path


def _identity(service: Manifest) -> _Identity:
    return _environment(service), service.namespace, service.name


def _environment(service: Manifest) -> str:
    return service.service.environment if service.service else ""


def _neighbours(given: GateInput, judged: Iterable[Manifest]) -> Iterator[Manifest]:
    """The other services of the same environments whose names begin alike, as the repository has them."""
    seen = {one.path for one in given.services}
    names: dict[str, set[str]] = {}
    for one in judged:
        if one.service is not None:
            names.setdefault(one.service.environment, set()).add(one.name)
    for environment, wanted in sorted(names.items()):
        found = (ServicePath.of(f"{one}/") for one in child_folders(given.snapshot, f"{MANIFESTS}/{environment}"))
        paths = {path for path in found if path is not None and _begins_alike(path.service, wanted)}
        for path in sorted(paths - seen, key=lambda path: path.folder):
            yield from _read(given.snapshot, path)


def _begins_alike(name: str, others: set[str]) -> bool:
    """Whether one of the names is the other one, a dash and more: all names that collide have that form."""
    parts = name.split("-")
    shorter = {"-".join(parts[:length]) for length in range(1, len(parts))}
    return bool(shorter & others) or any(other.startswith(f"{name}-") for other in others)


def _read(snapshot: Snapshot, path: ServicePath) -> Iterator[Manifest]:
    file = f"{path.folder}/{_FILE}"
    data = snapshot.read(file)
    try:
        found = read_manifests(data, file, path) if data is not None else []
    except InputError:
        return  # another change's file: the gate judges it when it changes
    yield from (one for one in found if one.group == GROUP and one.kind == KIND)
