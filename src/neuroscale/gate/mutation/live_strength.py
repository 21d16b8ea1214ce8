"""Measures the strength of a running cluster's admission: which mutants of test objects it lets through.

KServe's webhook fills in and renames fields before policies see them. So a mutant that the cluster admits is sent once
more to where Kyverno judges nothing, and what the cluster would store there is put to the gate: if the policy lets that
pass, KServe has mended the mutant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuroscale.cluster.admission_tripwires import try_tripwires
from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.core.yaml_io import flow
from neuroscale.gate.mutation.judge_live import JudgedLive, Live, judge_live, sendable, would_store
from neuroscale.gate.mutation.judge_resources import Stage, judge_resources
from neuroscale.gate.mutation.mutant import Mutant, Object
from neuroscale.gate.mutation.resource_mutants import objects, resource_mutants
from neuroscale.gate.mutation.statement import read_statement
from neuroscale.gate.mutation.strength import excuse, sampled
from neuroscale.kube.client import Cluster, RefusedError
from neuroscale.policies.description import BAD, GOOD
from neuroscale.policies.policy_set import PolicySet
from neuroscale.repo.snapshot import Snapshot

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
        for which in (GOOD, BAD)
        for one in objects(snapshot, name, which)
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
