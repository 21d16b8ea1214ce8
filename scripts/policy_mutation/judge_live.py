"""Asks a live cluster about mutants of test objects, and counts those that its admission lets through.

Nothing is stored: every request is a dry run. KServe's webhook fills in and renames fields before policies see them. So
a mutant that the cluster admits is sent once more to where Kyverno judges nothing, and what the cluster would store
there is put to the gate: if the policy lets that pass, KServe has mended the mutant.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from neuroscale.cluster.admission_tripwires import try_tripwires
from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import flow
from neuroscale.kube.client import Cluster, RefusedError
from neuroscale.policies.bad_objects import EXPECTED_MESSAGE
from neuroscale.policies.policy_set import PolicySet
from neuroscale.repo.snapshot import Snapshot
from policy_mutation.judge_resources import Stage, judge_resources
from policy_mutation.mutant import Mutant, Object
from policy_mutation.resource_mutants import good_and_bad, resource_mutants
from policy_mutation.statement import read_statement
from policy_mutation.strength import excuse, sampled

_AT_ONCE = 8
_VERSION = re.compile(r"[a-z0-9.-]+(/[a-z0-9]+)?")
_DENIED = re.compile(r'admission webhook "vpol\.[^"]+" denied the request: (?P<said>.*)', re.DOTALL)
_POLICY = re.compile(r"(?:^|; )Policy (?P<policy>[a-z0-9-]+) (?:failed|error): ")
_REFUSALS = (400, 403, 404, 422)
"""The statuses with which an API server answers that it refuses an object; others say that it could not judge it."""
_UNJUDGED = "failed calling webhook"
_DENIED_BY_WEBHOOK = " denied the request: "
"""The API server's words for the answer of a webhook; where a webhook does not answer, they are others."""
_OWN = ("name", "labels", "annotations")  # what a person writes in an object's metadata
_EVERY = 200  # mutants between two lines of progress


class Live(StrEnum):
    """A live cluster's answer. `UNPROVEN`: refused as its good object is, by something that judges before policies.

    `MENDED`: admitted, but what the cluster would store pleases the policy, because a webhook has changed it before.
    """

    POLICY = "policy"
    SERVER = "the API server"
    EQUIVALENT = "equivalent"
    UNPROVEN = "not proven"
    MENDED = "mended"
    ADMITTED = "admitted"


@dataclass(frozen=True)
class JudgedLive:
    """A mutant, the cluster's answer, and its words."""

    mutant: Mutant
    answer: Live
    said: str = ""


def sendable(mutant: Mutant) -> bool:
    """Whether a client can send the mutant: it is one object, of a version that has an address.

    A change of the namespace alone is not sent: no cluster has all namespaces that the mutants name.
    """
    value = mutant.value
    return (
        value is not None
        and not mutant.operator.startswith("namespace:")
        and isinstance(value.get("apiVersion"), str)
        and _VERSION.fullmatch(value["apiVersion"]) is not None
    )


def judge_live(
    mutants: Sequence[Mutant],
    bases: Mapping[tuple[str, str, str], Object],
    cluster: Cluster,
    namespace: str,
    *,
    excused: Callable[[Mutant], str],
    told: Callable[[str], None],
) -> list[JudgedLive]:
    """The cluster's answer about each mutant that can be sent, in their order.

    `bases`: the test objects by policy, kind and name. `namespace`: where policies judge and nothing else does.
    `excused`: why a mutant may be admitted, or "". Raises UntrustedError if the cluster could not judge an object.
    """
    sent = [mutant for mutant in mutants if sendable(mutant)]
    keys = sorted({_base(mutant) for mutant in sent})
    done = 0

    def ask(value: Object) -> str | None:
        nonlocal done
        done += 1
        if done % _EVERY == 0:
            told(f"the cluster has judged {done} of {len(keys) + len(sent)}")
        return _refusal(cluster, value, namespace)

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        of_bases = dict(zip(keys, pool.map(ask, (bases[key] for key in keys)), strict=True))
        said = list(pool.map(ask, (mutant.value or {} for mutant in sent)))
    found = []
    for mutant, words in zip(sent, said, strict=True):
        of_bad = EXPECTED_MESSAGE in (bases[_base(mutant)]["metadata"].get("annotations") or {})
        answer = _answer(mutant, words, of_bases[_base(mutant)], of_bad=of_bad)
        reason = excused(mutant) if answer in (Live.ADMITTED, Live.UNPROVEN) else ""
        found.append(JudgedLive(mutant, Live.EQUIVALENT if reason else answer, reason or words or ""))
    return found


