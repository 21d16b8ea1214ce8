"""Asks a live cluster about mutants of test objects: an API server whose admission asks Kyverno with the policies.

Nothing is stored: every request is a dry run.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from neuroscale.core.errors import UntrustedError
from neuroscale.gate.mutation.mutant import Mutant, Object
from neuroscale.kube.client import Cluster, RefusedError
from neuroscale.policies.policy_set import EXPECTED_MESSAGE

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