def _base(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.policy, mutant.kind, mutant.base


def _answer(mutant: Mutant, said: str | None, of_base: str | None, *, of_bad: bool) -> Live:
    if said is None:
        return Live.ADMITTED
    if mutant.policy in _policies(said):
        return Live.POLICY
    if _policies(said):
        return Live.ADMITTED  # by this policy: that others refuse a minimal test object says nothing
    # Of a good object, a refusal before policies judge proves something only if the good object is not refused so.
    return Live.SERVER if of_bad or of_base is None or _policies(of_base) else Live.UNPROVEN


def _policies(said: str) -> set[str]:
    denied = _DENIED.fullmatch(said)
    return {match["policy"] for match in _POLICY.finditer(denied["said"])} if denied else set()


def _refusal(cluster: Cluster, value: Object, namespace: str) -> str | None:
    """The words with which the cluster refuses an object, or None if it would create it."""
    try:
        _created(cluster, value, namespace)
    except RefusedError as error:
        # KServe's webhook denies with 500 what it cannot read: a panic on a pod without containers.
        denied = error.code in _REFUSALS or _DENIED_BY_WEBHOOK in error.message
        if not denied or _UNJUDGED in error.message:
            named = f"{value['kind']} {value['metadata'].get('name')}"
            told = f"the cluster did not judge {named}, it answered with {error.code}: {error.message}"
            raise UntrustedError(told) from error
        return error.message
    return None


def would_store(cluster: Cluster, mutant: Mutant, namespace: str) -> Object | None:
    """The object that the cluster would store in a namespace, with the mutant's own one; None if it refuses it."""
    value = mutant.value or {}
    try:
        found = _created(cluster, value, namespace)
    except RefusedError:
        return None
    metadata = {key: one for key, one in found["metadata"].items() if key in _OWN}
    if value["metadata"].get("namespace"):
        metadata["namespace"] = value["metadata"]["namespace"]
    return {key: one for key, one in found.items() if key != "status"} | {"metadata": metadata}


def _created(cluster: Cluster, value: Object, namespace: str) -> Object:
    wanted = copy.deepcopy(value)
    if wanted["metadata"].get("namespace"):
        wanted["metadata"]["namespace"] = namespace
    place = wanted["metadata"].get("namespace") or ("" if _without_namespace(wanted) else namespace)
    address = cluster.path(wanted["apiVersion"], str(wanted["kind"]), place)
    return cluster.request("POST", address, {"dryRun": "All", "fieldValidation": "Strict"}, wanted)


def _without_namespace(value: Object) -> bool:
    return str(value["kind"]).startswith("Cluster")


_ONLY_IN_FILES = "held by a file alone"


@dataclass(frozen=True)
class LiveRow:
    """One policy's counts of what was sent; `not_proven` is refused as its good object is, before policies judge."""

    policy: str
    sent: int
    by_policy: int
    by_server: int
    equivalents: int
    mended: int
    not_proven: int
    admitted: int


@dataclass(frozen=True)
class LiveStrength:
    """All answers. `not_sent`: how many mutants were not sent, by the reason."""

    judged: tuple[JudgedLive, ...]
    rows: tuple[LiveRow, ...]
    not_sent: dict[str, int]

    def of(self, answer: Live) -> list[JudgedLive]:
        """The mutants with this answer."""
        return [one for one in self.judged if one.answer is answer]


def measure_live(
    snapshot: Snapshot,
    policy_set: PolicySet,
    names: Sequence[str],
    schemas: SchemaSet,
    cluster: Cluster,
    folder: Path,
    *,
    judged_in: str,
    unjudged_in: str,
    told: Callable[[str], None],
    every: int = 1,
    workers: int = 1,
) -> LiveStrength:
    """Send the mutants of the named policies' test objects, or one in `every`, to a cluster. Nothing is stored.

    `judged_in`: a namespace in which policies judge and nothing else does; `unjudged_in`: one in which they do not.
    `folder`: an empty scratch folder. Raises UntrustedError if a policy does not refuse its tripwire there, or if the
    cluster could not judge an object, and KubernetesError if the cluster does not answer.
    """
    silent = sorted({*try_tripwires(cluster, policy_set).silent} & {*names})
    if silent:
        raise UntrustedError(
            f"the cluster does not refuse the tripwires of {', '.join(silent)} in these policies' words, so what it "
            "admits proves nothing. Bring this repository's policies to it first."
        )
    statements = {name: read_statement(snapshot, name) for name in names}
    mutants = sampled(
        (one for name in names for one in resource_mutants(snapshot, name, statements[name], schemas)), every
    )
    bases = {
        (name, str(one["kind"]), str(one["metadata"]["name"])): one
        for name in names
        for objects in good_and_bad(snapshot, name)
        for one in objects
    }
    unknown = _unknown_kinds(cluster, bases.values())
    sent = [one for one in mutants if sendable(one) and one.kind not in unknown]
    not_sent = Counter(f"of a kind that the cluster lacks: {one.kind}" for one in mutants if one.kind in unknown)
    not_sent[_ONLY_IN_FILES] = sum(not sendable(one) for one in mutants if one.kind not in unknown)
    judged = judge_live(
        sent,
        bases,
        cluster,
        judged_in,
        excused=lambda mutant: excuse(mutant, statements[mutant.policy], "admission"),
        told=told,
    )
    judged = _without_mended(judged, policy_set, schemas, cluster, unjudged_in, folder, workers)
    return LiveStrength(tuple(judged), tuple(_rows(names, judged)), {key: one for key, one in not_sent.items() if one})


def _unknown_kinds(cluster: Cluster, bases: Iterable[Object]) -> set[str]:
    found = set()
    for version, kind in sorted({(str(one["apiVersion"]), str(one["kind"])) for one in bases}):
        try:
            cluster.kind(version, kind)
        except RefusedError as error:
            if error.code != 404:
                raise
            found.add(kind)
    return found


def _without_mended(
    judged: Sequence[JudgedLive],
    policy_set: PolicySet,
    schemas: SchemaSet,
    cluster: Cluster,
    unjudged_in: str,
    folder: Path,
    workers: int,
) -> list[JudgedLive]:
    stored: dict[str, Mutant] = {}
    for one in judged:
        found = would_store(cluster, one.mutant, unjudged_in) if one.answer is Live.ADMITTED else None
        if found is not None:
            stored[one.mutant.name] = replace(one.mutant, value=found, text=flow(found))
    again = judge_resources(
        list(stored.values()),
        policy_set,
        schemas,
        folder,
        excused=lambda _: "",
        workers=workers,
        told=lambda _: None,
    )
    mended = {one.mutant.name for one in again if one.stage is Stage.NOBODY}
    return [replace(one, answer=Live.MENDED) if one.mutant.name in mended else one for one in judged]


def _rows(names: Sequence[str], judged: Sequence[JudgedLive]) -> list[LiveRow]:
    rows = []
    for name in names:
        answers = Counter(one.answer for one in judged if one.mutant.policy == name)
        rows.append(
            LiveRow(
                name,
                sent=answers.total(),
                by_policy=answers[Live.POLICY],
                by_server=answers[Live.SERVER],
                equivalents=answers[Live.EQUIVALENT],
                mended=answers[Live.MENDED],
                not_proven=answers[Live.UNPROVEN],
                admitted=answers[Live.ADMITTED],
            )
        )
    return rows
